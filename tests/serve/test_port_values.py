"""A listening socket that workers share: who takes a caller, and how many each says that it has."""

import socket
from collections.abc import Iterator

import pytest
from running import until

from fundoscope.serve.port import FairSocket, bind


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with bind("127.0.0.1", 0) as found:
        yield found


def accepted(fair: FairSocket) -> socket.socket | None:
    try:
        return fair.accept()[0]
    except BlockingIOError:
        return None


def test_who_has_more_than_another_leaves_a_caller_for_a_moment_and_then_takes_it(listening: socket.socket) -> None:
    address, noted = listening.getsockname(), list[int]()

    def note(has: int) -> bool:
        noted.append(has)
        return True  # another has fewer

    with FairSocket(listening, note) as fair, socket.create_connection(address) as caller:
        with pytest.raises(BlockingIOError):
            fair.accept()
        assert noted == [0]
        with until(lambda: accepted(fair)) as taken:
            assert taken.getpeername() == caller.getsockname()
            assert (taken.family, taken.type, taken.proto) == (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)


def test_a_connection_is_counted_from_its_accept_to_its_close_and_no_longer(listening: socket.socket) -> None:
    address, noted = listening.getsockname(), list[int]()

    def note(has: int) -> bool:
        noted.append(has)
        return False

    with FairSocket(listening, note) as fair, socket.create_connection(address), socket.create_connection(address):
        one, other = fair.accept()[0], fair.accept()[0]
        assert noted == [0, 1, 1, 2]
        one.close()
        one.close()
        assert noted[4:] == [1]
        other.close()
        assert noted[5:] == [0]
