import os
import signal

import pytest

from fundoscope.data.parallel import spread
from fundoscope.errors import FundoscopeError


def squared(number: int) -> tuple[int, int]:
    return number**2, os.getpid()


def fatal(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory runs out
    return number


def refused(number: int) -> int:
    raise FundoscopeError(f"{number} is refused", "take another")


def test_results_come_in_the_order_of_the_tasks_from_several_processes() -> None:
    results = list(spread(squared, range(40), processes=2))
    assert [result for result, _ in results] == [number**2 for number in range(40)]
    assert os.getpid() not in {process for _, process in results}


def test_one_process_is_this_one() -> None:
    assert list(spread(squared, [3], processes=2)) == [(9, os.getpid())]
    assert list(spread(squared, [], processes=2)) == []


def test_a_worker_killed_for_memory_is_an_error_with_a_hint() -> None:
    with pytest.raises(FundoscopeError, match="a worker process was ended from outside") as ended:
        list(spread(fatal, range(10), processes=2))
    assert "--processes 1" in ended.value.hint


def test_an_error_in_a_worker_arrives_whole() -> None:
    with pytest.raises(FundoscopeError, match="0 is refused") as arrived:
        list(spread(refused, range(10), processes=2))
    assert arrived.value.hint == "take another"


def test_workers_are_gone_when_nobody_wants_the_rest() -> None:
    results = spread(squared, range(1000), processes=2)
    _, process = next(results)
    results.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
