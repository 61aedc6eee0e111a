"""Signatures: whose word it is that an artefact may be served. Optional, and offline.

    signature.json   {"version": 1, "algorithm": "ed25519", "key": …, "digest": …, "signature": …}

The signature is over the artefact's digest. The digest is over artefact.json and, by its list of sha256, over every
byte of the model: `usable` hashes those before it believes anything. What the export observed about itself (`parity`,
`export`) is left out of the digest, and so of the signature.

Plain Ed25519 keys, in PEM as openssl and every library read them; docs/explanation.md says why not sigstore. Import
this module only where a key is used: a server without one does not need the package `cryptography`.
"""

import base64
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fundoscope.artefact.files import SIGNATURE
from fundoscope.errors import FundoscopeError
from fundoscope.provenance import sha256_of, sync_folder, write_json

try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
        load_pem_private_key,
        load_pem_public_key,
    )
except ModuleNotFoundError:
    raise FundoscopeError("keys and signatures need cryptography", "pip install 'fundoscope[signed]'") from None

if TYPE_CHECKING:
    from fundoscope.artefact.artefact import Artefact

VERSION, ALGORITHM = 1, "ed25519"
# What else a key signs can then never be taken for the signature of an artefact.
PREFIX = b"fundoscope artefact signature 1\n"


def make_key(path: Path) -> str:
    """Write a new private key to `path`, for its owner alone, and the public one beside it as .pub; the key's id."""
    public_path = public_half(path)
    for there in (path, public_path):
        if there.exists():
            raise FundoscopeError(f"{there} is already there", "choose another name: a key that is lost is lost")
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    try:
        _write_new(path, private, mode=0o600)
        _write_new(public_path, public, mode=0o644)
        sync_folder(path.parent)
    except OSError as problem:
        raise FundoscopeError(f"{path} cannot be written: {problem.strerror}", "choose another place") from None
    return key_id(key.public_key())


def public_half(path: Path) -> Path:
    return path.with_name(f"{path.name}.pub")


def sign(artefact: "Artefact", key_file: Path) -> str:
    """Write signature.json into the artefact's folder and into its archive; the id of the key."""
    from fundoscope.artefact.artefact import pack  # not for those who only check: it takes NumPy

    key, digest = _private(key_file), artefact.digest
    identity = key_id(key.public_key())
    signature = base64.b64encode(key.sign(PREFIX + digest.encode())).decode()
    about = {"version": VERSION, "algorithm": ALGORITHM, "key": identity, "digest": digest, "signature": signature}
    write_json(artefact.folder / SIGNATURE, about)
    pack(artefact)
    return identity


def check_signed(folder: Path, digest: str, key_files: Sequence[Path]) -> str:
    """The id of the trusted key that signed this digest; FundoscopeError where none of them did."""
    trusted = {key_id(key): key for key in map(_public, key_files)}
    about = _read(folder)
    if about["digest"] != digest:
        message = f"{folder}/{SIGNATURE} is of another artefact, {about['digest'][:12]}…, not {digest[:12]}…"
        raise FundoscopeError(message, _SIGN)
    if about["key"] not in trusted:
        keys = ", ".join(trusted)
        raise FundoscopeError(f"{folder} is signed by the key {about['key']}, which is not trusted ({keys} is)", _SIGN)
    try:
        trusted[about["key"]].verify(about["signature"], PREFIX + digest.encode())
    except InvalidSignature:
        message = f"{folder}/{SIGNATURE} does not hold: it was not made by the key {about['key']}"
        raise FundoscopeError(message, _SIGN) from None
    return str(about["key"])


_SIGN = "take it from where it is whole, or have it signed: fundoscope sign ARTEFACT --key FILE"


def key_id(key: Ed25519PublicKey) -> str:
    """What people call a key: the first sixteen digits of its sha256."""
    return sha256_of(key.public_bytes_raw())[:16]


def _read(folder: Path) -> dict[str, Any]:
    path = folder / SIGNATURE
    if not path.is_file():
        raise FundoscopeError(f"{folder} is not signed, and a trusted key was asked for", _SIGN)
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        version, algorithm = about["version"], about["algorithm"]
        fields = {name: str(about[name]) for name in ("key", "digest")}
        signature = base64.b64decode(about["signature"], validate=True)
    except (ValueError, KeyError, TypeError):
        raise FundoscopeError(f"{path} is damaged: it is not the JSON of a signature", _SIGN) from None
    if (version, algorithm) != (VERSION, ALGORITHM):
        message = f"{path} is a signature of version {version} by {algorithm}, and this Fundoscope reads {ALGORITHM}"
        raise FundoscopeError(message, "install the Fundoscope that made it, or sign it again")
    return {**fields, "signature": signature}


def _private(path: Path) -> Ed25519PrivateKey:
    data, key = _bytes(path), None
    with suppress(ValueError, TypeError, UnsupportedAlgorithm):  # another kind of file; TypeError: a password is needed
        key = load_pem_private_key(data, password=None)
    if not isinstance(key, Ed25519PrivateKey):
        hint = "make one: fundoscope sign --new-key FILE"
        raise FundoscopeError(f"{path} is not a private Ed25519 key in PEM without a password", hint)
    return key


def _public(path: Path) -> Ed25519PublicKey:
    data, key = _bytes(path), None
    with suppress(ValueError, UnsupportedAlgorithm):
        key = load_pem_public_key(data)
    if not isinstance(key, Ed25519PublicKey):
        hint = "give the .pub file that fundoscope sign --new-key wrote"
        raise FundoscopeError(f"{path} is not a public Ed25519 key in PEM", hint)
    return key


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        strerror = (problem.strerror or "it cannot be read").lower()
        raise FundoscopeError(f"the key {path} cannot be read: {strerror}", "check the path") from None


def _write_new(path: Path, data: bytes, *, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)
