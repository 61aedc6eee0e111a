"""Requests, sent when a schedule says, and what became of each: an answer with its times, or why there was none."""

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from fundoscope.errors import FundoscopeError
from fundoscope.experiment.callers import Caller, NoAnswer, Throttled
from fundoscope.experiment.schedules import Schedule

IN_FLIGHT = 64  # requests of an open loop at once: beyond, they wait here, and their latency counts it
THROTTLED, NOT_COLD = "throttled", "not cold"


@dataclass(frozen=True)
class Reply:
    """What became of one request. Seconds are None where there was no answer."""

    latency_s: float | None = None
    processing_s: float = 0.0
    predict_s: float = 0.0
    answer_bytes: int = 0
    artefact: str = ""
    container: Mapping[str, Any] | None = None
    why_not: str = ""  # THROTTLED, NOT_COLD, or a sentence


def send(schedule: Schedule, caller: Caller, photo: bytes) -> list[Reply]:
    for _ in range(schedule.uncounted):
        ask(caller, photo, time.monotonic())
    began = time.monotonic()
    if schedule.open:
        with ThreadPoolExecutor(IN_FLIGHT) as callers:
            sent = []
            for at_s in schedule.at_s:
                time.sleep(max(0.0, began + at_s - time.monotonic()))
                sent.append(callers.submit(ask, caller, photo, began + at_s))
            return [one.result() for one in sent]
    replies = []
    for at_s in schedule.at_s:
        time.sleep(max(0.0, began + at_s - time.monotonic()))
        replies.append(ask(caller, photo, time.monotonic(), cold=schedule.cold))
    return replies


def ask(caller: Caller, photo: bytes, due: float, *, cold: bool = False) -> Reply:
    """`cold`: all of its latency is processing, for the start of its container is."""
    sent = time.monotonic()
    try:
        body = caller(photo)
        latency_s, answer = time.monotonic() - due, json.loads(body)
        timings = answer["timings_ms"]
    except Throttled:
        return Reply(why_not=THROTTLED)
    except NoAnswer as problem:
        return Reply(why_not=str(problem))
    except (ValueError, KeyError, TypeError):
        return Reply(why_not="the answer is not a grading")
    processing_s = latency_s if cold else min(timings.get("total", 1e9) / 1000, time.monotonic() - sent)
    return Reply(
        latency_s,
        processing_s,
        timings.get("predict", 0.0) / 1000,
        len(body),
        str(answer.get("artefact", "")),
        answer.get("container"),
    )


def proven_cold(reply: Reply, before: Sequence[Reply], *, ours: bool) -> Reply:
    """A reply to a cold request, if its container says so: nobody was answered before, and nobody had met it.

    `ours`: we have started it ourselves, and believe one that says nothing, as the published server does.
    """
    if reply.container is None:
        return reply if reply.latency_s is None or ours else Reply(why_not=NOT_COLD)
    met = {one.container["id"] for one in before if one.container}
    fresh = reply.container["answered"] == 1 and reply.container["id"] not in met
    return reply if fresh else Reply(why_not=NOT_COLD)


def readings_of(replies: Sequence[Reply]) -> dict[str, Any]:
    answered = [reply for reply in replies if reply.latency_s is not None]
    if not answered:
        raise FundoscopeError(
            f"none of {len(replies)} requests was answered ({replies[0].why_not})", "ask the endpoint yourself"
        )
    latencies = [reply.latency_s for reply in answered if reply.latency_s is not None]
    errors = [reply.why_not for reply in replies if reply.why_not not in ("", THROTTLED, NOT_COLD)]
    found: dict[str, Any] = {
        "latency_s": statistics.median(latencies),
        "latency_mean_s": statistics.fmean(latencies),
        "predict_s": statistics.median(reply.predict_s for reply in answered),
        "processing_s": statistics.fmean(reply.processing_s for reply in answered),
        "latencies_s": latencies,
        "predicts_s": [reply.predict_s for reply in answered],
        "processings_s": [reply.processing_s for reply in answered],
        "requests": len(answered),
        "throttled": sum(reply.why_not == THROTTLED for reply in replies),
        "not_cold": sum(reply.why_not == NOT_COLD for reply in replies),
        "errors": len(errors),
        "answer_bytes": round(statistics.fmean(reply.answer_bytes for reply in answered)),
        "artefact_digest": answered[0].artefact,
        **_phases([reply.container for reply in answered if reply.container]),
    }
    return found | ({"first_error": errors[0]} if errors else {})


def _phases(containers: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Of a start, what each phase took: the median over the containers that were started."""
    starts = {each["id"]: each["phases_s"] for each in containers}
    names = dict.fromkeys(name for phases in starts.values() for name in phases)
    return {
        f"{name}_s": statistics.median(phases[name] for phases in starts.values() if name in phases) for name in names
    }
