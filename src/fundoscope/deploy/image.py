"""containers/ -> an image and its record: what it holds, how large it is, what it was built on."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fundoscope.deploy import sbom, wheels
from fundoscope.deploy.bases import HOST_APT, ROOTFS, Base, named_base, public_base, rootfs_base
from fundoscope.deploy.engines import Engine, run
from fundoscope.deploy.sizes import Measured, measure
from fundoscope.errors import FundoscopeError, pick
from fundoscope.progress import Track, quiet
from fundoscope.provenance import command, write_json

PLATFORMS = tuple(wheels.MACHINES)
CONTEXT = ("pyproject.toml", "README.md", "LICENSE", "src/fundoscope", "containers")  # all that a build may see


@dataclass(frozen=True)
class Variant:
    """One Dockerfile of containers/, what it installs, and the table of bases.toml it is built on."""

    name: str
    requirements: tuple[str, ...]
    base: str = "slim"

    @property
    def dockerfile(self) -> str:
        return f"containers/{self.name}.Dockerfile"


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("lean", ("build.txt", "lean.txt")),
        Variant("one-stage", ("full.txt",), base="full"),
        Variant("two-stage", ("full.txt",)),
        Variant("reduced", ("reduced.txt",)),
    )
}


@dataclass(frozen=True)
class Wanted:
    """What to build, with what, and where to put it."""

    variant: Variant
    tag: str
    engine: Engine
    platform: str
    out: Path  # gets image.json, sbom.json and build.log
    source: Path  # the repository
    cache: Path  # root file systems and wheels
    base: str = ""  # "": the variant's own; an image; or rootfs
    python: str = "3.11"  # of a base that bases.toml does not know
    from_index: bool = False  # packages: by pip in the build, not downloaded here first


@dataclass(frozen=True)
class Image:
    wanted: Wanted
    base: Base
    measured: Measured
    components: tuple[sbom.Component, ...]
    note: dict[str, Any]  # by containers/assemble.py

    def to_json(self) -> dict[str, Any]:
        """What image.json holds."""
        return {
            "variant": self.wanted.variant.name,
            "tag": self.wanted.tag,
            "digest": self.measured.digest,
            "platform": self.wanted.platform,
            "engine": self.wanted.engine.name,
            "base": asdict(self.base),
            "compressed_bytes": self.measured.compressed_bytes,
            "disk_bytes": self.measured.disk_bytes,
            "layers": [asdict(layer) for layer in self.measured.layers],
            "removed": self.note.get("removed", []),
            "versions": {part.name: part.version for part in self.components},
            "command": command(),
        }


def build_image(wanted: Wanted, *, track: Track = quiet) -> Image:
    """Build, measure and describe; image.json and sbom.json are in `wanted.out` when this returns."""
    for part in CONTEXT:
        if not (wanted.source / part).exists():
            raise FundoscopeError(f"{wanted.source} has no {part}", "say where the repository is: --source FOLDER")
    log = wanted.out / "build.log"
    log.unlink(missing_ok=True)
    found: dict[str, Any] = {}
    steps: dict[str, Callable[[], Any]] = {
        "base": lambda: _base(wanted, log),
        "packages": lambda: _packages(wanted, found["base"], log),
        "build": lambda: _build(wanted, found["base"], found["packages"], log),
        "image": lambda: _describe(wanted, found["base"], found["packages"], log),
    }
    for name in track(steps, total=len(steps), label=f"building {wanted.variant.name}"):
        found[name] = steps[name]()
    image: Image = found["image"]
    bill = sbom.document(wanted.tag, image.measured.digest, image.components, distro=image.note["distribution"])
    write_json(wanted.out / "sbom.json", bill)
    write_json(wanted.out / "image.json", image.to_json())
    return image


def find_source() -> Path:
    """The repository this package runs from: its containers/ are not part of an installed package."""
    for folder in Path(__file__).resolve().parents:
        if (folder / VARIANTS["lean"].dockerfile).is_file():
            return folder
    message = "the Dockerfiles are part of Fundoscope's repository, and this is an installed copy of the package"
    raise FundoscopeError(message, "clone the repository and say where it is: --source FOLDER")


def _base(wanted: Wanted, log: Path) -> Base:
    if wanted.base == ROOTFS:
        return rootfs_base(wanted.engine, platform=wanted.platform, cache=wanted.cache, log=log)
    containers = wanted.source / "containers"
    if not wanted.base:
        return public_base(containers, wanted.variant.base, wanted.engine, platform=wanted.platform, log=log)
    return named_base(wanted.base, wanted.python, wanted.engine, platform=wanted.platform, log=log)


def _packages(wanted: Wanted, base: Base, log: Path) -> Path | None:
    if wanted.from_index or not wheels.can_download():
        return None
    files = [wanted.source / "containers" / name for name in wanted.variant.requirements]
    return wheels.download(files, platform=wanted.platform, python=base.python, cache=wanted.cache, log=log)


def _build(wanted: Wanted, base: Base, packages: Path | None, log: Path) -> None:
    options = ["--platform", wanted.platform, "--tag", wanted.tag, "--build-arg", f"BASE={base.reference}"]
    if packages:
        options += ["--build-context", f"wheels={packages}"]
    if base.made_here and wanted.engine.mounts:  # its own list of mirrors was taken out: lend it ours
        options += ["--volume", f"{HOST_APT}:{HOST_APT}:ro"]
    with _context(wanted.source) as folder:
        dockerfile = str(folder / wanted.variant.dockerfile)
        run(
            (*wanted.engine.build, *options, "--file", dockerfile, str(folder)),
            doing=f"build {wanted.variant.name}",
            log=log,
        )


@contextmanager
def _context(source: Path) -> Iterator[Path]:
    """What the Dockerfiles copy from, and nothing else of the repository: no environments, no photographs."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for part in CONTEXT:
            target = folder / part
            target.parent.mkdir(parents=True, exist_ok=True)
            if (source / part).is_dir():
                shutil.copytree(source / part, target, ignore=shutil.ignore_patterns("__pycache__", ".*"))
            else:
                shutil.copy2(source / part, target)
        yield folder


def _describe(wanted: Wanted, base: Base, packages: Path | None, log: Path) -> Image:
    with TemporaryDirectory() as folder:
        archive = Path(folder, "image.tar")
        save = tuple(part.format(archive=archive, tag=wanted.tag) for part in wanted.engine.save)
        run(save, doing=f"save {wanted.tag}", log=log)
        measured, files = measure(archive), sbom.interesting_files(archive)
    parts = sbom.components(files, wheels.hashes(packages) if packages else {})
    note = {**sbom.note(files), "distribution": sbom.distribution(files)}
    return Image(wanted, base, measured, tuple(parts), note)


def choose_variant(name: str) -> Variant:
    return pick(VARIANTS, name, kind="variant of the image")
