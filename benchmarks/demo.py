"""`fundoscope demo`, timed stage by stage, with the referral AUC it reaches on drawn eyes it has not seen.

python benchmarks/demo.py [--quick] [--json FILE]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fundoscope.cli.command import table

REACH_S, REACH_AUC = 360.0, 0.95


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="300 eyes, 4 epochs: does it run at all")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    few = ["--n", "300", "--epochs", "4"] if args.quick else []
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "demo"
        command = [sys.executable, "-m", "fundoscope.cli.main", "demo", "--out", str(out), *few, "--json"]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        timings = json.loads((out / "timings.json").read_text())
    auc = found["scores"]["auc"]
    rows = [[stage["stage"], f"{stage['seconds']:.1f}"] for stage in timings["stages"]]
    print("\n".join(table([*rows, ["in all", f"{timings['seconds']:.1f}"]], header=["stage", "seconds"])))
    print(f"AUC {auc['value']:.4f} ({auc['low']:.4f} to {auc['high']:.4f}), to reach: {REACH_AUC}")
    print(f"{timings['seconds']:.0f} s on {os.cpu_count()} cores, to reach: {REACH_S:.0f} s on two")
    if args.json:
        args.json.write_text(json.dumps({"timings": timings, "scores": found["scores"]}, indent=2) + "\n")
    return 0 if args.quick or (timings["seconds"] <= REACH_S and auc["value"] >= REACH_AUC) else 1


if __name__ == "__main__":
    sys.exit(main())
