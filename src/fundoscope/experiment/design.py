"""A study's design: what is varied, how often, in which order. A TOML file, read strictly.

    name = "training-cost"
    workload = "cnn"
    repetitions = 5
    [factors]                       # in the order that numbers the cells: the last one varies fastest
    device = ["cpu", "gpu"]
    network = ["rede1", "rede2"]
    [settings]                      # the same in every trial
    epochs = 10

Cells are numbered C1, C2 … over the whole factorial, and keep their numbers where some are left out: excluded, not in
the fraction, or not next to the baseline. Every repetition runs every cell once, in an order of its own, so that
whatever drifts while a study runs falls on all cells alike.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, product
from math import prod
from pathlib import Path
from random import Random
from typing import Any, Literal

from fundoscope.config import build, read_toml
from fundoscope.errors import FundoscopeError, pick
from fundoscope.provenance import sha256_of

Level = str | int | float | bool
MOST_CELLS = 100_000


@dataclass(frozen=True)
class Cell:
    """One combination of levels."""

    number: int  # of the whole factorial, from 1
    levels: Mapping[str, Level]

    @property
    def name(self) -> str:
        return f"C{self.number}"


@dataclass(frozen=True)
class Trial:
    """One run of one cell."""

    cell: Cell
    repetition: int  # from 1

    @property
    def id(self) -> str:
        return f"{self.cell.name}-{self.repetition}"


@dataclass(frozen=True)
class Pricing:
    """Which machine of which price list the trials are billed as; analysis can be told another."""

    list: str
    machine: str = ""  # of all trials …
    factor: str = ""  # … or by the levels of a factor
    machines: Mapping[str, str] = field(default_factory=dict)  # level -> machine


@dataclass(frozen=True)
class Design:
    name: str
    workload: str
    factors: Mapping[str, tuple[Level, ...]]
    repetitions: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    order: Literal["random", "listed"] = "random"  # "listed" as published: whatever drifts falls on the last cells
    plan: Literal["full", "one-at-a-time", "fractional"] = "full"
    baseline: Mapping[str, Level] = field(default_factory=dict)  # one at a time: what all but one factor stay at
    generators: Mapping[str, str] = field(default_factory=dict)  # fractional: factor = "product of others", as "a*b"
    exclude: tuple[Mapping[str, Any], ...] = ()  # cells with all of these levels; a list of levels means any of them
    blocks: tuple[str, ...] = ()  # factors whose levels are run together, such as the machine
    timeout_s: float = 1800.0  # of one trial
    sample_s: float = 10.0  # between two readings of processor and memory; 10 as published
    response: str = "wall_s"  # the reading that analysis is about
    machine_factor: str = ""  # a factor whose levels may be measured on different machines, such as device
    prices: Pricing | None = None

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """The ones that are run, in the order of their numbers."""
        names = list(self.factors)
        combinations = enumerate(product(*self.factors.values()), 1)
        every = (Cell(number, dict(zip(names, levels, strict=True))) for number, levels in combinations)
        return tuple(cell for cell in every if self._is_planned(cell.levels) and not self._is_excluded(cell.levels))

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """All of them, in the order they are run."""
        return tuple(Trial(cell, i) for i in range(1, self.repetitions + 1) for cell in self._ordered(i))

    @cached_property
    def digest(self) -> str:
        """Of everything that decides what a trial measures; more repetitions may be added, or another order tried."""
        deciding = {"workload": self.workload, "factors": self.factors, "settings": self.settings}
        return sha256_of(json.dumps(deciding, sort_keys=True).encode())

    def _ordered(self, repetition: int) -> list[Cell]:
        cells = list(self.cells)
        if self.order == "listed":
            return cells
        shuffle = Random(f"{self.seed}/{repetition}")
        blocks = [list(some) for _, some in groupby(sorted(cells, key=self._block), key=self._block)]
        shuffle.shuffle(blocks)
        for block in blocks:
            shuffle.shuffle(block)
        return [cell for block in blocks for cell in block]

    def _block(self, cell: Cell) -> tuple[int, ...]:
        return tuple(self.factors[name].index(cell.levels[name]) for name in self.blocks)

    def _is_planned(self, levels: Mapping[str, Level]) -> bool:
        if self.plan == "one-at-a-time":
            return sum(levels[name] != self.baseline[name] for name in self.factors) <= 1
        if self.plan == "fractional":
            signs = {name: 2 * self.factors[name].index(level) - 1 for name, level in levels.items()}
            return all(
                signs[name] == prod(signs[other] for other in _words(text)) for name, text in self.generators.items()
            )
        return True

    def _is_excluded(self, levels: Mapping[str, Level]) -> bool:
        return any(all(levels[name] in _many(value) for name, value in some.items()) for some in self.exclude)


def open_design(path: Path) -> Design:
    """Read and check: whatever is wrong with it is said before anything runs."""
    table = read_toml(path)
    for name in ("factors", "settings", "baseline", "generators"):
        if not isinstance(table.get(name, {}), dict):
            raise FundoscopeError(f"'{name}' in {path} is not a table", f"write it as [{name}]")
    table["factors"] = {name: _levels(name, levels, path) for name, levels in table.get("factors", {}).items()}
    design = build(Design, table, where=str(path))
    _check(design, path)
    return design


def _levels(name: str, levels: Any, path: Path) -> tuple[Level, ...]:
    what = f"the factor '{name}' in {path}"
    if not isinstance(levels, list) or not levels:
        raise FundoscopeError(f"{what} has no levels", f'list them: {name} = ["a", "b"]')
    for level in levels:
        if not isinstance(level, str | int | float) or level != level:  # not a number is no level either
            raise FundoscopeError(f"{what} has the level {level!r}", "use texts, numbers, true or false")
    if twice := [level for i, level in enumerate(levels) if level in levels[:i]]:
        raise FundoscopeError(f"{what} has the level {twice[0]!r} twice", "leave one of them out")
    return tuple(levels)


def _check(design: Design, path: Path) -> None:
    def wrong(message: str, hint: str) -> FundoscopeError:
        return FundoscopeError(f"{path}: {message}", hint)

    if not design.name or not all(character.isalnum() or character in "-_." for character in design.name):
        raise wrong(f"'{design.name}' is no name for a study", "use letters, digits, '-', '_' and '.'")
    if design.repetitions < 1:
        raise wrong(f"{design.repetitions} repetitions measure nothing", "use 1 or more; 3 or more to see the noise")
    if not design.factors:
        raise wrong("nothing is varied", "add [factors]")
    if prod(map(len, design.factors.values())) > MOST_CELLS:
        raise wrong(f"there are more than {MOST_CELLS:,} cells", "use fewer levels")
    for name in ("timeout_s", "sample_s"):
        if not getattr(design, name) > 0:
            raise wrong(f"{name} is {getattr(design, name):g}", "use seconds above 0")
    for clash in set(design.factors) & set(design.settings):
        raise wrong(f"'{clash}' is both a factor and a setting", "leave one of them out")
    for name in (*design.blocks, *filter(None, [design.machine_factor])):
        pick(design.factors, name, kind=f"factor in {path}")
    for some in design.exclude:
        for name, values in some.items():
            _check_levels(design, name, values, path)
    _check_plan(design, wrong, path)
    if design.prices is not None:
        _check_prices(design, design.prices, wrong, path)
    if not design.cells:
        raise wrong("no cell is left", "exclude less")


def _check_plan(design: Design, wrong: Callable[[str, str], FundoscopeError], path: Path) -> None:
    if design.plan == "one-at-a-time":
        for name, value in design.baseline.items():
            _check_levels(design, name, value, path)
        if missing := [name for name in design.factors if name not in design.baseline]:
            raise wrong(f"the baseline does not say {', '.join(missing)}", "give a level of every factor in [baseline]")
    elif design.baseline:
        raise wrong(f"a {design.plan} plan has no baseline", 'say plan = "one-at-a-time", or leave [baseline] out')
    if design.plan == "fractional":
        if not design.generators:
            raise wrong("the fraction is not said", 'add [generators], such as d = "a*b*c"')
        for name, text in design.generators.items():
            for factor in (name, *_words(text)):
                if len(pick(design.factors, factor, kind=f"factor in {path}")) != 2:
                    raise wrong(
                        f"'{factor}' is in a generator and has not two levels", "fractions are of two-level factors"
                    )
            if set(_words(text)) & set(design.generators):
                raise wrong(f"'{name}' is made from another generated factor", "make it from the others alone")
    elif design.generators:
        raise wrong(f"a {design.plan} plan has no generators", 'say plan = "fractional", or leave [generators] out')


def _check_prices(design: Design, prices: Pricing, wrong: Callable[[str, str], FundoscopeError], path: Path) -> None:
    if bool(prices.machine) == bool(prices.factor):
        raise wrong("[prices] says not which machine", 'give machine = "…", or factor = "…" and [prices.machines]')
    if prices.factor:
        levels = {str(level): level for level in pick(design.factors, prices.factor, kind=f"factor in {path}")}
        for level in prices.machines:
            pick(levels, level, kind=f"level of '{prices.factor}' in {path}")
        if missing := [level for level in levels if level not in prices.machines]:
            raise wrong(f"[prices.machines] has none for {', '.join(missing)}", "name the machine each is billed as")


def _check_levels(design: Design, name: str, values: Any, path: Path) -> None:
    levels = {str(level): level for level in pick(design.factors, name, kind=f"factor in {path}")}
    for value in _many(values):
        if value not in levels.values():
            pick(levels, str(value), kind=f"level of '{name}' in {path}")


def _many(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split("*")]
