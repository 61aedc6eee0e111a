"""How long advice takes: one month of a million requests under thirty ways to serve, on one core.

    python benchmarks/advise.py [--quick] [--requests 1000000] [--json FILE]

simulate  the simulation of each option, and of all: to reach, 20 s
advise    the same with everything that follows from it: bootstrap, break-even rates, what would flip the advice

For three shapes of traffic: any time of day and night; eight hours of working days, which queue more; and three minutes
of working days, which is more than any pool of them can take, so that every request has to be followed. Measured is
processor time as well as time: one process, one thread; `taskset -c 0` holds it to one core.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from fundoscope.analysis.advise import advise, parse_objective
from fundoscope.analysis.month import ProvisionedPrice
from fundoscope.analysis.options import Autoscaling, Batch, Latency, Option, RealTime, Serverless
from fundoscope.analysis.prices import SAGEMAKER, open_prices
from fundoscope.analysis.simulate import simulate
from fundoscope.analysis.traffic import Traffic, monthly, working_hours
from fundoscope.experiment.machine import this_machine
from fundoscope.provenance import versions, write_json

REQUESTS = 1_000_000
INSTANCES = ("ml.c5.large", "ml.m5.xlarge", "ml.c7g.xlarge", "ml.g4dn.xlarge")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few requests: does it run, not how fast is it")
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    requests = arguments.requests // 50 if arguments.quick else arguments.requests
    options = thirty_options()
    found: dict[str, Any] = {"machine": this_machine().to_json(), "requests": requests, "options": len(options)}
    shapes = (
        monthly(requests),
        working_hours("working hours", requests),
        working_hours("more than all of them can take", requests, opens=8, closes=8.05),
    )
    for shape in shapes:
        found[shape.name] = measured(shape, options)
        print(shape.name, json.dumps(found[shape.name], indent=2))
    if arguments.json:
        write_json(arguments.json, found | {"benchmark": "advise", "versions": versions()})
    return 0


def thirty_options() -> list[tuple[Option, Latency]]:
    """Six sizes of memory, four instance types, three ways each; the latencies are made up."""
    draw = np.random.default_rng(5)
    found: list[tuple[Option, Latency]] = []
    for memory_gb in range(1, 7):
        warm, cold = 0.15 + 0.4 / memory_gb, 1.5 + 6 / memory_gb
        latency = Latency(_readings(draw, warm, 25), _readings(draw, cold, 10), 300_000, 600)
        ways = (Serverless(1024 * memory_gb), Serverless(1024 * memory_gb, 4), Serverless(1024 * memory_gb, 20, 2))
        found += [(way, latency) for way in ways]
    for place, instance in enumerate(INSTANCES):
        latency = Latency(_readings(draw, 0.3 / (1 + place), 25), (), 300_000, 600)
        more = RealTime(instance, 1, Autoscaling(4))
        last = Batch(instance) if place % 2 else RealTime(instance, 1, Autoscaling(4), scale_to_zero=True)
        found += [(way, latency) for way in (RealTime(instance, 2), more, last)]
    return found


def _readings(draw: np.random.Generator, mean: float, n: int) -> tuple[float, ...]:
    return tuple((mean * draw.lognormal(0, 0.15, n)).tolist())


def measured(traffic: Traffic, options: list[tuple[Option, Latency]]) -> dict[str, Any]:
    began, began_cpu = time.perf_counter(), time.process_time()
    arrivals = traffic.arrivals(1)
    each = {}
    for option, latency in options:
        start = time.perf_counter()
        run = simulate(option, latency, arrivals, seed=1)
        each[option.name] = {"s": time.perf_counter() - start, "cold": run.cold, "refused": run.refused}
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    began = time.perf_counter()
    advice = advise(
        traffic,
        [option for option, _ in options],
        {option.name: latency for option, latency in options},
        open_prices(SAGEMAKER),
        parse_objective("p95<2s"),
        provisioned=ProvisionedPrice(5e-6, 1.5e-5),  # made up: no list has it
    )
    return {
        "arrivals": len(arrivals),
        "simulate_s": seconds,
        "simulate_processor_s": cpu_s,
        "advise_s": time.perf_counter() - began,
        "advised": advice.advised,
        "slowest": max(each, key=lambda name: each[name]["s"]),
        "each": each,
    }


if __name__ == "__main__":
    sys.exit(main())
