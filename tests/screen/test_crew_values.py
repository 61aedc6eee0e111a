"""Workers that are ended from outside: how many in a row are an accident, and how many an error."""

import multiprocessing
from pathlib import Path

import pytest

from fundoscope.artefact.export import Exported
from fundoscope.errors import FundoscopeError
from fundoscope.screen.crew import Lost, grade_chunks
from fundoscope.screen.worker import Job, Opened, Work


def test_workers_that_keep_being_ended_are_an_error_after_as_many_as_the_patience_has(
    exported: dict[str, Exported], tmp_path: Path
) -> None:
    work = Work(tmp_path, False, exported["onnx"].artefact.folder, "high_sensitivity")
    for place in range(4):
        (tmp_path / f"{place}.jpg").write_bytes(b"no photograph")
    chunks = [[Job(place, f"{place}.jpg", 13, 0)] for place in range(4)]

    def kill(opened: list[Opened]) -> list[int]:
        for child in multiprocessing.active_children():  # as the kernel does when memory runs out
            child.kill()
        return [one.place for one in opened]

    lost = grade_chunks(work, chunks, kill, processes=1, patience=3)
    assert [type(next(lost)), type(next(lost))] == [Lost, Lost]
    with pytest.raises(FundoscopeError) as caught:
        next(lost)
    assert caught.value.message == "worker processes keep being ended from outside"
    assert "--processes 1" in caught.value.hint
