"""From what the user typed to a target: an address by its scheme, a command by its spaces or program, else an image."""

import ipaddress
import shlex
import shutil
from pathlib import Path
from urllib.parse import urlsplit

from fundoscope.conform.command import CommandTarget
from fundoscope.conform.container import ImageTarget, find_image
from fundoscope.conform.target import LOOPBACK, AddressTarget, Target
from fundoscope.errors import FundoscopeError


def target_of(text: str, *, kind: str = "auto", model: Path | None = None) -> Target:
    if model is not None and not model.is_dir():
        raise FundoscopeError(f"there is no folder {model}", "name the model's folder: --model artefacts/x")
    if kind == "auto":
        kind = _kind_of(text)
    if kind == "address":
        return _address(text, model)
    if kind == "command":
        return _command(text, model)
    return ImageTarget(text, find_image(text), model)


def _kind_of(text: str) -> str:
    if text.startswith(("http://", "https://")):
        return "address"
    words = text.split()
    return "command" if len(words) > 1 or (words and shutil.which(words[0])) else "image"


def _address(text: str, model: Path | None) -> AddressTarget:
    if model is not None:
        raise FundoscopeError("an address has its model already", "leave --model out")
    parts = urlsplit(text)
    if parts.scheme != "http" or not parts.hostname or parts.path.strip("/"):
        raise FundoscopeError(f"{text} is not an address", "write it as http://127.0.0.1:8080")
    host = LOOPBACK if parts.hostname == "localhost" else parts.hostname
    try:
        loopback = ipaddress.ip_address(host).is_loopback
        port = parts.port or 80
    except ValueError:
        loopback, port = False, 0
    if not loopback:
        # The checks load and maltreat what they are pointed at: only what runs here, where its owner sits.
        raise FundoscopeError(f"{parts.hostname} is not this machine", "forward its port here: ssh -L 8080:…:8080")
    return AddressTarget(text, host, port)


def _command(text: str, model: Path | None) -> CommandTarget:
    try:
        words = shlex.split(text)
    except ValueError as problem:
        raise FundoscopeError(f"cannot read the command line: {problem}".lower(), "check its quotes") from None
    if not words or shutil.which(words[0]) is None:
        raise FundoscopeError(f"there is no program {words[0] if words else ''!r}", "put the command line in quotes")
    if "{model}" in text and model is None:
        raise FundoscopeError("the command line says {model}", "say which: --model artefacts/x")
    return CommandTarget(text, model)
