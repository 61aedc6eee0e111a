"""containers/elf.py and assemble.py: what is done to files of the lean image, on real programs and libraries."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy
import pytest
import simplejpeg

CONTAINERS = Path(__file__).resolve().parents[2] / "containers"


@pytest.fixture(scope="module")
def elf() -> ModuleType:
    return _load("elf")


@pytest.fixture(scope="module")
def assemble(elf: ModuleType) -> ModuleType:
    sys.modules["elf"] = elf  # beside it in the build stage
    try:
        return _load("assemble")
    finally:
        del sys.modules["elf"]


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, CONTAINERS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_library_without_its_symbols_still_decodes_photographs(elf: ModuleType, tmp_path: Path) -> None:
    library = next(Path(simplejpeg.__file__).parent.glob("_jpeg.*.so"))
    package = tmp_path / "simplejpeg"
    package.mkdir()
    (package / "__init__.py").write_text(Path(simplejpeg.__file__).read_text())
    stripped, rest = elf.loaded_part(library.read_bytes())
    (package / library.name).write_bytes(stripped)
    assert len(rest) >= library.stat().st_size - len(stripped) > 0
    program = (
        "import numpy, simplejpeg; grey = numpy.full((16, 16, 3), 128, numpy.uint8);"
        "back = simplejpeg.decode_jpeg(simplejpeg.encode_jpeg(grey, quality=95));"
        "print(simplejpeg.__file__, abs(back.astype(int) - 128).max())"
    )
    paths = f"{tmp_path}:{Path(numpy.__file__).parents[1]}"
    ran = subprocess.run(
        [sys.executable, "-S", "-c", program], env={"PYTHONPATH": paths}, capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == [str(package / "__init__.py"), "0"]
    # In the header of a 64-bit file, the two bytes from 60 on say how many sections there are.
    assert int.from_bytes(stripped[60:62], "little") == 0
    assert int.from_bytes(library.read_bytes()[60:62], "little") > 0


def test_what_is_not_a_64_bit_program_is_left_alone(elf: ModuleType, tmp_path: Path) -> None:
    other = b"\x7fELF\x01\x01" + bytes(100)
    assert elf.loaded_part(other) == (other, b"")
    (tmp_path / "text").write_text("ELF")
    assert not elf.is_elf(tmp_path / "text")


def test_python_is_linked_to_the_c_library_and_its_loader(elf: ModuleType) -> None:
    names = {path.name for path in elf.linked(Path(sys.executable).resolve())}
    assert "libc.so.6" in names
    assert any(name.startswith("ld-linux") for name in names)


def test_lib_and_usr_lib_are_one_place(elf: ModuleType) -> None:
    assert elf.usr_path(Path("/lib64/ld-linux-x86-64.so.2")) == Path("/usr/lib64/ld-linux-x86-64.so.2")
    assert elf.usr_path(Path("/usr/local/bin/python3")) == Path("/usr/local/bin/python3")


def test_what_is_taken_away_is_counted_once(assemble: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "a.py").write_bytes(b"x" * 5000)
    (tmp_path / "kept.py").write_bytes(b"y")
    paths = [tmp_path / "tests", tmp_path / "tests" / "a.py"]
    taken = assemble.take_away("tests", "not needed", paths)
    assert (taken["what"], taken["why"], taken["bytes"]) == ("tests", "not needed", 5000)
    assert 0 < taken["compressed_bytes"] < 500
    assert [path.name for path in tmp_path.iterdir()] == ["kept.py"]


def test_everybody_may_read_and_nobody_write(assemble: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "secret").write_text("")
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "program").write_text("")
    (tmp_path / "program").chmod(0o700)
    assemble.settle(tmp_path)
    modes = {path.name: oct(path.stat().st_mode & 0o7777) for path in tmp_path.iterdir()}
    assert modes == {"tmp": "0o1777", "secret": "0o644", "program": "0o755"}
    assert {path.stat().st_mtime for path in tmp_path.iterdir()} == {315532800}
