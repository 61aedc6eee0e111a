"""What a user reads when something is wrong: one sentence, and a hint on what to do about it."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TypeVar

Value = TypeVar("Value")


class FundoscopeError(Exception):
    """A problem the user can act on. The command line prints it without a traceback."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        # Raised in worker processes too, and exceptions with two arguments do not unpickle by themselves.
        return type(self), (self.message, self.hint)


def pick(table: Mapping[str, Value], name: str, *, kind: str) -> Value:
    """The value called `name`, or an error that names the nearest one there is."""
    if name in table:
        return table[name]
    raise FundoscopeError(f"there is no {kind} called '{name}'", f"use {nearest(name, table)}")


def nearest(name: str, names: Mapping[str, object]) -> str:
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    if not close:  # a difference of case alone is the commonest slip, and difflib rates it low
        close = [known for known in names if known.lower() == name.lower()]
    return close[0] if close else "one of " + ", ".join(names)
