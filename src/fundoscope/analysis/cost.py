"""What the trials of a study cost, and would have cost elsewhere: durations by prices, failed trials too.

A machine is billed from the start of a trial to its end, whatever it does meanwhile. The papers count training time
alone; both are given. Prices are chosen here and not when trials are run, so that an old study can be priced anew.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np

from fundoscope.analysis.findings import CellCost, Costs, Elsewhere
from fundoscope.analysis.prices import InstancePrice, PriceList, open_prices
from fundoscope.analysis.summaries import Summary, pareto, summarise_cells
from fundoscope.analysis.table import Floats, Table, metric_of
from fundoscope.errors import FundoscopeError, pick
from fundoscope.experiment.design import Cell, Design, Pricing

NO_GPU = ("TPU", "Inferentia", "Trainium")  # accelerators that run no CUDA


@dataclass(frozen=True)
class Billing:
    """Which machine of which list the trials of each cell are billed as."""

    prices: PriceList
    spot: bool
    machine: Mapping[int, str]  # by number of the cell

    def rate(self, machine: str) -> float:
        try:
            return self.prices.instance(machine).usd(up_s=3600, spot=self.spot)
        except FundoscopeError as problem:
            if machine in self.prices.instances:  # it is its spot price that is not known
                raise FundoscopeError(f"{machine} of {self.prices.name}: {problem.message}", problem.hint) from None
            raise


def billing(
    design: Design, *, prices: str | None = None, machines: Mapping[str, str] | None = None, spot: bool = False
) -> Billing | None:
    """As the design says, or as told: another list, other machines by level (the level '' is all trials), spot.

    None: neither says any prices.
    """
    said = design.prices
    if said is None and not prices and not machines and not spot:
        return None
    if not prices and said is None:
        raise FundoscopeError("no price list is given", "see `fundoscope prices list`, and give --prices NAME")
    chosen = open_prices(prices or (said.list if said else ""))
    if machines:
        of = _by_level(design, machines)
    elif said is not None:
        of = {cell.number: said.machine or said.machines[str(cell.levels[said.factor])] for cell in design.cells}
    else:
        raise FundoscopeError(
            f"which machine of {chosen.name} the trials are billed as is not said",
            "give --machine LEVEL=NAME, or [prices] in the design",
        )
    found = Billing(chosen, spot, of)
    for machine in dict.fromkeys(of.values()):
        found.rate(machine)  # an unknown machine is said before anything is added up
    return found


def _by_level(design: Design, machines: Mapping[str, str]) -> dict[int, str]:
    if set(machines) == {""}:
        return {cell.number: machines[""] for cell in design.cells}
    factor = _factor_of(design, machines)
    levels = [str(level) for level in design.factors[factor]]
    said = design.prices.machines if design.prices and design.prices.factor == factor else {}
    of = {**said, **machines}  # a level that is not told keeps the design's
    if missing := [level for level in levels if level not in of]:
        raise FundoscopeError(f"no machine is given for {factor} {', '.join(missing)}", "give one for every level")
    return {cell.number: of[str(cell.levels[factor])] for cell in design.cells}


def _factor_of(design: Design, machines: Mapping[str, str]) -> str:
    """The factor these are levels of; where several have such levels, the one that machines are said by."""
    preferred = [design.prices.factor if design.prices else "", design.machine_factor, "device"]
    names = [name for name in dict.fromkeys([*preferred, *design.factors]) if name in design.factors]
    for name in names:
        if set(machines) <= {str(level) for level in design.factors[name]}:
            return name
    every = {str(level): level for name in names for level in design.factors[name]}
    for level in machines:
        pick(every, level, kind="level of a factor")
    raise FundoscopeError(f"{', '.join(machines)} are not levels of one factor", "give the levels of one factor")


def costs(
    table: Table,
    bill: Billing,
    response: str,
    *,
    today: date,
    machines: Mapping[str, Mapping[str, Any]] | None = None,
) -> Costs:
    """`machines`: the facts of those that were measured, by digest."""
    rates = {machine: bill.rate(machine) for machine in dict.fromkeys(bill.machine.values())}
    rate = np.array([rates[bill.machine[cell.number]] for cell in table.cells])
    usd = table.wall_s * rate[table.cell] / 3600
    billed = summarise_cells(usd[table.measured], table.cell[table.measured], len(table.cells))
    trained, of = table.readings("train_s")
    published = summarise_cells(trained * rate[of] / 3600, of, len(table.cells))
    cells = [
        CellCost(cell, bill.machine[cell.number], whole, published[i])
        for i, cell in enumerate(table.cells)
        if (whole := billed[i]) is not None
    ]
    return Costs(
        prices=bill.prices.name,
        as_of=str(bill.prices.as_of),
        stale=bill.prices.stale(today),
        spot=bill.spot,
        cells=tuple(cells),
        total_usd=float(usd.sum()),
        failed_usd=float(usd[~table.measured].sum()),
        by_machine=_by_machine(table, bill, usd),
        elsewhere=tuple(_elsewhere(table, bill, machines or {})),
        pareto=tuple(_front(table, cells, response)),
    )


def _by_machine(table: Table, bill: Billing, usd: Floats) -> dict[str, float]:
    of_cell = np.bincount(table.cell, weights=usd, minlength=len(table.cells))
    found: dict[str, float] = {}
    for cell, amount in zip(table.cells, of_cell.tolist(), strict=True):
        machine = bill.machine[cell.number]
        found[machine] = found.get(machine, 0.0) + amount
    return found


def _elsewhere(table: Table, bill: Billing, machines: Mapping[str, Mapping[str, Any]]) -> Iterable[Elsewhere]:
    """All trials of a kind (on processors, GPUs, TPUs) on every machine of the list that is of that kind.

    As if they took as long there: who has not measured cannot know. Measured is what the design names, unless the facts
    of the machine say that it was another.
    """
    values, of = table.readings("gpu_memory_mb_max")
    with_gpu = set(of[values > 0].tolist())
    kinds = np.array([_kind(cell, i in with_gpu) for i, cell in enumerate(table.cells)])
    named = table.design.prices
    for kind in dict.fromkeys(kinds.tolist()):
        there = kinds[table.cell] == kind
        hours = float(table.wall_s[there].sum()) / 3600
        if not hours:
            continue
        own = {_named(named, cell) for cell, of in zip(table.cells, kinds, strict=True) if of == kind}
        facts = [machines.get(table.machines[i], {}) for i in np.unique(table.machine[there])]
        for name, price in bill.prices.instances.items():
            usd_per_hour = price.spot_usd_per_hour if bill.spot else price.usd_per_hour
            if _fits(price, kind) and usd_per_hour is not None:
                measured = own == {name} and all(_may_be(price, fact) for fact in facts)
                yield Elsewhere(name, measured, price.accelerator, usd_per_hour, hours, usd_per_hour * hours, kind)


def _may_be(price: InstancePrice, facts: Mapping[str, Any]) -> bool:
    """Whether a machine of these facts can have been the one of this price: as many processors, the same GPU."""
    processors = facts.get("processors")
    if price.vcpus is not None and processors is not None and price.vcpus != processors:
        return False
    gpus = [str(gpu.get("name", "")).replace("-", " ").split() for gpu in facts.get("gpus") or []]
    return not (gpus and price.accelerator) or any(price.accelerator.split()[0] in words for words in gpus)


def _named(prices: Pricing | None, cell: Cell) -> str:
    if prices is None:
        return ""
    return prices.machine or prices.machines[str(cell.levels[prices.factor])]


def _kind(cell: Cell, with_gpu: bool) -> str:
    """By the factor called device; without one, by whether a GPU was seen at work."""
    if "device" in cell.levels:
        device = str(cell.levels["device"]).lower()
        return next((kind for kind in ("gpu", "tpu") if kind in device), "cpu")
    return "gpu" if with_gpu else "cpu"


def _fits(price: InstancePrice, kind: str) -> bool:
    accelerator = price.accelerator or ""
    if kind == "cpu":
        return not accelerator
    if kind == "tpu":
        return accelerator.startswith("TPU")
    return bool(accelerator) and not accelerator.startswith(NO_GPU)


def _front(table: Table, cells: Iterable[CellCost], response: str) -> list[str]:
    """Of the response where it is a time, else of the whole trial."""
    time = response if metric_of(response).unit in ("s", "ms") else "wall_s"
    values, of = table.readings(time)
    known: dict[int, Summary | None] = dict(enumerate(summarise_cells(values, of, len(table.cells))))
    by_number = {cell.number: known[i] for i, cell in enumerate(table.cells)}
    points = {}
    for cost in cells:
        mean = by_number[cost.cell.number]
        if mean is not None:
            points[cost.cell.name] = (mean.mean, cost.usd.mean)
    return pareto(points)
