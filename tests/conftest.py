import dataclasses
import os
import signal
import threading
from pathlib import Path

import pytest
from once import made_once
from untrained_run import UntrainedRun, draw_records, fabricate_run, keras_warnings_are_its_own

from fundoscope.artefact.export import Exported, export
from fundoscope.data.draw import draw_folder
from fundoscope.data.intake import import_photographs
from fundoscope.data.manifest import Manifest
from fundoscope.data.photo import Preparation
from fundoscope.data.prepare import prepare_records
from fundoscope.data.records import Records

# Two processes test side by side, each on one processor (`make test`). Before anything reads these variables.
if "PYTEST_XDIST_WORKER" in os.environ:
    THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    os.environ |= dict.fromkeys(THREADS, "1")
# Started in the background, a shell has us ignore Ctrl-C, and what tests start and interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Those that take longest begin first, so that both processes end together: minutes, then tens of seconds.
LONGEST = (
    "tests/deploy/test_deploy_cycle.py",
    "tests/conform/test_process_faults.py",  # and the others of its port
    "tests/deploy/test_container.py",
    "tests/cli/test_main.py",
    "tests/serve/test_published_stack.py",
    "tests/artefact/test_exporting.py",
    "tests/report/test_study_report.py",
    "tests/experiment/test_environments.py",
    "tests/serve/test_service.py",
    "tests/serve/test_fuzz.py",
    "tests/experiment/test_invoke.py",
    "tests/experiment/test_kill.py",
    "tests/model/test_train.py",
    "tests/screen/test_screen.py",
    "tests/cli/test_study_command.py",
    "tests/cli/test_advise_command.py",
    "tests/report/test_study_browser.py",
    "tests/experiment/test_cnn.py",
    "tests/experiment/test_referral.py",
)
SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real photographs and weights beside the checkout; not part of the repository."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no real photographs here: {SHARED_DATA} is absent")
    return SHARED_DATA


# What one process at a time may use, and the files that use it: these stay in one process, one after the other.
TOGETHER = {
    "port 8080": ("tests/conform/", "tests/cli/test_conform.py"),
    "the count of processes ended for want of memory": (
        "tests/experiment/test_invoke.py",
        "tests/experiment/test_limits.py",
        "tests/experiment/test_runner.py",
    ),
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """A file at a time to each process; files that must not run side by side as if they were one."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return next((name for name, files in TOGETHER.items() if file.startswith(files)), file)

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))


@pytest.fixture(scope="session")
def drawn_manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """160 drawn eyes, imported and split."""

    def draw(folder: Path) -> Manifest:
        draw_folder(folder / "eyes", n=160, seed=3, size=256)
        manifest = import_photographs("drawn", folder / "eyes", folder=folder, seed=3)
        manifest.write(folder / "manifest.csv")
        return Manifest.read(folder / "manifest.csv")

    return made_once(tmp_path_factory, "drawn", draw)


@pytest.fixture(scope="session")
def drawn_records(drawn_manifest: Manifest, tmp_path_factory: pytest.TempPathFactory) -> Records:
    """The same, prepared at 64 px: enough to train something in a second."""

    def prepare(folder: Path) -> Path:
        records, failures = prepare_records(drawn_manifest, folder / "records", Preparation(size=64))
        assert failures == ()
        return records.folder

    return Records.open(made_once(tmp_path_factory, "drawn-records", prepare))


@pytest.fixture(scope="session")
def other_manifest(drawn_manifest: Manifest, tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """Forty other eyes, and four that are in drawn_manifest's training part."""

    def draw(folder: Path) -> Manifest:
        draw_folder(folder / "eyes", n=40, seed=99, size=256)
        other = import_photographs("drawn", folder / "eyes", folder=folder)
        learnt = [p for p in drawn_manifest.photographs if p.split == "train"][:4]
        moved = [dataclasses.replace(p, path=str(drawn_manifest.folder / p.path)) for p in learnt]
        manifest = Manifest((*other.photographs, *moved), folder)
        manifest.write(folder / "others.csv")
        return Manifest.read(folder / "others.csv")

    return made_once(tmp_path_factory, "others", draw)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> UntrainedRun:
    def fabricate(folder: Path) -> UntrainedRun:
        with keras_warnings_are_its_own():
            return fabricate_run(folder / "ordinal", draw_records(folder / "drawn"))

    return made_once(tmp_path_factory, "run", fabricate)


@pytest.fixture(scope="session")
def exported(run: UntrainedRun, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Exported]:
    """The run in both formats; tests must not write into these folders."""

    def both(folder: Path) -> dict[str, Exported]:
        return {format: export(run.folder, folder / format, format=format) for format in ("onnx", "savedmodel")}

    return made_once(tmp_path_factory, "artefacts", both)
