"""ENGINES: docker, podman, buildah, each in its own words for the few things we ask of it."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fundoscope.errors import FundoscopeError, pick

PROBE_S = 20.0
LOGINS = ("auths", "credHelpers", "credsStore")  # of docker's config.json
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


@contextmanager
def logged_in(engine: Engine, host: str, user: str, password: str) -> Iterator[dict[str, str]]:
    """The environment in which the engine may push to `host`. The login is in a folder that only we can read, and that
    is gone on every way out; neither this machine's other logins nor its keyring know of it."""
    with TemporaryDirectory(prefix="fundoscope-login-") as folder:  # 0700
        if engine.name == "docker":
            _copy_docker_settings(_docker_settings(), Path(folder))
            variable = {"DOCKER_CONFIG": folder}
        else:
            variable = {"REGISTRY_AUTH_FILE": str(Path(folder, "auth.json"))}
        environment = os.environ | variable
        # Not as an argument, which others on this machine could read.
        command = [engine.name, "login", "--username", user, "--password-stdin", host]
        entered = subprocess.run(
            command, input=password, env=environment, capture_output=True, text=True, errors="replace", check=False
        )
        if entered.returncode != 0:
            message = f"{engine.name} cannot enter {host}: {entered.stderr.strip()[-300:]}"
            raise FundoscopeError(message, "check the region")
        yield environment


def _docker_settings() -> Path:
    return Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")


def _copy_docker_settings(settings: Path, folder: Path) -> None:
    """All but the logins: docker finds its service by them."""
    path = settings / "config.json"
    try:
        table = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError):
        table = {}
    kept = {name: value for name, value in table.items() if name not in LOGINS}
    (folder / "config.json").write_text(json.dumps(kept), encoding="utf-8")
    if (settings / "contexts").is_dir():
        (folder / "contexts").symlink_to((settings / "contexts").resolve(), target_is_directory=True)


def run(command: tuple[str, ...], *, doing: str, log: Path, environment: Mapping[str, str] | None = None) -> str:
    """What the command prints; all it says is added to the log, and an error names its last words."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(command)}\n")
        file.flush()
        ran = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=file, text=True, errors="replace", check=False
        )
        file.write(ran.stdout)
    if ran.returncode != 0:
        said = _last_line(log.read_text(encoding="utf-8", errors="replace"))
        raise FundoscopeError(f"{Path(command[0]).name} could not {doing}: {said}", f"all that it said is in {log}")
    return ran.stdout.strip()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "nothing"
