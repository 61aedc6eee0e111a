import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from fundoscope.cli.main import main
from fundoscope.data.manifest import Manifest
from fundoscope.data.records import Records


def answer(capsys: pytest.CaptureFixture[str], *words: object, status: int = 0) -> dict[str, object]:
    """What a command prints with --json."""
    capsys.readouterr()
    assert main(["data", *map(str, words), "--json"]) == status
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def complaint(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """What a command that fails prints: the error and the hint, on standard error alone."""
    capsys.readouterr()
    assert main(["data", *map(str, words)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 2
    assert "\nhint: " in err
    return err


def test_from_drawn_eyes_to_records_by_the_commands_that_each_names_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = "fundoscope data draw --n 60 --seed 1 --size 128 eyes/"
    seen = []
    while command.startswith("fundoscope data"):
        seen.append(command)
        assert main(command.split()[1:]) == 0
        lines = capsys.readouterr().out.splitlines()
        command = lines[-1].removeprefix("next: ")
    assert seen[1:] == [
        "fundoscope data import drawn eyes --out manifest.csv",
        "fundoscope data check manifest.csv",
        "fundoscope data prepare manifest.csv --size 160 --out records/",
    ]
    assert command == "fundoscope train records --recipe demo --out runs/first"
    records = Records.open(tmp_path / "records")
    assert len(records.rows) == 60
    assert records.drawn
    assert records.manifest_sha256 == Manifest.read(tmp_path / "manifest.csv").digest


def test_every_answer_is_json_on_request(
    drawn_manifest: Manifest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    eyes, manifest = drawn_manifest.folder / "eyes", tmp_path / "m.csv"
    imported = answer(capsys, "import", "drawn", eyes, "--out", manifest, "--seed", 3)
    assert imported["photographs"] == imported["used"] == 160
    assert imported["patients"] == 80
    assert imported["sha256"] == Manifest.read(manifest).digest
    assert imported["next"] == f"fundoscope data check {manifest}"
    checked = answer(capsys, "check", manifest)
    assert checked["left_out"] == {}
    assert checked["problems"] == []
    assert checked["sha256"] == Manifest.read(manifest).digest
    assert sum(size["n"] for size in checked["sizes"]) == 160  # type: ignore[attr-defined]
    prepared = answer(capsys, "prepare", manifest, "--size", 32, "--out", tmp_path / "r", "--processes", 1)
    assert prepared["digest"] == Records.open(tmp_path / "r").digest
    assert prepared["manifest_sha256"] == checked["sha256"]
    assert prepared["n"] == checked["n"] == imported["n"]


@pytest.fixture
def spoilt(drawn_manifest: Manifest, tmp_path: Path) -> Path:
    """A folder per grade of thirty drawn eyes, and what is wrong in real folders."""
    names = ["No_DR", "Mild", "Moderate", "Severe", "Proliferate_DR"]
    folder = tmp_path / "set"
    for photograph in drawn_manifest.photographs[:30]:
        (folder / names[photograph.grade or 0]).mkdir(parents=True, exist_ok=True)
        file = folder / names[photograph.grade or 0] / Path(photograph.path).name
        file.write_bytes(drawn_manifest.read_bytes(photograph))
    first = next((folder / "No_DR").glob("*.jpg"))
    out = io.BytesIO()
    Image.open(first).save(out, "JPEG", quality=60)
    (folder / "No_DR" / "again.jpg").write_bytes(out.getvalue())
    (folder / "Severe" / "empty.jpg").touch()
    (folder / "Severe" / "Thumbs.db").touch()
    return folder


def test_what_is_left_out_is_printed_counted_and_written(
    spoilt: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = tmp_path / "m.csv"
    assert main(["data", "import", "folders", str(spoilt), "--out", str(manifest)]) == 0
    assert "set/Severe/Thumbs.db  no picture by its name: .db" in capsys.readouterr().out
    assert main(["data", "check", str(manifest)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("33 photographs: 30 can be used, 3 are left out\n")
    assert "       1  near-duplicate of row N\n" in printed
    assert "set/Severe/empty.jpg  unreadable: the file is empty\n" in printed
    table = (tmp_path / "m.left-out.csv").read_text().splitlines()
    assert len(table) == 4
    assert Manifest.read(manifest).used == tuple(p for p in Manifest.read(manifest).photographs if not p.left_out)
    again = answer(capsys, "check", manifest, "--keep-duplicates")
    assert again["left_out"] == {"no picture by its name: .db": 1, "unreadable: the file is empty": 1}


def test_a_manifest_that_cannot_be_trained_on_fails_the_check(
    spoilt: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for grade in ("Moderate", "Severe", "Proliferate_DR"):
        for file in (spoilt / grade).iterdir():
            file.unlink()
    answer(capsys, "import", "folders", spoilt, "--out", tmp_path / "m.csv")
    checked = answer(capsys, "check", tmp_path / "m.csv", status=1)
    assert checked["problems"] == [
        f"no referable (grade 2 to 4) photograph can be used in {s}" for s in ("train", "tune", "test")
    ]
    assert "next" not in checked


def test_photographs_that_fail_in_preparation_are_named_at_the_terminal_only(
    spoilt: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(capsys, "import", "folders", spoilt, "--out", tmp_path / "m.csv")
    assert main(["data", "prepare", str(tmp_path / "m.csv"), "--size", "32", "--out", str(tmp_path / "r")]) == 0
    assert "set/Severe/empty.jpg  the file is empty\n" in capsys.readouterr().out
    assert "empty.jpg" not in (tmp_path / "r" / "left_out.csv").read_text()


def test_wrong_commands_are_answered_in_one_sentence_and_a_hint(
    spoilt: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, labels = tmp_path / "m.csv", tmp_path / "labels.csv"
    labels.write_text("name,stage\nx.jpg,1\n")
    answer(capsys, "import", "folders", spoilt, "--out", manifest)
    for words, error in [
        (("import", "aptos", spoilt, "--out", manifest), "there is no source called 'aptos'\nhint: use aptos2019"),
        (("import", "folders", tmp_path / "x", "--out", manifest), f"there is nothing at {tmp_path / 'x'}"),
        (("import", "folders", spoilt, "--out", labels), f"{labels} exists and is not a manifest"),
        (("import", "folders", spoilt, "--out", tmp_path), f"{tmp_path} is a folder"),
        (("import", "csv", labels, "--out", manifest), "labels.csv has no column 'path'"),
        (("import", "folders", spoilt, "--grade-column", "g", "--out", manifest), "folders has its own column names"),
        (("check", labels), "labels.csv has no column 'path'"),
        (("check", tmp_path / "x.csv"), f"there is no file {tmp_path / 'x.csv'}"),
        (("check", spoilt), f"{spoilt} is a folder, not a manifest"),
        (("prepare", manifest, "--size", 5, "--out", tmp_path / "r"), "size is 5, not between 16 and 2048"),
        (("prepare", manifest, "--out", labels), f"{labels} is a file"),
        (("prepare", manifest, "--out", spoilt), f"{spoilt} is not empty, and not made by data prepare"),
        (("draw", "--n", 3, "--size", 3, tmp_path / "d"), "cannot draw a photograph of 3 pixels"),
    ]:
        assert error in complaint(capsys, *words)
    assert labels.read_text() == "name,stage\nx.jpg,1\n"


@pytest.mark.parametrize(
    "words",
    [
        ["data"],
        ["data", "import", "tar"],
        ["data", "check"],
        ["data", "prepare", "m.csv"],
        ["data", "prepare", "m.csv", "--out", "r", "--as-published", "vosts"],
        ["data", "prepare", "m.csv", "--out", "r", "--processes", "0"],
        ["data", "draw", "--n", "many", "out"],
    ],
)
def test_wrong_usage_is_status_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert "usage: fundoscope data" in capsys.readouterr().err


def test_a_full_disk_ends_the_preparation_with_a_sentence(drawn_manifest: Manifest, tmp_path: Path) -> None:
    command = "import sys; from fundoscope.cli.main import main; sys.exit(main())"
    arguments = [str(drawn_manifest.folder / "manifest.csv"), "--out", "r", "--size", "64", "--processes", "1"]
    limited = [
        "bash",
        "-c",
        'ulimit -f 20; exec "$0" "$@"',
        sys.executable,
        "-c",
        command,
        "data",
        "prepare",
        *arguments,
    ]
    process = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert process.stderr.startswith("error: r cannot be written to: File too large\nhint: ")


def test_as_published_asks_for_its_own_size(
    drawn_manifest: Manifest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = Manifest(drawn_manifest.photographs[:3], drawn_manifest.folder)
    few.write(tmp_path / "m.csv")
    answer(capsys, "prepare", tmp_path / "m.csv", "--as-published", "gaussian", "--out", tmp_path / "g")
    assert Records.open(tmp_path / "g").preparation.size == 224
    assert main(
        ["data", "prepare", str(tmp_path / "m.csv"), "--as-published", "voets", "--out", str(tmp_path / "v")]
    ) in (0, 1)
    assert Records.open(tmp_path / "v").preparation.size == 299
