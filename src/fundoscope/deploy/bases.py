"""What an image is built on: a public image, by digest, or a Debian root file system made here.

The latter is for places that reach a Debian mirror but no image registry: `debootstrap` installs from the mirror that
apt is configured for, and what it leaves of this machine's configuration is taken out again.
"""

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fundoscope.config import build, read_toml
from fundoscope.deploy.engines import Engine, run
from fundoscope.errors import FundoscopeError, pick
from fundoscope.provenance import sha256_file

ROOTFS = "rootfs"  # what --base says for the root file system
ROOTFS_TAG = "localhost/fundoscope-base"
PACKAGES = ("python3", "python3-venv")
# Of this machine, not of Debian: mirrors, name servers, logs; and what was downloaded.
LEFTOVERS = (
    "etc/apt/sources.list",
    "etc/hostname",
    "etc/resolv.conf",
    "var/log/*",
    "var/cache/*/*",
    "var/lib/apt/lists/*",
)
HOST_APT = "/etc/apt"
PYTHONS = {"bookworm": "3.11", "trixie": "3.13"}


@dataclass(frozen=True)
class PublicImage:
    """A table of containers/bases.toml."""

    reference: str
    digest: str
    python: str


@dataclass(frozen=True)
class Base:
    reference: str  # as the build names it
    digest: str  # sha256:…; of the image as pulled, or as made here
    python: str  # major.minor
    made_here: bool = False


def public_base(containers: Path, name: str, engine: Engine, *, platform: str, log: Path) -> Base:
    """A base of bases.toml: by its digest where that is pinned, or else by the one that its tag has now."""
    tables = read_toml(containers / "bases.toml")
    image = build(PublicImage, pick(tables, name, kind="base image"), where=f"bases.toml, {name}")
    if image.digest:
        return Base(f"{image.reference}@{image.digest}", image.digest, image.python)
    return named_base(image.reference, image.python, engine, platform=platform, log=log)


def named_base(reference: str, python: str, engine: Engine, *, platform: str, log: Path) -> Base:
    """An image by its name: the one that is here already, or the one that a registry serves under that name now."""
    try:
        digest = _digest(reference, engine, log)
    except FundoscopeError:
        try:
            run((*engine.pull, "--platform", platform, reference), doing=f"pull {reference}", log=log)
        except FundoscopeError as problem:
            hint = "where no registry can be reached: --base rootfs, which needs root and debootstrap"
            raise FundoscopeError(problem.message, hint) from None
        digest = _digest(reference, engine, log)
    local = reference.startswith("localhost/") or "@" in reference or not digest
    return Base(reference if local else f"{reference}@{digest}", digest, python)


def _digest(reference: str, engine: Engine, log: Path) -> str:
    said = run((*engine.digest, reference), doing=f"inspect {reference}", log=log)
    found = re.search("sha256:[0-9a-f]{64}", said)
    return found[0] if found else ""


def rootfs_base(engine: Engine, *, platform: str, cache: Path, log: Path) -> Base:
    """A minimal Debian with Python, made once and kept in the cache."""
    architecture = _architecture()
    if platform != f"linux/{architecture}":
        message = f"a root file system made here is one for linux/{architecture}, not {platform}"
        raise FundoscopeError(message, "build it on such a machine, or name a --base image")
    suite = _suite()
    archive = cache / "rootfs" / f"{suite}-{architecture}.tar"
    if not archive.is_file():
        make_rootfs(archive, suite, _mirror(), log=log)
    tag = f"{ROOTFS_TAG}:{suite}-{sha256_file(archive)[:12]}"
    try:
        digest = _digest(tag, engine, log)
    except FundoscopeError:
        with TemporaryDirectory(dir=archive.parent) as folder:
            Path(folder, "Dockerfile").write_text(f"FROM scratch\nADD {archive.name} /\n")
            (Path(folder) / archive.name).hardlink_to(archive)
            run((*engine.build, "--tag", tag, folder), doing="import the root file system", log=log)
        digest = _digest(tag, engine, log)
    return Base(tag, digest, PYTHONS[suite], made_here=True)


def make_rootfs(archive: Path, suite: str, mirror: str, *, log: Path) -> None:
    """debootstrap into a folder, take this machine out of it, and pack it."""
    if not shutil.which("debootstrap"):
        raise FundoscopeError("debootstrap is not installed", "apt-get install debootstrap, or name a --base image")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=archive.parent) as folder:
        root = Path(folder, "root")
        options = ("--variant=minbase", f"--include={','.join(PACKAGES)}")
        run(("debootstrap", *options, suite, str(root), mirror), doing="make a root file system", log=log)
        for path in _leftovers(root):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        part = Path(folder, archive.name)
        pack = ("tar", "--numeric-owner", "--one-file-system", "--exclude=./proc/*", "--exclude=./sys/*")
        run((*pack, "-C", str(root), "-cf", str(part), "."), doing="pack the root file system", log=log)
        part.replace(archive)


def _leftovers(root: Path) -> Iterable[Path]:
    return [path for pattern in LEFTOVERS for path in root.glob(pattern)]


def _suite() -> str:
    said: dict[str, str] = dict(re.findall(r'^(\w+)="?(.*?)"?$', Path("/etc/os-release").read_text(), re.MULTILINE))
    suite = said.get("VERSION_CODENAME", "")
    if suite not in PYTHONS:
        message = f"a root file system is made from Debian {' or '.join(PYTHONS)}, and this is {suite or 'neither'}"
        raise FundoscopeError(message, "name a --base image instead")
    return suite


def _mirror() -> str:
    """Where apt gets this system's packages from."""
    listed = _ask("apt-get", "indextargets", "--format", "$(CODENAME) $(COMPONENT) $(REPO_URI)", "Created-By: Packages")
    rows = [line.split() for line in listed.splitlines()]
    for row in rows:
        if len(row) == 3 and row[:2] == [_suite(), "main"]:
            return row[2]
    raise FundoscopeError("apt is configured for no mirror of this system", "apt-get update, or name a --base image")


def _architecture() -> str:
    return _ask("dpkg", "--print-architecture")


def _ask(*command: str) -> str:
    if not shutil.which(command[0]):
        raise FundoscopeError(f"{command[0]} is not here: this is no Debian", "name a --base image instead")
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
