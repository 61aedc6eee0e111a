"""containers/: what can be said of the files themselves. test_container.py builds and runs them."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fundoscope.deploy.image import VARIANTS

REPOSITORY = Path(__file__).resolve().parents[2]
CONTAINERS = REPOSITORY / "containers"
DOCKERFILES = sorted(CONTAINERS.glob("*.Dockerfile"))
LOCKS = sorted(CONTAINERS.glob("*.txt"))


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_hadolint_finds_nothing(path: Path) -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if not hadolint:
        pytest.skip("hadolint is not installed")
    linted = subprocess.run([hadolint, str(path)], capture_output=True, text=True, check=False)
    assert (linted.returncode, linted.stdout + linted.stderr) == (0, "")


def test_every_variant_has_its_files_and_every_file_its_variant() -> None:
    assert {f"containers/{path.name}" for path in DOCKERFILES} == {v.dockerfile for v in VARIANTS.values()}
    needed = {name for variant in VARIANTS.values() for name in variant.requirements}
    assert (
        {path.name for path in LOCKS} == needed == {path.with_suffix(".txt").name for path in CONTAINERS.glob("*.in")}
    )


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_nothing_is_built_on_a_tag_that_cannot_be_replaced_by_a_digest(path: Path) -> None:
    origins = re.findall(r"^FROM (\S+)", path.read_text(), re.MULTILINE)
    assert set(origins) == {"scratch", "${BASE}"}
    default = re.search(r"^ARG BASE=(\S+)$", path.read_text(), re.MULTILINE)
    assert default is not None
    bases = tomllib.loads((CONTAINERS / "bases.toml").read_text())
    assert default[1] == bases[VARIANTS[path.stem].base]["reference"]


def test_no_digest_is_made_up() -> None:
    digests = [base["digest"] for base in tomllib.loads((CONTAINERS / "bases.toml").read_text()).values()]
    assert all(re.fullmatch("|sha256:[0-9a-f]{64}", digest) for digest in digests)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_signals_reach_the_server(path: Path) -> None:
    """Exec form: a shell in between would be process 1, and keep SIGTERM to itself."""
    starts = re.findall(r"^(?:ENTRYPOINT|CMD) (.*)$", path.read_text(), re.MULTILINE)
    assert starts
    assert all(start.startswith('["') for start in starts)
    assert starts[-1] == '["serve"]'


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_every_package_is_pinned_by_hash_and_no_index_is_named(path: Path) -> None:
    text = path.read_text()
    pinned = re.findall(r"^([\w.-]+)==(\S+)(.*)$", text, re.MULTILINE)
    assert len(pinned) == len(re.findall(r"^\S", text, re.MULTILINE))
    # No markers: pip evaluates them for the machine that downloads, which need not be the one that runs.
    assert {rest for _, _, rest in pinned} == {" \\"}
    assert text.count("--hash=sha256:") >= len(pinned)
    assert "://" not in text


def test_the_lean_image_has_what_the_package_asks_of_a_server() -> None:
    """All but what ONNX Runtime and uvicorn ask for in their turn."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["serve"]]
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", (CONTAINERS / "lean.txt").read_text(), re.MULTILINE))
    for requirement in asked:
        name, least = requirement.split(">=")
        assert _numbers(locked[name]) >= _numbers(least), requirement


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
