"""The lean image, built and run for real: on a Debian root file system made here, with buildah and podman.

Skipped, with the reason, where one of them does not work or no Debian mirror and package index can be reached. The
root file system and the wheels are kept in the user's cache: they take a minute the first time.
"""

import io
import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from container import Podman, running, working_podman
from PIL import Image as Pillow

from fundoscope.artefact.artefact import Artefact
from fundoscope.artefact.export import Exported
from fundoscope.artefact.runtime import open_predictor
from fundoscope.data.draw import draw_eye
from fundoscope.deploy import wheels
from fundoscope.deploy.bases import ROOTFS, rootfs_base
from fundoscope.deploy.engines import ENGINES, choose_engine, why_not
from fundoscope.deploy.image import VARIANTS, Image, Wanted, build_image, find_source
from fundoscope.deploy.sizes import PUBLISHED
from fundoscope.errors import FundoscopeError
from fundoscope.experiment.invoke import InvokeJob, run
from fundoscope.experiment.unavailable import Unavailable
from fundoscope.serve.grading import Grader

PLATFORM = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}.get(platform.machine(), "")
TAG = "localhost/fundoscope:test-lean"
LIST_FILES = """
import importlib, json, os, pathlib, sys
found = [os.path.join(folder, name) for top in ("/usr", "/etc", "/opt", "/var") for folder, _, names in os.walk(top) for name in names]
modules, failed = [path for path in found if ".cpython-" in path and path.endswith(".so")], []
for path in modules:
    folders = [folder for folder in sys.path if folder and path.startswith(folder + "/")]
    name = path[len(max(folders, key=len)) + 1 :].split(".")[0].replace("/", ".")
    try:
        importlib.import_module(name)
    except Exception as problem:
        failed.append(f"{name}: {problem!r}")
checked = [path for path in found if path.endswith(".pyc") and pathlib.Path(path).read_bytes()[4:8] != b"\\x01\\0\\0\\0"]
writable = [path for path in ("/", "/usr", "/opt/ml/model", "/tmp") if os.access(path, os.W_OK)]
print(json.dumps({"found": found, "modules": len(modules), "failed": failed, "checked": checked, "writable": writable,
    "encoding": sys.getfilesystemencoding(), "telemetry": os.environ["ORT_DISABLE_TELEMETRY"]}))
"""  # noqa: E501


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """Built once, and removed when these tests are done."""
    if problem := why_not(ENGINES["podman"]):
        pytest.skip(f"no container can be run here: podman {problem}")
    out = tmp_path_factory.mktemp("image")
    wanted = Wanted(
        variant=VARIANTS["lean"],
        tag=TAG,
        engine=choose_engine("podman" if why_not(ENGINES["buildah"]) else "buildah"),
        platform=PLATFORM,
        out=out,
        source=find_source(),
        cache=Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "fundoscope"),
        base=ROOTFS,
    )
    try:  # what comes from elsewhere; a failure after that is ours
        base = rootfs_base(wanted.engine, platform=PLATFORM, cache=wanted.cache, log=out / "fetch.log")
        requirements = [wanted.source / "containers" / name for name in wanted.variant.requirements]
        wheels.download(requirements, platform=PLATFORM, python=base.python, cache=wanted.cache, log=out / "fetch.log")
    except FundoscopeError as problem:
        pytest.skip(f"there is nothing to build an image from here: {problem.message}")
    yield build_image(wanted)
    Podman(())("rmi", "--force", TAG)
    # What is left of builds is a cache, and this one would grow with every change of the sources.
    Podman(())("image", "prune", "--force", "--filter", "label=fundoscope.stage=build", "--filter", "until=24h")


@pytest.fixture(scope="module")
def podman(image: Image) -> Podman:
    found = working_podman(image.wanted.tag)
    if isinstance(found, str):
        pytest.skip(f"podman cannot run a container here: {found}")
    return found


@pytest.fixture(scope="module")
def artefact(exported: dict[str, Exported]) -> Artefact:
    return exported["onnx"].artefact


def test_it_is_a_tenth_of_the_theses_smallest(image: Image) -> None:
    """A fifth is what we set out for."""
    assert image.measured.compressed_bytes / 1e6 <= PUBLISHED["reduced"].compressed_mb / 10
    assert image.measured.disk_bytes / 1e9 <= PUBLISHED["reduced"].disk_gb / 10
    assert len(image.measured.layers) == 3
    runtime, packages, ours = image.measured.layers
    assert "onnxruntime" in packages.largest
    # What changes with a release of ours is small: the rest need not be pushed or pulled again.
    assert ours.compressed_bytes < 2e6
    assert runtime.compressed_bytes < packages.compressed_bytes


def test_the_record_says_what_is_in_it_and_what_it_was_built_on(image: Image) -> None:
    record = json.loads((image.wanted.out / "image.json").read_text())
    assert record["base"]["made_here"] is True
    assert record["base"]["digest"].startswith("sha256:")
    assert record["compressed_bytes"] == sum(layer["compressed_bytes"] for layer in record["layers"])
    locked = (image.wanted.source / "containers" / "lean.txt").read_text()
    for name in ("numpy", "onnxruntime", "pillow", "simplejpeg", "uvicorn", "httptools"):
        assert f"{name}=={record['versions'][name]} " in locked
    assert {entry["what"] for entry in record["removed"] if entry["compressed_bytes"] > 1e6} >= {
        "second copy of ONNX Runtime",
        "tests",
        "sources of what is compiled",
    }


def test_the_bill_of_materials_lists_python_and_debian_packages(image: Image) -> None:
    bill = json.loads((image.wanted.out / "sbom.json").read_text())
    parts = {part["purl"].split("@")[0]: part for part in bill["components"]}
    assert {"pkg:pypi/onnxruntime", "pkg:pypi/fundoscope", "pkg:deb/debian/libc6"} <= set(parts)
    wheel = parts["pkg:pypi/numpy"]["hashes"][0]["content"]
    assert f"sha256:{wheel}" in (image.wanted.source / "containers" / "lean.txt").read_text()
    assert not {"pkg:pypi/pip", "pkg:pypi/setuptools", "pkg:deb/debian/apt", "pkg:deb/debian/dash"} & set(parts)
    assert all(part["licenses"] for part in parts.values())


def test_sagemaker_can_start_it(image: Image) -> None:
    config = image.measured.config["config"]
    assert (config["Entrypoint"], config["Cmd"]) == (["/usr/bin/fundoscope"], ["serve"])
    assert "8080/tcp" in config["ExposedPorts"]
    assert "FUNDOSCOPE_HOST=0.0.0.0" in config["Env"]
    assert config["Labels"]["com.amazonaws.sagemaker.capabilities.accept-bind-to-port"] == "true"
    assert config["Labels"]["com.amazonaws.sagemaker.capabilities.multi-models"] == "true"
    assert config.get("User", "") == ""  # the contract expects root; any other user works too


def test_nothing_is_in_it_that_is_not_needed_and_nothing_is_missing(podman: Podman, image: Image) -> None:
    inside = json.loads(podman.run(image.wanted.tag, "-c", LIST_FILES, entrypoint="/usr/bin/python3"))
    found = inside["found"]
    assert inside["failed"] == []  # every extension module finds every library it is linked to
    assert inside["modules"] >= 30
    assert inside["checked"] == []  # nothing is compared with its source, let alone compiled
    assert inside["writable"] == []
    assert inside["encoding"] == "utf-8"
    assert inside["telemetry"] == "1"
    names = {Path(path).name for path in found}
    assert not names & {"sh", "bash", "pip", "gcc", "apt-get", "pip.conf", "sources.list", "resolv.conf.d"}
    assert not [path for path in found if "/tests/" in path or path.endswith(".pyi") or "/pip/" in path]
    sources = [path for path in found if path.endswith(".py") and "/fundoscope/" not in path]
    assert sources == []


def test_it_gives_the_answers_that_the_same_artefact_gives_here(
    podman: Podman, image: Image, artefact: Artefact
) -> None:
    """Whatever file the photograph comes in: no codec has been lost with what was removed."""
    eye = draw_eye(5, 0, size=320).pixels
    grader = Grader(artefact, open_predictor(artefact, threads=1))
    (expected,) = grader.grade([grader.read(_encoded(eye, "PNG"))])
    with running(podman, image.wanted.tag, artefact.folder) as container:
        for kind in ("PNG", "BMP", "PPM", "TIFF", "TIFF-lzw", "TIFF-zstd", "WEBP"):
            answer = container.grade(_encoded(eye, kind), "application/octet-stream")
            assert (kind, answer["grade"], answer["artefact"]) == (kind, expected.grade, artefact.digest)
            assert answer["probabilities"] == pytest.approx(expected.probabilities, abs=1e-5), kind
        lossy = [container.grade(_encoded(eye, kind), f"image/{kind.lower()}") for kind in ("JPEG", "GIF")]
        for answer in lossy:
            assert np.abs(np.subtract(answer["probabilities"], expected.probabilities)).max() < 0.1
        status, refusal = container.ask("POST", "/invocations", b"no picture", content_type="image/jpeg")
        assert status == 400
        assert set(json.loads(refusal)) >= {"error", "hint"}
        assert container.stop() == 0


def test_any_user_without_rights_can_run_it_and_sigterm_ends_it(
    podman: Podman, image: Image, artefact: Artefact
) -> None:
    options = ("--user", "12345:12345", "--cap-drop", "all", "--security-opt", "no-new-privileges", "--memory", "512m")
    with running(podman, image.wanted.tag, artefact.folder, *options) as container:
        assert container.ask("GET", "/ping") == (200, b"")
        assert container.stop() == 0


@pytest.mark.usefixtures("podman")
def test_a_study_asks_it_cold_under_a_worker_s_limits(image: Image, artefact: Artefact) -> None:
    job = InvokeJob(str(artefact.folder), "cold", f"image:{image.wanted.tag}", memory_mb=512, requests=2)
    found = run(job, seed=1, data_folder=None)
    assert (found["requests"], found["not_cold"], found["errors"]) == (2, 0, 0)
    assert found["artefact_digest"] == artefact.digest
    assert found["cpus"] == pytest.approx(512 / 1769)
    assert found["latency_s"] > found["import_s"] + found["load_s"] > 0


def test_an_image_that_is_not_there_cannot_be_measured(artefact: Artefact) -> None:
    with pytest.raises(Unavailable, match="there is no image nowhere/none|neither docker nor podman"):
        run(InvokeJob(str(artefact.folder), endpoint="image:nowhere/none"), seed=1, data_folder=None)


def _encoded(pixels: np.ndarray, kind: str) -> bytes:
    buffer = io.BytesIO()
    format, _, compression = kind.partition("-")
    options = {"quality": 95} if format == "JPEG" else {"lossless": True} if format == "WEBP" else {}
    if compression:
        options = {"compression": {"lzw": "tiff_lzw", "zstd": "zstd"}[compression]}
    Pillow.fromarray(pixels).save(buffer, format, **options)
    return buffer.getvalue()
