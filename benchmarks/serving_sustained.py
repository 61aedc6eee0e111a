"""Many requests: the highest rate at p99 <= 500 ms, ours and the peers', and ten minutes at twice that."""

import asyncio
import multiprocessing
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from serving_figures import Figure, slope
from serving_load import (
    SAMPLES_FOR_P99,
    Step,
    Target,
    find_sustainable,
    load_process,
    request_bytes,
    send_closed,
    send_load,
)
from serving_models import Model
from serving_peers import environment_of, servers_of
from serving_photos import Photos
from serving_servers import Line, Running, Server, first_answer, lean, memory_mb, started, up

from fundoscope.quota import cores

LIMIT_MS = 500.0
PEERS = ("litserve", "bentoml", "mlserver")
GROWTH = 0.02  # of the memory, from the second fifth of a soak to the last: more is growth


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def client_limit(photos: Photos, *, seconds: float) -> Figure:
    """How much the client can send, to a server that does nothing: everything measured must stay well below."""
    spawned = multiprocessing.get_context("spawn")
    receiver, sender = spawned.Pipe(duplex=False)
    server = spawned.Process(target=_nothing, args=(sender,), daemon=True)
    server.start()
    requests = tuple(request_bytes("/invocations", photo, "image/jpeg") for photo in photos.small)
    target = Target(receiver.recv(), requests)
    with load_process() as pool:
        most = pool.submit(send_closed, target, 8, seconds).result()
        half, _ = pool.submit(send_load, target, most / 2, int(most / 2 * seconds), 1).result()
    server.terminate()
    server.join()
    note = f"at half of it p99 {half.p99_ms:.1f} ms"
    return Figure("the client itself, against a server that does nothing", most, unit="/s", note=note)


def _nothing(port_to: Connection) -> None:
    class Echo(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport, self.missing = transport, 0

        def data_received(self, data: bytes) -> None:
            if self.missing == 0:
                head, _, body = data.partition(b"\r\n\r\n")
                self.missing = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]) - len(body)
            else:
                self.missing -= len(data)
            if self.missing == 0:
                self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
        port_to.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


def throughput(model: Model, photos: Photos, cache: Path, *, quick: bool) -> tuple[list[Figure], dict[str, Any]]:
    """Ours first and last, the peers in between, each with the settings that suit it best."""
    figures = [client_limit(photos, seconds=1 if quick else 4)]
    found: dict[str, Any] = {}
    with load_process() as pool:
        fastest = lean(model.onnx, "--workers", str(cores()))  # a process per core, as the peers have
        ours = [_sustained(fastest, photos, pool, quick=quick, found=found)]
        alone = _sustained(lean(model.onnx), photos, pool, quick=quick, found=found)
        peers = {peer: _peer(peer, model, photos, cache, pool, quick=quick, found=found) for peer in PEERS}
        if not quick:
            ours.append(_sustained(fastest, photos, pool, quick=quick, found=found))
    figures.append(
        Figure(f"sustained at p99 ≤ {LIMIT_MS:g} ms, {model.name}, lean", min(ours), unit="/s", note=_both(ours))
    )
    figures.append(Figure("the same, lean as it comes, in one process", alone, unit="/s"))
    for peer, best in peers.items():
        if best is None:
            _say(f"{peer} was not measured")
            figures.append(Figure(f"lean over {peer}", 0.0, reach=None if quick else 1.0, note="not measured"))
            continue
        rate, settings = best
        note = f"{min(ours):.1f}/s / {rate:.1f}/s; {settings}"
        value = min(ours) / rate if rate else float("inf")
        figures.append(Figure(f"sustained, lean over {peer}", value, reach=1.0, note=note))
    return figures, {"servers": found, "lean_per_s": min(ours)}


def _both(rates: list[float]) -> str:
    return "" if len(rates) == 1 else f"before the peers {rates[0]:.1f}/s, after them {rates[1]:.1f}/s"


def _peer(
    peer: str,
    model: Model,
    photos: Photos,
    cache: Path,
    pool: ProcessPoolExecutor,
    *,
    quick: bool,
    found: dict[str, Any],
) -> tuple[float, str] | None:
    """Its best rate and the settings it was reached with; None: it cannot be had here."""
    if quick and not (cache / "environments" / peer / "installed.json").is_file():
        return None  # installing takes longer than all else in a quick run
    try:
        environment_of(peer, cache)
    except subprocess.CalledProcessError:
        return None
    capacities = []
    for server in servers_of(peer, model.onnx, cache):
        try:
            capacities.append((_capacity(server, photos, pool, seconds=2 if quick else 5), server))
        except RuntimeError as problem:
            _say(f"{peer} with {server.settings}: {problem}")
    capacities.sort(key=lambda pair: -pair[0])
    best = [
        (_sustained(server, photos, pool, quick=quick, found=found), server.settings)
        for _, server in capacities[: 1 if quick else 2]
    ]
    return max(best, default=None)


def _capacity(server: Server, photos: Photos, pool: ProcessPoolExecutor, *, seconds: float) -> float:
    with up(server, photos.small[0]) as running:
        per_s: float = pool.submit(send_closed, running.target(photos.small), 16, seconds).result()
    _say(f"{server.name} with {server.settings}: {per_s:.1f}/s, 16 requests always under way")
    return per_s


def _sustained(
    server: Server, photos: Photos, pool: ProcessPoolExecutor, *, quick: bool, found: dict[str, Any]
) -> float:
    with up(server, photos.small[0]) as running:
        rate, steps, capacity = search(running, photos, pool, quick=quick)
    found[f"{server.name}: {server.settings} ({len(found)})"] = {
        "per_s": rate,
        "closed_loop_per_s": capacity,
        "steps": [asdict(step) for step in steps],
    }
    _say(f"{server.name} with {server.settings} sustains {rate:.1f}/s")
    return rate


def search(
    running: Running, photos: Photos, pool: ProcessPoolExecutor, *, quick: bool
) -> tuple[float, list[Step], float]:
    """The highest rate; what it can do at all (closed loop) says where to look."""
    target = running.target(photos.small)
    pool.submit(send_closed, target, 4, 1).result()
    capacity: float = pool.submit(send_closed, target, 16, 2 if quick else 5).result()

    def measure(per_s: float) -> Step:
        # A queue that grows by 3 % of the time takes 17 s to pass 500 ms: shorter steps would not see it.
        n = SAMPLES_FOR_P99 if quick else max(SAMPLES_FOR_P99, round(20 * per_s))
        step: Step = pool.submit(send_load, target, per_s, n, seed=7).result()[0]
        _say(f"  {running.server.name} {per_s:.1f}/s: p50 {step.p50_ms:.0f}, p99 {step.p99_ms:.0f} ms, {step.statuses}")
        return step

    within = 0.15 if quick else 0.03
    rate, steps = find_sustainable(measure, low=0.6 * capacity, high=1.2 * capacity, limit_ms=LIMIT_MS, within=within)
    return rate, steps, capacity


def soak(model: Model, photos: Photos, seconds: float, sustained_per_s: float | None) -> tuple[list[Figure], Any]:
    """Twice the sustainable load: everybody is answered or sent away, nothing crashes, nothing grows."""
    with load_process() as pool, started(lean(model.onnx, "--workers", str(cores()))) as running:
        first_answer(running, photos.small[0])
        if sustained_per_s is None:
            sustained_per_s, _, _ = search(running, photos, pool, quick=True)
        per_s = 2 * sustained_per_s
        pool.submit(send_load, running.target(photos.small), per_s, round(10 * per_s), 5).result()  # its full size
        before = running.tree()
        n = max(SAMPLES_FOR_P99, round(per_s * seconds))
        _say(f"soaking: {n} requests at {per_s:.0f}/s")
        loading = pool.submit(send_load, running.target(photos.small), per_s, n, 6)
        moments, rss = [], []
        start = time.monotonic()
        while not loading.done():
            moments.append(time.monotonic() - start)
            rss.append(memory_mb(running)["rss"])
            time.sleep(1)
        step: Step = loading.result()[0]
        survived = running.process.poll() is None and running.tree() == before
        line = Line(running.port)
        survived = survived and line.ask(running.server.request(photos.small[0])).status == 200
        line.close()
    return _soak_figures(step, moments, rss, survived=survived)


def _soak_figures(
    step: Step, moments: list[float], rss: list[float], *, survived: bool
) -> tuple[list[Figure], dict[str, Any]]:
    fifth = max(1, len(rss) // 5)
    early, late = float(np.median(rss[fifth : 2 * fifth])), float(np.median(rss[-fifth:]))
    per_s, interval = slope(moments, rss)
    minutes = f"{60 * per_s:.2f} MB a minute ({60 * interval[0]:.2f} to {60 * interval[1]:.2f}), {early:.0f} MB"
    others = {status: n for status, n in step.statuses.items() if status not in ("200", "503")}
    said = ", ".join(f"{n} {status}" for status, n in sorted(step.statuses.items()))
    what = f"soak, {step.seconds:.0f} s at {step.per_s:.0f}/s"
    figures = [
        Figure(f"{what}: neither answered nor refused", sum(others.values()), None, 0.0, "less", "", said),
        Figure(f"{what}: workers lost", float(not survived), None, 0.0, "less", ""),
        Figure(f"{what}: memory, end over start", late / early, None, 1 + GROWTH, "less", note=minutes),
    ]
    return figures, {"step": asdict(step), "rss_mb": rss, "moments_s": moments}
