"""What of a training is on disk, in an order that survives `kill -9`: weights first, then the line that says so."""

from pathlib import Path
from typing import Any

from fundoscope.errors import FundoscopeError


def save_weights(model: Any, out: Path, epoch: int) -> None:
    """Weights and optimiser state of `epoch`."""
    path = _path(out, epoch)
    path.parent.mkdir(exist_ok=True)
    part = path.with_name(f".part-{path.name}")
    model.save_weights(part)
    part.replace(path)


def load_weights(model: Any, out: Path, epoch: int) -> None:
    path = _path(out, epoch)
    if not path.is_file():
        hint = "train anew into another folder"
        raise FundoscopeError(f"{path} is missing, so this training cannot go on", hint)
    model.load_weights(path)


def forget_weights(out: Path, *, but: int | None = None) -> None:
    """All weights to resume from, but those of one epoch."""
    for path in (out / "work").glob("*epoch-*.weights.h5"):
        if but is None or path != _path(out, but):
            path.unlink()


def save_network(network: Any, path: Path) -> None:
    part = path.with_name(f".part-{path.name}")
    network.save(part)
    part.replace(path)


def _path(out: Path, epoch: int) -> Path:
    return out / "work" / f"epoch-{epoch:04d}.weights.h5"
