"""What the papers printed about training, beside what a study found.

Moura Filho and Souza (2024) for studies of the workload `cnn`, Araújo et al. for those of `referral`. How a verdict is
reached is said in evidence.py. A band "about a" is a, give or take a sixth or so: 2.5 to 3.5 times for "about 200 %
more". Half of the lines here are the statements themselves, at the end.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, sqrt

import numpy as np
from scipy import stats

from fundoscope.analysis.compare import Estimate, Matched, spread_of
from fundoscope.analysis.cost import Billing
from fundoscope.analysis.evidence import (
    Evidence,
    Verdict,
    above,
    all_of,
    said_percent,
    said_times,
    share_of_machine,
    with_range,
    within,
)
from fundoscope.analysis.findings import Statement
from fundoscope.analysis.table import metric_of

Found = tuple[str, Verdict]

MOURA = "Moura Filho and Souza 2024"
ARAUJO = "Araújo et al."
NAMES = {"mxnet": "MXNet", "pytorch": "PyTorch", "tensorflow": "TensorFlow"}
NEAR_ALL = 90.0  # per cent, "near 100 %"
PUBLISHED_TRIALS, PUBLISHED_EPOCHS = 240, 10


@dataclass(frozen=True)
class Claim:
    paper: str
    said: str
    original: str
    check: Callable[[Evidence], Found]
    note: str = ""
    of_time: bool = False


def statements(evidence: Evidence) -> tuple[Statement, ...]:
    claims = CLAIMS.get(evidence.table.design.workload, ())
    found = []
    for claim in claims:
        sentence, verdict = claim.check(evidence)
        if claim.of_time and verdict != "not measured" and evidence.time != "train_s":
            sentence += f" Compared is the {metric_of(evidence.time).label}."
        found.append(Statement(claim.paper, claim.said, claim.original, sentence, verdict, claim.note))
    return tuple(found)


def _by_device(
    evidence: Evidence, factor: str, one: str, other: str, decide: Callable[[Matched], Verdict], text: str
) -> Found:
    """A ratio of times, said of processors and of GPUs apart where both were measured."""
    if missing := evidence.lacking(evidence.time, **{factor: (one, other)}):
        return missing, "not measured"
    devices = [str(level) for level in evidence.table.design.factors.get("device", ())] or [""]
    said, verdicts = [], []
    for device in devices:
        found = evidence.times(factor, one, other, **({"device": device} if device else {}))
        if found is not None:
            said.append(f"{text} {said_times(found)}{f' on the {device.upper()}' if device else ''}")
            verdicts.append(decide(found))
    if not said:
        return f"No two cells differ in {factor} alone.", "not measured"
    return "; ".join(said) + ".", all_of(*verdicts)


def _longer(found: Matched) -> Verdict:
    return above(found.ratio.low, found.ratio.high, 1.0)


def _larger_pictures(e: Evidence) -> Found:
    def about(found: Matched) -> Verdict:
        return within(found.ratio.low, found.ratio.high, 2.5, 3.5)

    return _by_device(e, "image", "64", "32", about, "64×64 took")


def _second_network(e: Evidence) -> Found:
    return _by_device(e, "network", "rede2", "rede1", _longer, "Rede 2 took")


def _faster_dataset(e: Evidence) -> Found:
    return _by_device(e, "dataset", "mnist", "cifar10", _longer, "MNIST took, against CIFAR-10,")


def _gpu_is_faster(e: Evidence) -> Found:
    if missing := e.lacking(e.time, device=("cpu", "gpu")):
        return missing, "not measured"
    found = e.times("device", "cpu", "gpu")
    if found is None:
        return "No two cells differ in device alone.", "not measured"
    return f"The CPU took {said_times(found)}.", above(found.ratio.low, found.ratio.high, 10.0)


def _cpu_is_cheaper(e: Evidence) -> Found:
    if missing := e.lacking(e.time, device=("cpu", "gpu")):
        return missing, "not measured"
    if e.billing is None:
        return "No prices are given for this study.", "not measured"
    found = e.times("device", "gpu", "cpu")
    hourly = [_rate(e, e.billing, device) for device in ("gpu", "cpu")]
    if found is None or None in hourly:
        return "No two cells differ in device alone, each with one machine to bill.", "not measured"
    gpu, cpu = (float(rate or 0) for rate in hourly)
    low, high = (None if end is None else end * gpu / cpu for end in (found.ratio.low, found.ratio.high))
    value = found.ratio.value * gpu / cpu
    cost = with_range(value, low, high, " times as much")
    return f"Training on the GPU cost {cost}, at {gpu / cpu:.3g} times the price.", within(low, high, 4.0, 6.0)


def _rate(e: Evidence, billing: Billing, device: str) -> float | None:
    """An hour on the machine that trials of a device are billed as, where it is one."""
    chosen = np.flatnonzero(e.table.where(device=device))
    rates = {billing.rate(billing.machine[e.table.cells[i].number]) for i in chosen}
    return rates.pop() if len(rates) == 1 else None


def _uses_most(e: Evidence, metric: str, framework: str, others: tuple[str, ...], device: str, what: str) -> Found:
    """More than each of the others, and near 100 %."""
    if missing := e.lacking(metric, framework=(framework, *others), device=(device,)):
        return missing, "not measured"
    own = e.share(metric, framework=framework, device=device)
    if own is None:
        return f"How much the machines have of it is not in the study's folder ({metric}).", "not measured"
    verdicts, said = [above(own.low, own.high, NEAR_ALL)], [f"{NAMES[framework]} used {said_percent(own)} of {what}"]
    for other in others:
        more = e.more(metric, framework, other, device=device)
        if more is None:
            return f"No cells of {framework} and {other} can be compared on the {device}.", "not measured"
        said.append(f"{with_range(more.value, more.low, more.high, ' points', '+')} against {NAMES[other]}")
        verdicts.append(above(more.low, more.high, 0.0))
    return ", ".join(said) + ".", all_of(*verdicts)


def _pytorch_uses_most_cpu(e: Evidence) -> Found:
    return _uses_most(e, "cpu_percent_mean", "pytorch", ("mxnet", "tensorflow"), "cpu", "the processors")


def _tensorflow_uses_most_gpu_memory(e: Evidence) -> Found:
    return _uses_most(e, "gpu_memory_mb_mean", "tensorflow", ("mxnet", "pytorch"), "gpu", "the GPU's memory")


def _more_gpu_than_cpu(e: Evidence) -> Found:
    if missing := e.lacking("gpu_percent_mean", image=("64",), device=("gpu",)):
        return missing, "not measured"
    gpu, cpu = (share_of_machine(e.table, f"{name}_percent_mean", e.machines) for name in ("gpu", "cpu"))
    both = (gpu > 0) & (cpu > 0)  # false where one is not known
    column = np.full(len(gpu), np.nan)
    column[both] = np.log(gpu[both] / cpu[both])
    found = e.mean(column, e.table.where(image="64", device="gpu"))
    if found is None:
        return "No trial has both the use of processors and of the GPU, and its machine's facts.", "not measured"
    low, high = (None if end is None else exp(end) for end in (found.low, found.high))
    times = with_range(exp(found.value), low, high, " times")
    return f"At 64×64 the GPU was {times} as busy as the processors.", within(low, high, 1.5, 2.5)


def _tensorflow_takes_longer(e: Evidence) -> Found:
    if missing := e.lacking(e.time, framework=("mxnet", "pytorch", "tensorflow")):
        return missing, "not measured"
    said, verdicts = [], []
    for other in ("mxnet", "pytorch"):
        found = e.times("framework", "tensorflow", other)
        if found is None:
            return f"No cells of tensorflow and {other} can be compared.", "not measured"
        said.append(f"{said_times(found)} as long as {NAMES[other]}")
        verdicts.append(within(found.ratio.low, found.ratio.high, 2.0, 3.0))
    return f"TensorFlow took {'; '.join(said)}.", all_of(*verdicts)


def _pytorch_is_between(e: Evidence) -> Found:
    if missing := e.lacking(e.time, framework=("mxnet", "pytorch", "tensorflow")):
        return missing, "not measured"
    first, second = e.times("framework", "pytorch", "mxnet"), e.times("framework", "tensorflow", "pytorch")
    if first is None or second is None:
        return "No cells of the three frameworks can be compared.", "not measured"
    said = f"PyTorch took {said_times(first)} as long as MXNet; TensorFlow {said_times(second)} as long as PyTorch."
    return said, all_of(_longer(first), _longer(second))


def _pytorch_share(
    metric: str, device: str, decide: Callable[[Estimate], Verdict], what: str
) -> Callable[[Evidence], Found]:
    def check(e: Evidence) -> Found:
        needed = {"framework": ("pytorch",)} | ({"device": (device,)} if device else {})
        if missing := e.lacking(metric, **needed):
            return missing, "not measured"
        found = e.share(metric, framework="pytorch", **({"device": device} if device else {}))
        if found is None:
            return f"How much the machines have of it is not in the study's folder ({metric}).", "not measured"
        return f"PyTorch used {said_percent(found)} of {what}.", decide(found)

    return check


def _total(e: Evidence) -> Found:
    epochs, trials = e.table.design.settings.get("epochs"), len(e.table.cell)
    if e.total_usd is None:
        return "No prices are given for this study.", "not measured"
    found = f"{trials:,} trials cost US${e.total_usd:,.2f} here"
    if trials != PUBLISHED_TRIALS or epochs != PUBLISHED_EPOCHS:
        return f"{found}; the paper's are {PUBLISHED_TRIALS} of {PUBLISHED_EPOCHS} epochs.", "not measured"
    said = f"{found}; R$158 were some US$32, at about R$5 to the dollar in early 2024."
    return said, "holds" if 24 <= e.total_usd <= 40 else "does not hold"


def _gpus(e: Evidence) -> str:
    """The level that stands for the paper's two: several GPUs where they were measured."""
    return "gpu" if e.lacking(e.time, device=("gpus",)) else "gpus"


def _tpu_is_faster(e: Evidence) -> Found:
    if missing := e.lacking(e.time, device=(_gpus(e), "tpu")):
        return missing, "not measured"
    found = e.times("device", _gpus(e), "tpu")
    if found is None:
        return "No two cells differ in device alone.", "not measured"
    value, low, high = found.ratio.percent_less()
    less = with_range(value, low, high, " %")
    other = {"gpu": "a single GPU", "gpus": "the GPUs"}[_gpus(e)]
    return f"The TPU took {less} less time than {other}.", within(low, high, 31.0, 41.0)


def _tpu_varies_more(e: Evidence) -> Found:
    if missing := e.lacking(e.time, device=(_gpus(e), "tpu")):
        return missing, "not measured"
    values, cell = e.table.readings(e.time)
    spread = spread_of(values, cell, len(e.table.cells))
    variance, degrees = [], []
    for device in ("tpu", _gpus(e)):
        chosen = e.table.where(device=device) & (spread.n > 1)
        own = spread.n[chosen] - 1
        degrees.append(int(own.sum()))
        variance.append(float((own * spread.variance[chosen]).sum()) / max(degrees[-1], 1))
    if 0 in degrees or variance[1] == 0:
        return "There are too few repetitions for a deviation.", "not measured"
    ratio = variance[0] / variance[1]
    low, high = (sqrt(ratio / float(stats.f.ppf(end, *degrees))) for end in (0.975, 0.025))
    times = with_range(sqrt(ratio), low, high, " times")
    said = f"The TPU's times deviate {times} as much as the GPU's."
    return said, within(low, high, 1.5, 2.5)


def _about(least: float, most: float) -> Callable[[Estimate], Verdict]:
    return lambda found: within(found.low, found.high, least, most)


CLAIMS: Mapping[str, tuple[Claim, ...]] = {
    "cnn": (
        Claim(
            MOURA,
            "Pictures of 64×64 take about 200 % more time than of 32×32, on CPU and GPU",
            "os cenários com imagens 64x64 aumentam em cerca de 200% o tempo de treinamento em relação às imagens "
            "32x32",
            _larger_pictures,
            of_time=True,
        ),
        Claim(
            MOURA,
            "Rede 2 takes longer to train than Rede 1",
            "os cenários utilizam a Rede 2, esses cenários requerem mais tempo para treinar a rede",
            _second_network,
            of_time=True,
        ),
        Claim(
            MOURA,
            "The GPU is at least 10 times faster than the CPU",
            "O ambiente de GPU é pelo menos 10 vezes mais rápido que o ambiente de CPU",
            _gpu_is_faster,
            of_time=True,
        ),
        Claim(
            MOURA,
            "The CPU's total cost was 4 to 6 times less than the GPU's",
            "O custo total do ambiente de CPU foi cerca de 4 a 6 vezes menor que o do ambiente de GPU",
            _cpu_is_cheaper,
            "The paper contradicts itself: at 3.1 times the price an hour and at least 10 times the speed the GPU is "
            "at least 3.2 times cheaper, and its conclusion praises accelerators at low cost.",
            of_time=True,
        ),
        Claim(
            MOURA,
            "PyTorch uses most of the CPU, always near 100 %",
            "sendo o PyTorch o framework que utiliza mais recursos da CPU com valores sempre próximos a 100%",
            _pytorch_uses_most_cpu,
        ),
        Claim(
            MOURA,
            "With 64×64 the GPU is used twice as much as the CPU",
            "os cenários com imagens 64x64 tendem a consumir 2 vezes mais da GPU em relação a CPU",
            _more_gpu_than_cpu,
        ),
        Claim(
            MOURA,
            "TensorFlow uses most of the GPU's memory, near 100 %",
            "o TensorFlow é o que mais utiliza a memória da GPU em todos os cenários, tendendo a 100% de utilização",
            _tensorflow_uses_most_gpu_memory,
            "TensorFlow takes all of a GPU's memory when it starts unless told otherwise: what is used and what is "
            "taken are not the same.",
        ),
        Claim(
            MOURA,
            "TensorFlow takes 2 to 3 times as long as the others",
            "desempenho de tempo de treinamento de 2 a 3 vezes maior que os outros ao qual é comparado",
            _tensorflow_takes_longer,
            of_time=True,
        ),
        Claim(
            MOURA,
            "PyTorch's training time lies between MXNet's and TensorFlow's",
            "um desempenho que o coloca entre o MXNet e o Tensorflow no quesito tempo de treinamento",
            _pytorch_is_between,
            of_time=True,
        ),
        Claim(
            MOURA,
            "PyTorch uses about 40 % of the memory",
            "utilizando cerca de 40% de memória",
            _pytorch_share("memory_mb_mean", "", _about(30, 50), "the memory"),
            "Of 8 GB in the paper's CPU machine and of 28 GB in its GPU machine: a share says little of another.",
        ),
        Claim(
            MOURA,
            "PyTorch uses about 20 % of the GPU's memory",
            "utiliza pouca memória da GPU, consumindo cerca de 20%",
            _pytorch_share("gpu_memory_mb_mean", "gpu", _about(10, 30), "the GPU's memory"),
            "Of the 16 GB of a T4.",
        ),
        Claim(
            MOURA,
            "PyTorch uses more than 80 % of the GPU",
            "apesar de utilizar mais de 80% da GPU",
            _pytorch_share("gpu_percent_mean", "gpu", lambda f: above(f.low, f.high, 80.0), "the GPU"),
        ),
        Claim(
            MOURA,
            "CIFAR-10 trains faster than MNIST",
            "os cenários com CIFAR-10 possuíram tempos de treinamento menores quando comparados aos cenários que "
            "utilizaram o MNIST",
            _faster_dataset,
            "MNIST has 60,000 pictures to train on and CIFAR-10 has 50,000.",
            of_time=True,
        ),
        Claim(
            MOURA,
            "All 240 runs cost about R$158",
            "o valor total gasto indicado pelos painel de gerenciamento de custos da Microsoft Azure foi de "
            "aproximadamente de R$158,00",
            _total,
        ),
    ),
    "referral": (
        Claim(
            ARAUJO,
            "A TPU takes 36 % less time than two T4 GPUs: 33.24 minutes in place of 51.33",
            "uma redução de tempo de 36%, diminuindo de 51,33 minutos com as GPUs para 33,24 minutos",
            _tpu_is_faster,
            "From 51.33 to 33.24 minutes is 35.2 % less.",
            of_time=True,
        ),
        Claim(
            ARAUJO,
            "The TPU's times deviate twice as much as the GPU's",
            "o desvio padrão do tempo de execução na TPU foi o dobro do observado na GPU",
            _tpu_varies_more,
            "On two different services, Colab and Kaggle.",
            of_time=True,
        ),
    ),
}
