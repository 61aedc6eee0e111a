"""A Ray cluster: the one that runs, or one of our own, found and left as it was."""

import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fundoscope.errors import FundoscopeError

# What Ray would do to trials unless told not to: run them at low priority, end them before the kernel would.
PLAIN = {"worker_niceness": 0, "memory_monitor_refresh_ms": 0}
STORE_BYTES = 100 * 2**20  # observations are small


@contextmanager
def connected(where: str, at: str) -> Iterator[None]:
    """To a cluster, or to one of our own; as we found it afterwards."""
    import ray

    if ray.is_initialized():  # the caller's
        yield
        return
    on_term = signal.getsignal(signal.SIGTERM)
    # Beside where Ray keeps its sockets, whose paths must be short; and unlike there, nothing is left.
    beside = os.environ.get("RAY_TMPDIR", "/tmp")
    with TemporaryDirectory(prefix="ray-", dir=beside, ignore_cleanup_errors=True) as folder:
        try:
            _connect(where, at, folder)
            with suppress(ValueError):  # Ray puts its own in place; not from other threads
                signal.signal(signal.SIGTERM, on_term)
            yield
        finally:
            ray.shutdown()


def _connect(where: str, at: str, folder: str) -> None:
    import ray

    address: str | None
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if where == "auto" and not at:
        raise FundoscopeError(
            "no Ray cluster is running here", "run `ray start --head`, or use --on ray: it starts one"
        )
    if at:
        _check_reachable(at)
        address = f"ray://{at}" if at == where else None  # None: found as we did, with the token that is its own
    else:
        address = "local"
        options |= {"include_dashboard": False, "_metrics_export_port": -1}
        options |= {"_system_config": PLAIN, "object_store_memory": STORE_BYTES, "_temp_dir": folder}
    try:
        ray.init(address, **options)
    except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError, ImportError) as problem:
        what = str(problem).strip().partition("\n")[0]
        hint = "use the same Python and Ray here as there; `ray status` there says how it is"
        raise FundoscopeError(f"the Ray cluster cannot be used: {what}", hint) from None


def _check_reachable(at: str) -> None:
    """Ray itself takes minutes to find that nobody is there."""
    host, _, port = at.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, ValueError) as problem:
        hint = "give the address of a head, as ray://HOST:10001; `ray stop` forgets a cluster that ran here"
        raise FundoscopeError(f"no Ray cluster answers at {at}: {problem}", hint) from None


def running_here() -> str:
    """The address, found where `ray.init` looks by its documentation: set by somebody, or left by `ray start`."""
    if address := os.environ.get("RAY_ADDRESS"):
        return address
    with suppress(OSError):
        return Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster").read_text().strip()
    return ""


def import_ray(*, loopback: bool) -> None:
    # Both are read when Ray is imported. The second is how Ray is told not to listen on the network, on any system.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if loopback:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        import ray  # noqa: F401
    except ImportError:
        raise FundoscopeError("Ray is not installed here", "pip install 'fundoscope[ray]'") from None


def alive_nodes() -> list[str]:
    """Those that offer processors: a head that only coordinates is started with none."""
    import ray

    return [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
