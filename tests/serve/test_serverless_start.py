"""A serverless container starts because somebody waits: healthy once its model is open, it warms up on that request."""

from pathlib import Path

from running import serving, until


def test_the_first_caller_s_photograph_is_the_warm_up(artefact_folder: Path, jpeg: bytes) -> None:
    with serving(artefact_folder, "--platform", "serverless") as running:
        assert running.send("GET", "/ping").status == 200
        answer = running.grade(jpeg)
    assert answer.status == 200
    assert set(answer.json["container"]["phases_s"]) == {"boot", "import", "load", "first_prediction"}


def test_where_nobody_comes_it_warms_up_by_itself(artefact_folder: Path, jpeg: bytes) -> None:
    """As with provisioned concurrency, where containers are started before anybody asks."""
    with serving(artefact_folder, "--platform", "serverless") as running:
        until(lambda: 'fundoscope_start_seconds{phase="warm_up"}' in running.metrics())
        phases = running.grade(jpeg).json["container"]["phases_s"]
    assert phases["warm_up"] > 0
    assert phases["first_prediction"] < 5
