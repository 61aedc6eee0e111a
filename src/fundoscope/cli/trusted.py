"""--trusted-key: whose signature an artefact must carry, alike for every command that puts one to use."""

import argparse
import os
from pathlib import Path

VARIABLE = "FUNDOSCOPE_TRUSTED_KEY"  # for a container, which is started without options


def add_trusted_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trusted-key",
        dest="trusted_keys",
        action="append",
        type=Path,
        metavar="FILE",
        help=f"refuse an artefact that this public key did not sign; may be repeated (default: {VARIABLE})",
    )


def trusted_keys(arguments: argparse.Namespace) -> tuple[Path, ...]:
    """As typed; else the environment's, several of them separated as in PATH."""
    if arguments.trusted_keys:
        return tuple(arguments.trusted_keys)
    return tuple(Path(name) for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name)
