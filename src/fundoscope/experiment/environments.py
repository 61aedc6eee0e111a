"""One Python environment per framework and device, made from pinned requirements and kept for all studies.

Their own, because the frameworks cannot share one: MXNet needs NumPy 1.23, the others 2. A folder's name carries the
digest of its pins, so that changed pins make a new environment and old results keep theirs. Every package is held to
its sha256. Whoever needs other pins puts a file of the same name into requirements/, beside the environments.

A virtual environment cannot be moved, so it is not made under another name first: environment.json is written last,
and a folder without it is unfinished and made anew. Our own package is seen from inside through `code/fundoscope`, a
link, and PYTHONPATH; nothing else of the environment we run in is.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import IO

import fundoscope
from fundoscope.errors import FundoscopeError, pick
from fundoscope.experiment.frameworks import FRAMEWORKS
from fundoscope.provenance import sha256_of, write_json

DEVICES = ("cpu", "gpu")
PYTHON = (3, 11)  # what the pins were resolved for, and the earliest that our own code runs on
RECORD = "environment.json"
PINS = "requirements"
# PyTorch's CPU build is on an index of its own. Where pip does not find it there is the registry's build, which needs
# CUDA's libraries to start, on a CPU too: those are pinned for a GPU.
OTHERWISE = {("pytorch", "cpu"): ("pytorch", "gpu")}
ADOPTED = "adopted"
# Run inside an environment: that our worker starts there, and what it is made of.
INSPECT = """
import importlib, json, sys
import fundoscope.experiment.cnn
import numpy
framework = importlib.import_module(sys.argv[2])
versions = {"python": sys.version.split()[0], "numpy": numpy.__version__, sys.argv[1]: framework.__version__}
print("\\n" + json.dumps(versions))
"""


@dataclass(frozen=True)
class Environment:
    name: str
    framework: str
    device: str
    folder: Path
    python: Path
    versions: Mapping[str, str]
    made: str  # ISO 8601, UTC

    @property
    def code(self) -> Path:
        """The PYTHONPATH that a worker of this environment is given."""
        return self.folder / "code"


def default_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if cache else Path.home() / ".cache") / "fundoscope" / "environments"


def create(framework: str, device: str, folder: Path, *, say: Callable[[str], None] = lambda _: None) -> Environment:
    """The environment of these pins: the one that is there, or a new one."""
    name = _name(framework, device, folder)
    with _locked(name, folder, say):
        if found := _read(folder / name):
            return found
        say(f"making {name}")
        home = folder / name
        shutil.rmtree(home, ignore_errors=True)  # what an interrupted setup left
        note = _failure_note(framework, device, folder)
        try:
            python = _install(framework, device, home, folder, log=folder / f".{name}.log")
            made = _record(name, framework, device, home, python)
        except BaseException as problem:
            shutil.rmtree(home, ignore_errors=True)
            if isinstance(problem, FundoscopeError):
                note.write_text(problem.message, encoding="utf-8")
            raise
        note.unlink(missing_ok=True)
        return made


def why_not(framework: str, device: str, folder: Path) -> str:
    """Why it could not be made when that was last tried, or empty."""
    note = _failure_note(framework, device, folder)
    return note.read_text(encoding="utf-8") if note.exists() else ""


def _failure_note(framework: str, device: str, folder: Path) -> Path:
    return folder / f".{_name(framework, device, folder)}.failed"


def adopt(framework: str, device: str, python: Path, folder: Path) -> Environment:
    """Use an interpreter that is there already, in place of any that we made, until it is removed."""
    pick(FRAMEWORKS, framework, kind="framework")
    # Not resolved: a virtual environment's interpreter is a link, and is known by the link's place.
    interpreter = shutil.which(str(python)) or str(python)
    if not os.access(interpreter, os.X_OK) or Path(interpreter).is_dir():
        raise FundoscopeError(f"there is no Python at {python}", "give the path of its python, such as env/bin/python")
    name = f"{framework}-{device}-{ADOPTED}"
    with _locked(name, folder, lambda _: None):
        (folder / name).mkdir(parents=True, exist_ok=True)
        try:
            return _record(name, framework, device, folder / name, Path(interpreter).absolute())
        except BaseException:
            if not _read(folder / name):
                shutil.rmtree(folder / name, ignore_errors=True)
            raise


def find(framework: str, device: str, folder: Path) -> Environment | None:
    """The adopted one, or the one of today's pins; None where neither is there and whole."""
    for name in (f"{framework}-{device}-{ADOPTED}", _name(framework, device, folder)):
        if found := _read(folder / name):
            return found
    return None


def listed(folder: Path) -> list[Environment]:
    """All that are whole, those of earlier pins too."""
    homes = sorted(folder.iterdir()) if folder.is_dir() else []
    return [found for home in homes if (found := _read(home))]


def size_bytes(environment: Environment) -> int:
    """On disk; of an adopted one only what is ours."""
    total = 0
    for folder, _, names in os.walk(environment.folder):
        total += sum(os.lstat(os.path.join(folder, name)).st_blocks * 512 for name in names)  # noqa: PTH118
    return total


def remove(name: str, folder: Path) -> None:
    """An unfinished one too; of an adopted one only our note of it."""
    homes = {home.name: home for home in folder.iterdir() if home.is_dir()} if folder.is_dir() else {}
    homes.pop(PINS, None)
    if not homes:
        raise FundoscopeError(f"there are no environments in {folder}", "nothing needs removing")
    home = pick(homes, name, kind="environment")
    with _locked(name, folder, lambda _: None):
        (home / RECORD).unlink(missing_ok=True)  # first: half removed is unfinished
        shutil.rmtree(home)


def requirements(framework: str, device: str, folder: Path | None = None) -> str:
    """The pins and their hashes: those beside the environments of `folder`, or as shipped."""
    pick(FRAMEWORKS, framework, kind="framework")
    pick(dict.fromkeys(DEVICES), device, kind="device")
    name = f"{framework}-{device}.txt"
    if folder and (folder / PINS / name).is_file():
        return (folder / PINS / name).read_text()
    return (files(fundoscope) / "experiment" / PINS / name).read_text()


def _name(framework: str, device: str, folder: Path) -> str:
    """By the versions alone: another hash of the same version (one more platform's) changes no environment."""
    lines = requirements(framework, device, folder).splitlines()
    pins = [line.removesuffix(" \\") for line in lines if not line.startswith(("#", " "))]
    return f"{framework}-{device}-{sha256_of(chr(10).join(pins).encode())[:8]}"


@contextmanager
def _locked(name: str, folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """One setup at a time: the second waits, and finds the first one's work done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / f".{name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as problem:
        raise FundoscopeError(f"{folder} cannot be written: {problem.strerror}", "give another folder") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that is making {name}")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)  # and with it the lock


def _install(framework: str, device: str, home: Path, folder: Path, *, log: Path) -> Path:
    python, pins = home / "bin" / "python", home / "requirements.txt"
    # Wheels only: what builds a source would come without a hash.
    options = ("--disable-pip-version-check", "--no-input", "--compile", "--require-hashes", "--only-binary=:all:")
    choices = [choice for choice in ((framework, device), OTHERWISE.get((framework, device))) if choice]
    wrong = f"{framework} for {device} could not be installed"
    with log.open("w") as output:
        _run([_base_python(), "-m", "venv", home], output, log, f"the environment of {framework} could not be made")
        for choice in choices:
            pins.write_text(requirements(*choice, folder))
            try:
                _run([python, "-m", "pip", "install", *options, "-r", pins], output, log, wrong)
                break
            except FundoscopeError:
                if choice == choices[-1]:
                    raise
    log.unlink()
    return python


def _run(command: list[Path | str], output: IO[str], log: Path, wrong: str) -> None:
    # Byte code is written once, now: otherwise every trial compiles the framework anew and import_s triples.
    variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
    done = subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    if done.returncode:
        lines = log.read_text(errors="replace").splitlines()
        errors = (
            [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")] or lines or ["no output"]
        )
        raise FundoscopeError(f"{wrong}: {errors[-1].strip()}", f"{log} has all that was said")


def _base_python() -> str:
    """A Python of the version that the pins are for, or this one: pip then says what it lacks."""
    if sys.version_info[:2] == PYTHON:
        return sys.executable
    return shutil.which("python" + ".".join(map(str, PYTHON))) or sys.executable


def _record(name: str, framework: str, device: str, home: Path, python: Path) -> Environment:
    """Look inside, and only then write down that it is whole."""
    made = datetime.now(UTC).isoformat(timespec="seconds")
    environment = Environment(name, framework, device, home, python, {}, made)
    _link_code(environment)
    environment = replace(environment, versions=_inspect(environment))
    about = {"framework": framework, "device": device, "python": str(python), "made": made}
    write_json(home / RECORD, about | {"versions": environment.versions})
    return environment


def _inspect(environment: Environment) -> dict[str, str]:
    module = FRAMEWORKS[environment.framework]
    command: list[Path | str] = [environment.python, "-c", INSPECT, environment.framework, module]
    variables = os.environ | {"PYTHONPATH": str(environment.code)}
    done = subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        hint = f"try `{environment.python} -c 'import {module}'`; it needs Python 3.11 or later and NumPy too"
        raise FundoscopeError(f"{environment.framework} was installed and does not start: {last}", hint)
    versions: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return versions


def _read(home: Path) -> Environment | None:
    """None when it is unfinished, or its interpreter has gone."""
    try:
        about = json.loads((home / RECORD).read_text())
        python = Path(about.pop("python"))
        found = Environment(name=home.name, folder=home, python=python, **about)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    if not python.exists():
        return None
    _link_code(found)
    return found


def _link_code(environment: Environment) -> None:
    """To the package that is running, which may be another checkout than last time."""
    package = Path(fundoscope.__file__).resolve().parent
    link = environment.code / "fundoscope"
    if link.is_symlink() and link.resolve() == package:
        return
    part = environment.code / f".fundoscope.{os.getpid()}"
    try:
        environment.code.mkdir(exist_ok=True)
        part.unlink(missing_ok=True)
        part.symlink_to(package, target_is_directory=True)
        part.replace(link)
    except OSError as problem:
        hint = "give another folder of environments"
        raise FundoscopeError(f"{link} cannot be written: {problem.strerror}", hint) from None
