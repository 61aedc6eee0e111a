"""The command line: parse, call one library function, print. Heavy imports live inside the verbs."""

import argparse
import json
import os
import sys
from importlib import import_module

from fundoscope.cli.command import Answer
from fundoscope.errors import FundoscopeError

USAGE_ERROR, CHECK_FAILED, INTERRUPTED = 2, 1, 130
# Each command, and the file here that it is in; in the order of the help.
COMMANDS = {
    "demo": "demo",
    "data": "data",
    "train": "train",
    "sweep": "train",
    "evaluate": "train",
    "export": "export",
    "quantise": "quantise",
    "sign": "sign",
    "serve": "serve",
    "conform": "conform",
    "screen": "screen",
    "image": "image",
    "deploy": "deploy",
    "study": "study",
    "advise": "advise",
    "prices": "prices",
    "published": "published",
    "report": "report",
}


def build_parser(first: str = "") -> argparse.ArgumentParser:
    """`first` is the first argument: where it names a command, the others need not be imported, and a server starts
    that much sooner."""
    parser = argparse.ArgumentParser(
        prog="fundoscope",
        description="From a folder of retinal photographs to a diabetic-retinopathy screening service.",
        epilog="Start with: fundoscope demo. Not a medical device.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for stage in dict.fromkeys([COMMANDS[first]] if first in COMMANDS else COMMANDS.values()):
        import_module(f"fundoscope.cli.{stage}").add_commands(commands)
    return parser


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    parsed = build_parser(arguments[0] if arguments else "").parse_args(arguments)
    try:
        answer: Answer = parsed.run(parsed)
        _print(answer, as_json=parsed.json)
        sys.stdout.flush()
    except FundoscopeError as problem:
        return _complain(problem.message, problem.hint, as_json=parsed.json)
    except KeyboardInterrupt:
        _complain("interrupted", "the same command again loses nothing that was finished", as_json=parsed.json)
        return INTERRUPTED
    except BrokenPipeError:  # `fundoscope … | head` is not an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 0 if answer.ok else CHECK_FAILED


def _print(answer: Answer, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(answer.values | ({"next": answer.next} if answer.next else {}), ensure_ascii=False))
        return
    for line in answer.lines:
        print(line)
    if answer.next:
        print(f"\nnext: {answer.next}")


def _complain(message: str, hint: str, *, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"error": message, "hint": hint}, ensure_ascii=False))
    else:
        print(f"error: {message}" + (f"\nhint: {hint}" if hint else ""), file=sys.stderr)
    return USAGE_ERROR


class _Version(argparse.Action):
    """Looks the version up when asked: importlib.metadata is slow to import."""

    def __init__(self, option_strings: list[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version and leave")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"fundoscope {version('fundoscope')}")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
