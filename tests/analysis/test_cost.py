"""Dollars: what a trial is billed, what was paid for failures, what it would have been elsewhere."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from measured_study import DESIGN, MACHINES, NOISE, PRICES, study, without_tensorflow_on_gpu

from fundoscope.analysis.cost import billing, costs
from fundoscope.analysis.findings import Costs
from fundoscope.analysis.table import open_table
from fundoscope.errors import FundoscopeError
from fundoscope.experiment.design import Design, Pricing

TODAY = date(2026, 11, 15)
MEAN = sum(NOISE) / 3  # of a cell's noise
CELL_S = 100 * MEAN  # C1: CPU, MXNet, 32×32


def cost_of(
    folder: Path,
    design: Design = DESIGN,
    *,
    prices: str | None = None,
    machines: Mapping[str, str] | None = None,
    spot: bool = False,
) -> Costs:
    if not folder.exists():
        study(folder, of=without_tensorflow_on_gpu)
    bill = billing(design, prices=prices, machines=machines, spot=spot)
    assert bill is not None
    return costs(open_table(design, folder, MACHINES), bill, "train_s", today=TODAY)


def test_a_trial_is_billed_from_start_to_end_and_as_published_for_its_training(tmp_path: Path) -> None:
    found = cost_of(tmp_path / "s")
    first = found.cells[0]
    assert (first.cell.name, first.machine) == ("C1", "F4s_v2")
    assert first.usd.mean == pytest.approx(0.169 * (CELL_S + 10) / 3600)
    assert first.usd_as_published is not None
    assert first.usd_as_published.mean == pytest.approx(0.169 * CELL_S / 3600)
    assert len(found.cells) == 10  # two failed always


def test_failed_trials_cost_too(tmp_path: Path) -> None:
    found = cost_of(tmp_path / "s")
    cpu_s = 3 * ((1 + 1.5 + 2.5) * (1 + 3) * CELL_S + 6 * 10)
    gpu_s = 3 * ((1 + 1.5) * (1 + 3) * 0.05 * CELL_S + 4 * 10)
    failed = 0.526 * 6 * 36.0 / 3600
    assert found.failed_usd == pytest.approx(failed)
    assert found.by_machine == pytest.approx(
        {"F4s_v2": 0.169 * cpu_s / 3600, "NC4as_T4_v3": 0.526 * gpu_s / 3600 + failed}
    )
    assert found.total_usd == pytest.approx(sum(found.by_machine.values()))


def test_an_old_study_is_priced_anew(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    found = cost_of(
        folder,
        prices="gcp-us-central1-2026-08-21",
        machines={"cpu": "n1-standard-4", "gpu": "n1-standard-4+T4"},
    )
    assert (found.prices, found.as_of, found.spot) == ("gcp-us-central1-2026-08-21", "2026-08-21", False)
    assert found.cells[0].usd.mean == pytest.approx(0.19 * (CELL_S + 10) / 3600)
    spot = cost_of(folder, prices="azure-eastus-2025-09-11", spot=True)
    assert spot.cells[0].usd.mean == pytest.approx(0.01859 * (CELL_S + 10) / 3600)
    partly = cost_of(folder, prices="azure-eastus-2025-09-11", machines={"cpu": "D4s_v5"})
    assert set(partly.by_machine) == {"D4s_v5", "NC4as_T4_v3"}
    one = cost_of(folder, machines={"": "F4s_v2"})
    assert set(one.by_machine) == {"F4s_v2"}


def test_an_old_list_says_so_and_a_papers_own_does_not(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    assert cost_of(folder).stale == ""
    old = cost_of(folder, prices="azure-eastus-2025-09-11")
    assert old.stale == "azure-eastus-2025-09-11 is 430 days old: prices have changed since"


def test_machines_of_the_same_kind_are_listed_and_only_the_named_one_is_measured(tmp_path: Path) -> None:
    found = cost_of(tmp_path / "s", prices="azure-eastus-2025-09-11")
    rows = {(one.machine, one.trials): one for one in found.elsewhere}
    assert set(rows) == {
        ("F4s_v2", "cpu"),
        ("D4s_v5", "cpu"),
        ("D4ps_v5", "cpu"),
        ("NC4as_T4_v3", "gpu"),
        ("NC6s_v3", "gpu"),
        ("NC24ads_A100_v4", "gpu"),
    }
    assert {one.machine for one in found.elsewhere if one.measured} == {"F4s_v2", "NC4as_T4_v3"}
    hours = 3 * ((1 + 1.5 + 2.5) * (1 + 3) * CELL_S + 6 * 10) / 3600
    there = rows["D4s_v5", "cpu"]
    assert (there.hours, there.usd) == (pytest.approx(hours), pytest.approx(0.192 * hours))
    assert rows["NC6s_v3", "gpu"].accelerator == "V100"
    assert sum(one.usd for one in found.elsewhere if one.measured) == pytest.approx(found.total_usd)


def test_a_machine_that_its_facts_contradict_was_not_measured(tmp_path: Path) -> None:
    table = open_table(DESIGN, study(tmp_path / "s"), MACHINES)
    bill = billing(DESIGN)
    assert bill is not None

    def measured(cpu: dict[str, Any], gpu: dict[str, Any]) -> set[str]:
        facts = {"cpu-digest": cpu, "gpu-digest": gpu}
        found = costs(table, bill, "train_s", today=TODAY, machines=facts)
        return {one.machine for one in found.elsewhere if one.measured}

    t4, h200 = [{"name": "Tesla T4"}], [{"name": "NVIDIA H200"}]
    assert measured({"processors": 4}, {"processors": 4, "gpus": t4}) == {"F4s_v2", "NC4as_T4_v3"}
    assert measured({"processors": 4}, {"processors": 4, "gpus": h200}) == {"F4s_v2"}
    assert measured({"processors": 2}, {"processors": 16, "gpus": t4}) == set()


def test_tpus_and_inference_chips_do_not_run_what_ran_on_a_gpu(tmp_path: Path) -> None:
    found = cost_of(
        tmp_path / "s", prices="gcp-us-central1-2026-08-21", machines={"cpu": "n1-standard-4", "gpu": "g2-standard-4"}
    )
    assert not [one for one in found.elsewhere if (one.accelerator or "").startswith("TPU")]
    assert not [one for one in found.elsewhere if one.measured]  # the design names other machines


def test_the_front_is_of_mean_time_and_mean_cost(tmp_path: Path) -> None:
    # The fastest cell, MXNet at 32×32 on the GPU, is also the cheapest: 15 s at 0.526 against 110 s at 0.169.
    assert cost_of(tmp_path / "s").pareto == ("C7",)
    # With a GPU twenty times as dear as the CPU there is a choice.
    dear = cost_of(
        tmp_path / "s", prices="azure-eastus-2025-09-11", machines={"cpu": "F4s_v2", "gpu": "NC24ads_A100_v4"}
    )
    assert dear.pareto == ("C7", "C1")


def test_what_is_not_said_is_asked_for() -> None:
    plain = replace(DESIGN, prices=None)
    assert billing(plain) is None
    with pytest.raises(FundoscopeError, match="is not said"):
        billing(plain, prices="azure-eastus-2025-09-11")
    with pytest.raises(FundoscopeError, match="no price list"):
        billing(plain, machines={"cpu": "F4s_v2", "gpu": "NC4as_T4_v3"})
    with pytest.raises(FundoscopeError, match="no machine is given for device gpu"):
        billing(plain, prices="azure-eastus-2025-09-11", machines={"cpu": "F4s_v2"})
    with pytest.raises(FundoscopeError, match="no level of a factor called 'gpuu'") as problem:
        billing(DESIGN, machines={"gpuu": "NC4as_T4_v3"})
    assert problem.value.hint == "use gpu"
    with pytest.raises(FundoscopeError, match="are not levels of one factor"):
        billing(DESIGN, machines={"cpu": "F4s_v2", "64": "F4s_v2"})


def test_an_unknown_machine_names_those_near_it() -> None:
    with pytest.raises(FundoscopeError, match="has no price for 'F4s_v3'") as problem:
        billing(replace(DESIGN, prices=replace(PRICES, machines={"cpu": "F4s_v3", "gpu": "NC4as_T4_v3"})))
    assert "F4s_v2" in problem.value.hint
    with pytest.raises(FundoscopeError, match="D4s_v5 of azure-eastus-2025-09-11: its spot price is not known"):
        billing(replace(DESIGN, prices=Pricing("azure-eastus-2025-09-11", machine="D4s_v5")), spot=True)
