"""The port that callers come to: bound once, and shared by the workers."""

import asyncio
import select
import socket
import time
from collections.abc import Callable
from typing import Any

from fundoscope.errors import FundoscopeError

BACKLOG = 1024
HEAR_S, QUIET_LOOKS = 2.0, 3  # before the port closes: a caller is let in over some turns of the event loop


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


async def heard_out(sockets: Callable[[], list[Any]]) -> None:
    """Wait until nobody stands at the port, and nothing that was sent is unread.

    Closing a port resets whoever came before that and was not yet let in, with the request already sent.
    """
    until, quiet = time.monotonic() + HEAR_S, 0
    while quiet < QUIET_LOOKS and time.monotonic() < until:
        waiting = select.poll()
        for connection in sockets():
            if connection.fileno() >= 0:
                waiting.register(connection, select.POLLIN)
        quiet = 0 if waiting.poll(0) else quiet + 1
        await asyncio.sleep(0.001)  # the loop lets them in meanwhile, and reads


class FairSocket(socket.socket):
    """A listening socket that several workers share, and that leaves callers to whichever has the fewest.

    Callers keep their connections, and those that come at the same moment would all be taken by the first worker awake.
    """

    PATIENCE_S = 0.005  # for another to take them; it may be gone, or busy

    def __init__(self, listening: socket.socket, note: Callable[[int], bool]) -> None:
        """`note` writes down how many connections this worker has, and says whether another has fewer."""
        super().__init__(fileno=listening.detach())
        self._note, self._declined, self._has = note, 0.0, 0

    def accept(self) -> tuple[socket.socket, Any]:
        now = time.monotonic()
        if self._note(self._has):
            self._declined = self._declined or now
            if now - self._declined < self.PATIENCE_S:
                raise BlockingIOError  # as if it had gone already: asyncio asks again at once
        self._declined = 0.0
        taken, caller = super().accept()
        # Counted from here to its close: the web server knows of it some turns of its loop later, and in between this
        # worker would seem to have fewer than it has.
        self._has += 1
        self._note(self._has)
        return _Counted(self, taken.detach()), caller

    def closed(self) -> None:
        self._has -= 1
        self._note(self._has)


class _Counted(socket.socket):
    """A caller's connection, which tells when it is closed."""

    def __init__(self, listening: FairSocket, descriptor: int) -> None:
        super().__init__(listening.family, listening.type, listening.proto, fileno=descriptor)
        self._listening: FairSocket | None = listening

    def close(self) -> None:
        super().close()
        if self._listening is not None:
            self._listening.closed()
            self._listening = None
