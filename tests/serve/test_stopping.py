"""What was sent before the server was told to stop is answered, even where nobody had looked at it yet."""

import os
import signal
import socket
from pathlib import Path

from running import DEADLINE_S, serving

CALLERS = 300  # more than are let in while the server notices that it is to stop


def test_callers_who_stand_at_the_port_when_sigterm_comes_are_answered(artefact_folder: Path, jpeg: bytes) -> None:
    head = f"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: image/jpeg\r\nContent-Length: {len(jpeg)}\r\n\r\n"
    with serving(artefact_folder) as running:
        worker = running.worker
        os.kill(worker, signal.SIGSTOP)  # from here on the kernel alone knows of them
        callers = [socket.create_connection(("127.0.0.1", running.port), DEADLINE_S) for _ in range(CALLERS)]
        for caller in callers:
            caller.sendall(head.encode() + jpeg)
        running.process.terminate()
        os.kill(worker, signal.SIGTERM)  # and not when its parent comes to it
        os.kill(worker, signal.SIGCONT)
        answers = []
        for caller in callers:
            with caller, caller.makefile("rb") as stream:
                answers.append(stream.readline())
        assert running.process.wait(DEADLINE_S) == 0
    # Who finds no place in the line is told so; a busy machine has fewer places.
    assert set(answers) == {b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 503 Service Unavailable\r\n"}
