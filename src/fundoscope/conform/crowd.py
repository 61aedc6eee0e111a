"""Callers who begin a request together and do not finish it."""

import select
import socket
from contextlib import ExitStack
from time import perf_counter

from fundoscope.conform.wire import CHUNK, Address

CONNECT_S = 5.0


class Crowd:
    """`n` connections that are all closed when the block ends, however it ends."""

    def __init__(self, address: Address, n: int) -> None:
        self._address, self._n = address, n
        self.members: list[socket.socket] = []
        self.cut = 0  # those whom the server has answered or left

    def __enter__(self) -> "Crowd":
        self._stack = ExitStack()
        with ExitStack() as opening:
            for _ in range(self._n):
                try:
                    member = socket.create_connection(self._address, timeout=CONNECT_S)
                except OSError:  # refused, or not accepted: one caller less to bear
                    self.cut += 1
                    continue
                opening.enter_context(member)
                member.setblocking(False)
                self.members.append(member)
            self._stack = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def send(self, data: bytes, *, within_s: float) -> None:
        """The same to everybody, as far as the server takes it in that time."""
        left = {member.fileno(): (member, memoryview(data)) for member in self.members}
        deadline = perf_counter() + within_s
        poll = select.poll()
        for number in left:
            poll.register(number, select.POLLOUT)
        while left and (patience_s := deadline - perf_counter()) > 0:
            for number, _ in poll.poll(1000 * patience_s):
                member, rest = left[number]
                try:
                    rest = rest[member.send(rest[:CHUNK]) :]
                except BlockingIOError:
                    continue
                except OSError:  # the server has left
                    rest = rest[:0]
                left[number] = (member, rest)
                if not rest:
                    poll.unregister(number)
                    del left[number]
        self.look()

    def look(self) -> None:
        """Let those go whom the server has answered or left."""
        if not self.members:
            return
        poll = select.poll()
        for member in self.members:
            poll.register(member, select.POLLIN)
        over = {number for number, _ in poll.poll(0)}
        self.cut += len(over)
        self.members = [member for member in self.members if member.fileno() not in over]
