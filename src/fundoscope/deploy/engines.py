"""ENGINES: docker, podman, buildah, each in its own words for the few things we ask of it."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fundoscope.errors import FundoscopeError, pick

PROBE_S = 20.0
# Docker's own manifest type, and one manifest, not a list of it and its attestations: SageMaker takes no other.
# chroot: needs no privileges, so that it works in a container and on a build server too.
_BUILDAH_OPTIONS = ("--format", "docker", "--layers", "--isolation", "chroot", "--network", "host")


@dataclass(frozen=True)
class Engine:
    """Commands, as far as they are always the same; {archive} and {tag} are filled in."""

    name: str
    probe: tuple[str, ...]  # succeeds where the engine works, not only where its program is installed
    build: tuple[str, ...]
    pull: tuple[str, ...]
    digest: tuple[str, ...]  # prints the digest under which an image was pulled
    save: tuple[str, ...]
    mounts: bool = False  # whether a build can see folders of this machine
    runs: str = ""  # the program that runs what this one builds


ENGINES = {
    "docker": Engine(
        "docker",
        probe=("docker", "info"),
        build=("docker", "buildx", "build", "--load", "--provenance=false", "--sbom=false"),
        pull=("docker", "pull", "--quiet"),
        digest=("docker", "image", "inspect", "--format", "{{range .RepoDigests}}{{.}} {{end}}"),
        save=("docker", "save", "--output", "{archive}", "{tag}"),
        runs="docker",
    ),
    "podman": Engine(
        "podman",
        probe=("podman", "info"),
        build=("podman", "build", *_BUILDAH_OPTIONS),
        pull=("podman", "pull", "--quiet"),
        digest=("podman", "image", "inspect", "--format", "{{.Digest}}"),
        save=("podman", "save", "--quiet", "--format", "docker-archive", "--output", "{archive}", "{tag}"),
        mounts=True,
        runs="podman",
    ),
    "buildah": Engine(
        "buildah",
        probe=("buildah", "info"),
        build=("buildah", "build", *_BUILDAH_OPTIONS),
        pull=("buildah", "pull", "--quiet"),
        digest=("buildah", "inspect", "--type", "image", "--format", "{{.FromImageDigest}}"),
        save=("buildah", "push", "--quiet", "{tag}", "docker-archive:{archive}:{tag}"),
        mounts=True,
        runs="podman",
    ),
}


def choose_engine(name: str = "auto") -> Engine:
    """The one asked for, or the first that works here."""
    candidates = list(ENGINES.values()) if name == "auto" else [pick(ENGINES, name, kind="container engine")]
    found = []
    for engine in candidates:
        problem = why_not(engine)
        if not problem:
            return engine
        found.append(f"{engine.name} {problem}")
    hint = "install podman, or start docker's service"
    raise FundoscopeError("no container engine works here: " + "; ".join(found), hint)


def why_not(engine: Engine) -> str:
    """Empty where the engine works."""
    if not shutil.which(engine.name):
        return "is not installed"
    try:
        probed = subprocess.run(engine.probe, capture_output=True, text=True, timeout=PROBE_S, check=False)
    except subprocess.TimeoutExpired:
        return f"does not answer within {PROBE_S:g} s"
    return "" if probed.returncode == 0 else f"says: {_last_line(probed.stderr or probed.stdout)}"


def run(command: tuple[str, ...], *, doing: str, log: Path) -> str:
    """What the command prints; all it says is added to the log, and an error names its last words."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(command)}\n")
        file.flush()
        ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=file, text=True, errors="replace", check=False)
        file.write(ran.stdout)
    if ran.returncode != 0:
        said = _last_line(log.read_text(encoding="utf-8", errors="replace"))
        raise FundoscopeError(f"{Path(command[0]).name} could not {doing}: {said}", f"all that it said is in {log}")
    return ran.stdout.strip()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "nothing"
