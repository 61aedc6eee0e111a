"""How long a trial will take, before it is run: from trials of its study, or else a guess from the work to be done."""

from collections.abc import Mapping
from dataclasses import dataclass

from fundoscope.experiment.design import Cell, Design
from fundoscope.experiment.machine import Machine
from fundoscope.experiment.workloads import environment_of

# Multiply-adds a second in training small networks, as measured here (benchmarks/RESULTS.md): a guess within some
# three times, for a plan to start from. A processor; a whole accelerator.
CPU_RATE, GPU_RATE = 3e10, 3e12
START_S = 8.0  # a framework's import and compilation


@dataclass(frozen=True)
class Expected:
    """Seconds of one trial of each cell that can run here; None: not known."""

    seconds: Mapping[int, float | None]  # by cell number
    measured: int  # trials this rests on; 0: a guess, or nothing
    lacking: Mapping[int, str]  # cells that cannot run here, and why


def expect(design: Design, machine: Machine, walls: Mapping[int, list[float]]) -> Expected:
    """`walls`: seconds of measured trials, by cell."""
    known = {number: sum(some) / len(some) for number, some in walls.items()}
    seconds: dict[int, float | None] = {}
    lacking: dict[int, str] = {}
    for cell in design.cells:
        if cell.number in known:
            seconds[cell.number] = known[cell.number]
        elif reason := _lacking(design, cell, machine):
            lacking[cell.number] = reason
        else:
            seconds[cell.number] = _guess(design, cell, machine)
    return Expected(seconds, sum(map(len, walls.values())), lacking)


def _lacking(design: Design, cell: Cell, machine: Machine) -> str:
    wanted = environment_of(design.workload, {**design.settings, **cell.levels})
    return "no GPU" if wanted is not None and wanted[1] == "gpu" and not machine.gpus else ""


def _guess(design: Design, cell: Cell, machine: Machine) -> float | None:
    if design.workload != "cnn":
        return None
    from fundoscope.experiment.cnn import CnnJob
    from fundoscope.experiment.images import FULL, SHAPES
    from fundoscope.experiment.networks import NETWORKS, multiply_adds

    job = CnnJob(**{**design.settings, **cell.levels})
    work = 3 * multiply_adds(NETWORKS[job.network], job.image, SHAPES[job.dataset][2])
    images = (job.images or FULL[job.dataset][0]) * job.epochs
    processors = job.threads or machine.processors
    return START_S + images * work / (GPU_RATE if job.device == "gpu" else CPU_RATE * processors)
