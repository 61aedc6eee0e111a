"""What /metrics counts, to the number: every bound of every histogram, and one photograph as one."""

import re
from pathlib import Path

from running import Running, serving

SECONDS = [
    "0.001",
    "0.0025",
    "0.005",
    "0.01",
    "0.025",
    "0.05",
    "0.1",
    "0.25",
    "0.5",
    "1",
    "2.5",
    "5",
    "10",
    "30",
    "60",
    "+Inf",
]
SIZES = ["1", "2", "4", "8", "16", "32", "+Inf"]


def bounds(samples: dict[str, float], name: str) -> list[str]:
    return [found[1] for key in samples if (found := re.fullmatch(rf'{name}_bucket{{.*le="(.*)"}}', key))]


def test_the_histograms_have_their_bounds_in_order(server: Running) -> None:
    samples = server.metrics()
    assert bounds(samples, "fundoscope_seconds") == SECONDS * 4
    assert bounds(samples, "fundoscope_batch_photographs") == SIZES
    phases = re.findall(r'fundoscope_seconds_count{phase="(\w+)"}', "\n".join(samples))
    assert phases == ["queue", "decode", "predict", "total"]


def test_a_photograph_is_counted_once_in_every_count_that_it_is_in(artefact_folder: Path, jpeg: bytes) -> None:
    with serving(artefact_folder) as server:
        assert server.grade(jpeg).status == 200
        assert server.grade(b"no photograph").status == 400
        samples = server.metrics()
    assert samples['fundoscope_requests_total{status="200"}'] == 1
    assert samples['fundoscope_requests_total{status="400"}'] == 1
    outcomes = {key: value for key, value in samples.items() if key.startswith("fundoscope_photographs_total")}
    assert outcomes.pop('fundoscope_photographs_total{outcome="unreadable"}') == 1
    assert sum(outcomes.values()) == 1
    assert samples['fundoscope_seconds_count{phase="total"}'] == 1
