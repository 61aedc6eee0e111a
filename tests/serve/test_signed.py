"""Servers and signatures: what a trusted key keeps out, of the lean server and of the published one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hand_made import make_artefact
from running import serving

from fundoscope.artefact.artefact import Artefact
from fundoscope.artefact.signature import make_key, sign


@pytest.fixture
def key(tmp_path: Path) -> Path:
    make_key(tmp_path / "release.key")
    return tmp_path / "release.key"


def started(*words: str | Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """A server that ends by itself."""
    command = [sys.executable, "-m", "fundoscope.cli.main", "serve", "--port", "0", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | environment)


def test_a_signed_artefact_is_served_and_an_unsigned_one_is_not(
    artefact_folder: Path, jpeg: bytes, key: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(artefact_folder, tmp_path / "x"))
    for words, environment in (
        (["--trusted-key", f"{key}.pub"], {}),
        ([], {"FUNDOSCOPE_TRUSTED_KEY": f"{key}.pub"}),  # as a container is told
    ):
        (folder / "signature.json").unlink(missing_ok=True)
        refused = started(folder, *words, **environment)
        assert refused.returncode == 2
        assert refused.stderr.startswith(f"error: {folder} is not signed, and a trusted key was asked for\nhint: ")
        sign(Artefact.open(folder), key)
        with serving(folder, *words, **environment) as running:
            assert running.grade(jpeg).json["artefact"] == Artefact.open(folder).digest


def test_an_artefact_that_nobody_judged_is_not_served(tmp_path: Path) -> None:
    folder = make_artefact(tmp_path / "x", precision="int8").folder
    refused = started(folder)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"error: {folder} was refused: it is int8 and was never judged\nhint: ")


@pytest.fixture
def stand_in(tmp_path: Path) -> dict[str, str]:
    """For nginx, which is not started: the model is looked at first."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nginx").touch(0o755)
    return {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}


def test_the_published_stack_reads_every_byte_of_its_model_first(tmp_path: Path, stand_in: dict[str, str]) -> None:
    folder = make_artefact(tmp_path / "x", format="savedmodel").folder
    weights = folder / "saved_model" / "variables" / "variables.x"
    weights.write_bytes(b"WEIGHTS")  # as long
    refused = started(folder, "--stack", "published", **stand_in)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"error: {weights} is not the file that was exported: its sha256 is ")
    weights.write_bytes(b"weights")
    (folder / "saved_model" / "saved_model.pbtxt").write_bytes(b"another model")
    refused = started(folder, "--stack", "published", **stand_in)
    assert "does not list saved_model/saved_model.pbtxt, which is part of the model" in refused.stderr


def test_the_published_stack_wants_a_signature_too(tmp_path: Path, key: Path, stand_in: dict[str, str]) -> None:
    artefact = make_artefact(tmp_path / "x", format="savedmodel")
    words = [artefact.folder, "--stack", "published", "--trusted-key", f"{key}.pub"]
    refused = started(*words, **stand_in)
    assert refused.stderr.startswith(f"error: {artefact.folder} is not signed, and a trusted key was asked for")
    sign(artefact, key)
    (artefact.folder / "saved_model" / "saved_model.pb").write_bytes(b"WEIGHTS")
    refused = started(*words, **stand_in)
    assert "saved_model.pb is not the file that was exported" in refused.stderr
