"""Arrays that live in a file, for what is larger than memory."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fundoscope.errors import FundoscopeError


def mapped_array(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> NDArray[Any]:
    """A new .npy file, of zeros, mapped for writing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        array = np.lib.format.open_memmap(path, "w+", np.dtype(dtype), shape)
        with path.open("r+b") as file:
            # The file is only promised its room: writing into the map of a full disk ends the process without a word.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    except OSError as problem:
        with suppress(OSError):
            path.unlink()
        size = np.prod(shape) * np.dtype(dtype).itemsize / 2**30
        raise FundoscopeError(
            f"{path.parent} cannot be written to: {problem.strerror}", f"it takes {size:.1f} GB"
        ) from None
    return array
