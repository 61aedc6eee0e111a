"""What a screening has done and what is left of it: the listing's places against the lines of the log."""

from array import array
from collections.abc import Iterator

from fundoscope.screen.crew import Chunk, Done
from fundoscope.screen.listing import Listing
from fundoscope.screen.log import Line, ScreenLog
from fundoscope.screen.worker import Job, Opened

NOT_YET = -1
CHUNK, CHUNK_BYTES = 16, 32 * 2**20  # photographs a worker is given at a time, and what it holds of their files


class Ledger:
    """Per photograph the offset of its line; per bytes, named by half their sha256, the offset of their grading."""

    def __init__(self, listing: Listing, log: ScreenLog) -> None:
        self.listing, self._log = listing, log
        self.offsets = array("q", [NOT_YET]) * len(listing)
        self.keys = array("Q", [0]) * len(listing)  # eight bytes of sha256, to find copies by; 0: never read
        self.gradings: dict[bytes, int] = {}
        self._claimed = dict[bytes, int]()  # by place
        self._awaited = dict[int, bytes]()  # copies whose first has been claimed but not graded yet
        self._recall()

    def todo(self) -> list[int]:
        return [place for place, offset in enumerate(self.offsets) if offset == NOT_YET]

    def chunks(self, places: list[int], *, processes: int) -> Iterator[Chunk]:
        """Jobs to hand out: fewer at a time towards the end, so that all cores finish together."""
        chunk, held, start = list[Job](), 0, 0
        for i, place in enumerate(places):
            job = self._job(place)
            if chunk and (len(chunk) >= self._fitting(len(places) - start, processes) or held + job.size > CHUNK_BYTES):
                yield chunk
                chunk, held, start = [], 0, i
            chunk.append(job)
            held += max(0, job.size)
        if chunk:
            yield chunk

    def alone(self, places: list[int]) -> Iterator[Chunk]:
        return ([self._job(place)] for place in places)

    def claim(self, opened: list[Opened]) -> list[int]:
        """Those whose bytes nobody has graded or is grading."""
        wanted = []
        for one in opened:
            key = _key(one.sha256)
            if key and key not in self.gradings and self._claimed.setdefault(key, one.place) == one.place:
                wanted.append(one.place)
        return wanted

    def release(self, opened: list[Opened]) -> None:
        """Nobody is grading these any more."""
        for one in opened:
            if self._claimed.get(key := _key(one.sha256)) == one.place:
                del self._claimed[key]

    def settle(self, done: Done) -> int:
        """Log what became of a chunk; how many photographs that were."""
        lines = [self._line(one, done.answered.lines.get(one.place)) for one in done.opened]
        for one, line, offset in zip(done.opened, lines, self._log.append(lines), strict=True):
            self._note(one.place, offset, one.sha256)
            if "status" in line and one.sha256:
                self.gradings[_key(one.sha256)] = offset
            elif one.sha256 and _key(one.sha256) not in self.gradings:
                self._awaited[one.place] = _key(one.sha256)
        self.release(done.opened)
        return len(lines)

    def fail(self, job: Job, opened: list[Opened], reason: str) -> None:
        """Log a photograph that cannot be graded by us; the next run tries it again."""
        one = next((found for found in opened if found.place == job.place), Opened(job.place))
        line = self._line(Opened(one.place, one.sha256), {"status": "failed", "reason": reason})
        (offset,) = self._log.append([line])
        self._note(job.place, offset, one.sha256)
        if one.sha256:
            self.gradings[_key(one.sha256)] = offset

    def orphans(self) -> list[int]:
        """Copies of what was never graded after all (its file went away): to be done themselves."""
        places = [place for place, key in self._awaited.items() if key not in self.gradings]
        self._awaited.clear()
        for place in places:
            self.offsets[place] = NOT_YET
        return places

    def _recall(self) -> None:
        """Read the log. What failed, or could not be read from the disk, is tried again."""
        listing, copies = self.listing, list[tuple[int, bytes]]()
        places = {name: place for place, name in enumerate(listing.names)}
        for offset, line in self._log.lines():
            key = _key(line.get("sha256", ""))
            settled = bool(key) and line.get("status", "failed") != "failed"
            if settled:
                self.gradings[key] = offset
            place = places.get(line.get("path", ""))
            if place is None or (line["size"], line["stamp"]) != (listing.sizes[place], listing.stamps[place]):
                continue  # not there any more, or another file by now
            if settled or (key and "status" not in line):
                self._note(place, offset, line["sha256"])
            if key and "status" not in line:
                copies.append((place, key))
        for place, key in copies:
            if key not in self.gradings:
                self.offsets[place] = NOT_YET

    def _note(self, place: int, offset: int, sha256: str) -> None:
        self.offsets[place] = offset
        self.keys[place] = int(sha256[:16] or "0", 16)

    def _job(self, place: int) -> Job:
        listing = self.listing
        return Job(place, listing.names[place], listing.sizes[place], listing.offsets[place])

    def _line(self, one: Opened, answer: Line | None) -> Line:
        listing, place = self.listing, one.place
        line: Line = {"path": listing.names[place], "size": listing.sizes[place], "stamp": listing.stamps[place]}
        if one.sha256:
            line["sha256"] = one.sha256
        if one.problem:
            return line | {"status": "unreadable", "reason": one.problem}
        return line | (answer or {})

    @staticmethod
    def _fitting(left: int, processes: int) -> int:
        return max(1, min(CHUNK, left // (4 * processes)))


def _key(sha256: str) -> bytes:
    return bytes.fromhex(sha256[:32])
