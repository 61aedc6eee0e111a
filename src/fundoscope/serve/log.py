"""What the server says on standard error: lines of JSON."""

import json
import sys
import time
from typing import Any


def log(event: str, *, began: float | None = None, **facts: Any) -> None:
    """A line of JSON on standard error. Never anything of a photograph, or of whose it is."""
    if began is not None:
        facts["ms"] = round((time.perf_counter() - began) * 1000, 3)
    sys.stderr.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stderr.flush()
