"""What a machine says of itself."""

from pathlib import Path

from fundoscope.experiment.machine import Counters, processor_joules, this_machine


def test_this_machine_has_processors_memory_and_a_digest_that_stays() -> None:
    found = this_machine()
    assert found.processors >= 1
    assert found.memory_gb > 0.5
    assert found.processor
    assert len(found.digest) == 16
    assert found.digest == this_machine().digest


def test_counters_only_grow() -> None:
    before = Counters.now()
    sum(range(3_000_000))
    after = Counters.now()
    assert after.busy_s >= before.busy_s > 0
    assert after.killed_for_memory >= before.killed_for_memory


def test_energy_is_that_of_whole_processors(tmp_path: Path) -> None:
    assert processor_joules(tmp_path) is None
    for name, energy in (("intel-rapl:0", "3000000"), ("intel-rapl:1", "500000"), ("intel-rapl:0:0", "2000000")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(f"{energy}\n")
    assert processor_joules(tmp_path) == 3.5  # the part of a processor is in the processor's
