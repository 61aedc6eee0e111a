"""What being measured costs, and how large a study can be.

    python benchmarks/studies.py [--quick] [--parts overhead,large] [--framework pytorch]

processes the same training as a bare script and inside a study: the ratio of an epoch's time, over pairs of processes.
          Both are up and take turns of a second, the other one stopped meanwhile with its sampler (SIGSTOP): from one
          process to the next the machine itself changes by more than what is looked for. And the sampler's CPU time
overhead  one training, watched and not watched in turns of some seconds, in random order: the sampler's part alone
large     a study of 100,000 outcomes, made up: `study analyse` and `study report`, seconds and peak memory
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from itertools import pairwise
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import numpy as np
from scipy import stats

from fundoscope.experiment.design import Design, open_design
from fundoscope.experiment.environments import create, default_folder
from fundoscope.experiment.machine import this_machine
from fundoscope.experiment.measure import Task, measure
from fundoscope.experiment.outcome import FORMAT, Failed, Measured, Ran, to_json
from fundoscope.experiment.sampler import Sampler
from fundoscope.experiment.workloads import Place, command_for
from fundoscope.provenance import versions, write_json

OUTCOMES = 100_000
TURN_S = 4.0
PROCESS_TURN_S = 1.0
EPOCHS_OF_A_PAIR = 100  # as many as a trial keeps one by one
LEAST_EPOCHS = 3  # of a turn, for it to have a median
WAYS = ("bare", "studied")
# A training that says when each epoch ended and how long it took.
STAMPED = """
import sys, time
from fundoscope.experiment import cnn
inner = cnn._epoch
def stamped(*arguments):
    found = inner(*arguments)
    print(time.monotonic(), found.all_s, flush=True)
    return found
cnn._epoch = stamped
job = cnn.CnnJob(sys.argv[1], "mnist", 32, "rede1", images=256, at_least_s=float(sys.argv[2]), data="drawn")
cnn.run(job, seed=5, data_folder=None)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few repetitions: does it run, not how fast is it")
    parser.add_argument("--parts", default="overhead,processes,large")
    parser.add_argument("--framework", default="mxnet", help="the one that starts soonest, and varies least")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")
    found: dict[str, Any] = {"machine": this_machine().to_json()}
    if "overhead" in parts:
        found["overhead"] = overhead(arguments.framework, pairs=2 if arguments.quick else 75)
    if "processes" in parts:
        found["processes"] = processes(arguments.framework, pairs=2 if arguments.quick else 60)
    if "large" in parts:
        found["large"] = large(OUTCOMES // 50 if arguments.quick else OUTCOMES)
    print(json.dumps(found, indent=2))
    if arguments.json:
        write_json(arguments.json, found | {"benchmark": "studies", "versions": versions()})
    return 0


def overhead(framework: str, *, pairs: int) -> dict[str, Any]:
    """A sampler looks at a running training every second for one turn of each pair."""
    environment = create(framework, "cpu", default_folder())
    command = [str(environment.python), "-c", STAMPED, framework, str(3 * pairs * TURN_S + 600)]
    variables = os.environ | {"PYTHONPATH": str(environment.code)}
    order, turns = random.Random(3), []
    with TemporaryFile("w+") as said, subprocess.Popen(command, env=variables, stdout=said) as worker:
        while not os.fstat(said.fileno()).st_size:  # the first epoch compiles
            assert worker.poll() is None
            time.sleep(0.1)
        for _ in range(pairs):
            for way in order.sample(["alone", "watched"], 2):
                began = time.monotonic()
                with Sampler(worker.pid, 1.0) if way == "watched" else nullcontext():
                    time.sleep(TURN_S)
                turns.append((way, began, time.monotonic()))
        worker.terminate()
        worker.wait()
        said.seek(0)
        lines = [line.split() for line in said if line.endswith("\n")]
    epochs = np.array([[float(cell) for cell in line] for line in lines])
    ratios = []
    for first, second in zip(turns[::2], turns[1::2], strict=True):
        seconds = {}
        for way, began, ended in (first, second):
            inside = (epochs[:, 0] - epochs[:, 1] >= began) & (epochs[:, 0] <= ended)
            seconds[way] = float(np.median(epochs[inside, 1]))
        ratios.append(seconds["watched"] / seconds["alone"])
    return {"framework": framework, "turn_s": TURN_S, "epochs": len(epochs), **_ratio(ratios)}


def _ratio(ratios: list[float]) -> dict[str, float]:
    """Their geometric mean with its 95 % interval."""
    logs = np.log(ratios)
    half = float(stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs)))
    ends = {"ratio": logs.mean(), "low": logs.mean() - half, "high": logs.mean() + half}
    return {"pairs": len(ratios)} | {name: float(np.exp(value)) for name, value in ends.items()}


def processes(framework: str, *, pairs: int) -> dict[str, Any]:
    """Epochs of a bare script and of a trial; a pair's ratio is that of its turns, the interval is over pairs."""
    environments = default_folder()
    create(framework, "cpu", environments)
    factors = {"framework": (framework,)}
    settings = {"dataset": "mnist", "image": 32, "network": "rede1", "images": 256, "data": "drawn"}
    design = Design("overhead", "cnn", factors, 1, settings=settings)
    order, ratios, turns, sampler_percent = random.Random(3), [], [], []
    for pair in range(pairs):
        with TemporaryDirectory() as folder:
            place = Place(str(environments), folder, "", folder)
            trained = settings | {"epochs": EPOCHS_OF_A_PAIR}
            task = Task("overhead", design.trials[0], "cnn", trained, 5, 600, 1.0, place)
            readings, sampler = _in_turns(task, Path(folder), first=order.choice(WAYS))
        logs = _paired([readings[way] for way in ("studied", "bare")])
        ratios.append(float(np.exp(np.mean(logs))))
        turns.append(len(logs))
        sampler_percent.append(sampler)
        print(f"pair {pair + 1}: {ratios[-1]:.4f} in {len(logs)} turns, sampler {sampler:.3f} %", file=sys.stderr)
    return {
        "framework": framework,
        **_ratio(ratios),
        "turns_of_a_pair": statistics.median(turns),
        "sampler_percent_of_a_processor": statistics.mean(sampler_percent),
        "sampler_percent_worst": max(sampler_percent),
    }


def _in_turns(task: Task, scratch: Path, *, first: str) -> tuple[dict[str, list[float]], float]:
    """Seconds of every epoch, by way; and the sampler's share of a processor while its trial ran."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    running = {
        "bare": multiprocessing.Process(target=_bare, args=(task, scratch)),
        "studied": multiprocessing.Process(target=_studied, args=(task, sender)),
    }
    way = first
    for process in running.values():
        process.start()
    outcome, ran_s = None, 0.0
    try:
        while all(process.is_alive() for process in running.values()):
            resting = WAYS[1 - WAYS.index(way)]
            _signal(running[resting], signal.SIGSTOP)
            running[way].join(PROCESS_TURN_S)
            ran_s += PROCESS_TURN_S if way == "studied" else 0.0
            _signal(running[resting], signal.SIGCONT)
            way = resting
        outcome = receiver.recv()  # whichever is left goes on alone
        running["bare"].join()
    finally:
        for process in running.values():
            _signal(process, signal.SIGKILL)
            process.join()
    assert isinstance(outcome, Measured), outcome
    bare = json.loads((scratch / "readings.json").read_text())
    epochs = {"bare": list(bare["epoch_s"]), "studied": list(outcome.readings["epoch_s"])}
    return epochs, 100 * outcome.usage["sampler_s"] / ran_s


def _signal(process: BaseProcess, number: int) -> None:
    """To the process and all that it has started, while it is there."""
    assert process.pid is not None
    pids = [process.pid] if process.is_alive() else []
    for pid in pids:
        with suppress(OSError):  # it has ended meanwhile
            children = [thread.joinpath("children").read_text() for thread in Path(f"/proc/{pid}/task").iterdir()]
            pids += [int(child) for text in children for child in text.split()]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _paired(both: list[list[float]]) -> list[float]:
    """Log ratios of the two, turn by turn: an epoch during which its process was stopped is long, and parts them."""
    blocks = []
    for seconds in both:
        longest = statistics.median(seconds) + PROCESS_TURN_S / 2
        stopped = [i for i, epoch_s in enumerate(seconds) if epoch_s > longest]
        parts = [seconds[start + 1 : end] for start, end in pairwise([0, *stopped, len(seconds)])]
        blocks.append([statistics.median(part) for part in parts if len(part) >= LEAST_EPOCHS])
    studied, bare = blocks
    if not studied or not bare:
        raise RuntimeError(f"no turn of {PROCESS_TURN_S:g} s holds {LEAST_EPOCHS} epochs: this machine is too busy")
    return [math.log(first / second) for first, second in zip(studied, bare, strict=False)]


def _studied(task: Task, to: Connection) -> None:
    to.send(measure(task).outcome)


def _bare(task: Task, scratch: Path) -> None:
    parameters = {**task.settings, **task.trial.cell.levels}
    about = {"workload": task.workload, "parameters": parameters, "seed": task.seed, "data": ""}
    (scratch / "task.json").write_text(json.dumps(about))
    command = command_for(task.workload, task.trial.cell.levels, task.settings, task.place, scratch)
    subprocess.run(command.words, env=os.environ | dict(command.environment), check=True, capture_output=True)


def large(outcomes: int) -> dict[str, Any]:
    """Of 48 cells, and of as many cells as there are outcomes for five each."""
    found = {}
    with TemporaryDirectory() as folder:
        for name, design in _designs(Path(folder), outcomes).items():
            study = Path(folder, name)
            _write(study, design)
            began = time.perf_counter()
            command = [sys.executable, "-m", "fundoscope.cli.main", "study", "report", str(study)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds = time.perf_counter() - began
            peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024  # the largest so far
            page_mb = (study / "report.html").stat().st_size / 1e6
            found[name] = {"outcomes": len(design.trials), "seconds": seconds, "peak_mb": peak_mb, "page_mb": page_mb}
            print(name, found[name], file=sys.stderr)
    return found


def _designs(folder: Path, outcomes: int) -> dict[str, Design]:
    shipped = Path(__file__).resolve().parents[1] / "designs" / "training-cost.toml"
    text = shipped.read_text()
    few, many = folder / "few", folder / "many"
    few.mkdir()
    many.mkdir()
    (few / "design.toml").write_text(text.replace("repetitions = 5", f"repetitions = {-(-outcomes // 48)}"))
    factors = f"a = {list(range(20))}\nb = {list(range(20))}\nc = {list(range(max(2, outcomes // 5 // 400)))}"
    (many / "design.toml").write_text(
        'name = "many"\nworkload = "command"\nrepetitions = 5\nresponse = "train_s"\n'
        f'[factors]\n{factors}\n[settings]\ncommand = ["true"]\n'
    )
    return {"few": open_design(few / "design.toml"), "many": open_design(many / "design.toml")}


def _write(folder: Path, design: Design) -> None:
    """Outcomes such as the workload `cnn` leaves; one in fifty failed."""
    machine = this_machine()
    (folder / "machines").mkdir()
    (folder / "machines" / f"{machine.digest}.json").write_text(json.dumps(machine.to_json()))
    noise = np.random.default_rng(1)
    ran = Ran("2026-11-15T12:00:00+00:00", 40.0, machine.digest)
    lines = [json.dumps({"format": FORMAT, "study": design.name, "design_digest": design.digest})]
    for i, trial in enumerate(design.trials):
        slow = sum(5.0 * design.factors[name].index(level) for name, level in trial.cell.levels.items()) + 10
        epochs = (slow * np.exp(noise.normal(0, 0.03, 10)) / 10).round(6).tolist()
        readings = {"epoch_s": epochs, "train_s": sum(epochs), "first_epoch_s": epochs[0], "import_s": 2.0}
        readings |= {"losses": epochs, "accuracy": 0.9, "threads": 2, "versions": {"numpy": "2.4.6"}, "data": "drawn"}
        usage = {"cpu_percent_mean": 190.0, "cpu_percent_max": 200.0, "memory_mb_mean": 500.0, "memory_mb_max": 600.0}
        outcome = Failed(trial, ran, "crashed", "it ended with status 1", "…") if i % 50 == 7 else None
        lines.append(json.dumps(to_json(outcome or Measured(trial, ran, readings, usage))))
    (folder / "outcomes.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
