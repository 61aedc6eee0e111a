"""How many photographs arrive, and when: one month of arrivals from a seed.

Three kinds. A rate: requests come independently of each other (Poisson). A clinic day: how many come from each time of
day on, Poisson within each of those spans, the same every day or on working days. A trace: the moments themselves,
replayed as they were. A month has 30 days, as providers reckon it (720 hours), and begins on a Monday at midnight.

A clinic day is a CSV file `time,requests` whose times are times of day (08:00); a trace is one whose times are days and
times (2026-03-02T08:00:13), with a column of requests or, if every row is one request, without.
"""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time
from math import isfinite
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fundoscope.errors import FundoscopeError
from fundoscope.provenance import sha256_of

Floats = NDArray[np.float64]

HOUR_S, DAY_S, DAYS = 3600.0, 86400.0, 30
MONTH_S = DAYS * DAY_S
WEEKEND = (5, 6)


@dataclass(frozen=True)
class Traffic:
    """A rate for each span of the day, or the recorded moments of `trace_s`."""

    name: str
    starts_s: tuple[float, ...] = (0.0,)  # of the spans of a day, the first at midnight
    rates_per_s: tuple[float, ...] = (0.0,)
    working_days_only: bool = False
    trace_s: tuple[float, ...] = ()  # from the midnight before the first; repeated until the month is full
    trace_days: int = 0
    sha256: str = ""  # of the file it was read from

    def arrivals(self, seed: int, *, days: int = DAYS) -> Floats:
        """Moments in seconds from the start of the month, in order."""
        return self._replayed(days) if self.trace_s else self._drawn(seed, days)

    def _replayed(self, days: int) -> Floats:
        times = np.asarray(self.trace_s)
        rounds = -(-days // self.trace_days)
        found = (times + DAY_S * self.trace_days * np.arange(rounds)[:, None]).ravel()
        within: Floats = found[found < days * DAY_S]
        return within

    def _drawn(self, seed: int, days: int) -> Floats:
        draw = np.random.default_rng(seed)
        starts = (DAY_S * self._open(days)[:, None] + np.asarray(self.starts_s)).ravel()
        widths, rates = (np.tile(part, len(self._open(days))) for part in (self._widths(), self.rates_per_s))
        counts = draw.poisson(widths * rates)
        found = np.repeat(starts, counts) + draw.random(int(counts.sum())) * np.repeat(widths, counts)
        found.sort()
        return np.asarray(found)

    def _open(self, days: int) -> Floats:
        number = np.arange(days, dtype=np.float64)
        working: Floats = number[~np.isin(number % 7, WEEKEND)]
        return working if self.working_days_only else number

    def _widths(self) -> Floats:
        return np.diff(np.append(self.starts_s, DAY_S))

    def expected(self, *, days: int = DAYS) -> float:
        """How many requests, on average."""
        if self.trace_s:
            return float(len(self._replayed(days)))
        return len(self._open(days)) * float(np.dot(self._widths(), self.rates_per_s))

    @property
    def mean_per_s(self) -> float:
        return self.expected() / MONTH_S

    @property
    def open_days(self) -> int:
        """Of the month, those on which requests are to be expected."""
        if self.trace_s:
            return len(np.unique(self._replayed(DAYS) // DAY_S))
        return len(self._open(DAYS))

    @property
    def peak_per_s(self) -> float:
        """Of the busiest span; of a trace, of its busiest minute."""
        if self.trace_s:
            return float(np.bincount((np.asarray(self.trace_s) // 60).astype(np.int64)).max()) / 60
        return max(self.rates_per_s)

    def pieces(self) -> list[tuple[float, float]]:
        """(seconds of the month, rate) for closed forms, which know constant rates only; a trace by its hours."""
        if self.trace_s:
            counts = np.bincount((self._replayed(DAYS) // HOUR_S).astype(np.int64), minlength=DAYS * 24)
            return _gathered([(HOUR_S, count / HOUR_S) for count in counts.tolist()])
        open_days = len(self._open(DAYS))
        spans = [(width * open_days, r) for width, r in zip(self._widths().tolist(), self.rates_per_s, strict=True)]
        closed = (DAYS - open_days) * DAY_S
        return _gathered([*spans, (closed, 0.0)] if closed else spans)

    def scaled(self, factor: float) -> "Traffic":
        """The same days with `factor` times as many requests; a trace, which cannot be, as a rate."""
        if self.trace_s:
            return constant(factor * self.mean_per_s)
        return replace(self, rates_per_s=tuple(factor * rate for rate in self.rates_per_s))


def _gathered(pieces: list[tuple[float, float]]) -> list[tuple[float, float]]:
    seconds: dict[float, float] = {}
    for width, rate in pieces:
        seconds[rate] = seconds.get(rate, 0.0) + width
    return [(seconds[rate], rate) for rate in sorted(seconds)]


def constant(rate_per_s: float) -> Traffic:
    if not (isfinite(rate_per_s) and rate_per_s > 0):
        raise FundoscopeError(f"a rate of {rate_per_s:g} requests a second is no traffic", "give a number above 0")
    return Traffic(f"{rate_per_s:g} requests a second", rates_per_s=(rate_per_s,))


def monthly(requests: float) -> Traffic:
    """So many requests a month, at any time of day or night."""
    return replace(constant(requests / MONTH_S), name=f"{requests:,.0f} requests a month")


def working_hours(name: str, requests_per_month: float, *, opens: float = 8, closes: float = 16) -> Traffic:
    """Spread evenly over the open hours of the working days."""
    shape = Traffic(name, (0.0, opens * HOUR_S, closes * HOUR_S), (0.0, 1.0, 0.0), working_days_only=True)
    return shape.scaled(requests_per_month / shape.expected())


@dataclass(frozen=True)
class Screening:
    """Everybody with diabetes photographed: a twelfth of the year's photographs in a month, in the hours of clinics."""

    name: str
    people: int
    eyes: int = 2
    photographs: int = 2  # of each eye
    per_year: float = 1.0
    opens: float = 8.0
    closes: float = 16.0
    source: str = "as given"  # of the number of people
    region: str = ""  # a provider's own, in that country

    def __post_init__(self) -> None:
        if not (min(self.people, self.eyes, self.photographs) >= 1 and isfinite(self.per_year) and self.per_year > 0):
            raise FundoscopeError("a screening of nobody has no traffic", "give people, eyes and photographs above 0")
        if not 0 <= self.opens < self.closes <= 24:
            raise FundoscopeError(f"no clinic is open from {self.opens:g} to {self.closes:g}", "write it as 8-16")

    @property
    def photographs_per_year(self) -> float:
        return self.people * self.eyes * self.photographs * self.per_year

    def traffic(self) -> Traffic:
        often = "once a year" if self.per_year == 1 else f"{self.per_year:g} times a year"
        name = f"{self.name}: {self.people / 1e6:g} million people, {often}"
        return working_hours(name, self.photographs_per_year / 12, opens=self.opens, closes=self.closes)


COUNTRIES = {
    "brazil": Screening(
        "Brazil",
        16_800_000,
        source="adults with diabetes in 2019: IDF Diabetes Atlas, 9th edition",
        region="sa-east-1",
    )
}

# Of a rate: what people write -> seconds. A month has thirty days, a year twelve of those.
PER_S = {"s": 1.0, "min": 60.0, "h": HOUR_S, "day": DAY_S, "week": 7 * DAY_S, "month": MONTH_S, "year": 12 * MONTH_S}
PER_S |= {"second": 1.0, "sec": 1.0, "minute": 60.0, "hour": HOUR_S, "d": DAY_S}
RATE = re.compile(r"\s*(?P<number>[-+]?[0-9][0-9,_]*\.?[0-9]*(?:[eE][-+]?[0-9]+)?)\s*(?:/\s*(?P<per>[a-z]+)\s*)?")
RATE_HINT = "write 0.2/s, 300/hour, 5000/day or 1e6/month, or give a CSV file of a clinic's day"


def open_traffic(said: str, *, working_days_only: bool = False) -> Traffic:
    """A rate as people say it ('0.4/s', '300/hour'; a number alone is a second's), or the path of a CSV file."""
    found = RATE.fullmatch(said)
    if found is None or Path(said).is_file():
        return read_traffic(Path(said), working_days_only=working_days_only)
    per = found["per"] or "s"
    if per not in PER_S:
        raise FundoscopeError(f"'{said}' is no rate: '{per}' is no time we know", RATE_HINT)
    if working_days_only:
        raise FundoscopeError("a rate has no working days", "give a CSV file of a day, or leave --working-days out")
    number = float(re.sub("[,_]", "", found["number"]))
    if not (isfinite(number) and number > 0):
        raise FundoscopeError(f"{said.strip()} is no traffic", "give a number above 0")
    word = next(
        long for long in ("second", "minute", "hour", "day", "week", "month", "year") if PER_S[long] == PER_S[per]
    )
    name = f"{number:,.15g} requests {'an' if word == 'hour' else 'a'} {word}"
    return replace(constant(number / PER_S[per]), name=name)


def read_traffic(path: Path, *, working_days_only: bool = False) -> Traffic:
    try:
        data = path.read_bytes()
        rows = list(csv.reader(data.decode("utf-8-sig").splitlines()))
    except FileNotFoundError:
        raise FundoscopeError(f"'{path}' is neither a rate nor a file", RATE_HINT) from None
    except (UnicodeDecodeError, csv.Error) as problem:
        raise FundoscopeError(f"{path} is not a CSV file: {problem}", "save it as UTF-8 text") from None
    except OSError as problem:
        raise FundoscopeError(f"{path} cannot be read: {problem.strerror}", RATE_HINT) from None
    header = [cell.strip() for cell in rows[0]] if rows else []
    if header not in (["time", "requests"], ["time"]):
        shown = ",".join(header) or "empty"
        raise FundoscopeError(f"the first line of {path} is {shown}, not time,requests", "write time,requests there")
    body = [(number, row) for number, row in enumerate(rows[1:], 2) if row]
    if not body:
        raise FundoscopeError(f"{path} has no rows below its first line", "add one for each span or request")
    for number, row in body:
        if len(row) != len(header):
            wrong = f"line {number} of {path} has {len(row)} values, not {len(header)}"
            raise FundoscopeError(wrong, f"write {','.join(header)}")
    counts = [_count(path, number, row[1]) if len(row) > 1 else 1.0 for number, row in body]
    if not sum(counts):
        raise FundoscopeError(f"{path} has no requests", "give a number above 0 in some row")
    if len(header) == 2 and _time_of_day(body[0][1][0]) is not None:
        found = _clinic_day(path, body, counts, working_days_only)
    else:
        found = _trace(path, body, counts)
    return replace(found, sha256=sha256_of(data))


def _count(path: Path, number: int, said: str) -> float:
    try:
        value = float(said)
    except ValueError:
        value = float("nan")
    if not (isfinite(value) and value >= 0):
        problem = f"line {number} of {path} says '{said.strip()}' requests"
        raise FundoscopeError(problem, "write a number, 0 or more")
    return value


def _time_of_day(said: str) -> float | None:
    """24:00 is no time of day: a span ends where the next begins."""
    if "T" in said or "-" in said or ":" not in said:
        return None
    try:
        at = time.fromisoformat(said.strip())
    except ValueError:
        return None
    return at.hour * HOUR_S + at.minute * 60 + at.second + at.microsecond / 1e6


def _clinic_day(
    path: Path, body: Sequence[tuple[int, Sequence[str]]], counts: Sequence[float], working_days_only: bool
) -> Traffic:
    """Each row's requests come until the next row's time; the last row's for as long as the row before lasted."""
    starts: list[float] = []
    for number, row in body:
        at = _time_of_day(row[0])
        if at is None:
            problem = f"line {number} of {path} says '{row[0].strip()}', not a time of day"
            raise FundoscopeError(problem, "write it as 08:30")
        if starts and at <= starts[-1]:
            problem = f"line {number} of {path} is not later than the line before"
            raise FundoscopeError(problem, "list each time of day once, in order")
        starts.append(at)
    last = starts[-1] - starts[-2] if len(starts) > 1 else HOUR_S
    ends = [*starts[1:], min(DAY_S, starts[-1] + last)]
    rates = [count / (end - start) for count, start, end in zip(counts, starts, ends, strict=True)]
    if starts[0] > 0:
        starts, rates = [0.0, *starts], [0.0, *rates]
    if ends[-1] < DAY_S:
        starts, rates = [*starts, ends[-1]], [*rates, 0.0]
    return Traffic(path.stem, tuple(starts), tuple(rates), working_days_only)


def _trace(path: Path, body: Sequence[tuple[int, Sequence[str]]], counts: Sequence[float]) -> Traffic:
    """A row of several requests: all at that moment, as a camera that sends both eyes does."""
    moments: list[datetime] = []
    for number, row in body:
        try:
            at = datetime.fromisoformat(row[0].strip())
        except ValueError:
            problem = f"line {number} of {path} says '{row[0].strip()}', not a time"
            raise FundoscopeError(problem, "write 08:30 in every line, or 2026-03-02T08:30:00 in every line") from None
        if moments and (at.tzinfo is None) != (moments[0].tzinfo is None):
            problem = f"line {number} of {path} has a time zone where others have none, or none where others have one"
            raise FundoscopeError(problem, "give all times a zone, or none")
        if moments and at < moments[-1]:
            raise FundoscopeError(f"line {number} of {path} is earlier than the line before", "sort the file by time")
        moments.append(at)
    if any(count != int(count) for count in counts):
        raise FundoscopeError(f"{path} has parts of requests at single moments", "write whole numbers in a trace")
    midnight = moments[0].replace(hour=0, minute=0, second=0, microsecond=0)
    seconds = [(at - midnight).total_seconds() for at in moments]
    times = np.repeat(seconds, np.asarray(counts, np.int64))
    return Traffic(path.stem, trace_s=tuple(times.tolist()), trace_days=int(seconds[-1] // DAY_S) + 1)
