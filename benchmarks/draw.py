"""Drawing eyes: photographs per second of one core, JPEG encoding included.

CPU time, not the clock, so that whatever else the machine does is left out; the interval is over photographs (95 %).
There is nothing to compare with: the figure to reach is 20 per second at 1024 pixels.

    python benchmarks/draw.py [--quick] [--json FILE]
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from fundoscope.cli.command import table
from fundoscope.data.draw import draw_eye
from fundoscope.provenance import versions, write_json

SIZES_PX = (512, 1024)
REACH = {1024: 20.0}  # photographs per second
SEED = 1


def cpu_seconds(size: int, n: int) -> list[float]:
    for index in range(4):  # textures are made once per process
        draw_eye(SEED, index, size=size).jpeg()
    taken = []
    for index in range(n):
        start = time.process_time()
        draw_eye(SEED, index, size=size).jpeg()
        taken.append(time.process_time() - start)
    return taken


def figures(size: int, n: int) -> dict[str, Any]:
    taken = np.array(cpu_seconds(size, n))
    mean, error = taken.mean(), taken.std(ddof=1) / n**0.5
    low, high = 1 / (mean + 1.96 * error), 1 / (mean - 1.96 * error)
    return {"size_px": size, "n": n, "per_second": 1 / mean, "low": low, "high": high, "reach": REACH.get(size)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="80 photographs of each size instead of 400")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    found = [figures(size, 80 if arguments.quick else 400) for size in SIZES_PX]
    rows = [
        [row["size_px"], row["n"], f"{row['per_second']:.1f}", f"{row['low']:.1f} to {row['high']:.1f}", row["reach"]]
        for row in found
    ]
    for line in table(rows, header=["pixels", "photographs", "per s and core", "95 % interval", "to reach"]):
        print(line)
    if arguments.json:
        write_json(arguments.json, {"benchmark": "draw", "rows": found, "versions": versions()})


if __name__ == "__main__":
    main()
