"""fundoscope sign …"""

import argparse
from pathlib import Path

from fundoscope.cli.command import Answer, Commands, verb
from fundoscope.errors import FundoscopeError

EPILOG = """the keys are Ed25519, in PEM. Keep the private one where few can read it, off the machines that serve. Give
the public one to those who serve, screen or deploy: fundoscope serve artefacts/x --trusted-key release.key.pub"""


def add_commands(commands: Commands) -> None:
    parser = verb(
        commands,
        "sign",
        _sign,
        help="sign an artefact with a private key, or make such a key",
        example="fundoscope sign --new-key release.key\n  fundoscope sign artefacts/x --key release.key",
    )
    parser.epilog = f"{EPILOG}\n\n{parser.epilog}"
    parser.add_argument("artefact", nargs="?", type=Path, metavar="ARTEFACT", help="an artefact's folder")
    keys = parser.add_mutually_exclusive_group(required=True)
    keys.add_argument("--key", type=Path, metavar="FILE", help="the private key to sign with")
    keys.add_argument("--new-key", type=Path, metavar="FILE", help="make a key: FILE (private) and FILE.pub (public)")


def _sign(arguments: argparse.Namespace) -> Answer:
    if (arguments.artefact is None) != (arguments.key is None):
        hint = "give both: fundoscope sign artefacts/x --key release.key; --new-key takes no artefact"
        raise FundoscopeError("signing needs an artefact and a private key", hint)
    return _make_key(arguments.new_key) if arguments.key is None else _sign_artefact(arguments)


def _make_key(path: Path) -> Answer:
    from fundoscope.artefact.signature import make_key, public_half

    identity = make_key(path)
    lines = [f"key {identity}", f"private: {path} (readable by you alone; there is no copy)"]
    lines.append(f"public: {public_half(path)}")
    values = {"key": identity, "private": str(path), "public": str(public_half(path))}
    return Answer(values, lines, next=f"fundoscope sign artefacts/x --key {path}")


def _sign_artefact(arguments: argparse.Namespace) -> Answer:
    from fundoscope.artefact.artefact import ARCHIVE, Artefact
    from fundoscope.artefact.files import SIGNATURE
    from fundoscope.artefact.signature import public_half, sign

    artefact = Artefact.open(arguments.artefact)  # every byte: a signature is for what is there
    identity = sign(artefact, arguments.key)
    folder = arguments.artefact
    lines = [f"signed: {folder}, digest {artefact.digest}", f"by the key {identity}, in {folder / SIGNATURE}"]
    if artefact.refused is not None:
        lines.append(f"still refused without --unsafe, signed or not: {artefact.refused}")
    values = {
        "artefact": str(folder),
        "digest": artefact.digest,
        "key": identity,
        "signature": str(folder / SIGNATURE),
        "archive": str(folder / ARCHIVE),
        "refused": artefact.refused,
    }
    return Answer(values, lines, next=f"fundoscope serve {folder} --trusted-key {public_half(arguments.key)}")
