"""`fundoscope study` as a user types it: plan, setup, run, analyse, report; and the wrong thing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typed import Said, typed

DESIGNS = Path(__file__).resolve().parents[2] / "designs"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "cpu-and-gpu"
# Takes as long as it is told, and says so.
WORKER = """
import json, os, sys, time
size, way = int(sys.argv[1]), sys.argv[2]
if way == "broken": raise SystemExit("there is no such way")
time.sleep(0.01 * size * (2 if way == "slow" else 1))
json.dump({"work_s": 0.01 * size * (2 if way == "slow" else 1) * (1 + 0.01 * int(os.environ["FUNDOSCOPE_SIZE"]))},
          open(os.environ["FUNDOSCOPE_READINGS"], "w"))
"""
STUDY = f"""
name = "ways"
workload = "command"
repetitions = 3
response = "work_s"
sample_s = 0.05
[factors]
size = [1, 2]
way = ["quick", "slow", "broken"]
[settings]
command = [{json.dumps(sys.executable)}, "worker.py", "{{size}}", "{{way}}"]
[prices]
list = "gcp-us-central1-2026-08-21"
machine = "n2-standard-4"
"""


def study(*words: str, cwd: Path, **environment: str) -> Said:
    return typed("study", *words, cwd=cwd, **environment)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of a command, run."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "worker.py").write_text(WORKER)
    (folder / "ways.toml").write_text(STUDY)
    command = [sys.executable, "-m", "fundoscope.cli.main", "study", "run", "ways.toml"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == (
        "12 trials measured, 6 failed\n  6 × crashed: it ended with status 1\n\n"
        "next: fundoscope study report studies/ways\n"
    )
    return folder


def test_a_plan_says_cells_order_hours_dollars_and_what_will_show(folder: Path) -> None:
    found = study("plan", "ways.toml", "--json", cwd=folder)
    values = json.loads(found.stdout)
    assert (values["cells"], values["trials"], values["prices"]) == (6, 18, "gcp-us-central1-2026-08-21")
    assert sorted(values["order"])[:3] == ["C1-1", "C1-2", "C1-3"]
    assert values["expected_from_trials"] == 12  # it was run: what was measured is better than a guess
    assert values["expected_s"]["C6"] is None  # never measured, and nothing is known of such commands
    said = study("plan", "ways.toml", cwd=folder).stdout
    assert (
        "ways: 6 cells × 3 = 18 trials of 'command'; full plan, a new random order for each repetition (seed 0)" in said
    )
    assert "how long it will take is not known before something is measured" in said


def test_a_plan_of_the_published_study_counts_hours_and_dollars(tmp_path: Path) -> None:
    values = json.loads(study("plan", str(DESIGNS / "training-cost.toml"), "--json", cwd=tmp_path).stdout)
    assert (values["cells"], values["trials"]) == (48, 240)
    assert set(values["cannot_run"]) | {name for name, s in values["expected_s"].items() if s} == {
        f"C{i}" for i in range(1, 49)
    }
    assert values["hours"] > 1
    # C1 to C24 are on the CPU: what they are billed is the paper's 0.169 dollars an hour
    if values["cannot_run"]:
        assert values["usd"] == pytest.approx(0.169 * values["hours"])


def test_running_again_repeats_nothing_and_setting_up_a_command_needs_nothing(folder: Path) -> None:
    again = json.loads(study("run", "ways.toml", "--json", cwd=folder).stdout)
    assert (again["measured"], again["failed"], again["before"]) == (0, {}, 18)
    assert json.loads(study("setup", "ways.toml", "--json", cwd=folder).stdout)["environments"] == []


def test_analysis_finds_what_was_put_in(folder: Path) -> None:
    said = study("analyse", "studies/ways", cwd=folder)
    assert (said.returncode, said.stderr) == (0, "")
    findings = json.loads((folder / "studies/ways/findings.json").read_text())
    assert (findings["planned"], findings["measured"], findings["failed"]) == (18, 12, 6)
    way = next(c for c in findings["comparisons"] if {c["one"], c["other"]} == {"quick", "slow"})
    assert way["ratio"]["value"] == pytest.approx(0.5)
    size = next(c for c in findings["comparisons"] if c["factor"] == "size")
    assert size["ratio"]["value"] == pytest.approx(1.01 / (2 * 1.02))
    assert "6 of 18 trials failed: it ended with status 1 (6)." in said.stdout
    assert "next: fundoscope study report studies/ways" in said.stdout


def test_a_study_is_priced_anew_without_running(folder: Path) -> None:
    def total(*words: str) -> float:
        assert study("analyse", "studies/ways", *words, cwd=folder).returncode == 0
        found: float = json.loads((folder / "studies/ways/findings.json").read_text())["costs"]["total_usd"]
        return found

    azure = ("--prices", "azure-eastus-2025-09-11", "--machine")
    assert total(*azure, "F4s_v2") / total() == pytest.approx(0.169 / 0.19424)
    assert total(*azure, "F4s_v2", "--spot") / total() == pytest.approx(0.01859 / 0.19424)


def test_a_report_is_one_file(folder: Path) -> None:
    said = study("report", "studies/ways", "--out", "page.html", cwd=folder)
    assert said.returncode == 0
    page = (folder / "page.html").read_text()
    assert "there is no such way" in page  # the last words of what failed
    assert "http://" not in page.replace("http://www.w3.org/", "")


def test_the_example_study_compares_a_processor_with_a_gpu(tmp_path: Path) -> None:
    said = study("report", str(EXAMPLE), "--out", str(tmp_path / "page.html"), "--json", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    page = (tmp_path / "page.html").read_text()
    assert "NVIDIA H200" in page
    assert "mxnet for gpu could not be installed" in page
    assert sum(path.stat().st_size for path in EXAMPLE.rglob("*") if path.is_file()) <= 2 * 10**6


def test_every_shipped_design_can_be_planned(tmp_path: Path) -> None:
    names = sorted(path.name for path in DESIGNS.glob("*.toml"))
    assert "training-cost.toml" in names
    for name in names:
        found = study("plan", str(DESIGNS / name), "--json", cwd=tmp_path)
        assert found.returncode == 0, found.stderr


@pytest.mark.parametrize(
    ("change", "error", "hint"),
    [
        (
            ("size = [1, 2]", "siez = [1, 2]"),
            "{size} in the command of ways.toml is neither a factor nor a setting",
            "use siez",
        ),
        (("repetitions = 3", "repetitions = 0"), "ways.toml: 0 repetitions measure nothing", "use 1 or more"),
        (
            ("size = [1, 2]", "size = [1, 1]"),
            "the factor 'size' in ways.toml has the level 1 twice",
            "leave one of them out",
        ),
        (('workload = "command"', 'workload = "cn"'), "there is no workload called 'cn'", "use cnn"),
        (
            ("repetitions = 3", "repetition = 3"),
            "there is no setting in ways.toml called 'repetition'",
            "use repetitions",
        ),
        (
            ('"n2-standard-4"', '"n2-standard-5"'),
            "gcp-us-central1-2026-08-21 has no price for 'n2-standard-5'",
            "near it: n2-standard-4",
        ),
    ],
)
def test_a_wrong_study_is_refused_in_one_sentence_before_anything_runs(
    change: tuple[str, str], error: str, hint: str, tmp_path: Path
) -> None:
    (tmp_path / "ways.toml").write_text(STUDY.replace(*change))
    (tmp_path / "worker.py").write_text(WORKER)
    found = study("plan", "ways.toml", cwd=tmp_path)
    assert found.returncode == 2
    assert found.stderr.startswith(f"error: {error}")
    assert f"\nhint: {hint}" in found.stderr
    assert "Traceback" not in found.stderr
    assert not (tmp_path / "studies").exists()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("run", "nothing.toml"), "there is no file nothing.toml"),
        (("report", "nowhere"), "nowhere is not a study that was run"),
        (("report", "studies/ways", "--out", "/proc/page.html"), "/proc/page.html cannot be written: "),
        (("analyse", "studies/ways", "--metric", "wrok_s"), "there is no metric in this study called 'wrok_s'"),
        (
            ("analyse", "studies/ways", "--prices", "azure", "--machine", "F4s_v2"),
            "there is no price list called 'azure'",
        ),
        (("setup", "ways.toml", "--use", "pytorch"), "--use cannot be 'pytorch'"),
        (("environments", "--remove", "mxnet", "--environments", "none"), "there are no environments in"),
    ],
)
def test_the_wrong_thing_typed_is_answered_in_one_sentence(words: tuple[str, ...], error: str, folder: Path) -> None:
    found = study(*words, cwd=folder)
    assert found.returncode == 2
    assert found.stderr.startswith(f"error: {error}")
    assert found.stderr.count("\n") == 2


def test_a_misspelt_framework_or_factor_of_a_network_study_names_the_right_one(tmp_path: Path) -> None:
    text = (DESIGNS / "training-cost-small.toml").read_text()
    for old, new, error, hint in (
        ('"pytorch"', '"pytorhc"', "'framework' in x.toml cannot be 'pytorhc'", "use pytorch"),
        ("image =", "imgae =", "the workload 'cnn' has nothing called 'imgae' to vary", "use image"),
        ("epochs = 3", "epochs = 0", "x.toml: epochs is 0, not 1 or more", "change that value"),
        ("batch = 128", "bach = 128", "there is no setting in x.toml called 'bach'", "use batch"),
    ):
        (tmp_path / "x.toml").write_text(text.replace(old, new))
        found = study("run", "x.toml", cwd=tmp_path)
        assert found.stderr == f"error: {error}\nhint: {hint}\n"
        assert found.returncode == 2
    assert not (tmp_path / "studies").exists()


def test_data_that_are_not_there_are_an_error_before_anything_runs(tmp_path: Path) -> None:
    text = (DESIGNS / "training-cost-small.toml").read_text().replace('data = "drawn"', 'data = "files"')
    only = text.replace('["mxnet", "pytorch", "tensorflow"]', '["jax"]').replace('["cpu", "gpu"]', '["gpu"]')
    (tmp_path / "x.toml").write_text(only.split("[prices]")[0])
    network = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}  # there is none
    found = study("run", "x.toml", "--data", "nothing", cwd=tmp_path, **network)
    assert found.returncode == 2
    assert "error: cifar10 could not be downloaded from" in found.stderr
    assert "into " in found.stderr.splitlines()[-1]  # the hint says where to put it
    assert not list(tmp_path.rglob("*.part"))
    assert not list((tmp_path / "studies").rglob("series/*"))


def test_another_design_of_the_same_name_is_refused(folder: Path) -> None:
    (folder / "other.toml").write_text(STUDY.replace("size = [1, 2]", "size = [1, 3]"))
    found = study("run", "other.toml", cwd=folder)
    assert found.returncode == 2
    assert found.stderr.startswith("error: studies/ways holds another design called 'ways'")


def test_the_parent_of_a_study_imports_no_framework(folder: Path) -> None:
    code = (
        "import sys; from fundoscope.cli.main import main; main(['study', 'run', 'ways.toml']); "
        "print([name for name in ('keras', 'tensorflow', 'torch', 'jax', 'scipy', 'ray') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert found.stdout.splitlines()[-1] == "[]"
