"""The tests that a busy machine used to fail, again and again beside a load: `make test-busy`.

    python tests/busy.py --times 20 --load 6 --minutes 90
    python tests/busy.py --times 20 --load 6 --minutes 300 --only test_deploy_cycle

Ends with 0 where all of them passed every time. The load is so many processes that compute without end; they end with
this one, however it ends, and when the minutes are over.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
NAMED = {
    "serve/test_service.py": (
        "test_ping_is_answered_while_a_prediction_runs",
        "test_a_prediction_that_never_ends_is_given_up_and_its_worker_replaced",
        "test_a_worker_that_cannot_live_is_not_replaced_for_ever",
        "test_sigterm_answers_what_was_accepted_and_ends_with_0",
        "test_sigterm_does_not_wait_for_a_photograph_that_has_only_half_arrived",
        "test_answers_are_not_held_back_for_acknowledgements",
        "test_callers_who_come_at_the_same_moment_are_shared_among_the_workers",
    ),
    "experiment/test_cnn.py": ("test_epochs_go_on_until_they_have_taken_as_long_as_asked",),
    "experiment/test_kill.py": ("test_two_runs_of_one_study_at_once_are_refused_in_one_sentence",),
    "experiment/test_runner.py": (
        "test_a_worker_s_readings_and_what_was_seen_of_it_are_one_outcome",
        "test_samples_add_up_to_the_processor_seconds_that_were_used",
        "test_a_worker_that_hangs_is_ended_when_its_time_is_up",
    ),
    "data/test_gradability.py": ("test_assessing_takes_less_than_a_sixth_of_preparing",),
    "report/test_study_report.py": (
        "test_twenty_thousand_cells_are_drawn_in_half_a_minute_of_cpu_and_what_is_left_off_is_counted",
    ),
    "deploy/test_deploy_cycle.py": ("test_a_deployment_from_a_plan_to_nothing",),
}
LONG = "test_deploy_cycle"  # minutes each time: only when asked for
COMPUTE = """
import os, time
parent, end = os.getppid(), time.monotonic() + {seconds}
while os.getppid() == parent and time.monotonic() < end:
    sum(range(100_000))
"""


def main() -> int:
    asked = _arguments()
    end = time.monotonic() + 60 * asked.minutes
    named = [f"{HERE / file}::{test}" for file, tests in NAMED.items() for test in tests]
    chosen = [name for name in named if (asked.only in name if asked.only else LONG not in name)]
    with TemporaryDirectory(prefix="busy-") as made, loaded(asked.load, seconds=60 * asked.minutes):
        for number in range(1, asked.times + 1):
            began, left_s = time.monotonic(), end - time.monotonic()
            status = _test(chosen, made, left_s) if left_s > 0 else None
            seconds, load = time.monotonic() - began, os.getloadavg()[0]
            if status != 0:
                why = "there was no more time" if status is None else "it failed"
                print(f"{number} of {asked.times}: {why}", flush=True)
                return 1
            words = f"{len(chosen)} tests passed in {seconds:.0f} s; load {load:.1f}"
            print(f"{number} of {asked.times}: {words}", flush=True)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20, help="in a row (default: 20)")
    parser.add_argument("--load", type=int, default=6, help="processes that compute beside them (default: 6)")
    parser.add_argument("--minutes", type=float, default=90, help="at most, in all (default: 90)")
    parser.add_argument("--only", default="", metavar="TEXT", help="those with this in their name")
    return parser.parse_args()


@contextmanager
def loaded(processes: int, *, seconds: float) -> Iterator[None]:
    command = [sys.executable, "-S", "-c", COMPUTE.format(seconds=seconds)]
    started = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def _test(names: list[str], made: str, left_s: float) -> int | None:
    """The status of pytest; None: it had not ended in time."""
    command = [sys.executable, "-m", "pytest", "-x", "--durations=0", "-p", "no:cacheprovider"]
    variables = os.environ | {"FUNDOSCOPE_TESTS_MADE": made}  # what is made once is made once for all sessions
    try:
        return subprocess.run([*command, *names], env=variables, timeout=left_s).returncode
    except subprocess.TimeoutExpired:
        return None


if __name__ == "__main__":
    sys.exit(main())
