"""A network over many photographs, in batches of one shape."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

BATCH = 32


def predict(network: Any, pixels: NDArray[np.uint8], *, batch: int = BATCH) -> NDArray[np.float32]:
    """Outputs of `network` for every photograph. The last batch is filled up, so that nothing is compiled twice."""
    parts = [network.predict_on_batch(part)[:n] for part, n in _chunks(pixels, batch)]
    width = network.output_shape[-1]
    return np.concatenate(parts).astype(np.float32) if parts else np.zeros((0, width), np.float32)


def _chunks(pixels: NDArray[np.uint8], batch: int) -> Iterator[tuple[NDArray[np.uint8], int]]:
    for start in range(0, len(pixels), batch):
        part = np.asarray(pixels[start : start + batch])
        missing = batch - len(part)
        filled = np.concatenate([part, np.zeros((missing, *part.shape[1:]), part.dtype)]) if missing else part
        yield filled, len(part)
