"""An image of the double: this machine's own Python and nothing else, so that no registry is needed."""

import json
import subprocess
import tarfile
from pathlib import Path

PYTHON = Path("/usr/bin/python3")
LEFT_OUT = ("test", "tests", "idlelib", "tkinter", "lib2to3", "ensurepip", "pydoc_data", "__pycache__", "config-3")
DOUBLE = Path(__file__).with_name("doubles") / "server_double.py"


def pack(tar: Path) -> None:
    """A root file system: the interpreter, its library, the shared objects of both, the double."""
    python = PYTHON.resolve()
    library = Path(
        subprocess.run([python, "-c", "import os; print(os.__file__)"], capture_output=True, text=True).stdout
    )
    folder = library.parent
    named = ("_hashlib", "_json", "_ctypes.")
    objects = [python, *(path for name in named for path in folder.glob(f"lib-dynload/{name}*.so"))]
    with tarfile.open(tar, "w") as archive:
        for path in sorted({needed for item in objects for needed in shared_objects(item)}):
            archive.add(Path(path).resolve(), path)
        archive.add(python, str(python))
        archive.add(folder, str(folder), filter=lambda info: None if left_out(info.name) else info)
        archive.add(DOUBLE, "/server_double.py")
        for name in ("tmp", "proc", "sys", "dev", "etc"):
            made = tarfile.TarInfo(name)
            made.type, made.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(made)


def shared_objects(program: Path) -> list[str]:
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    words = [line.split() for line in said.splitlines()]
    return [word for line in words for word in line if word.startswith("/")]


def left_out(name: str) -> bool:
    return any(
        part.startswith(LEFT_OUT) if part.startswith("config-3") else part in LEFT_OUT for part in Path(name).parts
    )


def make_image(
    tar: Path, name: str, *, faults: tuple[str, ...] = (), labels: tuple[str, ...] = (), user: str = ""
) -> str:
    words = [str(PYTHON.resolve()), "-I", "/server_double.py"]
    changes = [f"ENTRYPOINT {json.dumps(words)}"] + [
        f"LABEL com.amazonaws.sagemaker.capabilities.{x}=true" for x in labels
    ]
    changes += [f"USER {user}"] if user else []
    changes += [f"ENV DOUBLE_FAULTS={','.join(faults)}"] if faults else []
    options = [word for change in changes for word in ("--change", change)]
    subprocess.run(["podman", "import", "--quiet", *options, str(tar), name], check=True, capture_output=True)
    return name
