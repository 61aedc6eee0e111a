"""Put together the file system of the lean image: Python, what the server imports, and nothing else.

Runs in the build stage of lean.Dockerfile, with the Python that will run in the image and its standard library alone:

    python3 assemble.py PACKAGES FUNDOSCOPE OUT

The first two are what pip installed (`pip install --target`). OUT gets one folder per layer, rarest change first:
runtime/ (loader, C library, Python), packages/ (what we depend on), fundoscope/ (us). It works on any glibc system
that has Python, be it Debian's own in /usr or the one that the official Python images build in /usr/local.

What is left out is in REMOVED, with the reason; what each saves is written to /usr/share/fundoscope/image.json, which
`fundoscope image build` reads. That nothing of it is missed is what tests/deploy runs the container for.
"""

import compileall
import gzip
import io
import json
import os
import platform
import py_compile
import re
import shutil
import site
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path
from typing import Any

from elf import MERGED, elf_files, is_elf, linked, loaded_part, usr_path

EPOCH = 315532800  # 1 January 1980, the date of every file: the same sources give the same layers
STDLIB = Path(sysconfig.get_path("stdlib"))
SITE = Path(site.getsitepackages()[0])  # where this Python looks by itself
PYTHON = Path(sys.executable).resolve()
DROPPED_CODECS = ("_codecs_cn", "_codecs_hk", "_codecs_iso2022", "_codecs_jp", "_codecs_kr", "_codecs_tw")
DROPPED_MODULES = ("_sqlite3", "_curses", "_curses_panel", "_dbm", "_gdbm", "_tkinter", "readline", "nis", "audioop")
NOTES = ("RECORD", "INSTALLER", "REQUESTED", "WHEEL", "top_level.txt", "entry_points.txt", "direct_url.json", "sboms")

# what: (why nobody misses it, where it is in the standard library, where it is among the packages)
REMOVED: dict[str, tuple[str, list[str], list[str]]] = {
    "second copy of ONNX Runtime": (
        "for C programs; Python's extension module contains it whole",
        [],
        ["onnxruntime/capi/libonnxruntime.so.*"],
    ),
    "tools of ONNX Runtime": (
        "they convert and quantise models, which is done before deployment",
        [],
        [f"onnxruntime/{name}" for name in ("tools", "transformers", "quantization", "datasets", "backend")],
    ),
    "parts of NumPy": (
        "random numbers, Fortran wrappers, self-tests: neither `import numpy` nor the server loads them",
        [],
        [f"numpy/{name}" for name in ("random", "f2py", "distutils", "testing", "_pyinstaller", "_core/_simd.*")],
    ),
    "parts of Pillow": (
        "fonts, colour management, Tk, AVIF: no photograph that the decoder accepts needs them",
        [],
        [f"PIL/{name}.*" for name in ("_avif", "_imagingft", "_imagingcms", "_imagingtk")],
    ),
    "what compilers and type checkers read": (
        "there are none in the image",
        ["config-*"],
        [f"**/*.{name}" for name in ("pyi", "pxd", "pyx", "h", "c", "a")] + ["numpy/**/include", "bin", "share"],
    ),
    "tests": (
        "they run before an image is made",
        ["test", "**/test", "**/tests", "**/idle_test", "lib-dynload/*test*", "lib-dynload/xx*"],
        ["**/tests", "**/*_tests.*.so"],
    ),
    "parts of the standard library": (
        "windows, terminals, databases, sound, installers, documentation, the multibyte codecs of East Asia",
        ["idlelib", "tkinter", "turtle*", "ensurepip", "venv", "lib2to3", "distutils", "pydoc*", "sqlite3", "curses"]
        + ["dbm", "__phello__*", "EXTERNALLY-MANAGED", "sitecustomize.py", "LICENSE.txt"]
        + [f"lib-dynload/{name}.*" for name in (*DROPPED_MODULES, *DROPPED_CODECS, "_multibytecodec", "ossaudiodev")],
        [],
    ),
    "notes of the installer": (
        "importlib.metadata reads METADATA alone; licences stay",
        [],
        [f"*.dist-info/{name}" for name in NOTES],
    ),
}


def main(packages: Path, fundoscope: Path, out: Path) -> None:
    runtime, dependencies, ours = (out / name for name in ("runtime", "packages", "fundoscope"))
    copy_python(runtime)
    copy_installed(packages, inside(dependencies, SITE))
    copy_installed(fundoscope, inside(ours, SITE))
    removed = [remove(what, inside(runtime, STDLIB), inside(dependencies, SITE)) for what in REMOVED]
    pins = inside(ours, SITE).glob("fundoscope/experiment/requirements/*.txt")
    removed.append(take_away("pins of studies' environments", "no study runs in an image that serves", list(pins)))
    removed.append(remove_unlinked(runtime, dependencies))
    removed.append(keep_only_compiled([runtime, dependencies]))
    compile_all(ours, legacy=False)
    system = copy_system_libraries(runtime, [runtime, dependencies, ours])
    removed.append(drop_symbols([runtime, dependencies]))
    write_small_files(runtime)
    name_origin(runtime, owners([PYTHON, STDLIB / "os.py", *STDLIB.glob("lib-dynload/_json.*"), *system]))
    note = {"python": platform.python_version(), "machine": platform.machine(), "removed": removed}
    write(runtime / "usr/share/fundoscope/image.json", json.dumps(note, indent=1) + "\n")
    subprocess.run(["/sbin/ldconfig", "-X", "-r", str(runtime)], check=True)  # where the libraries are
    shutil.rmtree(runtime / "var/cache", ignore_errors=True)  # ldconfig's own notes
    start = "#!/usr/bin/python3\nimport sys\n\nfrom fundoscope.cli.main import main\n\nsys.exit(main())\n"
    write(ours / "usr/bin/fundoscope", start, mode=0o755)
    for layer in (runtime, dependencies, ours):
        settle(layer)


def inside(layer: Path, path: Path) -> Path:
    return layer / usr_path(path).relative_to("/")


def copy_python(runtime: Path) -> None:
    for name in MERGED:
        (runtime / "usr" / name).mkdir(parents=True, exist_ok=True)
        (runtime / name).symlink_to(f"usr/{name}")
    place(PYTHON, inside(runtime, PYTHON))
    link = runtime / "usr/bin/python3"
    if not link.exists():
        link.symlink_to(os.path.relpath(inside(runtime, PYTHON), link.parent))
    ignored = shutil.ignore_patterns("__pycache__", "site-packages", "dist-packages")
    shutil.copytree(STDLIB, inside(runtime, STDLIB), ignore=ignored, ignore_dangling_symlinks=True)


def copy_installed(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "bin"))


def remove(what: str, stdlib: Path, packages: Path) -> dict[str, Any]:
    why, of_stdlib, of_packages = REMOVED[what]
    paths = [path for pattern in of_stdlib for path in stdlib.glob(pattern)]
    paths += [path for pattern in of_packages for path in packages.glob(pattern)]
    return take_away(what, why, paths)


def remove_unlinked(runtime: Path, dependencies: Path) -> dict[str, Any]:
    """Libraries that came with a wheel (numpy.libs, pillow.libs) and that no extension module left needs."""
    bundled = [path for path in inside(dependencies, SITE).glob("*.libs/*") if is_elf(path)]
    others = [path for path in elf_files([runtime, dependencies]) if path not in bundled]
    needed = {library for path in others for library in linked(path)}
    unneeded = [path for path in bundled if path not in needed]
    return take_away("libraries of what was removed", "nothing that is left is linked to them", unneeded)


def keep_only_compiled(layers: list[Path]) -> dict[str, Any]:
    """x.pyc in the place of x.py: nothing is compiled, compared or written when the server starts."""
    for layer in layers:
        compile_all(layer, legacy=True)
    sources = [path for layer in layers for path in layer.rglob("*.py") if path.with_suffix(".pyc").exists()]
    return take_away("sources of what is compiled", "a traceback still names file and line", sources)


def compile_all(layer: Path, *, legacy: bool) -> None:
    compiled = compileall.compile_dir(
        layer,
        maxlevels=50,
        quiet=1,
        legacy=legacy,
        stripdir=str(layer),
        prependdir="/",
        # Never compared with the source, so that any date and a file system that cannot be written to will do.
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    if not compiled:
        sys.exit(f"some of {layer} cannot be compiled")


def copy_system_libraries(runtime: Path, layers: list[Path]) -> list[Path]:
    """Whatever the loader would load for any program or module in the layers, and the loader itself."""
    needed = {library for path in elf_files(layers) for library in linked(path)}
    # Opened by name when a thread is ended: no program says that it needs it.
    needed |= set(Path("/usr/lib").glob("*-linux-gnu/libgcc_s.so.1"))
    system = sorted(path for path in needed if not any(path.is_relative_to(layer) for layer in layers))
    for path in system:
        place(path, inside(runtime, path))
    return system


def drop_symbols(layers: list[Path]) -> dict[str, Any]:
    saved, dropped = 0, bytearray()
    for path in elf_files(layers):
        before = path.read_bytes()
        after, rest = loaded_part(before)
        path.write_bytes(after)
        saved += len(before) - len(after)  # less than `rest` where that lies between segments
        dropped += rest
    compressed_bytes = len(gzip.compress(dropped, 6))
    why = "debuggers read them, the loader does not"
    return {"what": "symbols of libraries", "why": why, "bytes": saved, "compressed_bytes": compressed_bytes}


def write_small_files(runtime: Path) -> None:
    """What programs look up. C.UTF-8 and the lookup of hosts are part of the C library."""
    write(runtime / "etc/passwd", "root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n")
    write(runtime / "etc/group", "root:x:0:\nnogroup:x:65534:\n")
    write(runtime / "etc/nsswitch.conf", "hosts: files dns\n")
    write(runtime / "etc/os-release", Path("/etc/os-release").read_text())
    libraries = [path for path in runtime.glob("usr/**/lib*.so*") if is_elf(path)]
    folders = sorted({f"/{path.parent.relative_to(runtime)}\n" for path in libraries})
    write(runtime / "etc/ld.so.conf", "".join(folders))
    for folder in ("tmp", "opt/ml/model"):
        (runtime / folder).mkdir(parents=True)


def owners(paths: list[Path]) -> list[str]:
    """The Debian packages these files came from: none without dpkg, nor for a Python that was built from source."""
    if not shutil.which("dpkg"):
        return []
    # Packages of Debian 12 call /lib/… what those of later ones call /usr/lib/….
    names = {name for path in paths for name in (str(path), re.sub("^/usr/", "/", str(path)), os.path.realpath(path))}
    said = subprocess.run(["dpkg", "-S", *sorted(names)], capture_output=True, text=True, check=False).stdout
    lines = (line for line in said.splitlines() if not line.startswith("diversion"))
    return sorted({re.split(r"[:,]", line)[0] for line in lines})


def name_origin(runtime: Path, packages: list[str]) -> None:
    """Who made the files that are in here, as their licences ask and image scanners look for it (and for no other)."""
    for name in packages:
        status = subprocess.run(["dpkg", "-s", name], capture_output=True, text=True, check=True).stdout
        write(runtime / "var/lib/dpkg/status.d" / name, status)  # one file each, as in distroless images
        terms = Path("/usr/share/doc", name, "copyright")
        if terms.is_file():
            place(terms, inside(runtime, terms))
    if (STDLIB / "LICENSE.txt").is_file():
        place(STDLIB / "LICENSE.txt", runtime / "usr/share/doc/python3/copyright")


def take_away(what: str, why: str, paths: list[Path]) -> dict[str, Any]:
    tar, size_bytes = io.BytesIO(), 0
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for path in sorted(set(paths)):
            files = [path, *path.rglob("*")] if path.exists() else []  # or gone with its folder
            for file in sorted(file for file in files if file.is_file()):
                size_bytes += file.stat().st_size
                archive.add(file, filter=undated)
            if path.is_dir():
                shutil.rmtree(path)
            elif path.exists():
                path.unlink()
    compressed_bytes = len(gzip.compress(tar.getvalue(), 6)) if size_bytes else 0
    return {"what": what, "why": why, "bytes": size_bytes, "compressed_bytes": compressed_bytes}


def undated(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mtime = EPOCH
    return entry


def place(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source.resolve(), target)


def write(path: Path, text: str, *, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def settle(layer: Path) -> None:
    """Readable by whoever the container runs as, writable by nobody but root, and always of the same date."""
    for path in sorted([layer, *layer.rglob("*")], reverse=True):  # folders after what is in them
        if not path.is_symlink():
            runs = path.is_dir() or path.stat().st_mode & 0o111
            path.chmod(0o1777 if path == layer / "tmp" else 0o755 if runs else 0o644)
        os.utime(path, (EPOCH, EPOCH), follow_symlinks=False)


if __name__ == "__main__":
    main(*(Path(argument).resolve() for argument in sys.argv[1:4]))
