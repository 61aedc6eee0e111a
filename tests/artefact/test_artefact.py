"""Artefact folders: what travels in them, and that nothing in them can change unnoticed."""

import json
import os
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from untrained_run import UntrainedRun, change_json

from fundoscope.artefact.artefact import Artefact, pack, write
from fundoscope.artefact.export import Exported
from fundoscope.errors import FundoscopeError
from fundoscope.provenance import sha256_file


@pytest.fixture
def copy(exported: dict[str, Exported], tmp_path: Path) -> Path:
    """An artefact that a test may spoil."""
    return Path(shutil.copytree(exported["onnx"].artefact.folder, tmp_path / "copy"))


def test_operating_points_and_preparation_travel_in_the_artefact(
    run: UntrainedRun, exported: dict[str, Exported]
) -> None:
    scores = json.loads((run.folder / "scores.json").read_text())
    facts = json.loads((run.folder / "run.json").read_text())
    for format, done in exported.items():
        table = json.loads((done.artefact.folder / "artefact.json").read_text())
        assert table["format"] == format
        assert table["operating_points"] == scores["operating_points"]
        assert table["input"]["preparation"] == facts["records"]["preparation"]
        assert table["input"]["gradability"] == facts["records"]["rule"]
        assert table["input"]["shape"] == [None, 64, 64, 3]
        assert table["referral_from"] == 2
        assert table["origin"]["model_sha256"] == sha256_file(run.folder / "model.keras")
        assert table["scores"]["gradable"]["auc"]["value"] == scores["test"]["image"]["gradable"]["auc"]["value"]
        assert [name["en"] for name in table["output"]["classes"]][1:] == [
            "mild",
            "moderate",
            "severe",
            "proliferative",
        ]
        assert table["output"]["classes"][3]["pt"] == "grave"
        assert table["drawn"]
        assert "Not a medical device" in table["notice"]["en"]


def test_what_is_read_back_is_what_was_written(exported: dict[str, Exported]) -> None:
    artefact = exported["onnx"].artefact
    assert Artefact.open(artefact.folder) == artefact
    assert artefact.to_json() == json.loads((artefact.folder / "artefact.json").read_text())


def test_a_changed_byte_in_the_model_is_named(copy: Path) -> None:
    model = copy / "model.onnx"
    changed = bytearray(model.read_bytes())
    changed[len(changed) // 2] ^= 1
    model.write_bytes(changed)
    with pytest.raises(FundoscopeError, match=r"model\.onnx is not the file that was exported: its sha256 is"):
        Artefact.open(copy)
    assert Artefact.open(copy, verify=False).format == "onnx"  # of the same size: only reading it tells


def test_a_model_cut_short_is_noticed_without_reading_it(copy: Path) -> None:
    model = copy / "model.onnx"
    model.write_bytes(model.read_bytes()[:-100])
    with pytest.raises(FundoscopeError, match=r"model\.onnx is not the file that was exported: it has \d+ bytes"):
        Artefact.open(copy, verify=False)


def test_a_missing_model_file_is_named(exported: dict[str, Exported], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(exported["savedmodel"].artefact.folder, tmp_path / "copy"))
    (copy / "saved_model" / "variables" / "variables.index").unlink()
    with pytest.raises(FundoscopeError, match=r"variables\.index is missing"):
        Artefact.open(copy, verify=False)


def test_an_edited_threshold_is_noticed(copy: Path) -> None:
    points = json.loads((copy / "artefact.json").read_text())["operating_points"]
    points[0]["threshold"] += 0.01
    change_json(copy / "artefact.json", operating_points=points)
    with pytest.raises(FundoscopeError, match=r"artefact\.json was changed after the export"):
        Artefact.open(copy, verify=False)


def test_what_is_no_artefact_says_how_to_make_one(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(FundoscopeError, match=r"it has no artefact\.json") as problem:
        Artefact.open(tmp_path / "nothing")
    assert "fundoscope export" in problem.value.hint
    (copy / "artefact.json").write_text("{")
    with pytest.raises(FundoscopeError, match="is damaged"):
        Artefact.open(copy)


def test_a_setting_we_do_not_know_is_an_error(copy: Path) -> None:
    change_json(copy / "artefact.json", operating_point=[])
    with pytest.raises(FundoscopeError, match=r"no setting in .* called 'operating_point'") as problem:
        Artefact.open(copy)
    assert problem.value.hint == "use operating_points"


def test_an_artefact_of_another_version_is_refused(copy: Path) -> None:
    change_json(copy / "artefact.json", version=99)
    with pytest.raises(FundoscopeError, match="is of version 99"):
        Artefact.open(copy)


def test_the_digest_is_of_the_model_and_not_of_the_day_it_was_exported(copy: Path) -> None:
    artefact = Artefact.open(copy)
    assert write(replace(artefact, export={"command": "another day"}, parity=None)).digest == artefact.digest
    assert write(replace(artefact, referral_from=3)).digest != artefact.digest


def test_the_archive_is_the_same_bytes_whenever_it_is_packed(copy: Path) -> None:
    artefact = Artefact.open(copy)
    first = pack(artefact).read_bytes()
    for path in copy.iterdir():
        os.utime(path, (1, 1))
        path.chmod(0o600)
    assert pack(artefact).read_bytes() == first


@pytest.mark.parametrize("format", ["onnx", "savedmodel"])
def test_an_unpacked_archive_is_the_artefact(exported: dict[str, Exported], tmp_path: Path, format: str) -> None:
    """As SageMaker does it: model.tar.gz into /opt/ml/model."""
    artefact = exported[format].artefact
    with tarfile.open(artefact.folder / "model.tar.gz") as tar:
        members = tar.getmembers()
        assert [member.name for member in members] == sorted(member.name for member in members)
        assert {(member.mtime, member.uid, member.gid, member.mode) for member in members} == {(0, 0, 0, 0o644)}
        for member in members:  # Debian's Python 3.11 has no extraction filter, later ones warn without
            file = tmp_path / member.name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(tar.extractfile(member).read())
    assert (tmp_path / "artefact.json").is_file()
    assert Artefact.open(tmp_path).digest == artefact.digest
