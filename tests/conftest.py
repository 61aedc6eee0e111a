import dataclasses
from pathlib import Path

import pytest
from untrained_run import UntrainedRun, draw_records, fabricate_run, keras_warnings_are_its_own

from fundoscope.artefact.export import Exported, export
from fundoscope.data.draw import draw_folder
from fundoscope.data.intake import import_photographs
from fundoscope.data.manifest import Manifest
from fundoscope.data.photo import Preparation
from fundoscope.data.prepare import prepare_records
from fundoscope.data.records import Records

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real photographs and weights beside the checkout; not part of the repository."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no real photographs here: {SHARED_DATA} is absent")
    return SHARED_DATA


@pytest.fixture(scope="session")
def drawn_manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """160 drawn eyes, imported and split."""
    folder = tmp_path_factory.mktemp("drawn")
    draw_folder(folder / "eyes", n=160, seed=3, size=256)
    manifest = import_photographs("drawn", folder / "eyes", folder=folder, seed=3)
    manifest.write(folder / "manifest.csv")
    return Manifest.read(folder / "manifest.csv")


@pytest.fixture(scope="session")
def drawn_records(drawn_manifest: Manifest) -> Records:
    """The same, prepared at 64 px: enough to train something in a second."""
    records, failures = prepare_records(drawn_manifest, drawn_manifest.folder / "records", Preparation(size=64))
    assert failures == ()
    return records


@pytest.fixture(scope="session")
def other_manifest(drawn_manifest: Manifest) -> Manifest:
    """Forty other eyes, and four that are in drawn_manifest's training part."""
    folder = drawn_manifest.folder / "others"
    draw_folder(folder / "eyes", n=40, seed=99, size=256)
    other = import_photographs("drawn", folder / "eyes", folder=folder)
    learnt = [p for p in drawn_manifest.photographs if p.split == "train"][:4]
    moved = [dataclasses.replace(p, path=str(drawn_manifest.folder / p.path)) for p in learnt]
    manifest = Manifest((*other.photographs, *moved), folder)
    manifest.write(folder / "others.csv")
    return Manifest.read(folder / "others.csv")


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> UntrainedRun:
    folder = tmp_path_factory.mktemp("run")
    with keras_warnings_are_its_own():
        return fabricate_run(folder / "ordinal", draw_records(folder / "drawn"))


@pytest.fixture(scope="session")
def exported(run: UntrainedRun, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Exported]:
    """The run in both formats; tests must not write into these folders."""
    out = tmp_path_factory.mktemp("artefacts")
    return {format: export(run.folder, out / format, format=format) for format in ("onnx", "savedmodel")}
