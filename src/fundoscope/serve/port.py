"""The port that callers come to: bound once, and shared by the workers."""

import socket
import time
from collections.abc import Callable
from typing import Any

from fundoscope.errors import FundoscopeError

BACKLOG = 1024


def bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol must be named: asyncio turns Nagle's delay off only where it sees that it is TCP.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as problem:
        listening.close()
        hint = "stop what listens there, or give another --port"
        raise FundoscopeError(f"cannot listen on {host}:{port}: {problem.strerror or problem}", hint) from None
    listening.listen(BACKLOG)
    return listening


class FairSocket(socket.socket):
    """A listening socket that several workers share, and that leaves callers to whichever has the fewest.

    Callers keep their connections, and those that come at the same moment would all be taken by the first worker awake.
    """

    PATIENCE_S = 0.005  # for another to take them; it may be gone, or busy

    def __init__(self, listening: socket.socket, connections: Callable[[], int], note: Callable[[int], bool]) -> None:
        """`note` writes down how many connections this worker has, and says whether another has fewer."""
        super().__init__(fileno=listening.detach())
        self._connections, self._note, self._declined = connections, note, 0.0

    def accept(self) -> tuple[socket.socket, Any]:
        has, now = self._connections(), time.monotonic()
        if self._note(has):
            self._declined = self._declined or now
            if now - self._declined < self.PATIENCE_S:
                raise BlockingIOError  # as if it had gone already: asyncio asks again at once
        self._declined = 0.0
        taken = super().accept()
        self._note(has + 1)
        return taken
