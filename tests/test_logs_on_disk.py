"""The two logs that a day's work depends on: what they say is kept is on disk, not only with the operating system."""

import json
import time
from pathlib import Path

import pytest
from lossy_disk import LossyDisk

from fundoscope.experiment.design import Design
from fundoscope.experiment.outcome import Measured, OutcomeLog, Ran, read_outcomes
from fundoscope.screen.log import SYNC_EVERY_S, ScreenLog

DESIGN = Design("x", "cnn", {"image": (32, 64)}, repetitions=2)
OUTCOMES = [Measured(trial, Ran("2026-11-15T12:00:00+00:00", 1.5, "abc"), {"epoch_s": 1.0}) for trial in DESIGN.trials]


def test_every_outcome_outlives_a_power_cut_as_soon_as_it_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, disk = tmp_path / "outcomes.jsonl", LossyDisk(monkeypatch, tmp_path)
    with OutcomeLog(path, DESIGN) as log:
        assert disk.after_a_power_cut(path) == path.read_bytes()  # begun: a first line, and the name itself
        for n, outcome in enumerate(OUTCOMES, 1):
            log.append(outcome)
            left = disk.after_a_power_cut(path)
            assert left == path.read_bytes()
            (tmp_path / "left.jsonl").write_bytes(left or b"")
            assert list(read_outcomes(tmp_path / "left.jsonl")) == OUTCOMES[:n]


def lines_left(disk: LossyDisk, path: Path) -> list[str]:
    """The photographs of a screening that would still be known."""
    lines = [json.loads(line) for line in (disk.after_a_power_cut(path) or b"").splitlines()]
    return [line["path"] for line in lines if "path" in line]


def test_a_screening_loses_at_most_a_second_to_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, disk = tmp_path / "x.screening.jsonl", LossyDisk(monkeypatch, tmp_path)
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with ScreenLog(path, {"artefact": "a"}) as log:
        assert disk.after_a_power_cut(path) == b'{"screening": 1, "artefact": "a"}\n'
        log.append([{"path": "1.jpg"}, {"path": "2.jpg"}])
        assert lines_left(disk, path) == []  # with the operating system already, with the disk soon
        now[0] += SYNC_EVERY_S
        log.append([{"path": "3.jpg"}])
        assert lines_left(disk, path) == ["1.jpg", "2.jpg", "3.jpg"]
        now[0] += SYNC_EVERY_S / 2
        log.append([{"path": "4.jpg"}])
        assert lines_left(disk, path) == ["1.jpg", "2.jpg", "3.jpg"]
    assert lines_left(disk, path) == ["1.jpg", "2.jpg", "3.jpg", "4.jpg"]  # closing it waits for the disk
    assert SYNC_EVERY_S == 1.0
