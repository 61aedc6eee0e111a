"""What others reached, on their photographs: to be read beside our numbers, never as a ranking."""

from dataclasses import dataclass, field
from pathlib import Path

from fundoscope.config import build, read_toml


@dataclass(frozen=True)
class Point:
    sensitivity: float
    specificity: float
    name: str = ""


@dataclass(frozen=True)
class Result:
    study: str
    short: str  # as in a legend
    data: str
    source: str
    url: str
    auc: float | None = None
    auc_low: float | None = None
    auc_high: float | None = None
    kappa: float | None = None
    note: str = ""
    points: tuple[Point, ...] = field(default_factory=tuple)


def published_results() -> tuple[Result, ...]:
    path = Path(__file__).with_name("published.toml")
    return tuple(build(Result, row, where=path.name) for row in read_toml(path)["result"])
