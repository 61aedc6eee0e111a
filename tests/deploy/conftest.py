"""An AWS without an account, for the tests that ask for it: see aws_double.py."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_artefact import REGION

from fundoscope.deploy.aws import Cloud


@pytest.fixture(scope="module")
def aws() -> Iterator[str]:
    """The address of an AWS of our own, empty at first."""
    pytest.importorskip("moto", reason="moto is not installed: nothing about the cloud was tried")
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("aws_double.py"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.terminate()


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Invented ones; nothing of this machine's own is read."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    return monkeypatch


@pytest.fixture
def cloud(aws: str, credentials: pytest.MonkeyPatch) -> Iterator[Cloud]:  # noqa: ARG001
    pytest.importorskip("boto3", reason="boto3 is not installed: nothing about the cloud was tried")
    with Cloud(REGION, aws) as cloud:
        yield cloud
