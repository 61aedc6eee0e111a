"""Smaller artefacts from a real one: what is in them, what they answer, and when there are none."""

import json
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from untrained_run import TEST, UntrainedRun, change_json

from fundoscope.artefact.artefact import Artefact, usable, write
from fundoscope.artefact.export import Exported
from fundoscope.artefact.held_out import calibrating, held_out
from fundoscope.artefact.measure import compare_latency, peak_memory
from fundoscope.artefact.precisions import PRECISIONS, to_bfloat16, to_float16, to_int8
from fundoscope.artefact.quantise import Quantised, quantise
from fundoscope.artefact.runtime import OnnxPredictor, open_predictor
from fundoscope.data.grades import referral_of
from fundoscope.data.manifest import Manifest, Photograph
from fundoscope.data.photo import Preparation
from fundoscope.data.prepare import prepare_records
from fundoscope.data.records import Records
from fundoscope.errors import FundoscopeError
from fundoscope.provenance import sha256_of

WIDE = 0.6  # a margin that two dozen photographs can show


@pytest.fixture(scope="session")
def records(run: UntrainedRun) -> Records:
    return Records.open(Path(json.loads((run.folder / "run.json").read_text())["records"]["folder"]))


@pytest.fixture(scope="session")
def quantised(exported: dict[str, Exported], records: Records, tmp_path_factory: pytest.TempPathFactory) -> Quantised:
    """Every method; tests must not write into these folders."""
    return quantise(
        exported["onnx"].artefact.folder,
        records.folder,
        tmp_path_factory.mktemp("quantised") / "all",
        methods=tuple(PRECISIONS),
        margin=WIDE,
        threads=1,
    )


@pytest.mark.parametrize("method", PRECISIONS)
def test_each_candidate_is_a_whole_artefact_that_names_what_it_came_from(quantised: Quantised, method: str) -> None:
    artefact = quantised.candidates[method].artefact
    assert Artefact.open(artefact.folder) == artefact
    assert (artefact.precision, artefact.format, artefact.folder.name) == (method, "onnx", method)
    assert artefact.origin["float32_digest"] == quantised.float32.digest
    assert artefact.origin["model_sha256"] == quantised.float32.origin["model_sha256"]
    assert artefact.operating_points == quantised.float32.operating_points
    assert artefact.input == quantised.float32.input
    assert artefact.digest != quantised.float32.digest
    with tarfile.open(artefact.folder / "model.tar.gz") as archive:
        assert archive.getnames() == ["artefact.json", "model.onnx"]
        packed = archive.extractfile("artefact.json")
        assert packed is not None
        assert json.load(packed)["guard"]["margin"] == WIDE


@pytest.mark.parametrize("method", PRECISIONS)
def test_bytes_go_in_and_float32_comes_out_whatever_is_in_between(quantised: Quantised, method: str) -> None:
    artefact = quantised.candidates[method].artefact
    graph = onnx.load(artefact.model).graph
    assert [value.type.tensor_type.elem_type for value in graph.input] == [TensorProto.UINT8]
    assert [value.type.tensor_type.elem_type for value in graph.output] == [TensorProto.FLOAT]
    assert (graph.input[0].name, graph.output[0].name) == (artefact.input.name, artefact.output.name)
    predictor = open_predictor(artefact, threads=1)
    for n in (1, 3):
        answers = predictor.probabilities(np.zeros((n, 64, 64, 3), np.uint8))
        assert (answers.shape, answers.dtype) == ((n, 5), np.float32)
        assert answers.sum(axis=1) == pytest.approx(np.ones(n), abs=1e-5)


def test_smaller_precisions_make_smaller_files(quantised: Quantised) -> None:
    whole = quantised.measured.size_bytes
    sizes = {method: found.measured.size_bytes / whole for method, found in quantised.candidates.items()}
    assert sizes["int8"] < 0.45  # a small network: names and scales weigh as much as its weights
    assert 0.5 < sizes["float16"] < 0.75
    assert sizes["bfloat16"] == pytest.approx(sizes["float16"], abs=1e-3)
    assert all("smaller" in found.gain for found in quantised.candidates.values())


@pytest.mark.parametrize(("method", "limit"), [("int8", 0.06), ("float16", 0.002), ("bfloat16", 0.02)])
def test_their_answers_are_close_to_float32s(quantised: Quantised, records: Records, method: str, limit: float) -> None:
    pixels = np.array(records.pixels("test"))
    float32, small = (
        referral_of(open_predictor(artefact, threads=1).probabilities(pixels), 2)
        for artefact in (quantised.float32, quantised.candidates[method].artefact)
    )
    assert float(np.std(float32)) > 0.1
    assert float(np.abs(float32 - small).mean()) < limit


def test_int8_weights_cannot_overflow_where_there_is_no_vnni(quantised: Quantised) -> None:
    """VPMADDUBSW adds two products of u8 and s8 in 16 bits: weights to ±64 fit. Depthwise kernels do not use it."""
    graph = onnx.load(quantised.candidates["int8"].artefact.model).graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    restored = {node.output[0]: node for node in graph.node if node.op_type == "DequantizeLinear"}
    largest = []
    for node in (node for node in graph.node if node.op_type == "Conv"):
        weights = stored[restored[node.input[1]].input[0]]
        group = next((a.i for a in node.attribute if a.name == "group"), 1)
        assert weights.dtype == np.int8
        if group == 1:
            largest.append(int(np.abs(weights.astype(int)).max()))
            assert len(stored[restored[node.input[1]].input[1]]) == len(weights)  # a scale for each channel
    assert len(largest) >= 3
    assert max(largest) == 64
    assert 2 * 255 * 64 <= 32767 < 2 * 255 * 65


def test_what_follows_the_last_convolution_stays_float32(quantised: Quantised) -> None:
    graph = onnx.load(quantised.candidates["int8"].artefact.model).graph
    maker = {output: node for node in graph.node for output in node.output}
    head = next(node for node in graph.node if node.op_type in ("MatMul", "Gemm"))
    assert all(maker[name].op_type != "DequantizeLinear" for name in head.input if name in maker)
    weights = next(tensor for tensor in graph.initializer if tensor.name == head.input[1])
    assert weights.data_type == TensorProto.FLOAT


def one_convolution(weights: np.ndarray, folder: Path) -> Path:
    """Bytes, scaled to 0…1, convolved, averaged: the mean of every channel is the answer."""
    nodes = [
        helper.make_node("Cast", ["pixels"], ["wide"], "cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["wide", "scale"], ["scaled"], "scaling"),
        helper.make_node("Transpose", ["scaled"], ["planes"], "transpose", perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["planes", "weights"], ["features"], "conv"),
        helper.make_node("ReduceMean", ["features", "places"], ["probabilities"], "mean", keepdims=0),
    ]
    constants = {
        "scale": np.array(1 / 255, np.float32),
        "weights": weights.astype(np.float32),
        "places": np.array([2, 3], np.int64),
    }
    graph = helper.make_graph(
        nodes,
        "one",
        [helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["n", 8, 8, 3])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", len(weights)])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    path = folder / "one.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def test_rounding_the_weights_does_not_move_the_mean_of_a_channel(tmp_path: Path) -> None:
    """Weights of 0.4 of a step, which all round to nothing: without correction the channel would lose them all."""
    weights = np.full((2, 3, 3, 3), 0.4 / 64)
    weights[:, 0, 1, 1] = 1.0
    model = one_convolution(weights, tmp_path)
    photographs = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    to_int8(model, tmp_path / "small.onnx", list(photographs[:20]))
    float32, small = (
        OnnxPredictor(path, 1).probabilities(photographs).mean(axis=0) for path in (model, tmp_path / "small.onnx")
    )
    lost = 26 * 0.4 / 64 * 0.5  # what rounding takes: 26 of 27 weights, of pixels of 0.5 on average
    assert lost > 0.08
    assert float32 - small == pytest.approx([0, 0], abs=0.004)


@pytest.mark.parametrize(
    ("to_half", "kept", "unit"),
    [(to_float16, TensorProto.FLOAT16, 2.0**-11), (to_bfloat16, TensorProto.BFLOAT16, 2.0**-8)],
)
def test_half_the_bits_round_to_the_nearest(to_half: object, kept: int, unit: float, tmp_path: Path) -> None:
    weights = np.random.default_rng(1).normal(0, 1, (4, 3, 1, 1)).astype(np.float32)
    to_half(one_convolution(weights, tmp_path), tmp_path / "small.onnx", [])  # type: ignore[operator]
    (stored,) = (t for t in onnx.load(tmp_path / "small.onnx").graph.initializer if t.data_type == kept)
    assert stored.dims == [4, 3, 1, 1]
    rounded = numpy_helper.to_array(stored).astype(np.float32)
    assert (np.abs(rounded - weights) <= unit * np.abs(weights)).all()
    assert (rounded != weights).any()


def test_calibration_looks_at_tuning_photographs_and_at_none_that_will_judge(records: Records) -> None:
    looked_at = {photograph.tobytes() for photograph in calibrating(records, 1000, seed=0)}
    tuning, judging = (
        {np.array(records.pixels(part)[i]).tobytes() for i, row in enumerate(records.of(part)) if row.gradable}
        for part in ("tune", "test")
    )
    assert looked_at == tuning
    assert len(looked_at) > 20
    assert not looked_at & judging
    few = {photograph.tobytes() for photograph in calibrating(records, 16, seed=0)}
    assert len(few) == 16
    assert few < tuning
    assert few != {photograph.tobytes() for photograph in calibrating(records, 16, seed=1)}


def test_a_photograph_of_both_parts_calibrates_and_does_not_judge(quantised: Quantised, records: Records) -> None:
    tuning, judging = records.of("tune")[3], records.of("test")[5]
    rows = tuple(replace(row, id=tuning.id) if row == judging else row for row in records.rows)
    whole, less = (held_out(quantised.float32, each, None) for each in (records, replace(records, rows=rows)))
    assert (whole.left_out, len(whole.rows)) == (0, TEST)
    assert (less.left_out, len(less.rows)) == (1, TEST - 1)
    assert tuning.id not in {row.id for row in less.rows}
    assert np.array_equal(less.pixels, np.delete(np.array(whole.pixels), 5, axis=0))
    assert less.digest != whole.digest


def test_int8_is_calibrated_on_the_tuning_part_alone(
    quantised: Quantised, records: Records, exported: dict[str, Exported], tmp_path: Path
) -> None:
    """The same model comes out whatever the judging photographs are."""
    model, made = exported["onnx"].artefact.model, quantised.candidates["int8"].artefact.model
    to_int8(model, tmp_path / "tune.onnx", calibrating(records, 128, seed=0))
    assert (tmp_path / "tune.onnx").read_bytes() == made.read_bytes()
    to_int8(model, tmp_path / "test.onnx", list(np.array(records.pixels("test"))))
    assert (tmp_path / "test.onnx").read_bytes() != made.read_bytes()


def test_candidates_tried_together_count_together(quantised: Quantised) -> None:
    """Of four, the best is taken: none of them was the only one."""
    (attempts,) = {found.guard.attempts for found in quantised.candidates.values()}
    assert attempts >= 4  # and those of other tests before
    for found in quantised.candidates.values():
        assert found.guard.worse_passes_at_most == pytest.approx(min(1, attempts / 40))


def test_the_scores_are_its_own(quantised: Quantised, records: Records) -> None:
    found = quantised.candidates["int8"]
    scores, threshold = found.artefact.scores, found.artefact.operating_points[0].threshold
    rows = [row for row in records.of("test") if row.gradable]
    pixels = np.array(records.pixels("test"))[[row.gradable for row in records.of("test")]]
    answers = referral_of(open_predictor(found.artefact, threads=1).probabilities(pixels), 2)
    positive = np.array([row.grade >= 2 for row in rows])
    said = scores["gradable"]["operating_points"]["high_sensitivity"]["sensitivity"]["value"]
    assert said == pytest.approx((answers[positive] >= threshold).mean())
    assert (scores["part"], scores["gradable"]["n"]) == ("test", len(rows))
    assert scores["records_digest"] == records.digest
    assert scores["measured"] == "after quantising, on its answers"


def test_the_same_artefact_comes_out_twice(
    quantised: Quantised, exported: dict[str, Exported], records: Records, tmp_path: Path
) -> None:
    """What was measured on this machine today is in `export`, which is not digested."""
    again = quantise(
        exported["onnx"].artefact.folder, records.folder, tmp_path / "x", methods=["int8"], margin=WIDE, threads=1
    )
    first, second = quantised.candidates["int8"].artefact, again.candidates["int8"].artefact
    assert (second.digest, second.folder) == (first.digest, tmp_path / "x")
    assert second.export["measured"]["threads"] == 1
    assert second.export["measured"]["int8"]["size_bytes"] == second.size_bytes


def test_a_candidate_that_cannot_be_shown_to_be_as_good_is_written_and_refused(
    exported: dict[str, Exported], records: Records, tmp_path: Path
) -> None:
    made = quantise(exported["onnx"].artefact.folder, records.folder, tmp_path / "x", methods=["float16"], threads=1)
    refused = Artefact.open(tmp_path / "x")
    assert refused.guard is not None
    assert (refused.guard["passed"], refused.guard["photographs"] <= TEST) == (False, True)
    assert made.recommended is None
    with pytest.raises(FundoscopeError, match="was refused: its .* may be worse than float32's") as problem:
        usable(refused, unsafe=False)
    assert problem.value.hint == "serve the float32 artefact, or say --unsafe"
    assert usable(refused, unsafe=True) is refused


def test_artefacts_without_a_guard_and_those_that_passed_are_usable(quantised: Quantised) -> None:
    passed = [found.artefact for found in quantised.candidates.values() if found.guard.passed]
    assert "float16" in [artefact.precision for artefact in passed]
    for artefact in (quantised.float32, *passed):
        assert usable(artefact, unsafe=False) is artefact
    assert quantised.float32.guard is None
    assert "guard" not in quantised.float32.to_json()  # so that artefacts from before keep their digest


def test_what_is_recommended_passed_and_is_no_slower(quantised: Quantised) -> None:
    if quantised.recommended is not None:
        best = quantised.candidates[quantised.recommended]
        assert best.guard.passed
        assert best.measured.latency.faster_high >= 1
    assert quantised.measured.latency.faster == 1.0


def test_a_model_is_as_fast_as_itself(quantised: Quantised) -> None:
    models = {"a": quantised.float32.model, "b": quantised.float32.model}
    found = compare_latency(models, np.zeros((2, 64, 64, 3), np.uint8), threads=1, seed=0, rounds=30)
    assert (found["a"].faster, found["a"].faster_low, found["a"].faster_high) == (1, 1, 1)
    assert found["b"].faster_low <= found["b"].faster <= found["b"].faster_high
    assert 0.5 < found["b"].faster < 2


def test_memory_is_that_of_a_fresh_process(quantised: Quantised) -> None:
    ballast = np.ones(400_000_000 // 8)  # ours, and not to be counted
    peak_mb = peak_memory(quantised.candidates["int8"].artefact.model, threads=1) / 1e6
    assert 20 < peak_mb < 250
    assert ballast.nbytes == 400_000_000


def test_a_model_that_cannot_be_opened_is_an_error_and_no_figure(tmp_path: Path) -> None:
    (tmp_path / "x.onnx").write_bytes(b"not a model")
    with pytest.raises(FundoscopeError, match="cannot be opened"):
        peak_memory(tmp_path / "x.onnx", threads=1)


def test_killed_it_leaves_no_artefact_and_can_be_run_again(
    exported: dict[str, Exported], records: Records, tmp_path: Path
) -> None:
    out = tmp_path / "x"
    code = (
        "import sys; from pathlib import Path; from fundoscope.artefact.quantise import quantise\n"
        "quantise(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), methods=['float16'], threads=1)"
    )
    float32 = exported["onnx"].artefact.folder
    worker = subprocess.Popen([sys.executable, "-c", code, str(float32), str(records.folder), str(out)])
    deadline = time.monotonic() + 300
    while not list(tmp_path.glob(".x.*.part/model.onnx")):
        assert worker.poll() is None, "it ended before it wrote anything"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    worker.send_signal(signal.SIGKILL)
    assert worker.wait() == -signal.SIGKILL
    assert not out.exists()
    quantise(float32, records.folder, out, methods=["float16"], margin=WIDE, threads=1)
    assert Artefact.open(out).precision == "float16"


def error_of(artefact: Path, records: Path, out: Path, **options: object) -> FundoscopeError:
    before = sorted(out.parent.rglob("*"))
    with pytest.raises(FundoscopeError) as caught:
        quantise(artefact, records, out, threads=1, **options)  # type: ignore[arg-type]
    assert sorted(out.parent.rglob("*")) == before
    return caught.value


def test_what_cannot_be_quantised_says_why(
    exported: dict[str, Exported], quantised: Quantised, records: Records, tmp_path: Path
) -> None:
    error = error_of(exported["savedmodel"].artefact.folder, records.folder, tmp_path / "x")
    assert "is a savedmodel artefact, and only ONNX ones can be quantised" in error.message
    assert "--format onnx" in error.hint
    error = error_of(quantised.candidates["int8"].artefact.folder, records.folder, tmp_path / "x")
    assert "is already int8" in error.message
    assert quantised.float32.digest[:12] in error.hint
    error = error_of(quantised.float32.folder, records.folder, quantised.float32.folder)
    assert error.message == f"{quantised.float32.folder} is already there"
    error = error_of(quantised.float32.folder, records.folder, tmp_path / "x", methods=["int4"])
    assert error.message == "there is no method called 'int4'"
    error = error_of(quantised.float32.folder, records.folder, tmp_path / "x", calibration=0)
    assert error.message == "0 photographs are too few to calibrate on"


def test_records_prepared_otherwise_are_refused(quantised: Quantised, records: Records, tmp_path: Path) -> None:
    folder = tmp_path / "float32"
    shutil.copytree(quantised.float32.folder, folder)
    artefact = Artefact.open(folder)
    for change, what in (
        ({"preparation": Preparation(96)}, "preparation than the artefact: size"),
        (
            {"gradability": replace(records.rule, fundus_field=0.123)},
            "gradability rule than the artefact: fundus_field",
        ),
    ):
        write(replace(artefact, input=replace(artefact.input, **change)))  # type: ignore[arg-type]
        error = error_of(folder, records.folder, tmp_path / "x")
        assert error.message == f"{records.folder} has another {what}"
        assert "give the records it was trained on" in error.hint


def other_records(records: Records, folder: Path, split: dict[str, str]) -> Records:
    """The same photographs otherwise split, by a map from one part to the other."""
    eyes = records.folder.parent
    rows = {row.id: row for row in records.rows}
    photographs = []
    for index in range(len(rows)):
        data = (eyes / f"{index}.png").read_bytes()
        row = rows[sha256_of(data)[:16]]
        photographs.append(
            Photograph(
                f"{index}.png",
                row.grade,
                patient=row.patient,
                eye=row.eye,
                split=split.get(row.split, row.split),
                sha256=sha256_of(data),
                source="drawn",
            )
        )
    manifest = Manifest(tuple(photographs), eyes)
    return prepare_records(manifest, folder, records.preparation, rule=records.rule, processes=1)[0]


def test_without_a_tuning_part_there_is_nothing_to_calibrate_on(
    quantised: Quantised, records: Records, tmp_path: Path
) -> None:
    tested = other_records(records, tmp_path / "records", {"tune": "test"})
    error = error_of(quantised.float32.folder, tested.folder, tmp_path / "out" / "x")
    assert "has no gradable tuning photograph to calibrate on" in error.message


def test_photographs_the_model_has_learnt_from_do_not_judge_it(
    quantised: Quantised, records: Records, run: UntrainedRun, tmp_path: Path
) -> None:
    swapped = other_records(records, tmp_path / "records", {"tune": "test", "test": "tune"})
    float32, out = quantised.float32.folder, tmp_path / "out" / "x"
    error = error_of(float32, swapped.folder, out)
    assert "is not what the model was trained on" in error.message
    assert "--run runs/x" in error.hint
    copy = tmp_path / "run"
    shutil.copytree(run.folder, copy)
    assert "does not say what it has learnt from" in error_of(float32, swapped.folder, out, run=copy).message
    rows = records.of("tune")
    (copy / "seen.json").write_text(json.dumps([row.id for row in rows]))
    assert "no test photograph that the model has not seen" in error_of(float32, swapped.folder, out, run=copy).message
    (copy / "seen.json").write_text(json.dumps([row.id for row in rows[:7]]))
    made = quantise(float32, swapped.folder, out, run=copy, methods=["float16"], margin=WIDE, threads=1)
    assert made.left_out == 7
    unseen = sum(row.gradable for row in rows[7:])
    assert made.candidates["float16"].guard.photographs == unseen
    change_json(copy / "run.json", model_sha256="0" * 64)
    other = error_of(float32, swapped.folder, tmp_path / "out" / "y", run=copy)
    assert other.message == f"{float32} was not exported from {copy}"
