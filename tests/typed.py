"""A command as a user types it, in this process: Python and what the commands import take a second or more to start."""

import io
import os
import signal
import sys
import urllib.request
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from fundoscope.cli.main import main


@dataclass(frozen=True)
class Said:
    returncode: int
    stdout: str
    stderr: str


def typed(*words: object, cwd: Path | None = None, **environment: str) -> Said:
    """`fundoscope WORDS`, in that folder. Where its start, signals or pipes are the subject, start a process."""
    arguments, out, err = [*map(str, words)], io.StringIO(), io.StringIO()
    on_term = signal.getsignal(signal.SIGTERM)  # some commands have their own, for as long as their process lives
    urllib.request.install_opener(None)  # it keeps the proxies of the environment in which it was first asked
    with (
        chdir(cwd or Path.cwd()),
        patch.dict(os.environ, environment),
        patch.object(sys, "argv", ["fundoscope", *arguments]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            status = main(arguments)
        except SystemExit as ended:  # from argparse
            status = ended.code if isinstance(ended.code, int) else 1
        finally:
            signal.signal(signal.SIGTERM, on_term)
            urllib.request.install_opener(None)
    return Said(status, out.getvalue(), err.getvalue())
