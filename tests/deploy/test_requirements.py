"""requirements/: what can be said of the files themselves."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
LOCKS = sorted([*REPOSITORY.glob("requirements/*.txt"), *REPOSITORY.glob("containers/*.txt")])
PIN = re.compile(r"[a-z0-9][a-z0-9._-]*(\[[a-z,]+\])?==[0-9][a-z0-9.]*( ; [^\\]+)? \\")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_package_has_one_version_and_its_hashes_and_no_index_is_named(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert [line for line in lines if not PIN.fullmatch(line) and not HASH.fullmatch(line)] == []
    pins = [number for number, line in enumerate(lines) if PIN.fullmatch(line)]
    assert all(HASH.fullmatch(lines[number + 1]) for number in pins)
    names = [lines[number].partition("==")[0] for number in pins]
    assert len(names) == len(set(names))


def test_nothing_is_installed_without_its_hash_but_this_package_itself() -> None:
    recipes = re.findall(r"^\t\$\(call (\w+),[^)]*\) (.*)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert sorted(what for how, what in recipes if how == "PINNED") == sorted(
        f"-r requirements/{name}.txt" for name in ("backends", "dev", "mutants", "run", "scan", "studies")
    )
    assert {what for how, what in recipes if how == "INSTALL"} == {"--no-deps --no-build-isolation -e ."}
    assert "PINNED = $(INSTALL) --require-hashes --only-binary=:all:\n" in (REPOSITORY / "Makefile").read_text()


def test_both_processors_get_a_tensorflow() -> None:
    """tensorflow-cpu has no wheel for arm64."""
    pins = (REPOSITORY / "requirements" / "run.txt").read_text()
    assert re.search(r"^tensorflow==\S+ ; platform_machine != 'x86_64' \\$", pins, re.MULTILINE)
    assert re.search(r"^tensorflow-cpu==\S+ ; platform_machine == 'x86_64' \\$", pins, re.MULTILINE)


def test_pytorchs_cpu_build_is_one_of_the_torch_that_is_pinned() -> None:
    (path,) = REPOSITORY.glob("requirements/torch-*-cpu.hashes")
    version = path.name.removeprefix("torch-").removesuffix("-cpu.hashes")
    pins = (REPOSITORY / "requirements" / "backends.txt").read_text()
    torch = re.search(rf"^torch=={re.escape(version)} \\\n((    --hash=\S+( \\)?\n)+)", pins, re.MULTILINE)
    assert torch is not None
    ours = re.findall("sha256:([0-9a-f]{64})", path.read_text())
    assert len(ours) == len(set(ours)) == 8  # Python 3.11 to 3.14, x86-64 and arm64
    assert set(ours) < set(re.findall("sha256:([0-9a-f]{64})", torch[1]))
