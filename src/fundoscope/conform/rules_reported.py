"""What a server reports of itself, and the stream it may offer: units of times, a WebSocket."""

import base64
import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from time import perf_counter
from typing import Any

from fundoscope.conform.contract import STREAM_LABEL
from fundoscope.conform.finding import Finding, broken, held, not_applicable
from fundoscope.conform.live import Live
from fundoscope.conform.wire import ask, message

UNITS_S = {"seconds": 1.0, "s": 1.0, "milliseconds": 1e-3, "ms": 1e-3, "microseconds": 1e-6, "us": 1e-6}
ENDING = re.compile(r"_(" + "|".join(sorted(UNITS_S, key=len, reverse=True)) + r")$")
TIMES = re.compile(r"latency|duration|time|elapsed", re.IGNORECASE)
SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*?)_sum(\{[^}]*\})?\s+([-+.\deE]+)", re.MULTILINE)
SLACK, SLACK_S = 1.2, 0.005  # clocks differ and rounding rounds; a wrong unit is wrong by a thousand
TOO_LITTLE = 1 / 200  # of what the caller waited, for the longest time that is reported
ASKED = 5
STREAM = "/invocations-bidirectional-stream"
PING, PONG = 0x9, 0xA


def units(live: Live) -> Iterator[Finding]:
    """A time in a unit that its name does not say is read a thousand times too long or too short."""
    before = _metrics(live)
    answers = [live.invoke() for _ in range(ASKED)]
    waited_s = sum(answer.seconds for answer in answers)
    after = _metrics(live)
    sums = {name: value - before.get(name, 0.0) for name, value in after.items() if name in before}
    yield _judge_units("times in /metrics", sums, waited_s)
    longest = max(answers, key=lambda answer: answer.seconds)
    yield _judge_units("times in the answers", dict(_times(_of_the_request(_json(longest.body)))), longest.seconds)


def _judge_units(check: str, reported: Mapping[str, float], waited_s: float) -> Finding:
    """`reported` by name; its unit is the end of the name, or of a name that it stands within."""
    named = {name: UNITS_S[unit] * value for name, value in reported.items() if (unit := _unit(name))}
    unnamed = [name for name in reported if not _unit(name)]
    if not named:
        what = f"no unit in the name of {', '.join(unnamed[:3])}" if unnamed else "the server reports none"
        return not_applicable(16, check, f"{check}: {what}")
    bound_s = SLACK * waited_s + SLACK_S
    long = [name for name, seconds in named.items() if not 0 <= seconds <= bound_s]
    most = max(named, key=lambda name: named[name])
    said = f"{len(named)} named, the longest {most}"
    if long:
        seconds = named[long[0]]
        return broken(16, check, f"{long[0]} says {seconds:.3g} s where the caller waited {waited_s:.3g} s", said)
    if named[most] < TOO_LITTLE * waited_s - SLACK_S / 10:
        return broken(16, check, f"{most} says {named[most]:.3g} s where the caller waited {waited_s:.3g} s", said)
    return held(16, check, f"{check} have the unit that they say", said)


def _unit(name: str) -> str:
    """From the innermost name outwards: timings_ms.decode is in milliseconds."""
    for part in reversed(name.split(".")):
        if found := ENDING.search(part):
            return found.group(1)
    return ""


def _metrics(live: Live) -> dict[str, float]:
    """Sums of Prometheus histograms and summaries of times, each by its labels and name ("{phase=…}.x_seconds")."""
    answer = live.request("GET", "/metrics")
    found: dict[str, float] = {}
    if answer.ok:
        for name, labels, value in SAMPLE.findall(answer.body.decode(errors="replace")):
            if ENDING.search(name) or TIMES.search(name):
                found[f"{labels.replace('.', '_')}.{name}" if labels else name] = float(value)
    return found


def _times(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Numbers in an answer that are times, by their names."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _times(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, int | float) and not isinstance(value, bool) and (_unit(name) or TIMES.search(name)):
        yield name, float(value)


def _of_the_request(answer: Any) -> Any:
    """Without what it says of its container: how long that took to start is not how long the caller waited."""
    return (
        {name: value for name, value in answer.items() if name != "container"} if isinstance(answer, dict) else answer
    )


def _json(body: bytes) -> Any:
    with suppress(ValueError):
        return json.loads(body)
    return None


def stream(live: Live) -> Iterator[Finding]:
    """Asked of every server, demanded of an image whose label offers it."""
    check, labels = "WebSocket", live.target.labels() or {}
    key = base64.b64encode(os.urandom(16)).decode()
    asked = [("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Key", key)]
    upgrade = message("GET", STREAM, headers=asked).replace(b"Connection: close", b"Connection: Upgrade")
    answer = ask(live.address, upgrade, within_s=5)
    if answer.status != 101:
        if labels.get(STREAM_LABEL) == "true":
            yield broken(14, check, f"the label offers a stream, but {STREAM} answers: {answer}")
        else:
            yield not_applicable(14, check, f"no label offers a stream, and {STREAM} answers {answer}")
        return
    seconds = _pong(live, upgrade)
    if seconds is None:
        yield broken(14, check, f"no pong within {live.plan.limits.pong_s:g} s of a ping on {STREAM}")
    else:
        yield held(14, check, "a ping on the stream is answered", f"pong after {1000 * seconds:.1f} ms", pong_s=seconds)


def _pong(live: Live, upgrade: bytes) -> float | None:
    """Seconds from a ping frame to its pong, on a connection of its own."""
    with suppress(OSError), socket.create_connection(live.address, timeout=live.plan.limits.pong_s) as connection:
        connection.sendall(upgrade)
        received = b""
        while b"\r\n\r\n" not in received:
            received += connection.recv(4096) or b"\r\n\r\n"
        frames = received.partition(b"\r\n\r\n")[2]
        began = perf_counter()
        connection.sendall(bytes([0x80 | PING, 0x80]) + os.urandom(4))  # masked, as a client's must be, and empty
        while perf_counter() - began < live.plan.limits.pong_s:
            while len(frames) >= 2 and len(frames) >= 2 + frames[1]:  # control frames are short and unmasked
                if frames[0] & 0x0F == PONG:
                    return perf_counter() - began
                frames = frames[2 + frames[1] :]
            data = connection.recv(4096)
            if not data:
                return None
            frames += data
    return None
