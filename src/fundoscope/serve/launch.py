"""What `serve` starts: a supervisor that binds the port, and under it the worker that answers.

The supervisor imports next to nothing and does nothing but wait. A worker that crashes, or gives itself up because a
prediction never came back, is replaced within the second; meanwhile callers wait in the port's own queue and are not
turned away. SIGTERM lets what has been accepted finish, for at most DRAIN_S.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any

from fundoscope.errors import FundoscopeError
from fundoscope.serve.container import Container, Origin
from fundoscope.serve.log import log
from fundoscope.serve.metrics import Board, Metrics
from fundoscope.serve.port import BACKLOG, FairSocket, bind, heard_out
from fundoscope.serve.settings import Settings

DRAIN_S = 25  # the platform kills after 30
QUICK_DEATHS, QUICK_S = 5, 10.0  # so many workers within so short a time: it will not get better
BAD_USAGE, REPLACE_ME = 2, 75  # statuses a worker ends with: nothing to be done about it; a fresh one will do


def serve(settings: Settings) -> int:
    """Serve until SIGTERM or Ctrl-C; the exit status."""
    if settings.stack == "published":
        from fundoscope.serve import published

        return published.run(settings)
    return Supervisor(settings, bind(settings.host, settings.port)).run()


class Supervisor:
    def __init__(self, settings: Settings, listening: socket.socket) -> None:
        self._settings, self._listening = settings, listening
        self._origin = Origin.of_this_process(settings.image)
        self._board = Board(settings.processes)
        self._workers: dict[int, int] = {}  # process -> row of the board
        self._stopping = 0.0  # since when
        self._deaths: list[float] = []
        # Workers notice the end of the supervisor, were it by kill -9, because this closes with it.
        self._lifeline, self._held = os.pipe()

    def run(self) -> int:
        for row in range(self._settings.processes):
            self._start(row, self._origin.began)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        signal.signal(signal.SIGALRM, self._kill)
        status = 0
        while self._workers:
            pid, ended = os.wait()
            row = self._workers.pop(pid, -1)
            if row < 0:
                continue  # as process 1 of a container we are handed orphans too
            code = os.waitstatus_to_exitcode(ended)
            if self._stopping:
                continue
            if code in (0, BAD_USAGE) or self._hopeless():
                status = status or code or 1
                self._stop()
                continue
            log("worker replaced", status=code)
            self._board.reset_gauges(row)
            self._board.replaced()
            self._start(row, time.monotonic())
        return status if status >= 0 else 1

    def _start(self, row: int, since: float) -> None:
        pid = os.fork()
        if pid:
            self._workers[pid] = row
            return
        status = 1
        try:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
                signal.signal(number, signal.SIG_DFL)
            os.close(self._held)
            container = Container(self._origin, since)
            metrics = Metrics(self._board, row)
            status = work(self._settings, self._listening, metrics, container, self._lifeline)
        except FundoscopeError as problem:
            sys.stderr.write(f"error: {problem.message}\n" + (f"hint: {problem.hint}\n" if problem.hint else ""))
            status = BAD_USAGE
        except KeyboardInterrupt:
            status = 0
        except BaseException as problem:
            log("worker failed", problem=type(problem).__name__, text=str(problem)[:200])
        finally:
            sys.stderr.flush()
            os._exit(status)  # never back into the supervisor's code

    def _hopeless(self) -> bool:
        self._deaths = [*self._deaths[-QUICK_DEATHS + 1 :], time.monotonic()]
        return len(self._deaths) == QUICK_DEATHS and self._deaths[-1] - self._deaths[0] < QUICK_S

    def _stop(self, *_: object) -> None:
        if self._stopping:
            return
        self._stopping = time.monotonic()
        self._listening.close()  # callers are refused now, and do not wait for someone who is leaving
        for pid in self._workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        signal.alarm(DRAIN_S + 2)

    def _kill(self, *_: object) -> None:
        for pid in self._workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def work(settings: Settings, listening: socket.socket, metrics: Metrics, container: Container, lifeline: int) -> int:
    """The worker: answer on `listening` until told to stop; its exit status."""
    from fundoscope.artefact.runtime import large_blocks_apart  # not for the supervisor: it imports NumPy

    large_blocks_apart()
    return asyncio.run(_work(settings, listening, metrics, container, lifeline))


async def _work(
    settings: Settings, listening: socket.socket, metrics: Metrics, container: Container, lifeline: int
) -> int:
    began, port = time.monotonic(), listening.getsockname()[1]
    from fundoscope.serve.app import create_app
    from fundoscope.serve.service import Service

    service = Service(settings, metrics, container)
    # The model opens in a thread while the web server is still being imported.
    loading = asyncio.ensure_future(_load(service))
    await asyncio.sleep(0)
    server = _server(create_app(service), service)
    asyncio.get_running_loop().add_reader(lifeline, setattr, server, "should_exit", True)
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    stuck = asyncio.ensure_future(service.stuck.wait())
    await asyncio.wait([serving, loading], return_when=asyncio.FIRST_COMPLETED)
    if loading.done() and loading.exception() is not None:
        server.should_exit = server.force_exit = True
        await asyncio.wait([serving])
        loading.result()
    if not serving.done():
        log("ready", port=port, worker=os.getpid(), seconds=round(time.monotonic() - began, 3), **_about(service))
    await asyncio.wait([serving, stuck], return_when=asyncio.FIRST_COMPLETED)
    if not serving.done():
        log("stuck", seconds=round(service.line.stuck_s(), 1))
        server.should_exit = True
        await asyncio.wait([serving], timeout=2)
        return REPLACE_ME
    stuck.cancel()
    return 0


async def _load(service: Any) -> None:
    service.container.ended("import")
    if service.settings.load == "first-request" or service.settings.multi_model:
        return
    await service.load()


def _server(app: Any, service: Any) -> Any:
    import logging

    import uvicorn

    from fundoscope.serve.protocol import BoundedProtocol

    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # it would log what callers send wrongly

    loop = asyncio.get_running_loop()

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: Any) -> None:
            loop.call_soon_threadsafe(service.drain)
            super().handle_exit(sig, frame)

        async def startup(self, sockets: Any = None) -> None:
            if service.settings.processes > 1:
                sockets[:] = [FairSocket(one, service.metrics.connections) for one in sockets]
            await super().startup(sockets)
            for listening in sockets:
                listening.listen(BACKLOG)

        async def shutdown(self, sockets: Any = None) -> None:
            await heard_out(lambda: [*(sockets or ()), *self._silent()])
            await super().shutdown(sockets)

        def _silent(self) -> list[Any]:
            """The sockets of connections that have asked for nothing, as far as was read."""
            ours = [one for one in self.server_state.connections if isinstance(one, BoundedProtocol)]
            return [connection.transport.get_extra_info("socket") for connection in ours if connection.idle]

    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,  # longer than a load balancer's 60
        timeout_graceful_shutdown=DRAIN_S,
        backlog=1,  # asyncio takes so many at a time: one, so that workers share them; the port's own is set above
        limit_concurrency=_connections(),
    )
    return Server(config)


def _connections() -> int:
    """As many as there are file descriptors for, less some for the model and for us."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, min(soft - 64, 4096))


def _about(service: Any) -> dict[str, Any]:
    models = [{"digest": g.artefact.digest, "precision": g.artefact.precision} for _, _, g in service.models]
    return {"models": models, "threads": service.settings.predict_threads, "platform": service.settings.platform}
