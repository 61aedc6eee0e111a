"""What an inference costs in each cell of a study of the workload `invoke`: as the thesis reckons, and as billed.

A cell of SageMaker's serverless sizes has both. An instance is rented by the hour whatever it does: as the thesis
reckons, its requests come one after another without a pause; as billed, a month of it costs the same at any traffic.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import fsum
from typing import Any

from fundoscope.analysis.inference_cost import HOURS_PER_MONTH, as_billed, as_thesis, back_to_back, rented
from fundoscope.analysis.prices import PriceList
from fundoscope.experiment.design import Cell, Design
from fundoscope.experiment.outcome import Measured, Outcome

MONTHLY = 100_000  # requests, for a month's dollars


@dataclass(frozen=True)
class InferenceCost:
    cell: Cell
    billed_as: str  # "serverless 2 GB", "ml.m5.xlarge"
    requests: int  # that this rests on
    thesis_per_thousand: float
    billed_per_thousand: float | None  # None: rented, not billed by the request
    billed_per_month: float  # at so many requests a month as asked for


@dataclass(frozen=True)
class PerInference:
    prices: str
    monthly: int
    cells: tuple[InferenceCost, ...]


@dataclass
class _Readings:
    latencies_s: list[float] = field(default_factory=list)
    processings_s: list[float] = field(default_factory=list)
    moved_bytes: list[float] = field(default_factory=list)

    def add(self, readings: Mapping[str, Any]) -> None:
        self.latencies_s += readings.get("latencies_s", [])
        self.processings_s += readings.get("processings_s", [])
        self.moved_bytes.append(readings.get("photograph_bytes", 0) + readings.get("answer_bytes", 0))


def per_inference(
    design: Design, outcomes: Iterable[Outcome], prices: PriceList, *, monthly: int = MONTHLY
) -> PerInference | None:
    """None: nothing that was measured has a price in this list."""
    readings: dict[int, _Readings] = {}
    for outcome in outcomes:
        if isinstance(outcome, Measured):
            readings.setdefault(outcome.trial.cell.number, _Readings()).add(outcome.readings)
    found = (_cost(cell, {**design.settings, **cell.levels}, readings.get(cell.number), prices, monthly)
             for cell in design.cells)  # fmt: skip
    cells = tuple(cost for cost in found if cost is not None)
    return PerInference(prices.name, monthly, cells) if cells else None


def _cost(
    cell: Cell, job: Mapping[str, Any], readings: _Readings | None, prices: PriceList, monthly: int
) -> InferenceCost | None:
    if readings is None or not readings.latencies_s or not readings.processings_s:
        return None
    latency_s, requests = fsum(readings.latencies_s) / len(readings.latencies_s), len(readings.latencies_s)
    memory_mb, instance = int(job.get("memory_mb", 0)), str(job.get("instance", ""))
    if memory_mb and prices.serverless and memory_mb / 1024 in prices.serverless.memory_gb:
        memory_gb = memory_mb // 1024
        thesis = as_thesis(prices.serverless, memory_gb=memory_gb, total_latency_s=latency_s)
        moved = round(fsum(readings.moved_bytes) / len(readings.moved_bytes))
        billed = as_billed(
            prices.serverless,
            memory_gb=memory_gb,
            processing_ms=[1000 * seconds for seconds in readings.processings_s],
            moved_bytes=moved,
        )
        month = billed.per_month(monthly / HOURS_PER_MONTH)
        name = f"serverless {memory_gb} GB"
        return InferenceCost(cell, name, requests, thesis.per_thousand, billed.per_thousand, month)
    if instance in prices.instances:
        price = prices.instance(instance)
        thesis = back_to_back(price, total_latency_s=latency_s)
        return InferenceCost(cell, instance, requests, thesis.per_thousand, None, rented(price).per_month())
    return None
