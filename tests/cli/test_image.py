"""fundoscope image on the command line: what can be said without building one. The rest is in tests/deploy."""

from pathlib import Path

import pytest

from fundoscope.cli import image
from fundoscope.cli.main import main
from fundoscope.deploy.engines import ENGINES
from fundoscope.deploy.image import VARIANTS, find_source
from fundoscope.deploy.wheels import MACHINES


def test_everything_offered_exists() -> None:
    assert set(image.VARIANTS) == set(VARIANTS)
    assert set(image.ENGINES) == set(ENGINES)
    assert {platform: machine for machine, platform in image.PLATFORMS.items()} == MACHINES


def test_the_help_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["image", "build", "--help"])
    assert left.value.code == 0
    assert "fundoscope image build --variant lean --tag fundoscope:lean" in capsys.readouterr().out


def test_without_an_engine_one_sentence_and_one_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["image", "build", "--engine", "podman", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == (
        "error: no container engine works here: podman is not installed\n"
        "hint: install podman, or start docker's service\n"
    )
    assert not (tmp_path / "out").exists()


def test_a_source_that_is_no_repository_is_refused_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    podman = tmp_path / "podman"
    podman.write_text("#!/bin/sh\n")
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["image", "build", "--source", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == (
        f"error: {tmp_path} has no pyproject.toml\nhint: say where the repository is: --source FOLDER\n"
    )
    assert not (tmp_path / "out").exists()


def test_the_dockerfiles_are_found_from_a_checkout() -> None:
    assert (find_source() / "containers" / "lean.Dockerfile").is_file()
