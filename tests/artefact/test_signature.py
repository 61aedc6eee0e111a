"""Signed artefacts: what a trusted key lets through, and all that it does not."""

import base64
import json
import shutil
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from hand_made import forge, make_artefact
from untrained_run import change_json

from fundoscope.artefact.artefact import Artefact, pack, usable
from fundoscope.artefact.signature import check_signed, make_key, sign
from fundoscope.errors import FundoscopeError


@pytest.fixture
def key(tmp_path: Path) -> Path:
    make_key(tmp_path / "release.key")
    return tmp_path / "release.key"


@pytest.fixture
def trusted(key: Path) -> tuple[Path, ...]:
    return (key.with_name("release.key.pub"),)


@pytest.fixture
def artefact(tmp_path: Path) -> Artefact:
    return make_artefact(tmp_path / "x")


def refusal(folder: Path, trusted: tuple[Path, ...], *, unsafe: bool = False) -> FundoscopeError:
    """Opened as a server opens it: the contents of the model's files are trusted until somebody reads them."""
    with pytest.raises(FundoscopeError) as caught:
        usable(Artefact.open(folder, verify=False), unsafe=unsafe, trusted_keys=trusted)
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


def raw_signature(key: Path, message: bytes) -> str:
    private = load_pem_private_key(key.read_bytes(), password=None)
    assert isinstance(private, Ed25519PrivateKey)
    return base64.b64encode(private.sign(message)).decode()


def test_a_private_key_is_its_owners_alone_and_both_are_pem(key: Path, trusted: tuple[Path, ...]) -> None:
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert key.read_text().startswith("-----BEGIN PRIVATE KEY-----\n")
    assert trusted[0].read_text().startswith("-----BEGIN PUBLIC KEY-----\n")
    before = key.read_bytes()
    with pytest.raises(FundoscopeError, match=r"release\.key is already there"):
        make_key(key)
    assert key.read_bytes() == before


def test_what_a_trusted_key_signed_is_used(artefact: Artefact, key: Path, trusted: tuple[Path, ...]) -> None:
    identity = sign(artefact, key)
    assert len(identity) == 16
    opened = Artefact.open(artefact.folder, verify=False)
    assert usable(opened, unsafe=False, trusted_keys=trusted) == artefact
    assert check_signed(artefact.folder, artefact.digest, trusted) == identity
    about = json.loads((artefact.folder / "signature.json").read_text())
    assert (about["key"], about["digest"], about["algorithm"]) == (identity, artefact.digest, "ed25519")
    # The message, in so many words: others can check it with any library.
    message = b"fundoscope artefact signature 1\n" + artefact.digest.encode()
    assert about["signature"] == raw_signature(key, message)


def test_one_of_several_trusted_keys_is_enough(artefact: Artefact, key: Path, trusted: tuple[Path, ...]) -> None:
    make_key(key.with_name("older.key"))
    sign(artefact, key)
    assert usable(artefact, unsafe=False, trusted_keys=(key.with_name("older.key.pub"), *trusted)) is artefact


def test_without_a_trusted_key_a_signature_is_not_asked_for(artefact: Artefact) -> None:
    assert usable(artefact, unsafe=False) is artefact


def test_an_unsigned_artefact_is_refused(artefact: Artefact, trusted: tuple[Path, ...]) -> None:
    for unsafe in (False, True):  # --unsafe is about accuracy, not about whose it is
        error = refusal(artefact.folder, trusted, unsafe=unsafe)
        assert error.message == f"{artefact.folder} is not signed, and a trusted key was asked for"
        assert "fundoscope sign" in error.hint


def test_another_key_is_refused_by_name(artefact: Artefact, key: Path, trusted: tuple[Path, ...]) -> None:
    ours = sign(artefact, key)
    make_key(key.with_name("theirs.key"))
    theirs = sign(artefact, key.with_name("theirs.key"))
    message = f"{artefact.folder} is signed by the key {theirs}, which is not trusted ({ours} is)"
    assert refusal(artefact.folder, trusted).message == message
    change_json(artefact.folder / "signature.json", key=ours)  # and it says that it is ours
    assert refusal(artefact.folder, trusted).message.endswith(f"does not hold: it was not made by the key {ours}")


def test_a_model_swapped_under_its_signature_is_refused(
    artefact: Artefact, key: Path, trusted: tuple[Path, ...]
) -> None:
    """A signature of a digest proves nothing of bytes that nobody hashed."""
    sign(artefact, key)
    (artefact.folder / "model.onnx").write_bytes(b"WEIGHTS")  # as long
    assert "model.onnx is not the file that was exported: its sha256 is" in refusal(artefact.folder, trusted).message


def test_a_changed_artefact_with_a_digest_that_fits_is_refused(
    artefact: Artefact, key: Path, trusted: tuple[Path, ...]
) -> None:
    """Anybody can compute a digest; only the key's holder can sign it."""
    sign(artefact, key)
    digest = forge(artefact.folder, referral_from=4)
    error = refusal(artefact.folder, trusted)
    assert error.message == (
        f"{artefact.folder}/signature.json is of another artefact, {artefact.digest[:12]}…, not {digest[:12]}…"
    )
    change_json(artefact.folder / "signature.json", digest=digest)
    assert "signature.json does not hold" in refusal(artefact.folder, trusted).message


def test_a_guard_cannot_be_forged_into_a_signed_artefact(tmp_path: Path, key: Path, trusted: tuple[Path, ...]) -> None:
    refused = make_artefact(tmp_path / "int8", precision="int8", guard={"passed": False, "why": "it misses more"})
    sign(refused, key)
    assert refusal(refused.folder, trusted).message.endswith("was refused: it misses more")  # signed or not
    forge(refused.folder, guard={"passed": True, "why": "not inferior"})
    assert "is of another artefact" in refusal(refused.folder, trusted).message


def test_the_signature_of_another_artefact_is_refused(
    artefact: Artefact, key: Path, trusted: tuple[Path, ...], tmp_path: Path
) -> None:
    other = make_artefact(tmp_path / "y", b"other weights")
    sign(other, key)
    shutil.copy(other.folder / "signature.json", artefact.folder)
    assert "signature.json is of another artefact" in refusal(artefact.folder, trusted).message


def test_what_else_a_key_has_signed_is_no_signature_of_an_artefact(
    artefact: Artefact, key: Path, trusted: tuple[Path, ...]
) -> None:
    sign(artefact, key)
    for message in (artefact.digest.encode(), bytes.fromhex(artefact.digest)):
        change_json(artefact.folder / "signature.json", signature=raw_signature(key, message))
        assert "signature.json does not hold" in refusal(artefact.folder, trusted).message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "signature.json is damaged"),
        ("[]", "signature.json is damaged"),
        ('{"version": 1, "algorithm": "ed25519", "key": "x", "digest": "y", "signature": "*"}', "is damaged"),
        ('{"version": 2, "algorithm": "x", "key": "", "digest": "", "signature": ""}', "of version 2 by x"),
    ],
)
def test_a_damaged_signature_is_refused(
    content: str, message: str, artefact: Artefact, trusted: tuple[Path, ...]
) -> None:
    (artefact.folder / "signature.json").write_text(content)
    assert message in refusal(artefact.folder, trusted).message


def test_the_signature_travels_in_the_archive(
    artefact: Artefact, key: Path, trusted: tuple[Path, ...], tmp_path: Path
) -> None:
    """As SageMaker unpacks it."""
    unsigned = pack(artefact).read_bytes()
    sign(artefact, key)
    signed = (artefact.folder / "model.tar.gz").read_bytes()
    assert signed != unsigned
    assert pack(artefact).read_bytes() == signed
    there = tmp_path / "there"
    there.mkdir()
    with tarfile.open(artefact.folder / "model.tar.gz") as tar:
        assert tar.getnames() == ["artefact.json", "model.onnx", "signature.json"]
        for member in tar.getmembers():
            content = tar.extractfile(member)
            assert content is not None
            (there / member.name).write_bytes(content.read())
    unpacked = Artefact.open(there, verify=False)
    assert usable(unpacked, unsafe=False, trusted_keys=trusted).digest == artefact.digest


def test_what_is_no_key_is_said_in_a_sentence(artefact: Artefact, key: Path, trusted: tuple[Path, ...]) -> None:
    sign(artefact, key)
    nothing = key.with_name("nothing.pub")
    error = refusal(artefact.folder, (nothing,))
    assert error.message == f"the key {nothing} cannot be read: no such file or directory"
    assert refusal(artefact.folder, (key,)).message == f"{key} is not a public Ed25519 key in PEM"
    with pytest.raises(FundoscopeError, match="is not a private Ed25519 key in PEM"):
        sign(artefact, trusted[0])


def test_the_package_is_needed_only_where_a_key_is_used(artefact: Artefact, trusted: tuple[Path, ...]) -> None:
    code = (
        "import sys; sys.modules['cryptography'] = None\n"  # as where it is not installed
        "from pathlib import Path; from fundoscope.artefact.artefact import Artefact, usable\n"
        "from fundoscope.errors import FundoscopeError\n"
        "artefact = Artefact.open(Path(sys.argv[1])); usable(artefact, unsafe=False)\n"
        "try: usable(artefact, unsafe=False, trusted_keys=[Path(sys.argv[2])])\n"
        "except FundoscopeError as problem: print(problem.message, '|', problem.hint)"
    )
    command = [sys.executable, "-c", code, str(artefact.folder), str(trusted[0])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "keys and signatures need cryptography | pip install 'fundoscope[signed]'\n"
