"""Runs of pytest, each in a fork of this process, which has imported what takes long: everything but fundoscope.

Standard input: a line of JSON per run {folder, arguments, environment, paths, output}. Standard output: {pid} once it
is begun, {status} once it has ended; a signal's status is negative.
"""

import importlib
import io
import json
import os
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout, suppress
from tempfile import TemporaryDirectory
from typing import Any

LONG = (
    "pytest",
    "hypothesis.strategies",
    "schemathesis",
    "numpy",
    "scipy.stats",
    "scipy.optimize",
    "sklearn.metrics",
    "onnx",
    "onnxruntime",
    "PIL.Image",
    "simplejpeg",
    "pyarrow.parquet",
    "boto3",
    "psutil",
    "requests",
    "prometheus_client",
    "PIL.JpegImagePlugin",
    "PIL.PngImagePlugin",
    "tomllib",
    "http.client",
    "urllib.request",
)


def run(order: dict[str, Any]) -> int:
    import pytest

    os.environ.update(order["environment"])
    sys.path[:0] = order["paths"]
    os.chdir(order["folder"])
    sys.argv = ["pytest", *order["arguments"]]
    return int(pytest.main(order["arguments"]))


def _import_plugins() -> None:
    """As pytest does it, where there is nothing to test."""
    import pytest

    with TemporaryDirectory() as folder, redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", folder, "-c", os.devnull, folder])


def main() -> None:
    for name in LONG:
        with suppress(ImportError):
            importlib.import_module(name)
    _import_plugins()
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for ours, theirs in ((nothing, 0), (output, 1), (output, 2)):
                os.dup2(ours, theirs)
            status = 3
            try:
                status = run(order)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        print(json.dumps({"pid": pid}), flush=True)
        _, ended = os.waitpid(pid, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(ended)}), flush=True)


if __name__ == "__main__":
    main()
