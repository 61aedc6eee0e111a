"""Images, run for real: one made of this machine's own Python and the double. Needs podman."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from double_trials import SHORT, broken, line_of, tried, verdicts
from image_double import PYTHON, make_image, pack

from fundoscope.conform.aim import target_of
from fundoscope.conform.contract import RULES
from fundoscope.errors import FundoscopeError

NAME = f"localhost/fundoscope-conform-double-{os.getpid()}"
BIND, MANY = "accept-bind-to-port", "multi-models"


@pytest.fixture(scope="module")
def tar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if shutil.which("podman") is None or not PYTHON.exists():
        pytest.skip("needs podman and /usr/bin/python3, to make and run an image")
    path = tmp_path_factory.mktemp("image") / "double.tar"
    pack(path)
    try:
        make_image(path, f"{NAME}:probe")
    except subprocess.CalledProcessError as problem:  # installed, but not allowed to mount, or to keep its files
        pytest.skip(f"podman does not work here: {problem.stderr.decode().strip()[-200:]}")
    yield path
    made = subprocess.run(["podman", "images", "--quiet", NAME], capture_output=True, text=True).stdout.split()
    subprocess.run(["podman", "rmi", "--force", *made], capture_output=True, check=False)


def containers() -> str:
    command = ["podman", "ps", "--all", "--quiet", "--filter", "name=fundoscope-conform-"]
    return subprocess.run(command, capture_output=True, text=True).stdout


def test_an_image_that_keeps_the_contract_holds_all_but_the_stream(tar: Path, tmp_path: Path) -> None:
    image = make_image(tar, f"{NAME}:good", labels=(BIND, MANY))
    found = tried(image, model=tmp_path, kind="image", rules=tuple(RULES))
    assert broken(found) == {}
    assert {rule for rule, verdict in verdicts(found).items() if verdict != "held"} == {14}
    assert "serve as the argument starts it" in line_of(found, 1).reason
    assert "--read-only" in line_of(found, 10).reason
    assert containers() == ""


@pytest.mark.parametrize(
    ("options", "rule", "reason"),
    [
        ({"user": "65534:65534"}, 2, "the image runs as 65534:65534"),
        ({"faults": ("port-ignored",)}, 3, "by SAGEMAKER_BIND_TO_PORT, it listens on 8080"),
        ({"faults": ("deaf",)}, 9, "SIGTERM under load: still running"),
        ({"labels": (BIND, "bidirectional-streaming")}, 14, "the label offers a stream"),
    ],
)
def test_an_image_that_breaks_a_rule_is_found_out(
    options: dict[str, tuple[str, ...]], rule: int, reason: str, tar: Path
) -> None:
    image = make_image(tar, f"{NAME}:bad", **{"labels": (BIND,)} | options)  # type: ignore[arg-type]
    found = tried(image, kind="image", rules=(rule,), limits=replace(SHORT, stop_s=3))
    assert reason in broken(found)[rule]
    assert containers() == ""


def test_an_image_that_is_not_there_is_bad_usage(tar: Path) -> None:  # noqa: ARG001
    with pytest.raises(FundoscopeError, match="there is no image localhost/nobody:none"):
        target_of("localhost/nobody:none")
