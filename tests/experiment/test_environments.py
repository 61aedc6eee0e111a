"""Real environments and a real pip; what it installs is tiny, from a folder of wheels made here."""

import dataclasses
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import fundoscope
from fundoscope.errors import FundoscopeError
from fundoscope.experiment.environments import (
    RECORD,
    _name,
    adopt,
    create,
    default_folder,
    find,
    listed,
    remove,
    requirements,
    size_bytes,
)
from fundoscope.provenance import sha256_file, sha256_of

PACKAGE = Path(fundoscope.__file__).resolve().parent


def write_wheel(folder: Path, name: str, version: str, files: dict[str, str], *, needs: str = "") -> None:
    about = f"{name}-{version}.dist-info"
    requires = f"Requires-Dist: {needs}\n" if needs else ""
    files = files | {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
        wheel.writestr(f"{about}/RECORD", "".join(f"{path},,\n" for path in [*files, f"{about}/RECORD"]))


def write_index(wheels: Path) -> Path:
    """All that MXNet's environment lists, as pip will find it: an MXNet that only has a version, and our own NumPy."""
    wheels.mkdir(parents=True)
    ours = Path(np.__file__).parents[1]
    contents = {"mxnet": {"mxnet/__init__.py": "__version__ = '1.9.1'"}, "numpy": {"numpy_is_here.pth": f"{ours}\n"}}
    for name, version in re.findall(r"^([\w-]+)==([\w.]+)", requirements("mxnet", "cpu"), re.MULTILINE):
        name = name.replace("-", "_")
        write_wheel(wheels, name, version, contents.get(name, {f"{name}_is_here.py": ""}))
    return wheels


def write_pins(folder: Path, wheels: Path, name: str = "mxnet-cpu") -> None:
    """Beside the environments, in the place of those that are shipped: the same versions, and these wheels' hashes."""
    (folder / "requirements").mkdir(parents=True, exist_ok=True)
    lines = [
        f"{'=='.join(wheel.name.split('-')[:2])} \\\n    --hash=sha256:{sha256_file(wheel)}\n"
        for wheel in sorted(wheels.iterdir())
    ]
    (folder / "requirements" / f"{name}.txt").write_text("".join(lines))


def only_from(wheels: Path) -> dict[str, str]:
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}


@pytest.fixture
def index(tmp_path, monkeypatch, folder):
    wheels = write_index(tmp_path / "wheels")
    write_pins(folder, wheels)
    for name, value in only_from(wheels).items():
        monkeypatch.setenv(name, value)
    return wheels


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "environments"


@dataclasses.dataclass(frozen=True)
class Setups:
    """Two processes that set up the same environment at once."""

    folder: Path
    statuses: list[int]
    said: list[list[str]]


@pytest.fixture(scope="module")
def setups(tmp_path_factory):
    """One environment for all tests that look at one: to make it takes seconds."""
    base = tmp_path_factory.mktemp("setups")
    folder = base / "environments"
    code = f"""
from pathlib import Path
from fundoscope.experiment.environments import create
print(create("mxnet", "cpu", Path({str(folder)!r}), say=print).made)
"""
    wheels = write_index(base / "wheels")
    write_pins(folder, wheels)
    variables = os.environ | only_from(wheels)
    command = [sys.executable, "-c", code]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) for _ in range(2)]
    said = [process.communicate()[0].splitlines() for process in both]
    return Setups(folder, [process.returncode for process in both], said)


def test_of_two_setups_at_once_one_makes_it_and_the_other_waits(setups):
    assert setups.statuses == [0, 0]
    assert setups.said[0][-1] == setups.said[1][-1]  # made at the same second: once
    assert sum(line.startswith("making") for lines in setups.said for line in lines) == 1


def test_an_environment_is_made_once_found_and_listed(setups):
    (made,) = listed(setups.folder)
    assert [line for lines in setups.said for line in lines if line.startswith("making")] == [f"making {made.name}"]
    assert made.name.startswith("mxnet-cpu-")
    assert made.versions == {"python": sys.version.split()[0], "numpy": np.__version__, "mxnet": "1.9.1"}
    assert list(made.folder.glob("lib/*/site-packages/mxnet/__pycache__/*.pyc")), "no byte code was written"
    said: list[str] = []
    assert create("mxnet", "cpu", setups.folder, say=said.append) == made
    assert said == []
    assert find("mxnet", "cpu", setups.folder) == made
    assert size_bytes(made) > 1e6


def test_a_worker_sees_our_package_through_the_link(setups):
    (made,) = listed(setups.folder)
    code = "import fundoscope.experiment.cnn as cnn; print(cnn.__file__)"
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(made.code)}
    done = subprocess.run([made.python, "-c", code], env=variables, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == made.code / "fundoscope" / "experiment" / "cnn.py"
    assert (made.code / "fundoscope").resolve() == PACKAGE


@pytest.mark.usefixtures("index")
def test_an_unfinished_environment_is_made_anew_and_removed(setups, folder):
    (whole,) = listed(setups.folder)
    (folder / whole.name).mkdir(parents=True)  # as an interrupted setup leaves it: without its record
    (folder / whole.name / "left over").touch()
    assert find("mxnet", "cpu", folder) is None
    assert listed(folder) == []
    said: list[str] = []
    made = create("mxnet", "cpu", folder, say=said.append)
    assert said == [f"making {made.name}"]
    assert made.name == whole.name
    assert not (made.folder / "left over").exists()
    record = (made.folder / RECORD).rename(folder / "record")
    assert find("mxnet", "cpu", folder) is None
    record.rename(made.folder / RECORD)
    assert listed(folder) == [made]
    remove(made.name, folder)
    assert listed(folder) == []
    assert not made.folder.exists()


def test_what_pip_cannot_install_is_said_and_nothing_is_left(index, folder):
    for wheel in index.glob("mxnet-*"):
        wheel.unlink()
    with pytest.raises(FundoscopeError) as caught:
        create("mxnet", "cpu", folder)
    why = "mxnet for cpu could not be installed: No matching distribution found for mxnet==1.9.1"
    assert caught.value.message.startswith(why)
    assert "No matching distribution" in next(folder.glob(".*.log")).read_text()
    assert listed(folder) == []
    assert [path.name for path in folder.iterdir() if path.is_dir()] == ["requirements"]


def test_a_package_of_other_bytes_is_not_installed(index, folder):
    write_wheel(index, "mxnet", "1.9.1", {"mxnet/__init__.py": "__version__ = '1.9.1'  # and more"})
    with pytest.raises(
        FundoscopeError, match="mxnet for cpu could not be installed: THESE PACKAGES DO NOT MATCH THE H"
    ):
        create("mxnet", "cpu", folder)
    assert [path.name for path in folder.iterdir() if path.is_dir()] == ["requirements"]


def test_where_pytorchs_cpu_build_is_not_found_the_registrys_is_installed_with_what_it_needs(
    tmp_path, monkeypatch, folder
):
    """Its CPU pins do not list CUDA's libraries, and without their hashes pip installs nothing."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    ours = Path(np.__file__).parents[1]
    write_wheel(wheels, "numpy", "2.4.6", {"numpy_is_here.pth": f"{ours}\n"})
    torch = {"torch/__init__.py": "import cuda_is_here\n__version__ = '2.13.0'"}
    write_wheel(wheels, "torch", "2.13.0", torch, needs="nvidia-cublas")
    write_pins(folder, wheels, "pytorch-cpu")
    write_wheel(wheels, "nvidia_cublas", "13.1.1.3", {"cuda_is_here.py": ""})
    write_pins(folder, wheels, "pytorch-gpu")
    for name, value in only_from(wheels).items():
        monkeypatch.setenv(name, value)
    made = create("pytorch", "cpu", folder)
    assert (made.device, made.versions["pytorch"]) == ("cpu", "2.13.0")
    assert find("pytorch", "cpu", folder) == made
    assert find("pytorch", "gpu", folder) is None


def test_a_framework_that_does_not_start_is_said_and_nothing_is_left(index, folder):
    write_wheel(index, "mxnet", "1.9.1", {"mxnet/__init__.py": "raise OSError('libcuda.so.1 is not here')"})
    write_pins(folder, index)
    with pytest.raises(FundoscopeError, match=r"installed and does not start: OSError: libcuda\.so\.1 is not here"):
        create("mxnet", "cpu", folder)
    assert [path.name for path in folder.iterdir() if path.is_dir()] == ["requirements"]


def test_an_interpreter_that_has_the_framework_is_adopted(folder):
    adopted = adopt("tensorflow", "cpu", Path(sys.executable), folder)
    assert adopted.name == "tensorflow-cpu-adopted"
    assert adopted.python == Path(sys.executable)
    assert set(adopted.versions) == {"python", "numpy", "tensorflow"}
    assert find("tensorflow", "cpu", folder) == adopted
    assert find("tensorflow", "gpu", folder) is None
    assert size_bytes(adopted) < 1e6
    remove(adopted.name, folder)
    assert find("tensorflow", "cpu", folder) is None
    assert Path(sys.executable).exists()


def test_an_interpreter_without_the_framework_is_not_adopted(folder):
    with pytest.raises(FundoscopeError, match=r"mxnet was installed and does not start: ModuleNotFoundError"):
        adopt("mxnet", "cpu", Path(sys.executable), folder)
    assert listed(folder) == []


@pytest.mark.parametrize("path", ["no/such/python", "."])
def test_a_path_that_is_no_interpreter_is_not_adopted(folder, path):
    with pytest.raises(FundoscopeError, match="there is no Python at"):
        adopt("jax", "gpu", Path(path), folder)


def write_record(folder: Path, name: str, record: str) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / RECORD).write_text(record)


def test_an_environment_whose_interpreter_has_gone_or_whose_record_is_damaged_is_not_there(folder):
    write_record(
        folder,
        "jax-cpu-adopted",
        '{"framework": "jax", "device": "cpu", "python": "/no/python", "made": "", "versions": {}}',
    )
    for i, damaged in enumerate(("", "[]", "{}", '{"python": 1}')):
        write_record(folder, f"jax-cpu-{i}", damaged)
    assert listed(folder) == []
    assert find("jax", "cpu", folder) is None


def test_a_link_to_another_checkout_is_made_anew(folder, tmp_path):
    write_record(
        folder,
        "jax-cpu-12345678",
        f'{{"framework": "jax", "device": "cpu", "python": "{sys.executable}", "made": "", "versions": {{}}}}',
    )
    link = folder / "jax-cpu-12345678" / "code" / "fundoscope"
    link.parent.mkdir()
    link.symlink_to(tmp_path)
    (found,) = listed(folder)
    assert (found.code / "fundoscope").resolve() == PACKAGE
    assert [path.name for path in found.code.iterdir()] == ["fundoscope"]


@pytest.mark.parametrize("name", ["../elsewhere", "jax-cpu-1234567"])
def test_only_an_environment_of_the_folder_is_removed(folder, tmp_path, name):
    (tmp_path / "elsewhere").mkdir()
    write_record(folder, "jax-cpu-12345678", "{}")
    with pytest.raises(FundoscopeError, match="there is no environment called"):
        remove(name, folder)
    assert (tmp_path / "elsewhere").exists()
    remove("jax-cpu-12345678", folder)  # unfinished, and removable
    assert [path for path in folder.iterdir() if path.is_dir()] == []


def test_nothing_to_remove_is_said(folder):
    with pytest.raises(FundoscopeError, match="there are no environments in"):
        remove("jax-cpu-12345678", folder)


@pytest.mark.parametrize("framework", ["mxnet", "pytorch", "tensorflow", "jax"])
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_every_requirement_is_pinned_with_its_hashes_and_names_no_index(framework, device):
    lines = [line for line in requirements(framework, device).splitlines() if not line.startswith("#")]
    pins = [number for number, line in enumerate(lines) if re.fullmatch(r"[a-z0-9-]+==[0-9][a-z0-9.]* \\", line)]
    hashes = [
        number for number, line in enumerate(lines) if re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line)
    ]
    assert sorted(pins + hashes) == list(range(len(lines)))
    assert {number + 1 for number in pins} <= set(hashes)
    assert sum(lines[number].startswith("numpy==") for number in pins) == 1


def test_an_environments_name_is_of_its_versions_and_the_pins_are_removed_by_nobody(folder):
    """As before there were hashes: what was made then is found."""
    (folder / "requirements").mkdir(parents=True)
    for line in ("jax==0.10.2", "# why\njax==0.10.2 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11"):
        (folder / "requirements" / "jax-cpu.txt").write_text(f"{line}\n")
        assert _name("jax", "cpu", folder) == f"jax-cpu-{sha256_of(b'jax==0.10.2')[:8]}"
    with pytest.raises(FundoscopeError, match="there are no environments in"):
        remove("requirements", folder)


def test_a_framework_we_do_not_have_is_refused_by_its_nearest_name(folder):
    with pytest.raises(FundoscopeError, match="there is no framework called 'torch'") as caught:
        create("torch", "cpu", folder)
    assert caught.value.hint == "use pytorch"


def test_the_default_folder_is_in_the_users_cache(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_folder() == Path("/somewhere/fundoscope/environments")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_folder() == Path.home() / ".cache" / "fundoscope" / "environments"
