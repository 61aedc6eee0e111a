"""Limits are real: the kernel's own, in whichever version of control groups this machine has."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from fundoscope.errors import FundoscopeError
from fundoscope.experiment.limits import MIB, Group, Limits, forget_files, limited


@pytest.fixture
def may_limit() -> None:
    try:
        with limited(Limits(64, 1.0)):
            pass
    except FundoscopeError as problem:
        pytest.skip(problem.message)


@pytest.mark.usefixtures("may_limit")
def test_a_process_that_needs_more_memory_is_ended_and_counted() -> None:
    with limited(Limits(memory_mb=64, cpus=1.0)) as group:
        code = "x = [bytearray(2**20) for _ in range(500)]"
        ended = subprocess.run(group.words([sys.executable, "-c", code]))
        assert ended.returncode == -9
        assert group.killed_for_memory() == 1
        peak = group.peak_bytes()
        assert peak is not None
        assert 60 * MIB < peak <= 64 * MIB
    assert not group.memory.exists()


@pytest.mark.usefixtures("may_limit")
def test_a_process_that_needs_less_is_not() -> None:
    with limited(Limits(memory_mb=128, cpus=1.0)) as group:
        said = subprocess.run(group.words([sys.executable, "-c", "print(6 * 7)"]), capture_output=True, text=True)
        assert (said.returncode, said.stdout) == (0, "42\n")
        assert group.killed_for_memory() == 0


@pytest.mark.usefixtures("may_limit")
def test_half_a_processor_is_half_a_processor() -> None:
    code = (
        "import time; began = time.monotonic()\nwhile time.process_time() < 0.5: pass\nprint(time.monotonic() - began)"
    )
    with limited(Limits(memory_mb=128, cpus=0.5)) as group:
        said = subprocess.run(group.words([sys.executable, "-c", code]), capture_output=True, text=True, check=True)
        elapsed_s = float(said.stdout)
        assert elapsed_s > 0.8  # 0.5 s of work, at half speed but for the first period
        assert 0 <= group.throttled_s() < elapsed_s  # on a busy machine others held it back more than its limit did


@pytest.mark.parametrize("line", ["throttled_usec 1250000", "throttled_time 1250000000"])
def test_waiting_is_counted_in_either_version(line: str, tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text(f"nr_periods 9\nnr_throttled 7\n{line}\n")
    assert Group(tmp_path, tmp_path).throttled_s() == 1.25


@pytest.mark.usefixtures("may_limit")
def test_whatever_still_runs_is_ended_with_the_group() -> None:
    with limited(Limits(memory_mb=64, cpus=1.0)) as group:
        process = subprocess.Popen(group.words(["sleep", "600"]))
        while str(process.pid) not in (group.memory / "cgroup.procs").read_text().split():
            time.sleep(0.005)
    assert process.wait(300) == -9
    assert not group.cpu.exists()


def test_where_groups_may_not_be_made_it_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "membership").write_text("0::/somewhere\n")
    with pytest.raises(FundoscopeError) as refused, limited(Limits(64, 1), Path("/proc"), tmp_path / "membership"):
        pass
    assert refused.value.message.startswith("control groups cannot be made here: ")
    assert "systemd-run" in refused.value.hint


def test_version_two_is_one_folder_with_its_own_names(tmp_path: Path) -> None:
    (tmp_path / "membership").write_text("0::/user.slice\n")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "cgroup.subtree_control").write_text("memory cpu\n")
    with limited(Limits(1024, 0.25), tmp_path / "root", tmp_path / "membership") as group:
        assert group.memory == group.cpu
        assert (group.memory / "memory.max").read_text() == str(1024 * MIB)
        assert (group.cpu / "cpu.max").read_text() == "25000 100000"
        for path in group.memory.iterdir():  # a real group's files go with it
            path.unlink()
    assert not group.memory.exists()


@pytest.mark.parametrize(("memory_mb", "cpus"), [(1, 1.0), (64, 0.0), (64, float("nan"))])
def test_limits_in_which_nothing_runs_are_refused(memory_mb: int, cpus: float) -> None:
    with pytest.raises(ValueError, match="memory_mb is 1|cpus is"):
        Limits(memory_mb, cpus)


def test_files_are_forgotten_and_counted(tmp_path: Path) -> None:
    for name in ("a", "b/c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(10_000))
    assert forget_files(tmp_path) == 2
    assert (tmp_path / "a").read_bytes() == bytes(10_000)
