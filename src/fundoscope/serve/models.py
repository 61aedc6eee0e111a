"""The models a server holds: one, or as many as its memory allows, loaded and unloaded by name (multi-model)."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path

from fundoscope.artefact.artefact import Artefact, usable
from fundoscope.artefact.runtime import give_back_memory, open_predictor
from fundoscope.errors import FundoscopeError
from fundoscope.quota import memory_limit_bytes
from fundoscope.serve.grading import Grader
from fundoscope.serve.metrics import resident_bytes
from fundoscope.serve.settings import MB, Settings

ONLY = ""  # the name of the model of a server that holds one
# Resident memory of an open model over its file: weights are kept once more, rearranged for the processor, and a
# prediction needs room. Measured with ONNX Runtime: MobileNet 3 to 4 times 13 MB, VGG19 2.3 times 80 MB.
MEMORY_PER_BYTE, MEMORY_BYTES = 2.5, 30 * MB
RUNTIME = {"onnx": "onnxruntime", "savedmodel": "tensorflow"}  # what opening an artefact imports, and most of its time
PIXELS_BYTES = 10  # to decode one pixel, at the worst (data/decode.py), whole photographs of 100 million are 1 GB


class NotLoaded(KeyError):  # noqa: N818
    """There is no model of that name."""


class AlreadyLoaded(ValueError):  # noqa: N818
    """There is one already."""


class NoMemory(MemoryError):  # noqa: N818
    """Another model would not fit."""


def open_grader(folder: Path, settings: Settings, imported: Callable[[], None] = lambda: None) -> Grader:
    """The artefact in `folder`, its bytes checked while the runtime is imported (then `imported`) and opens them."""
    opened = Artefact.open(folder, verify=False)
    artefact = usable(opened, unsafe=settings.unsafe, trusted_keys=settings.trusted_keys)
    found: list[Exception] = []
    check = threading.Thread(target=_check, args=(artefact, found), daemon=True)
    check.start()  # hashing lets go of Python's lock, and so does the runtime
    if artefact.format in RUNTIME:  # the others are refused below
        import_module(RUNTIME[artefact.format])
    imported()
    threads = settings.predict_threads
    grader = Grader(
        artefact,
        open_predictor(artefact, threads=threads),
        operating_point=settings.operating_point,
        max_pixels=_max_pixels(settings.line_threads * settings.processes),
        narrow=partial(open_predictor, artefact, threads=1) if threads > 1 and _room_for(artefact) else None,
    )
    check.join()
    if found:
        raise found[0]
    return grader


def _check(artefact: Artefact, found: list[Exception]) -> None:
    try:
        artefact.check_files()
    except Exception as problem:
        found.append(problem)


def _max_pixels(readers: int) -> int | None:
    """The largest photograph that all reading threads can hold at once in a container's memory."""
    limit = memory_limit_bytes()
    return None if limit is None else max(4_000_000, (limit - resident_bytes()) // 2 // PIXELS_BYTES // readers)


def _needed_bytes(artefact: Artefact) -> float:
    return artefact.size_bytes * MEMORY_PER_BYTE + MEMORY_BYTES


def _room_for(artefact: Artefact) -> bool:
    """Whether the model could be opened once more within this container's memory."""
    limit = memory_limit_bytes()
    return limit is None or resident_bytes() + _needed_bytes(artefact) < 0.9 * limit


class Models:
    """Models by name. Loading takes a while and happens in a thread; the names are handed out under a lock."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._graders: dict[str, Grader] = {}
        self._folders: dict[str, Path] = {}
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[tuple[str, Path, Grader]]:
        return iter([(name, self._folders[name], grader) for name, grader in sorted(self._graders.items())])

    def load(self, name: str, folder: Path, imported: Callable[[], None] = lambda: None) -> Grader:
        """Open and warm up. Raises AlreadyLoaded, NoMemory, or FundoscopeError where it is not an artefact."""
        with self._lock:
            if name in self._folders:
                raise AlreadyLoaded(name)
            self._folders[name] = folder
        try:
            self._check_memory(folder)
            grader = open_grader(folder, self._settings, imported)
            if name != ONLY:  # the service warms its only model up itself
                grader.warm_up()
                give_back_memory()
        except BaseException:
            del self._folders[name]
            raise
        self._graders[name] = grader
        return grader

    def get(self, name: str) -> Grader:
        if name not in self._graders:
            raise NotLoaded(name)
        return self._graders[name]

    def folder(self, name: str) -> Path:
        self.get(name)
        return self._folders[name]

    def unload(self, name: str) -> None:
        """Forget it. Photographs that are on their way through it are answered still."""
        self.get(name)
        del self._graders[name], self._folders[name]

    def _check_memory(self, folder: Path) -> None:
        if not self._settings.multi_model:  # a single model is tried, and the platform says no
            return
        artefact = Artefact.open(folder, verify=False)
        if not _room_for(artefact):
            raise NoMemory(f"{_needed_bytes(artefact) / MB:.0f} MB are needed")

    def folder_of(self, url: str) -> Path:
        """The folder the platform names, which must lie where it puts models."""
        root, folder = self._settings.models_root.resolve(), Path(url).resolve()
        if not folder.is_relative_to(root):
            raise FundoscopeError(f"models are loaded from below {root} only", f"send a url below {root}")
        return folder
