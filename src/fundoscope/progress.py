"""How long work reports itself: the library wraps what it iterates over, the command line draws the bar."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

Item = TypeVar("Item")


class Track(Protocol):
    """Wraps an iterable; `total` is how many items there will be, `label` what they are."""

    def __call__(self, items: Iterable[Item], *, total: int, label: str) -> Iterable[Item]: ...


def quiet(items: Iterable[Item], *, total: int, label: str) -> Iterable[Item]:  # noqa: ARG001
    """No bar: for callers that are not at a terminal."""
    return items
