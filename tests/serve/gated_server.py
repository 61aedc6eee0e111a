"""The lean server with a gate in front of one function: `gated_server.py GATE MODULE FUNCTION serve …`.

Whoever calls the function waits until the file GATE exists; that somebody does is said by the file GATE.reached.
"""

import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from fundoscope.cli.main import main

gate, place, function = Path(sys.argv.pop(1)), sys.argv.pop(1), sys.argv.pop(1)
*outer, name = function.split(".")
owner: Any = import_module(place)
for part in outer:
    owner = getattr(owner, part)
original = getattr(owner, name)


def gated(*arguments: Any, **named: Any) -> Any:
    gate.with_name(gate.name + ".reached").touch()
    while not gate.exists():
        time.sleep(0.01)
    return original(*arguments, **named)


setattr(owner, name, gated)
sys.exit(main(sys.argv[1:]))
