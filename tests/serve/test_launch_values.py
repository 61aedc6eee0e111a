"""The supervisor: whom it waits for, whom it replaces, and what it counts."""

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import simplejpeg
from running import DEADLINE_S, serving, until

HERE = Path(__file__).parent


def server(name: str, *arguments: object) -> list[str]:
    return [sys.executable, str(HERE / name), *map(str, arguments), "serve", "--port", "0"]


def children(process: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()}


def state(process: int) -> str:
    """R: it runs; S: it waits; Z: it has ended."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def test_as_process_1_it_is_handed_orphans_and_goes_on_when_they_end(artefact_folder: Path, tmp_path: Path) -> None:
    end = tmp_path / "end"
    with serving(artefact_folder, program=server("odd_server.py", "orphan", end)) as running:
        (orphan,) = children(running.process.pid) - {running.worker}
        end.touch()
        until(lambda: orphan not in children(running.process.pid))
        assert children(running.process.pid) == {running.worker}
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(DEADLINE_S) == 0
        assert running.events("worker replaced") == []


def test_a_worker_that_fails_is_replaced_and_counted(artefact_folder: Path, tmp_path: Path, jpeg: bytes) -> None:
    program = server("odd_server.py", "failure", tmp_path / "failed")
    with serving(artefact_folder, program=program) as running:
        (failed,) = running.events("worker failed")
        assert (failed["problem"], failed["text"]) == ("RuntimeError", "by order of a test")
        assert [event["status"] for event in running.events("worker replaced")] == [1]
        assert running.grade(jpeg).status == 200
        os.kill(running.worker, signal.SIGKILL)
        running.wait_for("ready", 2)
        assert [event["status"] for event in running.events("worker replaced")] == [1, -signal.SIGKILL]
        assert running.metrics()["fundoscope_workers_replaced_total"] == 2


def test_all_workers_are_waited_for_when_it_stops(artefact_folder: Path, tmp_path: Path) -> None:
    disc = np.hypot(*np.mgrid[-128:128, -128:128]) < 110
    green = (disc[..., None] * np.array([20, 200, 40])).astype(np.uint8)  # what stuck_server.py is slow with
    photo, go_on = bytes(simplejpeg.encode_jpeg(green, quality=95)), tmp_path / "go on"
    program = server("stuck_server.py", go_on)
    with serving(artefact_folder, "--workers", "2", program=program) as running, ThreadPoolExecutor(1) as pool:
        running.wait_for("ready", 2)
        slow = pool.submit(running.grade, photo)
        until(lambda: running.metrics()["fundoscope_queue"] == 1)
        running.process.terminate()
        until(lambda: len(children(running.process.pid)) < 2)  # the one that had nothing to do
        assert until(lambda: (now := state(running.process.pid)) in "SZ" and now) == "S"
        go_on.touch()
        assert slow.result().status == 200
        assert running.process.wait(DEADLINE_S) == 0


def test_a_network_that_fails_fails_one_request_and_not_the_server(
    artefact_folder: Path, tmp_path: Path, jpeg: bytes
) -> None:
    broken = tmp_path / "broken"
    with serving(artefact_folder, program=server("odd_server.py", "prediction", broken)) as running:
        broken.touch()
        failed = running.grade(jpeg)
        assert (failed.status, failed.json) == (
            500,
            {"error": "the server failed on this request", "hint": "the server's log says where"},
        )
        broken.unlink()
        assert running.grade(jpeg).status == 200
        samples = running.metrics()
        assert samples['fundoscope_photographs_total{outcome="failed"}'] == 1
        assert samples["fundoscope_queue"] == 0
        assert samples["fundoscope_workers_replaced_total"] == 0
