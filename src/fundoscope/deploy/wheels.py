"""The packages of an image, downloaded here, by hash, before it is built.

Here, so that this machine's index, proxy and certificates are used and nothing of them enters the build; and so that a
build needs no network. Only wheels: nothing is compiled, and one machine can fetch those of another.
"""

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from fundoscope.deploy.engines import run
from fundoscope.provenance import sha256_file, sha256_of

MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
GLIBC = 36  # 2.36, Debian 12's: wheels that ask for a later one would not load there
OLD_NAMES = ("manylinux2014", "manylinux2010", "manylinux1")


def can_download() -> bool:
    return find_spec("pip") is not None


def download(requirements: list[Path], *, platform: str, python: str, cache: Path, log: Path) -> Path:
    """A folder with exactly these wheels; kept, so that it is downloaded once."""
    texts = "\n".join(path.read_text() for path in requirements)
    folder = cache / "wheels" / sha256_of(f"{platform} {python}\n{texts}".encode())[:16]
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--require-hashes", "--python-version", python]
    command += [f"--platform={tag}" for tag in tags(platform)]
    with TemporaryDirectory(dir=folder.parent) as part:
        for path in requirements:  # one at a time: two files may pin the same package
            run((*command, "--dest", part, "-r", str(path)), doing=f"download what {path.name} lists", log=log)
        Path(part).chmod(0o755)
        shutil.move(part, folder)
        Path(part).mkdir()  # for TemporaryDirectory to remove
    return folder


def tags(platform: str) -> list[str]:
    """Every name under which wheels for such a machine are published."""
    machine = MACHINES[platform]
    names = [f"manylinux_2_{minor}" for minor in range(GLIBC, 4, -1)]
    return [f"{name}_{machine}" for name in (*names, *OLD_NAMES)]


def hashes(folder: Path) -> dict[str, str]:
    """name-version, as wheels spell it, to sha256."""
    return {"-".join(path.name.split("-")[:2]).lower(): sha256_file(path) for path in sorted(folder.glob("*.whl"))}
