"""fundoscope sign on the command line, and --trusted-key of those that use an artefact."""

import argparse
import json
from pathlib import Path

import pytest
from hand_made import make_artefact

from fundoscope.cli import deploy
from fundoscope.cli.main import main
from fundoscope.cli.trusted import VARIABLE
from fundoscope.data.draw import draw_eye
from fundoscope.errors import FundoscopeError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_artefact(tmp_path / "x").folder


def test_a_key_is_made_an_artefact_signed_and_the_next_command_named(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "release.key"
    assert main(["sign", "--new-key", str(key), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["private"], made["public"]) == (str(key), f"{key}.pub")
    assert made["next"] == f"fundoscope sign artefacts/x --key {key}"
    assert main(["sign", str(folder), "--key", str(key)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"signed: {folder}, digest ")
    assert lines[1] == f"by the key {made['key']}, in {folder}/signature.json"
    assert lines[-1] == f"next: fundoscope serve {folder} --trusted-key {key}.pub"
    assert (folder / "model.tar.gz").is_file()


def test_signing_what_was_refused_says_that_it_still_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = make_artefact(tmp_path / "small", precision="int8").folder
    main(["sign", "--new-key", str(tmp_path / "k")])
    assert main(["sign", str(small), "--key", str(tmp_path / "k"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["refused"] == "it is int8 and was never judged"


@pytest.mark.parametrize("words", [["x", "--new-key", "k"], ["--key", "k"]])
def test_half_a_command_is_bad_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sign", *words]) == 2
    assert "error: signing needs an artefact and a private key\nhint: give both" in capsys.readouterr().err


def test_a_changed_model_is_not_signed(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["sign", "--new-key", str(tmp_path / "k")])
    (folder / "model.onnx").write_bytes(b"WEIGHTS")
    assert main(["sign", str(folder), "--key", str(tmp_path / "k")]) == 2
    assert "is not the file that was exported" in capsys.readouterr().err
    assert not (folder / "signature.json").exists()


@pytest.mark.parametrize("by", ["option", "environment"])
def test_screening_with_an_unsigned_artefact_is_refused(
    by: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["sign", "--new-key", str(tmp_path / "k")])
    (tmp_path / "photographs").mkdir()
    (tmp_path / "photographs" / "1.jpg").write_bytes(draw_eye(8, 0, size=192).jpeg())
    words = ["screen", str(tmp_path / "photographs"), "--artefact", str(folder), "--out", str(tmp_path / "g.csv")]
    if by == "option":
        words += ["--trusted-key", str(tmp_path / "k.pub")]
    else:
        monkeypatch.setenv(VARIABLE, f"{tmp_path / 'k.pub'}:")
    assert main(words) == 2
    assert f"error: {folder} is not signed, and a trusted key was asked for" in capsys.readouterr().err
    assert not (tmp_path / "g.csv").exists()


def test_deploying_an_unsigned_artefact_is_refused_before_anything_is_asked(folder: Path, tmp_path: Path) -> None:
    main(["sign", "--new-key", str(tmp_path / "k")])
    parser = argparse.ArgumentParser()
    deploy.add_commands(parser.add_subparsers())
    for verb in ("plan", "apply"):
        words = ["deploy", verb, str(folder), "--name", "ana", "--image", f"sha256:{'0' * 64}"]
        words += ["--trusted-key", str(tmp_path / "k.pub"), "--deployments", str(tmp_path / "deployments")]
        parsed = parser.parse_args(words)
        with pytest.raises(FundoscopeError, match="is not signed, and a trusted key was asked for"):
            parsed.run(parsed)
    assert not (tmp_path / "deployments").exists()
