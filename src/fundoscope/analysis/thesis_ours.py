"""Findings of ours under the thesis's own labels, to stand in the column beside its readings."""

from dataclasses import replace
from typing import Any

from fundoscope.analysis.findings import Findings
from fundoscope.analysis.prices import SAGEMAKER, PriceList, open_prices
from fundoscope.analysis.summaries import Summary
from fundoscope.analysis.thesis import Cell

# What the workload `invoke` calls it -> what the thesis does.
SCENARIOS = {"cold": "serverless-cold-start", "warm": "serverless-warm-up", "real-time": "real-time"}
MODELS = {"mobilenet": "MobileNet", "vgg19": "VGG19"}
SECONDS = {"latency_s": "total_latency", "predict_s": "prediction_time", "processing_s": "server_request_time"}
DOLLARS = {"latency_mean_s": "cost_per_inference_total_latency", "processing_s": "cost_per_inference_server_time"}


def ours_of(findings: Findings) -> dict[Cell, Summary]:
    prices, found = open_prices(SAGEMAKER), {}
    for cell in findings.cells:
        job = {**findings.design["settings"], **cell.cell.levels}
        scenario, model = SCENARIOS.get(str(job.get("schedule"))), MODELS.get(str(job.get("artefact")))
        if scenario is None or model is None:
            continue
        of = ("instance_type", str(job["instance"])) if job.get("instance") else ("memory", f"{job.get('memory_mb')}MB")
        usd_per_s = _usd_per_s(job, prices)
        for name, reading in cell.readings.items():
            if name in SECONDS:
                found[Cell(scenario, model, *of, SECONDS[name])] = reading
            if name in DOLLARS and usd_per_s is not None:
                found[Cell(scenario, model, *of, DOLLARS[name])] = _times(reading, usd_per_s)
    return found


def _usd_per_s(job: dict[str, Any], prices: PriceList) -> float | None:
    """As the thesis reckons a second: of a serverless size, or of a machine that is never idle."""
    if job.get("memory_mb") and prices.serverless is not None:
        return prices.serverless.usd_per_gb_second * int(job["memory_mb"]) / 1024
    instance = str(job.get("instance", ""))
    return prices.instances[instance].usd_per_hour / 3600 if instance in prices.instances else None


def _times(reading: Summary, factor: float) -> Summary:
    def scaled(value: float | None) -> float | None:
        return None if value is None else factor * value

    return replace(
        reading,
        mean=factor * reading.mean,
        low=scaled(reading.low),
        high=scaled(reading.high),
        deviation=scaled(reading.deviation),
        median=factor * reading.median,
        least=factor * reading.least,
        greatest=factor * reading.greatest,
    )
