"""The means of attack: what is sent is what it says, and whatever was opened is closed."""

import base64
import io
import json
import os
import signal
import socket
import subprocess
import sys

import pytest
from PIL import Image

from fundoscope.conform.contract import MIB
from fundoscope.conform.crowd import Crowd
from fundoscope.conform.hostile import JSON, alone, json_bodies, plain_picture, several, wide_png
from fundoscope.conform.memory import Watch, megabytes, resident
from fundoscope.conform.photographs import Payload, default_payload

PLAIN = default_payload()
TEXT = base64.b64encode(PLAIN.data).decode()


def json_payload(table: object) -> Payload:
    return Payload("packed", json.dumps(table).encode(), JSON)


def test_hostile_json_fills_the_payload_and_no_more() -> None:
    bodies = dict(json_bodies(MIB))
    assert {name: MIB - 100 < len(body) <= MIB for name, body in bodies.items()} == dict.fromkeys(bodies, True)
    assert len(json.loads(bodies["many empty lists"])["photographs"]) > 200_000
    assert len(json.loads(bodies["many numbers"])["photographs"]) > 250_000
    assert len(json.loads(bodies["many names"])) > 90_000
    assert set(json.loads(bodies["a text of escapes"])["photographs"][0]) == {"A"}
    with pytest.raises((ValueError, RecursionError)):
        json.loads(bodies["lists nested without end"])


def test_a_photograph_of_many_pixels_is_a_small_file() -> None:
    picture = Image.open(io.BytesIO(wide_png()))
    assert (picture.size, picture.mode) == ((7000, 7000), "RGB")
    assert len(wide_png()) < 200_000


@pytest.mark.parametrize(
    ("table", "filled"),
    [
        ({"photograph": TEXT}, {"photograph": "aGk="}),
        ({"photographs": [TEXT]}, {"photographs": ["aGk="]}),
        ({"instances": [{"b64": TEXT, "id": 7}]}, {"instances": [{"b64": "aGk=", "id": 7}]}),
    ],
)
def test_a_photograph_is_replaced_in_whatever_json_holds_it(table: object, filled: object) -> None:
    payload = json_payload(table)
    assert plain_picture(payload) == PLAIN.data
    other = alone(payload, b"hi")
    assert other is not None
    assert json.loads(other.data) == filled
    assert other.content_type == JSON


def test_a_photograph_by_itself_is_replaced_whatever_its_type_is_called() -> None:
    raw = Payload("raw", PLAIN.data, "application/octet-stream")
    assert plain_picture(raw) == PLAIN.data
    assert alone(raw, b"hi") == Payload("one", b"hi", "application/octet-stream")
    assert alone(PLAIN, b"hi") == Payload("one", b"hi", "image/png")


def test_several_are_sent_where_a_list_has_room_for_them() -> None:
    (three,) = several(json_payload({"photographs": [TEXT]}), b"hi", 3)
    assert json.loads(three.data) == {"photographs": ["aGk="] * 3}
    assert several(json_payload({"photograph": TEXT}), b"hi", 3) == []
    tensor = {"name": "photographs", "datatype": "BYTES", "shape": [1, 1], "data": [TEXT]}
    (three,) = several(json_payload({"inputs": [tensor]}), b"hi", 3)
    assert json.loads(three.data)["inputs"] == [tensor | {"shape": [3, 1], "data": ["aGk="] * 3}]


def test_a_server_of_plain_photographs_is_tried_with_the_usual_forms_of_several() -> None:
    assert [json.loads(form.data) for form in several(PLAIN, b"hi", 2)] == [
        {"photographs": ["aGk=", "aGk="]},
        {"instances": [{"b64": "aGk="}, {"b64": "aGk="}]},
    ]


@pytest.mark.parametrize("payload", [json_payload({"rows": [1, 2]}), Payload("rows", b"1,2,3", "text/csv")])
def test_what_holds_no_photograph_is_left_alone(payload: Payload) -> None:
    assert (plain_picture(payload), alone(payload, b"hi"), several(payload, b"hi", 2)) == (None, None, [])


def test_a_crowd_counts_those_who_are_cut_and_leaves_no_connection_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with Crowd(listener.getsockname(), 3) as crowd:
            accepted = [listener.accept()[0] for _ in range(3)]
            crowd.send(b"hello", within_s=5)
            assert [connection.recv(5) for connection in accepted] == [b"hello"] * 3
            assert (crowd.cut, len(crowd.members)) == (0, 3)
            accepted[0].sendall(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
            accepted[1].close()
            while crowd.cut < 2:
                crowd.look()
            assert len(crowd.members) == 1
        assert accepted[2].recv(5) == b""  # closed by the crowd
        for connection in accepted:
            connection.close()


def test_a_crowd_that_nobody_lets_in_is_cut_from_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with Crowd(address, 2) as crowd:
        crowd.send(b"hello", within_s=1)
        assert (crowd.cut, crowd.members) == (2, [])


def test_memory_is_seen_in_a_process_and_in_those_below_it() -> None:
    child = "import sys; kept = b'x' * (80 * 2**20); print('kept', flush=True); sys.stdin.read()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-I', '-c', {child!r}])"
    with Watch(os.getpid()) as watch:
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin, process.stdout:
            assert process.stdout.readline() == "kept\n"
            assert resident(process.pid) > 80 * MIB
            while watch.peak_bytes - watch.before_bytes < 80 * MIB:
                assert process.poll() is None
        process.wait()
    assert watch.grown_bytes is not None
    assert watch.grown_bytes > 80 * MIB


def test_what_takes_more_than_its_share_of_this_machine_is_ended() -> None:
    greedy = "kept = []\nwhile True: kept.append(b'x' * 2**20)"
    with subprocess.Popen([sys.executable, "-I", "-c", greedy]) as process:
        with Watch(process.pid, ceiling_bytes=100 * MIB) as watch:
            assert process.wait() == -signal.SIGKILL
        assert watch.ended
    assert "ended for the sake of this machine" in str(watch)


def test_memory_that_cannot_be_seen_has_not_grown_by_nothing() -> None:
    with Watch(None) as watch:
        pass
    assert watch.grown_bytes is None
    assert str(watch) == "memory not seen"


@pytest.mark.parametrize(("size", "said"), [(0, "0.0 MB"), (9 * MIB + MIB // 2, "9.5 MB"), (2731 * MIB, "2,731 MB")])
def test_megabytes_read_well(size: int, said: str) -> None:
    assert megabytes(size) == said
