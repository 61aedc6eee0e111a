"""Counters and histograms in Prometheus's text format, kept in memory that all workers share.

Every worker writes its own row, and whichever is asked for /metrics adds the rows up. The memory belongs to the
supervisor, so that what a crashed worker had counted is not lost.
"""

import mmap
from bisect import bisect_left
from collections.abc import Iterable, Mapping

PHASES = ("queue", "decode", "predict", "total")
OUTCOMES = ("graded", "ungradable", "unreadable", "busy", "timeout", "failed")
STATUSES = (200, 400, 404, 406, 408, 413, 415, 500, 503)  # that an invocation may end with
# Seconds. Photographs of a MobileNet take some 10 ms, those of a VGG19 under half a processor some seconds.
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1, 2, 4, 8, 16, 32)

Labels = tuple[tuple[str, str], ...]
Cell = tuple[str, Labels]


def _histogram(name: str, bounds: Iterable[float], labels: Labels = ()) -> list[Cell]:
    buckets: list[Cell] = [(f"{name}_bucket", (*labels, ("le", f"{bound:g}"))) for bound in bounds]
    return [*buckets, (f"{name}_bucket", (*labels, ("le", "+Inf"))), (f"{name}_sum", labels), (f"{name}_count", labels)]


CELLS: tuple[Cell, ...] = (
    *[("fundoscope_requests_total", (("status", str(status)),)) for status in STATUSES],
    *[("fundoscope_photographs_total", (("outcome", outcome),)) for outcome in OUTCOMES],
    ("fundoscope_in_flight", ()),
    ("fundoscope_queue", ()),
    ("fundoscope_connections", ()),
    *[cell for phase in PHASES for cell in _histogram("fundoscope_seconds", SECONDS, (("phase", phase),))],
    *_histogram("fundoscope_batch_photographs", SIZES),
)
PLACE: Mapping[Cell, int] = {cell: place for place, cell in enumerate(CELLS)}
GAUGES = ("fundoscope_in_flight", "fundoscope_queue", "fundoscope_connections")
ABOUT = {
    "fundoscope_requests_total": ("counter", "Invocations answered, by status."),
    "fundoscope_photographs_total": ("counter", "Photographs, by what became of them."),
    "fundoscope_in_flight": ("gauge", "Requests being answered."),
    "fundoscope_queue": ("gauge", "Photographs accepted and not yet answered."),
    "fundoscope_connections": ("gauge", "Open connections, as of the last one that was accepted."),
    "fundoscope_seconds": ("histogram", "Seconds of a photograph's way through the server, by phase."),
    "fundoscope_batch_photographs": ("histogram", "Photographs predicted together."),
    "fundoscope_workers_replaced_total": ("counter", "Workers that crashed or got stuck, and were replaced."),
    "fundoscope_start_seconds": ("gauge", "Seconds that each phase of the worker's start took."),
    "fundoscope_artefact_info": ("gauge", "The artefact being served."),
    "process_resident_memory_bytes": ("gauge", "Resident memory of the worker that answers this."),
}


class Board:
    """The shared memory: a row of cells for each worker, and the supervisor's count of those it replaced."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        # Anonymous and inherited by fork. Doubles: exact for counts up to 2**53, written in one piece.
        self._cells = memoryview(mmap.mmap(-1, 8 * (len(CELLS) * workers + 1))).cast("d")

    def row(self, worker: int) -> "memoryview[float]":
        return self._cells[len(CELLS) * worker : len(CELLS) * (worker + 1)]

    def reset_gauges(self, worker: int) -> None:
        """After a crash: what was in flight there is no more."""
        row = self.row(worker)
        for name in GAUGES:
            row[PLACE[name, ()]] = 0

    def replaced(self) -> None:
        self._cells[-1] += 1

    def totals(self) -> list[float]:
        return [sum(column) for column in zip(*(self.row(w) for w in range(self.workers)), strict=True)]

    @property
    def workers_replaced(self) -> float:
        return self._cells[-1]


class Metrics:
    """One worker's counts. Written from its event loop only."""

    def __init__(self, board: Board, worker: int = 0) -> None:
        self._board, self._row = board, board.row(worker)

    def request(self, status: int) -> None:
        self._row[PLACE["fundoscope_requests_total", (("status", str(status)),)]] += 1

    def photograph(self, outcome: str) -> None:
        self._row[PLACE["fundoscope_photographs_total", (("outcome", outcome),)]] += 1

    def gauge(self, name: str, change: int) -> None:
        self._row[PLACE[name, ()]] += change

    def elsewhere(self) -> float:
        """Photographs that stand in the lines of the other workers."""
        place = PLACE["fundoscope_queue", ()]
        return sum(self._board.row(worker)[place] for worker in range(self._board.workers)) - self._row[place]

    def connections(self, n: int) -> bool:
        """Note how many this worker has; whether another has fewer."""
        place = PLACE["fundoscope_connections", ()]
        self._row[place] = n
        return any(self._board.row(worker)[place] < n for worker in range(self._board.workers))

    def phase(self, phase: str, seconds: float) -> None:
        self._observe("fundoscope_seconds", SECONDS, seconds, (("phase", phase),))

    def batch(self, photographs: int) -> None:
        self._observe("fundoscope_batch_photographs", SIZES, photographs)

    def _observe(self, name: str, bounds: tuple[float, ...], value: float, labels: Labels = ()) -> None:
        sum_place = PLACE[f"{name}_sum", labels]
        first = sum_place - len(bounds) - 1
        self._row[first + bisect_left(bounds, value)] += 1  # this bucket's own; they are added up where they are shown
        self._row[sum_place] += value
        self._row[sum_place + 1] += 1

    def text(self, artefacts: Iterable[Mapping[str, str]], start_s: Mapping[str, float] | None = None) -> str:
        """The exposition format, version 0.0.4. `start_s`: seconds by phase of this worker's start."""
        samples, below = [], 0.0
        for (name, labels), value in zip(CELLS, self._board.totals(), strict=True):
            below = below + value if name.endswith("_bucket") else 0.0
            samples.append((name, labels, below if name.endswith("_bucket") else value))
        samples.append(("fundoscope_workers_replaced_total", (), self._board.workers_replaced))
        samples += [("fundoscope_start_seconds", (("phase", p),), s) for p, s in (start_s or {}).items()]
        samples += [("fundoscope_artefact_info", tuple(artefact.items()), 1) for artefact in artefacts]
        samples.append(("process_resident_memory_bytes", (), resident_bytes()))
        lines, described = [], set()
        for name, labels, value in samples:
            family = next(f for f in (name, name.rpartition("_")[0]) if f in ABOUT)
            if family not in described:
                described.add(family)
                kind, help_text = ABOUT[family]
                lines += [f"# HELP {family} {help_text}", f"# TYPE {family} {kind}"]
            lines.append(f"{name}{_braced(labels)} {value:.17g}")
        return "\n".join(lines) + "\n"


def _braced(labels: Labels) -> str:
    def escaped(value: str) -> str:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in labels) + "}" if labels else ""


def resident_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123  # a millisecond less of imports is not at stake
            return int(file.read().split()[1]) * mmap.PAGESIZE
    except OSError:  # not Linux
        return 0
