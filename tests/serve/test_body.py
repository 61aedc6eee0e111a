"""Bodies that arrive side by side, on a clock of their own: who is waited for, and who gives way."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fundoscope.serve.body import ARRIVING, BODY_S, LEAST_BYTES, STALL_S, Uploads, read_body
from fundoscope.serve.http import Message, Refusal, Request

MB = 2**20
BUDGET = 32 * MB
Outcome = bytes | Refusal


class Clock:
    """What the event loop takes for the time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def pass_s(self, seconds: float) -> None:
        self.now += seconds
        await settled()


async def settled() -> None:
    for _ in range(10):  # turns of the event loop, more than any of these needs
        await asyncio.sleep(0)


class Caller:
    """Sends a body in parts, and keeps the request open after it: its photograph is being graded."""

    def __init__(self, uploads: Uploads, promised: int = 0) -> None:
        self._uploads, self._promised = uploads, promised
        self._parts: asyncio.Queue[Message] = asyncio.Queue()
        self._answered = asyncio.Event()
        self._request = asyncio.ensure_future(self._ask())

    async def _ask(self) -> Outcome:
        request = Request("POST", "/", b"", {}, self._parts.get)
        try:
            with self._uploads.expect(self._promised) as upload:
                body = await read_body(request, upload, limit_bytes=4 * MB)
                await self._answered.wait()
                return body
        except Refusal as refusal:
            return refusal

    async def send(self, size: int, *, last: bool = False) -> None:
        self._parts.put_nowait({"type": "http.request", "body": bytes(size), "more_body": not last})
        await settled()

    @property
    def waits(self) -> bool:
        return not self._request.done()

    async def outcome(self) -> Outcome:
        self._answered.set()
        await settled()
        assert not self.waits
        return self._request.result()

    async def status(self) -> int:
        outcome = await self.outcome()
        return outcome.status if isinstance(outcome, Refusal) else 200


def busy() -> Refusal:
    return Refusal(503, "busy")


def tell(story: Callable[[Clock, Uploads], Awaitable[None]]) -> None:
    async def told() -> None:
        clock = Clock()
        asyncio.get_running_loop().time = clock  # type: ignore[method-assign]
        await story(clock, Uploads(BUDGET, busy))

    asyncio.run(told())


def test_a_body_that_brings_a_byte_a_second_is_cut_after_the_grace() -> None:
    async def story(clock: Clock, uploads: Uploads) -> None:
        caller = Caller(uploads)
        await settled()
        for _ in range(int(STALL_S) - 1):
            await caller.send(1)
            await clock.pass_s(1)
        assert caller.waits
        await clock.pass_s(1)
        assert await caller.status() == 408

    tell(story)


def test_a_slow_body_is_waited_for_while_it_keeps_to_the_least_rate_and_no_longer_than_that() -> None:
    async def story(clock: Clock, uploads: Uploads) -> None:
        caller, other = Caller(uploads), Caller(uploads)
        await settled()
        for _ in range(3):
            for sender in (caller, other):
                await sender.send(LEAST_BYTES)
            await clock.pass_s(STALL_S - 1)
        assert caller.waits
        await caller.send(1, last=True)
        assert await caller.outcome() == bytes(3 * LEAST_BYTES + 1)
        await clock.pass_s(BODY_S - 3 * (STALL_S - 1))
        assert await other.status() == 408

    tell(story)


def test_a_server_that_stops_waits_no_longer_whoever_sends() -> None:
    async def story(clock: Clock, uploads: Uploads) -> None:
        caller = Caller(uploads)
        await caller.send(LEAST_BYTES)
        uploads.hurry(1)
        await clock.pass_s(0.9)
        await caller.send(LEAST_BYTES)
        assert caller.waits
        await clock.pass_s(0.1)
        assert await caller.status() == 408

    tell(story)


def test_those_who_arrive_have_half_of_the_memory_and_who_has_stalled_gives_way() -> None:
    async def story(clock: Clock, uploads: Uploads) -> None:
        early = [Caller(uploads) for _ in range(4)]
        for caller in early:
            await caller.send(4 * MB)  # all of it, but for the end: 16 MB together
        await clock.pass_s(1)
        for caller in (early[0], early[2], early[3]):
            await caller.send(0)
        assert all(caller.waits for caller in early)
        late = Caller(uploads)
        for _ in range(4):
            await clock.pass_s(0.1)
            await late.send(MB)
        assert [caller.waits for caller in early].count(False) == 1
        await late.send(0, last=True)
        assert await late.status() == 200

    tell(story)


def test_the_slowest_gives_way_and_not_who_has_little() -> None:
    async def story(clock: Clock, uploads: Uploads) -> None:
        slow, fast, small = Caller(uploads), [Caller(uploads) for _ in range(3)], Caller(uploads)
        await small.send(1)
        await slow.send(4 * MB)
        await clock.pass_s(3)
        for caller in fast:
            await caller.send(4 * MB - 1)
        await small.send(3)
        assert [caller.waits for caller in (slow, *fast, small)] == [False, True, True, True, True]
        assert await slow.status() == 503

    tell(story)


def test_bodies_that_are_complete_are_never_given_up_and_all_of_them_are_bounded() -> None:
    async def story(clock: Clock, uploads: Uploads) -> None:
        whole = [Caller(uploads) for _ in range(7)]
        for caller in whole:
            await caller.send(4 * MB, last=True)
        last = Caller(uploads)
        await last.send(4 * MB)  # 32 MB
        assert last.waits
        refused = Caller(uploads, promised=4 * MB + 1)
        assert await refused.status() == 503
        late = Caller(uploads)
        await clock.pass_s(1)
        await late.send(1)
        assert (await last.status(), late.waits) == (503, True)
        for caller in whole:
            assert await caller.outcome() == bytes(4 * MB)
        await late.send(1, last=True)
        assert await late.outcome() == bytes(2)

    tell(story)


def test_what_is_let_go_can_be_taken_again() -> None:
    async def story(clock: Clock, uploads: Uploads) -> None:
        for _ in range(20):
            caller = Caller(uploads, promised=4 * MB)
            await caller.send(4 * MB, last=True)
            assert await caller.status() == 200
        for _ in range(20):
            gone = Caller(uploads)
            await gone.send(3 * MB)
            await clock.pass_s(STALL_S)
            assert await gone.status() == 408
        at_once = [Caller(uploads, promised=4 * MB) for _ in range(8)]
        for caller in at_once:
            await caller.send(4 * MB, last=True)
        assert [await caller.status() for caller in at_once] == [200] * 8

    tell(story)


def test_no_more_than_a_number_arrive_at_once_and_the_slowest_gives_way() -> None:
    async def story(_: Clock, uploads: Uploads) -> None:
        callers = [Caller(uploads) for _ in range(ARRIVING)]
        for caller in callers[1:]:
            await caller.send(1)
        newest = Caller(uploads)
        await settled()
        assert [caller.waits for caller in (*callers, newest)] == [False] + [True] * ARRIVING
        assert await callers[0].status() == 503
        await newest.send(1, last=True)
        assert await newest.status() == 200
        for caller in callers[1:]:
            await caller.send(0, last=True)
            assert await caller.status() == 200

    tell(story)


def test_a_body_that_is_too_long_is_read_to_its_end_and_not_kept() -> None:
    async def story(_: Clock, uploads: Uploads) -> None:
        async def ask(parts: list[int], promised: int) -> Refusal:
            messages = iter([{"type": "http.request", "body": bytes(n), "more_body": True} for n in parts])

            async def receive() -> Message:
                return next(messages, {"type": "http.request", "body": b"", "more_body": False})

            request = Request("POST", "/", b"", {"content-length": str(promised)}, receive)
            with uploads.expect() as upload, pytest.raises(Refusal) as refused:
                await read_body(request, upload, limit_bytes=4 * MB)
            assert upload.kept_bytes <= 5 * MB
            assert next(messages, None) is None or promised == 0
            return refused.value

        assert (await ask([MB] * 16, 16 * MB)).status == 413
        assert (await ask([MB] * 16, 0)).status == 413  # chunked: it did not say

    tell(story)
