"""From studies of the workload `invoke` to ways to serve: nothing that was measured is lost, and nothing is made up."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from invoked_study import REFUSED, both_studies, write_study

from fundoscope.analysis.measured_ways import Cannot, MeasuredWays, Place, read_measured
from fundoscope.analysis.options import Autoscaling, Batch, Latency, RealTime, Serverless
from fundoscope.analysis.prices import open_prices
from fundoscope.analysis.queueing import erlang_b
from fundoscope.analysis.traffic import COUNTRIES, constant
from fundoscope.analysis.ways import Assumed, at_once, kind_of, limit, takes, ways_to_serve
from fundoscope.errors import FundoscopeError
from fundoscope.experiment.design import Trial
from fundoscope.experiment.outcome import Failed, Measured, Outcome, OutcomeLog, Ran
from fundoscope.experiment.study import open_study

PRICES = open_prices("aws-sagemaker-us-east-1-2025-01-26")
SMALL = """
name = "small"
workload = "invoke"
repetitions = 2
[factors]
schedule = ["cold", "warm"]
memory_mb = [2048]
[settings]
artefact = "mobilenet"
"""


def of_small(trial: Trial, schedule: str, **other: Any) -> Measured:
    """Warm half a second, cold two; `other` readings, None for one that is not there."""
    n, each = (2, 2.0) if schedule == "cold" else (3, 0.5)
    known = {
        "latencies_s": [each] * n,
        "processings_s": [each - 0.1] * n,
        "photograph_bytes": 1000,
        "answer_bytes": 10,
        "artefact_refused": "",
    }
    said = {name: value for name, value in {**known, **other}.items() if value is not None}
    return Measured(trial, Ran("2026-11-15T12:00:00+00:00", 60.0, "machine-digest"), said)


def small(folder: Path, text: str = SMALL, of: Callable[[Trial, str], Outcome] = of_small, **more: Any) -> MeasuredWays:
    return read_measured([open_study(write_study(folder / "small", text, of))], **more)


def test_readings_of_all_trials_are_put_together_and_what_failed_is_listed(tmp_path: Path) -> None:
    found = read_measured([open_study(folder) for folder in both_studies(tmp_path)])
    sizes = {Place(artefact, mb) for artefact in ("mobilenet", "mobilenet-int8", "vgg19") for mb in (1024, 2048, 3072)}
    machines = {Place(a, instance=i) for a in ("mobilenet", "vgg19") for i in ("ml.c5.large", "ml.c7g.xlarge")}
    assert set(found.places) == (sizes | machines) - {Place("vgg19", 1024)}
    latency = found.places[Place("mobilenet", 2048)]
    assert (len(latency.warm_s), len(latency.cold_s)) == (75, 30)
    assert (latency.warm_trials, latency.cold_trials) == ((25, 25, 25), (10, 10, 10))
    assert (latency.bytes_in, latency.bytes_out) == (300_000, 700)
    assert latency.warm_s[0] == pytest.approx(latency.warm_billed_s[0] + 0.004)
    why = "out of memory: the server was ended for want of memory at 1024 MB (3 trials)"
    assert found.cannot == (Cannot("vgg19: serverless 1024 MB", why),)
    assert found.refused == {"mobilenet": "", "mobilenet-int8": REFUSED, "vgg19": ""}
    assert found.notes == ()
    assert [(each.name, each.measured, each.failed, each.machines) for each in found.sources] == [
        ("memory", 48, 6, 1),
        ("instances", 12, 0, 1),
    ]


def test_a_bill_is_of_what_the_container_worked_and_the_network_is_on_none(tmp_path: Path) -> None:
    found = small(tmp_path, network_s=0.05)
    assert found.places == {
        Place("mobilenet", 2048): Latency(
            (0.55,) * 6, (2.05,) * 4, 1000, 10, (0.4,) * 6, (1.9,) * 4, warm_trials=(3, 3), cold_trials=(2, 2)
        )
    }


def test_readings_of_before_the_contract_are_taken_and_what_they_lack_is_said(tmp_path: Path) -> None:
    def old(trial: Trial, schedule: str) -> Outcome:
        return of_small(trial, schedule, processings_s=None, answer_bytes=None, artefact_refused=None)

    found = small(tmp_path, of=old)
    (latency,) = found.places.values()
    assert latency.warm_billed_s == latency.warm_s
    assert latency.bytes_out == 0
    assert found.notes == (
        "what a container worked on a request is not among the readings: billed is as long as the caller waited",
        "the size of answers is not among the readings: they are billed as empty",
        "no reading says whether mobilenet passed a guard: taken as not refused",
    )


@pytest.mark.parametrize(("kept", "missing"), [("warm", "cold starts"), ("cold", "warm requests")])
def test_measured_in_part_is_no_serverless_way_and_what_is_missing_is_said(
    tmp_path: Path, kept: str, missing: str
) -> None:
    folder = write_study(tmp_path / "part", SMALL, of_small, keep=lambda trial: trial.cell.levels["schedule"] == kept)
    found = read_measured([open_study(folder)])
    assert found.places == {}
    lacking = {"warm": "cold", "cold": "warm"}[kept]
    why = f"no {missing} were measured of it: measure them, with the schedule '{lacking}'"
    assert found.cannot == (Cannot("mobilenet: serverless 2048 MB", why),)


def test_some_failed_trials_leave_a_way_and_a_note(tmp_path: Path) -> None:
    def once(trial: Trial, schedule: str) -> Outcome:
        found = of_small(trial, schedule)
        broken = trial.repetition == 2 and schedule == "warm"
        return Failed(trial, found.ran, "crashed", "it ended with status 1") if broken else found

    found = small(tmp_path, of=once)
    assert found.places[Place("mobilenet", 2048)].warm_s == (0.5,) * 3
    assert found.notes == (
        "mobilenet: serverless 2048 MB: 1 of 4 trials failed: crashed: it ended with status 1 (1 trial)",
    )


def test_of_a_trial_that_was_repeated_the_last_counts(tmp_path: Path) -> None:
    folder = write_study(
        tmp_path / "again", SMALL, lambda t, s: Failed(t, of_small(t, s).ran, "crashed", "it ended with status 1")
    )
    study = open_study(folder)
    with OutcomeLog(study.log, study.design) as log:
        for trial in study.design.trials:
            log.append(of_small(trial, str(trial.cell.levels["schedule"])))
    found = read_measured([study])
    assert list(found.places) == [Place("mobilenet", 2048)]
    assert found.sources[0].failed == 0


def test_trials_under_load_are_not_used_and_that_is_said(tmp_path: Path) -> None:
    text = SMALL.replace('["cold", "warm"]', '["cold", "warm", "poisson"]')
    found = small(tmp_path, text)
    assert found.places[Place("mobilenet", 2048)].warm_s == (0.5,) * 6
    assert found.notes == ("2 trials under load not used: their latencies hold queues, which are simulated here",)


def test_several_machines_busy_ones_and_errors_are_noted(tmp_path: Path) -> None:
    def elsewhere(trial: Trial, schedule: str) -> Outcome:
        found = of_small(trial, schedule, errors=1 if schedule == "warm" else 0)
        return replace(found, ran=replace(found.ran, machine=f"machine-{trial.repetition}", flags=("busy",)))

    assert small(tmp_path, of=elsewhere).notes == (
        "measured on 2 machines: differences between ways may be differences between machines",
        "4 trials of 4 ran while others used the processors",
        "mobilenet: serverless 2048 MB: 2 requests got an error and have no latency",
    )


def test_another_artefact_of_the_same_name_is_told_apart(tmp_path: Path) -> None:
    folders = [
        write_study(tmp_path / digest, SMALL, lambda t, s, digest=digest: of_small(t, s, artefact_digest=digest * 64))
        for digest in "ab"
    ]
    found = read_measured([open_study(folder) for folder in folders])
    assert list(found.places) == [Place("mobilenet (aaaaaaaa)", 2048), Place("mobilenet (bbbbbbbb)", 2048)]


@pytest.mark.parametrize(
    ("factor", "levels"),
    [("stack", ("lean", "published")), ("precision", ("float32", "int8")), ("image", ("one-stage", "reduced"))],
)
def test_whatever_makes_another_server_is_told_apart(tmp_path: Path, factor: str, levels: tuple[str, str]) -> None:
    text = SMALL.replace("memory_mb = [2048]", f"memory_mb = [2048]\n{factor} = {list(levels)}")
    found = small(tmp_path, text)
    assert list(found.places) == [Place(f"mobilenet ({level})", 2048) for level in levels]
    assert found.told[f"mobilenet ({levels[1]})"][factor] == levels[1]
    assert found.told[f"mobilenet ({levels[1]})"]["artefact"] == "mobilenet"


def test_a_default_that_is_written_out_is_the_same(tmp_path: Path) -> None:
    cold, warm = (
        write_study(tmp_path / name, text, of_small)
        for name, text in (
            ("cold", SMALL.replace('"cold", "warm"', '"cold"')),
            ("warm", SMALL.replace('"cold", "warm"', '"warm"') + 'stack = "lean"\nevery_s = 5\n'),
        )
    )
    assert list(read_measured([open_study(cold), open_study(warm)]).places) == [Place("mobilenet", 2048)]


def test_a_machine_without_a_name_has_to_be_given_one(tmp_path: Path) -> None:
    text = SMALL.replace("memory_mb = [2048]", "memory_mb = [0]").replace('"cold", "warm"', '"real-time"')
    nameless, named = (small(tmp_path / machine, text, machine=machine) for machine in ("", "ml.m5.xlarge"))
    assert nameless.cannot[0].reason == "nothing says which machine it was measured on is billed as: give --machine"
    assert list(named.places) == [Place("mobilenet", instance="ml.m5.xlarge")]


def test_a_study_of_something_else_or_without_a_reading_is_refused(tmp_path: Path) -> None:
    other = write_study(tmp_path / "other", SMALL.replace('"invoke"', '"command"'), of_small)
    with pytest.raises(FundoscopeError, match="is a study of the workload 'command'"):
        read_measured([open_study(other)])
    empty = write_study(tmp_path / "empty", SMALL, of_small, keep=lambda _: False)
    with pytest.raises(FundoscopeError, match="nothing was measured in small"):
        read_measured([open_study(empty)])


def test_a_guard_that_failed_in_any_trial_has_failed(tmp_path: Path) -> None:
    found = small(tmp_path, of=lambda t, s: of_small(t, s, artefact_refused="too blind" if s == "warm" else ""))
    assert found.refused == {"mobilenet": "too blind"}


def measured(places: dict[Place, Latency]) -> MeasuredWays:
    return MeasuredWays(places, {"m": ""}, {}, (), (), ())


HALF = Latency((0.5,) * 4, (5.0,) * 4, 300_000, 700)


def test_every_way_in_the_numbers_that_the_traffic_takes() -> None:
    """A second's peak of 4: two erlangs warm, twenty if all were cold."""
    places = {Place("m", 2048): HALF, Place("m", instance="ml.c5.large"): HALF}
    found = ways_to_serve(measured(places), constant(4.0), PRICES, Assumed())
    at_most = at_once(4.0, 5.0)
    assert found.options == (
        Serverless(2048, at_most, artefact="m"),
        Serverless(2048, at_most, 2, artefact="m"),
        RealTime("ml.c5.large", 3, artefact="m"),
        RealTime("ml.c5.large", 4, artefact="m"),
        RealTime("ml.c5.large", 1, Autoscaling(8), artefact="m"),
        RealTime("ml.c5.large", 1, Autoscaling(8), True, artefact="m"),
        Batch("ml.c5.large", count=6, artefact="m"),  # 48 hours of work a day
    )
    assert erlang_b(at_most, 20.0) <= 1e-3 < erlang_b(at_most - 1, 20.0)
    assert [kind_of(option) for option in found.options] == [
        "serverless",
        "kept ready",
        "fixed",
        "fixed",
        "autoscaled",
        "to zero",
        "at night",
    ]


def test_what_is_given_is_taken_instead() -> None:
    places = {Place("m", 2048): HALF, Place("m", instance="ml.c5.large"): HALF}
    given = Assumed(60, 120, 240, 1, workers=4, max_concurrency=9, ready=3, most=5)
    found = ways_to_serve(measured(places), constant(4.0), PRICES, given)
    assert found.options == (
        Serverless(2048, 9, 0, 60, "m"),
        Serverless(2048, 9, 3, 60, "m"),
        RealTime("ml.c5.large", 1, workers=4, start_s=120, artefact="m"),
        RealTime("ml.c5.large", 1, Autoscaling(5), False, 4, 120, 240, "m"),
        RealTime("ml.c5.large", 1, Autoscaling(5), True, 4, 120, 240, "m"),
        Batch("ml.c5.large", 1, 2, 4, 120, "m"),
    )


@pytest.mark.parametrize(
    ("place", "bytes_in", "why"),
    [
        (Place("m", 1536), 1, "serverless endpoints have no size of 1536 MB"),
        (Place("m", 2048), 5 * 2**20, "a photograph has 5.0 MB, and a request may have 4"),
        (Place("m", instance="ml.c5.large"), 30 * 2**20, "a photograph has 30.0 MB, and a request may have 25"),
        (Place("m", instance="mine"), 1, "aws-sagemaker-us-east-1-2025-01-26 has no price for mine"),
    ],
)
def test_what_nobody_sells_is_listed_with_why(place: Place, bytes_in: int, why: str) -> None:
    places = {Place("m", 1024): HALF, place: replace(HALF, bytes_in=bytes_in)}
    assert ways_to_serve(measured(places), constant(0.1), PRICES, Assumed()).cannot == (Cannot(place.name, why),)
    with pytest.raises(FundoscopeError, match="no way to serve that was measured can be had"):
        ways_to_serve(measured({place: replace(HALF, bytes_in=bytes_in)}), constant(0.1), PRICES, Assumed())


def test_no_more_is_asked_for_than_there_is() -> None:
    assert at_once(1000.0, 5.0) == 200
    traffic = replace(COUNTRIES["brazil"], people=10**9).traffic()
    found = ways_to_serve(measured({Place("m", 2048): HALF}), traffic, PRICES, Assumed())
    assert takes(found.options[0]) == "200 at once"
    assert limit(found.options[0], HALF) == "more than 200 at once (the most there is) are refused: about 400 a second"


def test_limits_are_said_with_their_numbers() -> None:
    assert limit(RealTime("x", 2, workers=3), HALF) == "more than 12 a second wait without end"
    scaled = RealTime("x", 1, Autoscaling(4))
    assert limit(scaled, HALF) == "more than 8 a second wait without end; another machine takes 5 minutes"
    assert takes(scaled) == "1 to 4 × x"
    assert limit(Batch("x"), HALF) == "no answer before 22 h"
    to_zero = RealTime("x", 1, Autoscaling(4), scale_to_zero=True)
    assert limit(to_zero, HALF) == "requests fail while the first machine starts, 5 minutes"
    assert takes(to_zero) == "0 to 4 × x"


@pytest.mark.parametrize(
    "wrong", [{"idle_s": -1.0}, {"start_s": float("nan")}, {"workers": 0}, {"max_concurrency": 201}]
)
def test_assumptions_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(FundoscopeError, match="cannot be"):
        Assumed(**wrong)
