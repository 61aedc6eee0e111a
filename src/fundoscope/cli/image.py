"""fundoscope image build …"""

import argparse
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from fundoscope.cli.command import Answer, Commands, bar, table, verb

if TYPE_CHECKING:
    from fundoscope.deploy.image import Image

VARIANTS = ("lean", "one-stage", "two-stage", "reduced")  # deploy/image.py's, deploy/engines.py's and …
ENGINES = ("docker", "podman", "buildah")
PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}  # … deploy/wheels.py's


def add_commands(commands: Commands) -> None:
    about = "container images: build, measure, list what is in them"
    image = commands.add_parser("image", help=about, description=about[0].upper() + about[1:] + ".", allow_abbrev=False)
    verbs = image.add_subparsers(title="commands", metavar="COMMAND", required=True)
    parser = verb(
        verbs,
        "build",
        _build,
        help="build an image of the server with docker, podman or buildah, and say how large it is and what it holds",
        example="fundoscope image build --variant lean --tag fundoscope:lean",
    )
    add = parser.add_argument
    add("--variant", choices=(*VARIANTS, "all"), default="lean", help="ours or one of the thesis's (default: lean)")
    add("--tag", metavar="NAME", help="default: fundoscope:VARIANT")
    add("--engine", choices=("auto", *ENGINES), default="auto", help="default: the first that works here")
    add("--base", default="", metavar="IMAGE", help="default: containers/bases.toml's; rootfs: a Debian made here")
    add("--python", default="3.11", metavar="X.Y", help="of a base image of your own (default: 3.11)")
    add("--platform", choices=tuple(PLATFORMS.values()), help="default: this machine's")
    add("--from-index", action="store_true", help="let pip fetch packages within the build, not on this machine")
    add("--out", type=Path, metavar="FOLDER", help="for image.json, sbom.json (default: build/images/VARIANT)")
    add("--source", type=Path, metavar="FOLDER", help="the repository (default: the one this runs from)")


def _build(arguments: argparse.Namespace) -> Answer:
    from fundoscope.deploy.engines import choose_engine
    from fundoscope.deploy.image import Wanted, build_image, choose_variant, find_source

    engine, source = choose_engine(arguments.engine), arguments.source or find_source()
    names = VARIANTS if arguments.variant == "all" else (arguments.variant,)
    images = []
    for name in names:
        out = arguments.out or Path("build", "images")
        wanted = Wanted(
            variant=choose_variant(name),
            tag=arguments.tag if arguments.tag and len(names) == 1 else f"{arguments.tag or 'fundoscope'}:{name}",
            engine=engine,
            platform=arguments.platform or PLATFORMS.get(platform.machine(), "linux/amd64"),
            out=out if arguments.out and len(names) == 1 else out / name,
            source=source,
            cache=Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "fundoscope"),
            base=arguments.base,
            python=arguments.python,
            from_index=arguments.from_index,
        )
        images.append(build_image(wanted, track=bar))
    lines = [line for image in images for line in [*_layers(image), ""]]
    values = {"images": [image.to_json() for image in images]}
    return Answer(values, [*lines, *_comparison(images)], next=_run_command(images[0]))


def _layers(image: "Image") -> list[str]:
    rows = [
        [index, _mb(layer.compressed_bytes), _mb(layer.disk_bytes), f"{layer.files:,}", layer.largest]
        for index, layer in enumerate(image.measured.layers, start=1)
    ]
    wanted, base = image.wanted, image.base
    pinned = f", {base.digest}" if base.digest and base.digest not in base.reference else ""
    return [
        f"built: {wanted.tag} ({wanted.platform}) with {wanted.engine.name}",
        f"digest: {image.measured.digest}",
        f"base: {base.reference}{pinned}",
        f"in {wanted.out}: image.json, sbom.json ({len(image.components)} packages)",
        *table(rows, header=["layer", "compressed MB", "on disk MB", "files", "largest file"]),
    ]


def _comparison(images: list["Image"]) -> list[str]:
    from fundoscope.deploy.sizes import PUBLISHED

    rows = []
    for image in images:
        name, size = image.wanted.variant.name, image.measured
        was = PUBLISHED.get(name)
        printed = [f"{was.compressed_mb:.2f}", f"{was.disk_gb:.2f}"] if was else ["", ""]
        rows.append([name, _mb(size.compressed_bytes), f"{size.disk_bytes / 1e9:.2f}", *printed])
    built = {image.wanted.variant.name for image in images}
    rows += [
        [name, "", "", f"{was.compressed_mb:.2f}", f"{was.disk_gb:.2f}"]
        for name, was in PUBLISHED.items()
        if name not in built
    ]
    return table(rows, header=["image", "compressed MB", "on disk GB", "thesis, compressed MB", "thesis, on disk GB"])


def _run_command(image: "Image") -> str:
    wanted = image.wanted
    mount = "-v $PWD/artefacts/x:/opt/ml/model:ro"
    return f"{wanted.engine.runs} run --rm --read-only -p 8080:8080 {mount} {wanted.tag} serve"


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.2f}"
