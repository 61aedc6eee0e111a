"""Findings of studies that never ran: plausible sizes, noise from a seed, effects from the real arithmetic."""

from functools import cache
from itertools import product
from math import exp, log, prod

import numpy as np
from scipy import stats

from fundoscope.analysis.effects import Effect, cells_of, effects
from fundoscope.analysis.findings import (
    Assumption,
    CellCost,
    CellFinding,
    Comparison,
    Costs,
    Elsewhere,
    FailureFinding,
    Findings,
    Metric,
    Precision,
    Residuals,
    Response,
    Statement,
)
from fundoscope.analysis.summaries import Ratio, Summary, pareto
from fundoscope.experiment.design import Cell

PAPER = {
    "device": ("cpu", "gpu"),
    "framework": ("mxnet", "pytorch", "tensorflow"),
    "dataset": ("mnist", "cifar10"),
    "size": (32, 64),
    "network": ("rede1", "rede2"),
}
SLOWNESS = {"cpu": 12.0, "mxnet": 0.8, "tensorflow": 2.1, "cifar10": 0.85, 64: 3.1, "rede2": 1.7}
METRICS = {
    "train_s": ("training time", "s"),
    "wall_s": ("trial time", "s"),
    "accuracy": ("accuracy", ""),
    "cpu_percent_mean": ("processor, mean", "%"),
    "memory_mb_mean": ("memory, mean", "MB"),
    "memory_mb_max": ("memory, greatest", "MB"),
    "gpu_percent_mean": ("GPU, mean", "%"),
    "gpu_memory_mb_mean": ("GPU memory, mean", "MB"),
    "gpu_memory_mb_max": ("GPU memory, greatest", "MB"),
}
MACHINE = {
    "processor": "Intel(R) Xeon(R) Platinum 8370C",
    "processors": 4,
    "quota": None,
    "memory_gb": 27.4,
    "gpus": [{"name": "Tesla T4", "memory_mb": 15360, "driver": "550.54"}],
    "kernel": "6.8.0",
    "system": "Linux",
}
NO_GPU = "no GPU on this machine"
LAST_WORDS = (
    'Traceback (most recent call last):\n  File "worker.py", line 12\nRuntimeError: no CUDA-capable device is detected'
)


def fabricate_study(
    factors=None, *, repetitions=5, failing=("gpu",), seed=7, names=None, last_words=LAST_WORDS, reason=NO_GPU
):
    """Cells with a level in `failing` fail; the response is the training time."""
    factors = factors or PAPER
    random = np.random.default_rng(seed)
    cells, costs, values, levels, failed = [], [], [], [], []
    slow = SLOWNESS | {
        level: 1 + 0.4 * i for known in factors.values() for i, level in enumerate(known) if level not in SLOWNESS
    }
    for number, combination in enumerate(product(*factors.values()), 1):
        cell = Cell(number, dict(zip(factors, combination, strict=True)))
        if set(map(str, combination)) & set(failing):
            cells.append(CellFinding(cell, repetitions, 0, {reason: repetitions}, {}, {}))
            failed += [f"{cell.name}-{i}" for i in range(1, repetitions + 1)]
            continue
        typical = 20 * prod(slow[level] for level in combination)
        if "tensorflow" in combination and "gpu" in combination:
            typical *= 1.3
        train_s = typical * np.exp(random.normal(0, 0.03, repetitions))
        readings = _readings(train_s, combination, random)
        cells.append(CellFinding(cell, repetitions, repetitions, {}, {"busy": 1} if number == 3 else {}, readings))
        values += list(train_s)
        levels += [cell.levels] * repetitions
        per_s = (0.526 if "gpu" in combination else 0.169) / 3600
        machine = "NC4as_T4_v3" if "gpu" in combination else "F4s_v2"
        costs.append(CellCost(cell, machine, _summary((train_s + 9) * per_s), _summary(train_s * per_s)))
    metrics = {name: Metric(name, *about) for name, about in METRICS.items() if any(name in c.readings for c in cells)}
    response = _response(values, levels, factors) if values else None
    return Findings(
        study=names or "training-cost",
        workload="cnn",
        design={"factors": factors, "repetitions": repetitions, "seed": 4, "order": "random", "plan": "full",
                "response": "train_s", "machine_factor": "device" if "device" in factors else "",
                "settings": {"epochs": 10, "batch": 128}, "timeout_s": 1800.0, "sample_s": 10.0},
        machines={"9f2c0d6a71b3e845": MACHINE},
        planned=len(cells) * repetitions,
        measured=len(values),
        failed=len(failed),
        not_run=0,
        metrics=metrics,
        cells=tuple(cells),
        failures=(FailureFinding("unavailable", reason, tuple(failed), last_words),) if failed else (),
        response=response,
        no_response="" if response else "no trial was measured",
        comparisons=_comparisons(values, levels, factors) if values else (),
        precision=(Precision(5, 3, 0, 0.0, 0.0), Precision(1, 38, 33 * len(cells), 91.4, 22.6)) if values else (),
        costs=_costs(costs, cells, failed) if values else None,
        statements=STATEMENTS,
        warnings=("1 of 120 trials ran while others used the processors",),
        made_by={"command": "fundoscope study analyse studies/training-cost", "versions": {"fundoscope": "0.1.0",
                 "python": "3.11.14", "numpy": "2.4.1"}, "sha256 of outcomes.jsonl": "ab" * 32},
    )  # fmt: skip


def _readings(train_s, combination, random):
    n = len(train_s)
    found = {
        "train_s": train_s,
        "wall_s": train_s + 9,
        "accuracy": random.normal(0.98, 0.002, n),
        "cpu_percent_mean": random.normal(380 if "pytorch" in combination else 290, 6, n),
        "memory_mb_mean": random.normal(3900, 60, n),
        "memory_mb_max": random.normal(4600, 60, n),
    }
    if "gpu" in combination:
        found |= {
            "gpu_percent_mean": random.normal(81, 2, n),
            "gpu_memory_mb_mean": random.normal(14000 if "tensorflow" in combination else 3100, 50, n),
            "gpu_memory_mb_max": random.normal(14300 if "tensorflow" in combination else 3300, 50, n),
        }
    return {name: _summary(values) for name, values in found.items()}


@cache
def _t(degrees):
    return float(stats.t.ppf(0.975, degrees))


def _summary(values):
    """As `summarise`, with the quantile looked up once: twenty thousand cells want a hundred thousand of them."""
    n, mean, deviation = len(values), float(values.mean()), float(values.std(ddof=1))
    half = _t(n - 1) * deviation / n**0.5
    ends = float(np.median(values)), float(values.min()), float(values.max())
    return Summary(n, mean, mean - half, mean + half, deviation, deviation / mean, *ends)


def _response(values, levels, factors):
    logs = np.log(values)
    cells = cells_of(logs, levels, factors)
    # All terms of a large design would take minutes; pairs are what the page draws.
    found = effects(cells, order=None if len(cells.n) <= 100 else 1)
    residual = logs - np.repeat([cells.mean.mean()], len(logs)) if len(cells.n) > 100 else _within(logs, levels)
    quantile = stats.norm.ppf((stats.rankdata(residual) - 0.375) / (len(residual) + 0.25))
    return Response(
        metric="train_s",
        scale="log",
        box_cox=Effect(0.04, -0.03, 0.11),
        why="Effects multiply: the spread of readings grows with their mean, so logarithms are analysed.",
        effects=found,
        assumptions=(
            Assumption("normal residuals", "Shapiro-Wilk on residuals", 0.991, 0.61, True, "Nothing is against it."),
            Assumption("equal variances", "Levene on cells", 2.4, 0.0003, False, "Some cells scatter more."),
        ),
        residuals=Residuals(
            tuple(range(len(logs))), tuple(map(float, logs - residual)), tuple(map(float, residual)),
            tuple(map(float, quantile)),
        ),
        left_out=tuple(name for name in factors if name not in cells.factors),
    )  # fmt: skip


def _within(logs, levels):
    keys = [tuple(map(str, some.values())) for some in levels]
    means = {key: np.mean([y for y, other in zip(logs, keys, strict=True) if other == key]) for key in set(keys)}
    return np.array([y - means[key] for y, key in zip(logs, keys, strict=True)])


def _comparisons(values, levels, factors):
    found = []
    for factor, known in factors.items():
        by = {level: [v for v, some in zip(values, levels, strict=True) if some[factor] == level] for level in known}
        here = [level for level in known if by[level]]
        for one, other in [(a, b) for i, b in enumerate(here[:6]) for a in here[i + 1 : 6]]:
            times = exp(np.log(by[one]).mean() - np.log(by[other]).mean())
            size = abs(log(times)) / 0.03
            between = Ratio(times, times * 0.985, times / 0.985, 1e-9)
            p_holm = 0.0001 if size > 1 else 0.4
            found.append(Comparison("train_s", factor, str(one), str(other), between, p_holm, size, len(by[one]) // 5))
    return tuple(found)


def _costs(costs, cells, failed):
    means = {found.cell.number: found.readings["train_s"].mean for found in cells if found.readings}
    front = pareto({found.cell.name: (means[found.cell.number], found.usd.mean) for found in costs})
    total = sum(found.usd.mean * found.usd.n for found in costs)
    hours = sum(means.values()) * 5 / 3600
    return Costs(
        prices="Azure, East US, as the paper printed them",
        as_of="2024-02-20",
        stale="These prices are older than a year.",
        spot=False,
        cells=tuple(costs),
        total_usd=total + 0.31 * bool(failed),
        failed_usd=0.31 * bool(failed),
        by_machine={"F4s_v2": total, "NC4as_T4_v3": 0.31},
        elsewhere=(
            Elsewhere("F4s_v2", True, None, 0.169, hours, hours * 0.169),
            Elsewhere("NC4as_T4_v3", False, "T4", 0.526, hours, hours * 0.526),
            Elsewhere("ml.g5.xlarge", False, "A10G", 1.408, hours, hours * 1.408),
        ),
        pareto=tuple(front),
    )


STATEMENTS = (
    Statement("Moura Filho and Souza 2024", "64×64 images take about 200 % more time than 32×32",
              "os cenários com imagens 64x64 aumentam em cerca de 200% o tempo de treinamento",
              "64 takes 210 % (205–215) more than 32.", "holds"),
    Statement("Moura Filho and Souza 2024", "The CPU environment cost 4 to 6 times less than the GPU one",
              "O custo total do ambiente de CPU foi cerca de 4 a 6 vezes menor que o do ambiente de GPU",
              "CPU cells cost 3.6 (3.5–3.7) times the GPU ones.", "does not hold",
              "The paper contradicts itself: ten times as fast at three times the price is cheaper, not dearer."),
    Statement("Moura Filho and Souza 2024", "The GPU is at least 10 times as fast",
              "O ambiente de GPU é pelo menos 10 vezes mais rápido que o ambiente de CPU", "No GPU cell was measured.",
              "not measured"),
)  # fmt: skip
