"""What the papers printed, held against studies whose numbers are known."""

from dataclasses import replace
from pathlib import Path

import pytest
from measured_study import DESIGN, GPU, MACHINES, NOISE, measured, ran, study, without_tensorflow_on_gpu, write

from fundoscope.analysis.cost import billing
from fundoscope.analysis.evidence import Evidence, above, all_of, with_range, within
from fundoscope.analysis.findings import Statement
from fundoscope.analysis.published import CLAIMS, statements
from fundoscope.analysis.table import open_table
from fundoscope.experiment.design import Design, Trial
from fundoscope.experiment.outcome import Measured, Outcome

SEEDS = Path(__file__).resolve().parents[3] / "shared" / "seeds"


def found(folder: Path, design: Design = DESIGN, total_usd: float | None = None) -> dict[str, Statement]:
    """By the first words of what was said."""
    table = open_table(design, folder, MACHINES)
    bill = billing(design)
    return {one.said: one for one in statements(Evidence(table, MACHINES, bill, total_usd))}


def pick(statements: dict[str, Statement], words: str) -> Statement:
    (one,) = [statement for said, statement in statements.items() if words in said]
    return one


def test_a_study_like_the_papers_is_judged_statement_by_statement(tmp_path: Path) -> None:
    """Measured: 64×64 thrice as long, GPU 20 times as fast, PyTorch 1.5 and TensorFlow 2.5 times MXNet's time."""
    said = found(study(tmp_path / "s"))
    verdicts = {
        words: pick(said, words).verdict for words in ("64×64 take", "at least 10", "4 to 6", "between MXNet's")
    }
    assert verdicts == {
        "64×64 take": "holds",
        "at least 10": "holds",
        "4 to 6": "does not hold",
        "between MXNet's": "holds",
    }
    larger = pick(said, "64×64 take").found
    assert larger.startswith("64×64 took 3.00 times (")
    assert larger.count("over 3 pairs of cells") == 2
    assert larger.endswith("on the GPU.")
    assert "The CPU took 20.0" in pick(said, "at least 10").found
    # 20 times as fast at 0.526 / 0.169 of the price: 0.1556 of the cost
    cost = pick(said, "4 to 6")
    assert "0.1556 times as much" in cost.found
    assert "3.11 times the price" in cost.found
    assert "contradicts itself" in cost.note


def test_a_statement_in_parts_falls_with_any_of_them(tmp_path: Path) -> None:
    slower = pick(found(study(tmp_path / "s")), "2 to 3 times as long")
    assert slower.verdict == "does not hold"  # 2.5 times MXNet, but 1.67 times PyTorch
    assert "as long as MXNet" in slower.found
    assert "1.67" in slower.found


def test_use_is_judged_as_a_share_of_the_machine(tmp_path: Path) -> None:
    """95 % of two processors, 40 % of the memory, 21 % of the GPU's and 90 % of the GPU, in every trial alike."""
    folder = study(tmp_path / "s", of=lambda trial: vary(trial, framework="pytorch", more=1.0))
    said = found(folder)
    assert pick(said, "about 40 % of the memory").verdict == "holds"
    assert pick(said, "about 20 % of the GPU's memory").verdict == "holds"
    assert pick(said, "more than 80 % of the GPU").verdict == "holds"
    assert pick(said, "most of the CPU").verdict == "holds"
    assert "PyTorch used 95.0" in pick(said, "most of the CPU").found
    assert pick(said, "most of the GPU's memory").verdict == "does not hold"


def vary(trial: Trial, *, framework: str, more: float) -> Outcome:
    """A little noise in what was used, and some points more of the processors for one framework."""
    outcome = measured(trial)
    usage = {name: value * NOISE[trial.repetition - 1] for name, value in outcome.usage.items()}
    usage["cpu_percent_mean"] -= 0 if trial.cell.levels["framework"] == framework else 20 * more
    return replace(outcome, usage=usage)


def test_what_a_study_lacks_is_named(tmp_path: Path) -> None:
    said = found(study(tmp_path / "s", of=without_tensorflow_on_gpu))
    assert pick(said, "Rede 2").verdict == "not measured"
    assert pick(said, "Rede 2").found == "This study has no factor called network."
    assert pick(said, "CIFAR-10").found == "This study has no factor called dataset."
    memory = pick(said, "most of the GPU's memory")
    assert memory.verdict == "not measured"
    assert "tensorflow" in memory.found
    assert pick(said, "R$158").found == "No prices are given for this study."


def test_a_study_without_a_gpu_leaves_its_statements_unmeasured(tmp_path: Path) -> None:
    alone = replace(DESIGN, exclude=({"device": "gpu"},))
    said = found(study(tmp_path / "s", alone), alone)
    assert pick(said, "at least 10").found == "No trial with device gpu has a reading of train_s."
    assert pick(said, "64×64 take").verdict == "holds"
    assert "GPU" not in pick(said, "64×64 take").found
    assert pick(said, "2 to 3 times as long").verdict == "does not hold"


def test_the_papers_total_is_compared_with_the_same_trials_alone(tmp_path: Path) -> None:
    total = pick(found(study(tmp_path / "s"), total_usd=12.5), "R$158")
    assert total.verdict == "not measured"
    assert total.found == "36 trials cost US$12.50 here; the paper's are 240 of 10 epochs."


def referral(folder: Path, gpu: list[float], tpu: list[float]) -> dict[str, Statement]:
    design = Design("ten", "referral", {"device": ("gpu", "tpu")}, repetitions=len(gpu), machine_factor="device")
    outcomes = []
    for trial in design.trials:
        value = {"gpu": gpu, "tpu": tpu}[str(trial.cell.levels["device"])][trial.repetition - 1]
        outcomes.append(Measured(trial, ran(trial, value), {"train_s": value}))
    return found(write(folder, design, outcomes), design)


def test_the_referral_papers_own_numbers_hold(tmp_path: Path) -> None:
    """Ten times with the means it prints, and twice the deviation on the TPU."""
    steps = [-2, -1.5, -1, -0.5, -0.25, 0.25, 0.5, 1, 1.5, 2]
    said = referral(tmp_path / "s", [51.33 * 60 + 6 * s for s in steps], [33.24 * 60 + 12 * s for s in steps])
    less = pick(said, "36 % less time")
    assert less.verdict == "holds"
    assert "The TPU took 35.2" in less.found
    assert "35.2 %" in less.note
    deviation = pick(said, "deviate twice")
    assert "2.00 times (1.00 to 4.01)" in deviation.found or "2.0 times (1.0 to 4.0)" in deviation.found
    assert deviation.verdict == "undecided"  # ten readings each leave room on both sides


def test_several_gpus_stand_for_the_papers_two_where_they_were_measured(tmp_path: Path) -> None:
    design = Design("gpus", "referral", {"device": ("gpu", "gpus", "tpu")}, repetitions=3, machine_factor="device")
    minutes = {"gpu": 90.0, "gpus": 51.33, "tpu": 33.24}
    outcomes = [
        Measured(t, ran(t, 1.0), {"train_s": minutes[str(t.cell.levels["device"])] * NOISE[t.repetition - 1]})
        for t in design.trials
    ]
    less = pick(found(write(tmp_path / "s", design, outcomes), design), "36 % less time")
    assert less.found.endswith("less time than the GPUs.")
    assert less.verdict == "holds"


def test_a_study_about_steady_epochs_is_judged_by_them_and_says_so(tmp_path: Path) -> None:
    folder = study(tmp_path / "s", of=lambda t: measured(t, steady_epoch_s=NOISE[t.repetition - 1] * cubed(t)))
    table = open_table(DESIGN, folder, MACHINES)
    said = {one.said: one for one in statements(Evidence(table, MACHINES, None, None, "steady_epoch_s"))}
    larger = pick(said, "64×64 take")
    assert larger.verdict == "does not hold"
    assert "took 8.00 times" in larger.found
    assert larger.found.endswith("Compared is the time of an epoch after the first.")


def cubed(trial: Trial) -> float:
    return 8.0 if trial.cell.levels["image"] == 64 else 1.0


def test_verdicts_follow_the_rule() -> None:
    assert [within(*ends, 2.5, 3.5) for ends in ((2.9, 3.1), (3.4, 4.0), (3.6, 4.0), (2.0, 4.0), (None, None))] == [
        "holds",
        "holds",
        "does not hold",
        "undecided",
        "undecided",
    ]
    assert [above(*ends, 10.0) for ends in ((10.0, 12.0), (9.0, 9.9), (9.0, 11.0), (None, None))] == [
        "holds",
        "does not hold",
        "undecided",
        "undecided",
    ]
    assert all_of("holds", "undecided") == "undecided"
    assert all_of("undecided", "does not hold") == "does not hold"
    assert all_of("holds", "holds") == "holds"


def test_numbers_have_as_many_decimals_as_their_interval_bears() -> None:
    assert with_range(2.99973, 2.9, 3.1, " times") == "3.00 times (2.90 to 3.10)"
    assert with_range(153.2, 120.0, 190.0, " %") == "153 % (120 to 190)"
    assert with_range(0.1, -0.5, 0.7, " points", "+") == "+0.1 points (-0.5 to +0.7)"
    assert with_range(3.65, 0.57, 23.3, " times") == "3.65 times (0.57 to 23.30)"
    assert with_range(3.0, None, None, " times") == "3 times (no interval)"


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the papers are not beside this checkout")
@pytest.mark.parametrize(("workload", "paper"), [("cnn", "004_*.txt"), ("referral", "001_*.txt")])
def test_what_is_quoted_is_printed(workload: str, paper: str) -> None:
    (path,) = SEEDS.glob(paper)
    text = " ".join(path.read_text().replace("*", "").replace("\\$", "$").split())
    missing = [claim.original for claim in CLAIMS[workload] if claim.original not in text]
    assert missing == []


def test_other_workloads_have_no_statements(tmp_path: Path) -> None:
    design = replace(DESIGN, workload="invoke")
    assert found(study(tmp_path / "s", design), design) == {}
    assert GPU["gpus"]
