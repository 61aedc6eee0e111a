import argparse
import json
import subprocess
import sys
import time

import pytest
from typed import typed

from fundoscope.cli.main import COMMANDS, build_parser

VERBS = [
    ("demo",),
    ("data", "draw"),
    ("data", "import"),
    ("data", "check"),
    ("data", "prepare"),
    ("train",),
    ("sweep",),
    ("evaluate",),
    ("export",),
    ("quantise",),
    ("sign",),
    ("serve",),
    ("conform",),
    ("screen",),
    ("image", "build"),
    ("report",),
]


def fundoscope(*words, **options):
    command = [sys.executable, "-m", "fundoscope.cli.main", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, **options)


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_verb_has_help_with_an_example_and_speaks_json(verb):
    shown = typed(*verb, "--help")
    assert shown.returncode == 0
    assert f"example:\n  fundoscope {' '.join(verb)}" in shown.stdout
    assert "--json" in shown.stdout


def test_each_command_is_found_in_the_file_that_is_said_to_hold_it():
    def commands(parser):
        (action,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        return set(action.choices)

    assert commands(build_parser()) == set(COMMANDS)
    for name in COMMANDS:
        assert name in commands(build_parser(name))


def test_the_command_line_starts_without_importing_a_framework():
    code = (
        "import sys; from fundoscope.cli.main import build_parser; build_parser().format_help();"
        "heavy = {'keras', 'tensorflow', 'jax', 'torch', 'numpy', 'scipy', 'PIL', 'matplotlib', 'onnxruntime', 'cv2'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_help_is_there_in_less_than_three_tenths_of_a_second():
    # CPU time of the child, the best of five: the machine may be busy with other things.
    import resource

    def cpu_s():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    spent = []
    for _ in range(5):
        before = cpu_s()
        assert fundoscope("--help").returncode == 0
        spent.append(cpu_s() - before)
    assert min(spent) < 0.3


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (
            ("train", "nowhere", "--out", "x"),
            "error: there is no folder nowhere",
            "hint: prepare the photographs first",
        ),
        (("train", ".", "--recipe", "finetun", "--out", "x"), "no recipe called 'finetun'", "hint: use finetune"),
        (("evaluate", "nowhere"), "error: nowhere is not a training run", "hint: fundoscope train"),
        (("report", "nowhere"), "error: ", "hint: "),
        (("export", "nowhere", "--format", "onnx", "--out", "x"), "error: ", "hint: "),
        (("data", "check", "nothing.csv"), "error: ", "hint: "),
        (("demo", "--n", "3"), "error: 3 drawn eyes are too few to learn from", "hint: use --n 100 or more"),
        (
            ("train", ".", "--backbone", "VGG91", "--out", "x"),
            "error: there is no backbone called 'VGG91'",
            "hint: use VGG19",
        ),
    ],
)
def test_bad_input_gets_one_sentence_and_a_hint(words, message, hint, tmp_path):
    said = typed(*words, cwd=tmp_path)
    assert said.returncode == 2
    assert message in said.stderr
    assert hint in said.stderr
    assert "Traceback" not in said.stderr
    assert len(said.stderr.strip().splitlines()) == 2
    assert list(tmp_path.iterdir()) == []


def test_an_error_is_json_too_where_a_machine_asked():
    said = typed("train", "nowhere", "--out", "x", "--json")
    assert said.returncode == 2
    assert json.loads(said.stdout)["error"] == "there is no folder nowhere"


def test_bad_usage_exits_with_two():
    assert typed("data", "no-such-verb").returncode == 2
    assert typed().returncode == 2


def test_a_reader_that_left_is_no_error(drawn_manifest):
    import os

    reading, writing = os.pipe()
    os.close(reading)
    command = [
        sys.executable,
        "-m",
        "fundoscope.cli.main",
        "data",
        "check",
        str(drawn_manifest.folder / "manifest.csv"),
    ]
    said = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (said.returncode, said.stderr) == (0, "")


def test_the_demo_goes_from_nothing_to_a_report_and_an_artefact(tmp_path):
    began = time.monotonic()
    said = fundoscope("demo", "--out", tmp_path / "demo", "--n", 120, "--epochs", 2, "--json")
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert found["seconds"] < time.monotonic() - began
    folder = tmp_path / "demo"
    assert {"report.html", "scores.json", "timings.json", "artefact"} <= {path.name for path in folder.iterdir()}
    timings = json.loads((folder / "timings.json").read_text())
    assert [t["stage"] for t in timings["stages"]] == [
        "draw",
        "import",
        "check",
        "prepare",
        "train",
        "export",
        "report",
    ]
    assert (folder / "artefact" / "artefact.json").is_file()
    page = (folder / "report.html").read_text()
    assert "drawn eyes" in page.lower()
    for command in ("data draw --n=120", "data import drawn", "data check", "data prepare", "train"):
        assert f"fundoscope {command}" in page
    again = fundoscope("demo", "--out", folder, "--n", 120, "--epochs", 2, "--json")
    assert json.loads(again.stdout)["scores"] == found["scores"]
