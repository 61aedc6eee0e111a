"""So many threads for every framework: left alone, MXNet takes one and the others about all of them."""

import os

from fundoscope.experiment.unavailable import Unavailable
from fundoscope.quota import cores

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",  # MXNet, PyTorch
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NPROC",  # JAX
)


def fix_threads(threads: int) -> int:
    """Hold this process to so many threads and processors (0: all it may use). Before a framework is imported: most
    look once, when they start. Left alone, MXNet takes one thread and the others about all."""
    here = cores()
    if threads > here:
        raise Unavailable(f"the cell asks for {threads} threads and this process may use {here} processors")
    threads = threads or here
    os.environ |= dict.fromkeys(THREAD_VARIABLES, str(threads))
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    return threads
