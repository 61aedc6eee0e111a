"""fundoscope screen on the command line."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from fundoscope.artefact.artefact import Artefact, write
from fundoscope.cli.main import main
from fundoscope.data.draw import draw_eye

EYES = 12


@pytest.fixture
def folder(tmp_path):
    """Twelve drawn eyes of six patients, named as EyePACS names them."""
    (tmp_path / "photographs").mkdir()
    for i in range(EYES):
        name = f"{i // 2 + 1}_{'left' if i % 2 == 0 else 'right'}.jpeg"
        (tmp_path / "photographs" / name).write_bytes(draw_eye(8, i, size=192).jpeg())
    return tmp_path / "photographs"


@pytest.fixture(scope="module")
def artefact(exported):
    return exported["onnx"].artefact.folder


def run(*words):
    return main(["screen", *map(str, words)])


def test_a_folder_becomes_tables_and_a_page_and_the_next_command_is_named(folder, artefact, tmp_path):
    out = tmp_path / "gradings.parquet"
    words = ["screen", folder, "--artefact", artefact, "--out", out, "--patients-from-names"]
    said = subprocess.run(
        [sys.executable, "-m", "fundoscope.cli.main", *map(str, words)], capture_output=True, text=True, timeout=120
    )
    assert (said.returncode, said.stderr) == (0, "")
    lines = said.stdout.splitlines()
    assert lines[0].startswith("12 photographs: ")
    assert lines[0].endswith(" 0 unreadable, 0 failed")
    assert f"wrote {out}, {tmp_path}/gradings.patients.parquet, {tmp_path}/gradings.html" in lines
    assert lines[-1] == f"next: fundoscope serve {artefact}"
    assert any(line.startswith("6 patients: ") for line in lines)
    from pyarrow import parquet

    command = parquet.read_metadata(out).metadata[b"command"].decode()
    assert command == " ".join(["fundoscope", *map(str, words)])


def test_for_machines_everything_is_one_json_object(folder, artefact, tmp_path, capsys):
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    words = (folder, "--artefact", artefact, "--out", tmp_path / "g.csv", "--processes", 2, "--json")
    assert run(*words) == 0  # an unreadable photograph is an outcome
    first = json.loads(capsys.readouterr().out)
    assert (first["photographs"], first["unreadable"], first["failed"]) == (EYES + 1, 1, 0)
    assert first["graded"] + first["ungradable"] == EYES
    assert first["this_run"]["photographs"] == EYES + 1
    assert first["this_run"]["processes"] == 2
    assert first["this_run"]["peak_mb_per_process"] > 20
    assert first["patients_out"] is None
    assert first["next"] == f"fundoscope serve {artefact}"
    assert run(*words) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["this_run"]["photographs"] == 0
    assert {name: again[name] for name in first if name != "this_run"} == {
        name: first[name] for name in first if name != "this_run"
    }


def test_a_network_that_answers_no_numbers_fails_with_status_one(folder, artefact, tmp_path, capsys):
    import onnx

    broken = tmp_path / "broken"
    broken.mkdir()
    model = onnx.load(Artefact.open(artefact).model)
    for weight in model.graph.initializer:
        values = onnx.numpy_helper.to_array(weight)
        if values.dtype == np.float32 and values.ndim == 4:  # of a convolution
            weight.CopyFrom(onnx.numpy_helper.from_array(np.full_like(values, np.nan), weight.name))
    onnx.save(model, broken / "model.onnx")
    write(replace(Artefact.open(artefact), folder=broken))
    assert run(folder, "--artefact", broken, "--out", tmp_path / "g.csv", "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["graded"], answer["failed"]) == (0, EYES)
    assert answer["next"] != f"fundoscope serve {broken}"
    assert "the network's answer is not a number" in (tmp_path / "g.csv").read_text()


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        ({"folder": "nowhere"}, "there is nothing at", "give a folder"),
        ({"folder": "empty"}, "there is no photograph in", "is it the right folder?"),
        ({"--artefact": "nowhere"}, "is not an artefact: it has no artefact.json", "make one: fundoscope export"),
        ({"--out": "nowhere/g.csv"}, "there is no folder", "make it: mkdir -p"),
        ({"--out": "g.xlsx"}, "'.xlsx' is not an ending of a table we write: g.xlsx", "use one of .parquet, .csv"),
        ({"--out": "g.parquets"}, "'.parquets' is not an ending", "use .parquet"),
        ({"--out": "g"}, "the name has no ending of a table we write: g", "use one of"),
        ({"--operating-point": "high_sensitivty"}, "no operating point called 'high_", "use high_sensitivity"),
        ({"--patients": "who.csv"}, "1 name in who.csv is not among the photographs: 'x.jpg'", "relative to"),
        ({"--patients": "nobody.csv"}, "there is no file", "check the path"),
        ({"folder": "who.csv", "--patients": "who.csv"}, "a manifest says itself whose", "leave out --patients"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else None,
)  # fmt: skip
def test_bad_usage_gets_one_sentence_and_a_hint(folder, artefact, tmp_path, capsys, change, message, hint):
    (tmp_path / "empty").mkdir()
    (tmp_path / "who.csv").write_text("file,patient\nx.jpg,a\n")
    there = sorted(tmp_path.iterdir())
    words = {"folder": folder, "--artefact": artefact, "--out": tmp_path / "g.csv"}
    words |= {name: value if "point" in name else tmp_path / value for name, value in change.items()}
    named = [word for name, value in words.items() if name != "folder" for word in (name, value)]
    assert run(words["folder"], *named) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert message in said[0]
    assert hint in said[1]
    assert sorted(tmp_path.iterdir()) == there


def test_the_help_says_what_is_written_and_what_the_exit_status_means(capsys):
    with pytest.raises(SystemExit) as left:
        main(["screen", "--help"])
    assert left.value.code == 0
    said = capsys.readouterr().out
    assert "example:\n  fundoscope screen photographs/ --artefact artefacts/x --out gradings.parquet" in said
    assert "gradings.patients.parquet" in said
    assert "exit status: 0" in said
