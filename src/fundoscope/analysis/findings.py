"""What a study found: every number with its interval and the trials it came from. Written as findings.json, drawn by
`report`. Plain values: nothing here computes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fundoscope.analysis.effects import Effect, Effects
from fundoscope.analysis.per_inference import PerInference
from fundoscope.analysis.summaries import Ratio, Summary
from fundoscope.experiment.design import Cell


@dataclass(frozen=True)
class Metric:
    """Something that was read in trials."""

    name: str  # with its unit, as in the log: train_s
    label: str  # for people: "training time"
    unit: str


@dataclass(frozen=True)
class CellFinding:
    cell: Cell
    planned: int
    measured: int
    failures: Mapping[str, int]  # reason -> how many
    flags: Mapping[str, int]  # "busy" -> how many trials
    readings: Mapping[str, Summary]  # metric -> of the measured trials


@dataclass(frozen=True)
class FailureFinding:
    kind: str
    reason: str
    trials: tuple[str, ...]  # ids
    last_words: str  # of the first of them


@dataclass(frozen=True)
class Assumption:
    """One thing that an analysis of variance takes for granted, and whether these residuals bear it out."""

    name: str
    test: str  # "Shapiro-Wilk on residuals"
    statistic: float | None
    p: float | None
    holds: bool | None  # None: too few readings to tell
    said: str  # one sentence


@dataclass(frozen=True)
class Residuals:
    """To be looked at: a sample where there are very many, in the order of their trials."""

    order: tuple[int, ...]
    fitted: tuple[float, ...]
    residual: tuple[float, ...]
    quantile: tuple[float, ...]  # of the normal, for each residual


@dataclass(frozen=True)
class Response:
    """The metric that a study is about, explained by its factors."""

    metric: str
    scale: Literal["linear", "log"]  # log: effects are of ln(metric), and multiply
    box_cox: Effect | None  # the power that makes residuals most normal, with its interval; 0 is the log
    why: str  # why this scale, one sentence
    effects: Effects
    assumptions: tuple[Assumption, ...]
    residuals: Residuals
    left_out: tuple[str, ...]  # factors of which one level alone was measured
    not_modelled: str = ""  # which interactions were left to the residual, a sentence; empty: none


@dataclass(frozen=True)
class Comparison:
    """Two levels of a factor over the cells that both have, all else equal."""

    metric: str
    factor: str
    one: str
    other: str
    ratio: Ratio  # one over other
    p_holm: float | None  # among all comparisons of the study
    effect_size: float | None  # difference of logs in residual standard deviations
    cells: int  # pairs of cells


@dataclass(frozen=True)
class CellCost:
    cell: Cell
    machine: str
    usd: Summary  # of a trial as billed: the machine is up from its start to its end
    usd_as_published: Summary | None  # price x training time alone


@dataclass(frozen=True)
class Elsewhere:
    """What the trials of one kind of machine would have cost on another."""

    machine: str
    measured: bool  # false: an estimate, as if it took as long there as here
    accelerator: str | None
    usd_per_hour: float
    hours: float
    usd: float
    trials: str = ""  # which of them: "cpu", "gpu" or "tpu", those that such a machine can run


@dataclass(frozen=True)
class Costs:
    prices: str  # the list's name
    as_of: str
    stale: str  # a sentence, or empty
    spot: bool
    cells: tuple[CellCost, ...]
    total_usd: float  # of all trials, failed ones too
    failed_usd: float
    by_machine: Mapping[str, float]
    elsewhere: tuple[Elsewhere, ...]
    pareto: tuple[str, ...]  # names of cells that no other beats in both time and cost


@dataclass(frozen=True)
class Precision:
    """How many repetitions a mean to within so many per cent needs, and what those still to run would cost."""

    percent: float
    repetitions: int
    more_trials: int
    hours: float
    usd: float | None
    variation: float = 0.0  # the coefficient of variation of the median cell, which these numbers rest on


@dataclass(frozen=True)
class Statement:
    """Something a paper printed, beside what was found here."""

    paper: str
    said: str  # in English
    original: str  # as printed
    found: str  # a sentence with numbers and their intervals
    verdict: Literal["holds", "does not hold", "undecided", "not measured"]
    note: str = ""  # where the paper contradicts itself, and the like


@dataclass(frozen=True)
class Findings:
    study: str
    workload: str
    design: Mapping[str, Any]  # the study file as read
    machines: Mapping[str, Mapping[str, Any]]  # digest -> facts
    planned: int
    measured: int
    failed: int
    not_run: int
    metrics: Mapping[str, Metric]  # those with readings, the response first
    cells: tuple[CellFinding, ...]
    failures: tuple[FailureFinding, ...]
    response: Response | None  # None: too little was measured
    no_response: str  # why there is none, or empty
    comparisons: tuple[Comparison, ...]
    precision: tuple[Precision, ...]
    costs: Costs | None
    statements: tuple[Statement, ...]
    warnings: tuple[str, ...]  # "3 of 120 trials ran while others used the processors", "versions of … differ"
    made_by: Mapping[str, Any]  # command, versions, sha256 of the log
    versions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of libraries, as the trials said
    per_inference: PerInference | None = None  # of the workload invoke
