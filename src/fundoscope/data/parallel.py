"""One function over many tasks, on several processes."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TypeVar

from fundoscope.errors import FundoscopeError
from fundoscope.quota import cores

Task = TypeVar("Task")
Result = TypeVar("Result")


def spread(
    function: Callable[[Task], Result], tasks: Sequence[Task], *, processes: int | None = None
) -> Iterator[Result]:
    """function(task) for every task, in their order; one process: here."""
    processes = min(processes or cores(), len(tasks))
    if processes <= 1:
        yield from map(function, tasks)
        return
    # Spawned, not forked: a fork copies the locks of threads that TensorFlow and progress bars have running.
    spawned = multiprocessing.get_context("spawn")
    lifeline, held = spawned.Pipe(duplex=False)
    with ProcessPoolExecutor(processes, mp_context=spawned, initializer=_begin, initargs=(lifeline,)) as pool:
        waiting = deque(pool.submit(function, task) for task in tasks)
        try:
            while waiting:
                yield waiting.popleft().result()  # and forget it: results may be large
        except BrokenProcessPool:
            hint = "was the memory used up? try with fewer: --processes 1"
            raise FundoscopeError("a worker process was ended from outside", hint) from None
        except BaseException:  # Ctrl-C, or nobody wants the rest: end the workers now, not after what they have begun
            held.close()
            raise


def _begin(lifeline: Connection) -> None:
    """In each worker, first of all."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # numpy is not imported yet; a process per core, with threads for every core, crawls
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of us; the parent says what follows
    threading.Thread(target=_hang_on, args=(lifeline,), daemon=True).start()


def _hang_on(lifeline: Connection) -> None:
    """Nobody ever writes to it: it breaks when the parent lets go, or is no more, were it by kill -9."""
    with suppress(EOFError, OSError):
        lifeline.recv_bytes()
    os._exit(1)
