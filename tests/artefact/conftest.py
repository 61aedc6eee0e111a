import pytest
from untrained_run import UntrainedRun, draw_records, fabricate_run, keras_warnings_are_its_own

from fundoscope.artefact.export import Exported, export


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
