"""The images: the thesis's three (its Table 5.2), reconstructed in today's versions, and ours, built one after another.

Compressed is the sum of the layers under gzip -6, as a registry stores and bills them; on disk the sum of their files.
The lean container is then started with an artefact, read-only and unprivileged as a platform would, and timed from
`podman run` to the first 200 of /ping.

    python benchmarks/images.py [--quick] [--json FILE] [--base rootfs] [--engine auto] [--artefact FOLDER]

--quick builds the lean image alone and compares it with what the thesis printed. Without --base the public images of
containers/bases.toml are used, or, where no registry can be reached, a Debian root file system made here. The three
TensorFlow images take 10 GB of disk and half an hour.
"""

import argparse
import http.client
import json
import os
import platform
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from fundoscope.cli.image import PLATFORMS, VARIANTS
from fundoscope.deploy.bases import ROOTFS
from fundoscope.deploy.engines import ENGINES, choose_engine
from fundoscope.deploy.image import Image, Wanted, build_image, choose_variant, find_source
from fundoscope.deploy.sizes import PUBLISHED
from fundoscope.errors import FundoscopeError

REACH = 1 / 5  # of the thesis's best, as printed and as built here
STARTS = 5
DEADLINE_S = 60.0


def main() -> int:
    arguments = _arguments()
    try:
        engine = choose_engine(arguments.engine)
    except FundoscopeError as problem:
        print(f"skipped: {problem.message}")
        return 0
    names = VARIANTS[:1] if arguments.quick else VARIANTS
    with TemporaryDirectory() as folder:
        images = {name: _build(_wanted(name, arguments, engine.name, Path(folder))) for name in names}
    result: dict[str, Any] = {"images": {name: image.to_json() for name, image in images.items()}}
    best_mb = images["reduced"].measured.compressed_bytes / 1e6 if "reduced" in images else None
    result |= _report(images, best_mb)
    if arguments.artefact:
        starts_s = [start_s(images["lean"].wanted.tag, arguments.artefact) for _ in range(STARTS)]
        print(f"\nlean, podman run to the first answer of /ping: {median(starts_s):.2f} s (median of {STARTS})")
        result["starts_s"] = starts_s
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0 if result["reached"] else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--base", default="")
    parser.add_argument("--engine", default="auto", choices=("auto", *ENGINES))
    parser.add_argument("--artefact", type=Path, help="an ONNX artefact to start the lean container with")
    return parser.parse_args()


def _wanted(name: str, arguments: argparse.Namespace, engine: str, folder: Path) -> Wanted:
    return Wanted(
        variant=choose_variant(name),
        tag=f"localhost/fundoscope:benchmark-{name}",
        engine=ENGINES[engine],
        platform=PLATFORMS[platform.machine()],
        out=folder / name,
        source=find_source(),
        cache=Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "fundoscope"),
        base=arguments.base,
    )


def _build(wanted: Wanted) -> Image:
    try:
        return build_image(wanted)
    except FundoscopeError as problem:
        if wanted.base or "pull" not in problem.message:
            raise
        print(f"{wanted.variant.name}: no registry here; on a root file system made from this machine's Debian mirror")
        return build_image(replace(wanted, base=ROOTFS))


def _report(images: dict[str, Image], best_mb: float | None) -> dict[str, Any]:
    print(
        f"{'image':12}{'compressed MB':>15}{'on disk GB':>12}{'thesis MB':>12}{'thesis GB':>11}{'of our reduced':>16}"
    )
    for name, image in images.items():
        size, was = image.measured, PUBLISHED.get(name)
        printed = f"{was.compressed_mb:12.2f}{was.disk_gb:11.2f}" if was else " " * 23
        part = f"{size.compressed_bytes / 1e6 / best_mb:16.3f}" if best_mb else ""
        print(f"{name:12}{size.compressed_bytes / 1e6:15.2f}{size.disk_bytes / 1e9:12.2f}{printed}{part}")
    lean = images["lean"]
    print("\nleft out of lean                          MB     compressed MB")
    for entry in sorted(lean.note["removed"], key=lambda entry: -int(entry["compressed_bytes"])):
        print(f"{entry['what']:38}{entry['bytes'] / 1e6:8.2f}{entry['compressed_bytes'] / 1e6:12.2f}   {entry['why']}")
    lean_mb = lean.measured.compressed_bytes / 1e6
    parts = {"thesis": lean_mb / PUBLISHED["reduced"].compressed_mb, "ours": lean_mb / best_mb if best_mb else None}
    reached = all(part <= REACH for part in parts.values() if part is not None)
    against = " and of our own build of it" if best_mb else ""
    print(
        f"\n{'reached' if reached else 'NOT reached'}: at most a fifth of the thesis's best image{against}, compressed"
    )
    return {"lean_mb": lean_mb, "reduced_mb": best_mb, "parts": parts, "reached": reached}


def start_s(tag: str, artefact: Path) -> float:
    """Seconds from `podman run` to the first 200 of /ping."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    name = f"fundoscope-benchmark-{uuid4().hex[:12]}"
    podman = ["podman", "--runtime", "runc"]
    command = [*podman, "run", "--name", name, "--read-only", "--user", "12345", "--network", "host", "--ulimit"]
    command += ["nofile=1024:1024", "--ulimit", "nproc=4096:4096", "--env", f"SAGEMAKER_BIND_TO_PORT={port}", "--env"]
    command += ["FUNDOSCOPE_HOST=127.0.0.1", "--volume", f"{artefact.resolve()}:/opt/ml/model:ro", tag, "serve"]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as container:
        try:
            while not _healthy(port):
                if container.poll() is not None or time.perf_counter() - began > DEADLINE_S:
                    raise FundoscopeError(f"{tag} did not become healthy", "see what it says: podman run … serve")
                time.sleep(0.002)
            return time.perf_counter() - began
        finally:
            subprocess.run([*podman, "rm", "--force", "--time", "5", name], capture_output=True, check=False)


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/ping")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
