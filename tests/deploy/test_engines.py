"""Which engine is chosen, and what a user reads where none works."""

import platform
import shutil
from pathlib import Path

import pytest

from fundoscope.deploy.bases import PublicImage, public_base, rootfs_base
from fundoscope.deploy.engines import ENGINES, choose_engine, run
from fundoscope.deploy.wheels import hashes, tags
from fundoscope.errors import FundoscopeError


def _program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_an_engine_that_is_installed_but_not_running_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _program(tmp_path, "docker", "echo 'Cannot connect to the Docker daemon.' >&2; exit 1")
    _program(tmp_path, "buildah", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert choose_engine().name == "buildah"


def test_where_no_engine_works_each_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(tmp_path, "docker", "echo 'Cannot connect to the Docker daemon.' >&2; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FundoscopeError) as refused:
        choose_engine()
    assert refused.value.message == (
        "no container engine works here: docker says: Cannot connect to the Docker daemon.; "
        "podman is not installed; buildah is not installed"
    )
    assert refused.value.hint == "install podman, or start docker's service"


def test_a_misspelt_engine_is_corrected() -> None:
    with pytest.raises(FundoscopeError) as refused:
        choose_engine("podmann")
    assert refused.value.hint == "use podman"


@pytest.mark.parametrize("name", ["podman", "buildah"])
def test_sagemaker_gets_the_manifest_it_takes(name: str) -> None:
    build = " ".join(ENGINES[name].build)
    assert "--format docker" in build
    assert "--provenance=false" in ENGINES["docker"].build


def test_an_error_names_the_last_words_and_where_the_rest_is(tmp_path: Path) -> None:
    log = tmp_path / "out" / "build.log"
    assert run(("sh", "-c", "echo fine"), doing="begin", log=log) == "fine"
    with pytest.raises(FundoscopeError) as failed:
        run(("sh", "-c", "echo first >&2; echo no space left >&2; exit 3"), doing="build lean", log=log)
    assert failed.value.message == "sh could not build lean: no space left"
    assert failed.value.hint == f"all that it said is in {log}"
    assert "fine" in log.read_text()


def test_a_pinned_base_is_taken_by_its_digest_without_asking_a_registry(tmp_path: Path) -> None:
    digest = "sha256:" + "0" * 64
    pinned = PublicImage("docker.io/library/python:3.11-slim", digest, "3.11")
    text = f'[slim]\nreference = "{pinned.reference}"\ndigest = "{digest}"\npython = "3.11"\n'
    (tmp_path / "bases.toml").write_text(text)
    base = public_base(tmp_path, "slim", ENGINES["docker"], platform="linux/amd64", log=tmp_path / "log")
    assert base.reference == f"docker.io/library/python:3.11-slim@{digest}"
    assert not (tmp_path / "log").exists()


def test_a_root_file_system_is_of_this_machines_kind(tmp_path: Path) -> None:
    if not shutil.which("dpkg"):
        pytest.skip("this is no Debian")
    other = "linux/amd64" if platform.machine() == "aarch64" else "linux/arm64"
    with pytest.raises(FundoscopeError, match=f"not {other}") as refused:
        rootfs_base(ENGINES["buildah"], platform=other, cache=tmp_path, log=tmp_path / "log")
    assert refused.value.hint == "build it on such a machine, or name a --base image"


def test_wheels_of_both_machines_are_asked_for_by_every_name_they_have() -> None:
    # PEP 600: manylinux2014 is manylinux_2_17, manylinux1 is manylinux_2_5.
    assert {"manylinux_2_28_aarch64", "manylinux2014_aarch64"} <= set(tags("linux/arm64"))
    assert {"manylinux_2_17_x86_64", "manylinux1_x86_64"} <= set(tags("linux/amd64"))
    assert "manylinux_2_37_x86_64" not in tags("linux/amd64")


def test_wheels_are_known_by_name_version_and_hash(tmp_path: Path) -> None:
    (tmp_path / "Pillow-13.0.0-cp311-cp311-manylinux_2_28_x86_64.whl").write_bytes(b"abc")
    sha256_of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, appendix B.1
    assert hashes(tmp_path) == {"pillow-13.0.0": sha256_of_abc}
