"""Artefacts, to the letter: bytes of an archive, digits of a digest, lines of a ledger, words of a comparison."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hand_made import make_artefact

from fundoscope.artefact.artefact import Artefact, OperatingPoint, pack
from fundoscope.artefact.attempts import Attempt, count_attempts
from fundoscope.artefact.convert import BATCH, steps
from fundoscope.artefact.guard import tango
from fundoscope.artefact.measure import Latency
from fundoscope.artefact.parity import compare
from fundoscope.artefact.quantise import Measured, _gain
from fundoscope.errors import FundoscopeError


def test_an_archive_is_from_no_time_and_of_nobody(tmp_path: Path) -> None:
    """RFC 1952, 2.3.1: bytes 4 to 7 are the time, 0 where there is none; no flag means no name follows."""
    head = pack(make_artefact(tmp_path / "x")).read_bytes()[:8]
    assert head == bytes([0x1F, 0x8B, 8, 0, 0, 0, 0, 0])


def test_twelve_digits_of_both_digests_say_that_an_artefact_was_changed(tmp_path: Path) -> None:
    artefact = make_artefact(tmp_path / "x")
    path = artefact.folder / "artefact.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"digest": "f" * 64}))
    with pytest.raises(FundoscopeError) as caught:
        Artefact.open(artefact.folder)
    assert caught.value.message == (
        f"{path} was changed after the export: its digest should be {artefact.digest[:12]}… and it says ffffffffffff…"
    )


def test_a_line_of_the_ledger_that_is_no_attempt_is_named_by_its_number(tmp_path: Path) -> None:
    first = Attempt(*(f"{name}" for name in Attempt.__dataclass_fields__))
    assert count_attempts(tmp_path, {"int8": first}) == {"int8": 1}
    ledger = tmp_path / "attempts.jsonl"
    line = ledger.read_text()
    assert json.loads(line) == {**asdict(first), "method": "int8", "attempts": 1}
    ledger.write_text(line + "{}\n")
    with pytest.raises(FundoscopeError) as caught:
        count_attempts(tmp_path, {"int8": replace(first, model="other")})
    assert caught.value.message == f"line 2 of {ledger} is not an attempt"


def test_a_change_of_every_pair_is_bounded_by_one() -> None:
    lost, gained = tango(0, 10, 10), tango(10, 0, 10)
    assert (lost[0], gained[1]) == (-1.0, 1.0)
    assert lost[1] == pytest.approx(-gained[0], abs=1e-9)
    assert -1 < lost[1] < 0


def test_a_conversion_tells_of_each_batch_of_each_model() -> None:
    assert [steps(n, also_keras=False) for n in (1, BATCH, BATCH + 1)] == [3, 3, 4]
    assert [steps(n, also_keras=True) for n in (1, BATCH, BATCH + 1)] == [4, 4, 6]


def test_a_comparison_is_said_with_its_flips_and_with_grades_where_there_are_some() -> None:
    points = [OperatingPoint("high_sensitivity", 0.5, 0.95, "sensitivity")]
    before = np.array([[0.9, 0.025, 0.025, 0.025, 0.025], [0.3, 0.1, 0.2, 0.2, 0.2]], np.float32)
    after = before[::-1]
    # 0.6, 0.075, 0.175 three times, and 0.525 for referral: 0.2875 at the mean.
    graded = compare(before, after, points=points, referral_from=2, against="model.keras")
    assert str(graded) == (
        "2 tuning photographs against model.keras: largest difference 6.0e-01, mean 2.9e-01, "
        "referral flips 2 at high_sensitivity, grade changes 2"
    )
    assert not graded.passed
    chances = np.array([[0.1], [0.9]], np.float32)
    referral = compare(chances, chances, points=points, referral_from=2, against="predictions.csv")
    assert str(referral) == (
        "2 tuning photographs against predictions.csv: largest difference 0.0e+00, mean 0.0e+00, referral flips none"
    )
    assert referral.passed


@pytest.mark.parametrize(
    ("size_bytes", "low", "high", "gain"),
    [
        (94, 1.1, 1.3, "smaller and faster"),
        (95, 1.1, 1.3, "faster"),
        (94, 0.9, 1.1, "smaller"),
        (100, 0.9, 1.1, "none"),
        (94, 0.7, 0.9, "smaller, but slower"),
        (100, 0.7, 0.9, "no smaller, but slower"),
    ],
)
def test_what_is_gained_is_said_by_size_and_by_the_interval_of_the_speed(
    size_bytes: int, low: float, high: float, gain: str
) -> None:
    measured = {
        "float32": Measured(100, 1, Latency(1.0, 1.0, 1.0, 1.0)),
        "int8": Measured(size_bytes, 1, Latency(1.0, 1.0, low, high)),
    }
    assert _gain(measured, "int8") == gain
