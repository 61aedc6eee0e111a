"""One request at a time: cold start, warm latency, overhead over the bare runtime, memory at rest."""

import random
import sys
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from serving_figures import Figure, difference_over_blocks, ratio_of_medians, ratio_over_blocks
from serving_models import Model
from serving_photos import Photos
from serving_servers import Line, Running, Server, first_answer, lean, memory_mb, published, started, up

from fundoscope.artefact.artefact import Artefact
from fundoscope.artefact.runtime import open_predictor
from fundoscope.data.photo import prepare
from fundoscope.quota import cores
from fundoscope.serve.grading import Grader

AGREE = 2e-3  # between runtimes, of a probability
COLD = {"MobileNet": 10.0, "VGG19": 10.0}
WARM = {"MobileNet": 5.0, "VGG19": 1.4}
WARM_INT8 = {"MobileNet": 8.0, "VGG19": 2.5}
OVERHEAD_MS = 1.5
MEMORY = 1 / 5


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def expected(artefact: Path, photo: bytes) -> list[float]:
    """What a right answer says, computed here."""
    opened = Artefact.open(artefact, verify=False)
    pixels = prepare(photo, opened.input.preparation).pixels
    answer: list[float] = open_predictor(opened, threads=cores()).probabilities(pixels[None])[0].tolist()
    return answer


def lean_servers(model: Model) -> dict[str, Server]:
    """Ours, by precision. A refused INT8 may be timed, and is said to be refused."""
    found = {"float32": lean(model.onnx)}
    if model.int8 is not None:
        found["INT8"] = lean(model.int8, "--unsafe", name="lean INT8")
    return found


def cold(model: Model, photos: Photos, repetitions: int) -> tuple[list[Figure], dict[str, Any]]:
    """Process start to first correct answer; every server anew each time, in random order.

    The published stack starts a worker per processor, each of which imports TensorFlow; the thesis's memory would have
    allowed one. What is judged is the smaller ratio.
    """
    photo = photos.small[0]
    first_request, one_worker = ("--load", "first-request"), ("--workers", "1")
    opponents = {
        "published": published(model.savedmodel, *first_request),
        "published, one worker": published(model.savedmodel, *first_request, *one_worker),
        "published, one worker, signature call": published(
            model.savedmodel, *first_request, *one_worker, call="signature"
        ),
    }
    servers = opponents | lean_servers(model)
    truths = {name: model.int8 if name == "INT8" else model.onnx for name in servers}
    right = {name: expected(path, photo) for name, path in truths.items() if path is not None}
    seconds: dict[str, list[float]] = {name: [] for name in servers}
    shuffled = random.Random(1)
    for repetition in range(repetitions):
        for name in shuffled.sample(list(servers), len(servers)):
            with started(servers[name]) as running:
                taken, predictions = first_answer(running, photo)
            if (apart := float(np.abs(np.subtract(predictions, right[name])).max())) > AGREE:
                raise RuntimeError(f"{name} answered {predictions}, {apart} from {right[name]}")
            seconds[name].append(taken)
            _say(f"cold start {model.name} {repetition + 1}/{repetitions} {name}: {taken:.2f} s")
    return _cold_figures(model, seconds, opponents), {"seconds": seconds}


def _cold_figures(model: Model, seconds: dict[str, list[float]], opponents: Collection[str]) -> list[Figure]:
    figures = []
    for ours in [name for name in seconds if name not in opponents]:
        # VGG19's figure may be INT8's, if its guard does not refuse it; whichever is judged, the other is shown.
        judged = ours == ("INT8" if model.name == "VGG19" and "INT8" in seconds and not model.refused else "float32")
        ratios = {theirs: ratio_of_medians(seconds[theirs], seconds[ours]) for theirs in opponents}
        # The call is a change to the published code, and shown; the number of workers is a setting, and judged.
        least = min(list(opponents)[:2], key=lambda theirs: ratios[theirs][0])
        for theirs, (value, interval) in ratios.items():
            medians = f"{np.median(seconds[theirs]):.2f} s / {np.median(seconds[ours]):.2f} s"
            note = f"{medians}, n = {len(seconds[ours])}" + (f"; {model.guarded}" if ours == "INT8" else "")
            measure = f"cold start, {model.name}, {ours} against {theirs}"
            reach = COLD[model.name] if judged and theirs == least else None
            figures.append(Figure(measure, value, interval, reach, note=note))
    return figures


def warm(model: Model, photos: Photos, blocks: int, per_block: int) -> tuple[list[Figure], dict[str, Any]]:
    """p50 of one request after another, on servers that are all up, in blocks in random order."""
    servers = {
        "published": published(model.savedmodel),
        "published, signature call": published(model.savedmodel, call="signature"),
    } | lean_servers(model)
    readings: dict[tuple[str, str], list[list[float]]] = {}
    with ExitStack() as stack:
        ports: dict[str, int] = {}
        for name, server in servers.items():
            running = stack.enter_context(up(server, photos.small[0]))
            _settle(running, photos.small)
            ports[name] = running.port
        shuffled = random.Random(2)
        for block in range(blocks):
            for size in ("small", "full"):
                for name in shuffled.sample(list(servers), len(servers)):
                    sent = shuffled.choices(getattr(photos, size), k=per_block + 1)
                    line = Line(ports[name])  # anew: nginx closes one that was silent for 5 s
                    times = [line.time_ms(servers[name].request(photo)) for photo in sent]
                    line.close()
                    readings.setdefault((name, size), []).append(times[1:])  # the first is on a new connection
            _say(f"warm {model.name} block {block + 1}/{blocks}")
    return _warm_figures(model, readings), {f"{name}, {size}": values for (name, size), values in readings.items()}


def _warm_figures(model: Model, readings: dict[tuple[str, str], list[list[float]]]) -> list[Figure]:
    figures = []
    names = {name for name, _ in readings}
    for ours, reach in (("float32", WARM), ("INT8", WARM_INT8)):
        if ours not in names:
            continue
        for theirs in ("published", "published, signature call"):
            for size, said in (("small", "224 px"), ("full", "full resolution")):
                value, interval = ratio_over_blocks(readings[theirs, size], readings[ours, size])
                p50 = [float(np.median(np.concatenate(readings[name, size]))) for name in (theirs, ours)]
                judged = theirs == "published" and size == "small"
                note = f"{p50[0]:.1f} ms / {p50[1]:.1f} ms" + (f"; {model.guarded}" if ours == "INT8" else "")
                void = "so it does not count" if ours == "INT8" and model.refused else ""
                measure = f"warm p50, {model.name}, {ours} against {theirs}, {said}"
                wanted = reach[model.name] if judged else None
                figures.append(Figure(measure, value, interval, wanted, note=note, void=void))
    return figures


def _settle(running: Running, photos: list[bytes]) -> None:
    """Every worker has answered and is as fast as it will be: the published stack has one per processor."""
    for _ in range(4 * cores()):
        line = Line(running.port)
        for photo in photos[:3]:
            line.time_ms(running.server.request(photo))
        line.close()


def overhead(model: Model, photos: Photos, blocks: int, per_block: int) -> tuple[list[Figure], dict[str, Any]]:
    """The lean server against the same decode and predict in this process, with as many threads."""
    artefact = Artefact.open(model.onnx, verify=False)
    grader = Grader(artefact, open_predictor(artefact, threads=cores()))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cores()  # and all else as ONNX Runtime would have it
    session = onnxruntime.InferenceSession(artefact.model, options, providers=["CPUExecutionProvider"])

    def bare(photo: bytes) -> Any:
        return session.run(None, {artefact.input.name: prepare(photo, artefact.input.preparation).pixels[None]})

    def graded(photo: bytes) -> Any:
        return grader.grade([grader.read(photo)])

    with up(lean(model.onnx), photos.small[0]) as running:
        _settle(running, photos.small)
        line = Line(running.port)
        ways: dict[str, Callable[[bytes], Any]] = {
            "http": lambda photo: line.ask(running.server.request(photo)),
            "bare": bare,
            "graded": graded,
        }
        readings: dict[str, dict[str, list[list[float]]]] = {}
        shuffled = random.Random(3)
        for _ in range(blocks):
            for size in ("small", "full"):
                for name in shuffled.sample(list(ways), len(ways)):
                    sent = shuffled.choices(getattr(photos, size), k=per_block + 2)
                    times = [_time_ms(ways[name], photo) for photo in sent]
                    readings.setdefault(size, {}).setdefault(name, []).append(times[2:])
        line.close()
    figures = []
    for size, said in (("small", "224 px"), ("full", "full resolution")):
        for below, what in (("bare", "decode + predict"), ("graded", "decode + gradability + predict")):
            value, interval = difference_over_blocks(readings[size]["http"], readings[size][below])
            p50 = [float(np.median(np.concatenate(readings[size][name]))) for name in ("http", below)]
            judged = OVERHEAD_MS if (size, below) == ("small", "bare") else None
            note = f"{p50[0]:.2f} ms - {p50[1]:.2f} ms"
            measure = f"overhead p50 over bare {what}, {model.name}, {said}"
            figures.append(Figure(measure, value, interval, judged, "less", "ms", note))
    return figures, readings


def _time_ms(way: Callable[[bytes], Any], photo: bytes) -> float:
    start = time.perf_counter()
    way(photo)
    return (time.perf_counter() - start) * 1000


def memory(model: Model, photos: Photos, repetitions: int) -> tuple[list[Figure], dict[str, Any]]:
    """Idle, one worker, after a few photographs."""
    servers = {"published": published(model.savedmodel, "--workers", "1"), "lean": lean(model.onnx, "--workers", "1")}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
    for _ in range(repetitions):
        for name, server in servers.items():
            with up(server, photos.small[0]) as running:
                _settle(running, photos.small)
                time.sleep(1)
                found[name].append(memory_mb(running))
    figures = []
    for kind, judged in (("pss", MEMORY), ("rss", None)):
        ours, theirs = ([one[kind] for one in found[name]] for name in ("lean", "published"))
        value, interval = ratio_of_medians(ours, theirs)
        note = f"{np.median(ours):.0f} MB / {np.median(theirs):.0f} MB, all processes"
        measure = f"memory idle ({kind.upper()}), one worker, {model.name}"
        figures.append(Figure(measure, value, interval, judged, "less", note=note))
    return figures, found
