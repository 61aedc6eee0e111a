import os
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_reference_is_what_help_says():
    made = subprocess.run(
        [sys.executable, "-m", "fundoscope.cli.reference"],
        capture_output=True,
        text=True,
        env=os.environ | {"NO_COLOR": "1"},
    )
    assert made.stdout == (DOCS / "reference.md").read_text(), "run `make docs`"
