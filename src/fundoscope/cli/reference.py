"""docs/reference.md, made from --help: `make docs` writes it, a test compares them."""

import argparse
import os
from collections.abc import Iterator

HEADING = "# Reference\n\nEvery command, as `--help` prints it. Made by `make docs`; do not edit.\n"


def reference() -> str:
    os.environ["COLUMNS"] = "110"  # argparse folds to the terminal's width otherwise
    from fundoscope.cli.main import build_parser

    sections = (
        f"## {parser.prog}\n\n```\n{parser.format_help().rstrip()}\n```\n" for parser in _parsers(build_parser())
    )
    return "\n".join([HEADING, *sections])


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _parsers(child)


if __name__ == "__main__":
    print(reference(), end="")
