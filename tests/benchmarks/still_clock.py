"""An event loop whose clock stands still while anything happens, and then jumps to the next moment that is waited for.

Its seconds cost nothing, and no other process can lengthen them.
"""

import asyncio
import selectors
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

ARRIVES_S = 0.001  # of a real clock, for what was sent over loopback; it is there at once but for a busy kernel


class StillClock(selectors.DefaultSelector):
    """Tells asyncio what has arrived; where nothing has, the time is over that it would have waited."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        arrived = super().select(timeout and ARRIVES_S)
        if not arrived and timeout:
            self.now += timeout
        return arrived


class StillClockLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = StillClock()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


@contextmanager
def still_clock(begin: Callable[[asyncio.AbstractEventLoop], None]) -> Iterator[None]:
    """Meanwhile `asyncio.run` has such a loop, a new one each time, of which `begin` is told first."""

    class Policy(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            loop = StillClockLoop()
            begin(loop)
            return loop

    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(Policy())
    try:
        yield
    finally:
        asyncio.set_event_loop_policy(before)
