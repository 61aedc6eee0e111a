import hashlib
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fundoscope.data.check import Checked, check, left_out_table
from fundoscope.data.intake import import_photographs
from fundoscope.data.likeness import ALIKE, Fingerprints, fingerprint
from fundoscope.data.manifest import Manifest, Photograph
from fundoscope.data.photo import Preparation, prepare


@pytest.fixture
def eyes(drawn_manifest: Manifest, tmp_path: Path) -> Manifest:
    """Forty drawn eyes of twenty patients in a folder to spoil, their patients unknown; splits as imported."""
    listed = []
    for photograph in drawn_manifest.photographs[:40]:
        name = Path(photograph.path).name
        (tmp_path / name).write_bytes(drawn_manifest.read_bytes(photograph))
        listed.append(replace(photograph, path=name, patient="", source="test"))
    return Manifest(tuple(listed), tmp_path)


def with_file(manifest: Manifest, name: str, data: bytes, **known: object) -> Manifest:
    """One photograph more, in row `len + 1`."""
    (manifest.folder / name).write_bytes(data)
    more = replace(Photograph(name, 0, sha256=hashlib.sha256(data).hexdigest(), split="train"), **known)  # type: ignore[arg-type]
    return Manifest((*manifest.photographs, more), manifest.folder)


def changed(manifest: Manifest, row: int, **known: object) -> Manifest:
    listed = list(manifest.photographs)
    listed[row - 2] = replace(listed[row - 2], **known)  # type: ignore[arg-type]
    return Manifest(tuple(listed), manifest.folder)


def jpeg(image: Image.Image, quality: int = 90) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=quality)
    return out.getvalue()


def picture(manifest: Manifest, row: int) -> Image.Image:
    return Image.open(io.BytesIO(manifest.read_bytes(manifest.photographs[row - 2]))).convert("RGB")


def reason(checked: Checked, row: int) -> str:
    return checked.manifest.photographs[row - 2].left_out


def test_sound_photographs_are_all_kept_and_their_columns_filled(eyes: Manifest) -> None:
    checked = check(eyes, processes=1)
    assert len(checked.manifest.used) == 40
    assert checked.manifest.reasons == {}
    assert checked.problems == ()
    first = checked.manifest.photographs[0]
    assert (first.width, first.height) == picture(eyes, 2).size
    assert first.gradability is not None
    assert 0 <= first.gradability <= 1


def test_what_cannot_be_used_is_left_out_with_its_reason(eyes: Manifest) -> None:
    whole = jpeg(picture(eyes, 2), 80)
    noise = np.random.default_rng(0).integers(0, 256, (300, 300, 3), np.uint8)
    spoilt = [
        ("empty.jpg", b""),
        ("cut.jpg", whole[: len(whole) // 2]),
        ("text.jpg", b"hello"),
        ("page.png", jpeg(Image.fromarray(noise))),
        ("white.png", jpeg(Image.new("RGB", (300, 300), "white"))),
    ]
    manifest = eyes
    for name, data in spoilt:
        manifest = with_file(manifest, name, data)
    manifest = changed(manifest, 3, path="absent.jpg")
    manifest = changed(manifest, 4, sha256="0" * 64)
    manifest = changed(manifest, 5, grade=None)
    manifest = changed(manifest, 6, left_out="blurred, says the grader")
    checked = check(manifest, processes=1)
    found = {Path(p.path).name: p.left_out for p in checked.manifest.photographs if p.left_out}
    assert found == {
        "absent.jpg": "the file is missing",
        "00002.jpg": "the file changed since it was imported",
        "00003.jpg": "it has no grade",
        "00004.jpg": "blurred, says the grader",
        "empty.jpg": "unreadable: the file is empty",
        "cut.jpg": "unreadable: the file is truncated: part of the picture is missing",
        "text.jpg": "unreadable: the file is not a picture in a format we read",
        "page.png": "not a fundus photograph",
        "white.png": "not a fundus photograph",
    }
    assert len(checked.manifest.photographs) == 45
    table = left_out_table(checked.manifest).decode().splitlines()
    assert table[0] == "row,path,grade,patient,reason"
    assert table[1] == f"3,absent.jpg,{eyes.photographs[1].grade},,the file is missing"
    assert len(table) == 10


def test_a_second_check_writes_the_same_file(eyes: Manifest) -> None:
    manifest = with_file(eyes, "copy.jpg", jpeg(picture(eyes, 7), 70), grade=eyes.photographs[5].grade, split="test")
    manifest = with_file(manifest, "empty.jpg", b"")
    manifest = with_file(manifest, "other.jpg", jpeg(picture(eyes, 9), 70), grade=4 - (eyes.photographs[7].grade or 0))
    manifest = changed(manifest, 5, split="", patient="a")
    manifest = changed(manifest, 7, split="train", patient="a")
    for keep in (False, True):
        once = check(manifest, keep_duplicates=keep, processes=1).manifest
        assert check(once, keep_duplicates=keep, processes=1).manifest.to_csv() == once.to_csv()


def test_a_file_that_is_back_is_used_again(eyes: Manifest) -> None:
    photo = eyes.folder / eyes.photographs[0].path
    data = photo.read_bytes()
    photo.unlink()
    without = check(eyes, processes=1)
    assert reason(without, 2) == "the file is missing"
    photo.write_bytes(data)
    assert check(without.manifest, processes=1).manifest == check(eyes, processes=1).manifest


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("same bytes", "duplicate of row 2"),
        ("saved again", "near-duplicate of row 2"),
        ("half the size", "near-duplicate of row 2"),
        ("brighter", "near-duplicate of row 2"),
        ("with a wider border", "near-duplicate of row 2"),
        ("as PNG", "near-duplicate of row 2"),
        ("mirrored", "mirror image of row 2"),
    ],
)
def test_a_copy_is_found_however_it_was_made(eyes: Manifest, how: str, expected: str) -> None:
    original = picture(eyes, 2)
    width, height = original.size
    png = io.BytesIO()
    original.save(png, "PNG")
    copies = {
        "same bytes": eyes.read_bytes(eyes.photographs[0]),
        "saved again": jpeg(original, 60),
        "half the size": jpeg(original.resize((width // 2, height // 2), Image.Resampling.LANCZOS)),
        "brighter": jpeg(original.point(lambda value: min(255, int(value * 1.25)))),
        "with a wider border": jpeg(original.crop((-40, -25, width + 40, height + 25)), 95),
        "as PNG": png.getvalue(),
        "mirrored": jpeg(original.transpose(Image.Transpose.FLIP_LEFT_RIGHT)),
    }
    manifest = with_file(eyes, "copy.bin", copies[how], grade=eyes.photographs[0].grade)
    manifest = changed(manifest, 2, split="train")
    checked = check(manifest, processes=1)
    assert [reason(checked, row) for row in (2, 42)] == ["", expected]
    assert checked.manifest.reasons.total() == 1


def test_copies_with_contradictory_grades_are_all_left_out(eyes: Manifest) -> None:
    grade = eyes.photographs[0].grade or 0
    manifest = with_file(eyes, "a.jpg", jpeg(picture(eyes, 2), 80), grade=4 - grade)
    manifest = with_file(manifest, "b.jpg", jpeg(picture(eyes, 2), 70), grade=grade)
    checked = check(manifest, processes=1)
    assert [reason(checked, row) for row in (2, 42, 43)] == [
        f"graded {grade} here and {4 - grade} in its duplicate, row 42",
        f"graded {4 - grade} here and {grade} in its duplicate, row 2",
        f"graded {grade} here and {4 - grade} in its duplicate, row 42",
    ]
    assert check(manifest, keep_duplicates=True, processes=1).manifest.reasons == checked.manifest.reasons


def test_across_splits_the_test_photograph_stays_and_the_training_copy_goes(eyes: Manifest) -> None:
    manifest = changed(eyes, 2, split="train")
    manifest = with_file(manifest, "a.jpg", jpeg(picture(eyes, 2), 80), grade=eyes.photographs[0].grade, split="test")
    checked = check(manifest, processes=1)
    assert reason(checked, 2) == "near-duplicate of row 42"
    assert reason(checked, 42) == ""
    assert checked.manifest.photographs[40].split == "test"
    assert checked.moved == ()


def test_kept_duplicates_are_brought_to_the_training_side_with_their_patients(eyes: Manifest) -> None:
    manifest = changed(eyes, 2, split="test", patient="ann")
    manifest = changed(manifest, 3, split="test", patient="ann")
    manifest = with_file(
        manifest, "a.jpg", jpeg(picture(eyes, 2), 80), grade=eyes.photographs[0].grade, split="tune", patient="bob"
    )
    manifest = changed(manifest, 4, split="tune", patient="bob")
    manifest = replace(manifest, photographs=tuple(replace(p, source="test") for p in manifest.photographs))
    kept = check(manifest, keep_duplicates=True, processes=1)
    assert kept.manifest.reasons == {}
    assert [kept.manifest.photographs[row - 2].split for row in (2, 3, 4, 42)] == ["train"] * 4
    assert len(kept.moved) == 4
    # Without the copy ann and bob are still one person, whose eyes must not be on two sides.
    dropped = check(manifest, processes=1)
    assert reason(dropped, 42) == "near-duplicate of row 2"
    assert [dropped.manifest.photographs[row - 2].split for row in (2, 3, 4)] == ["train"] * 3


def test_a_patient_on_both_sides_of_a_given_split_is_brought_together(eyes: Manifest) -> None:
    manifest = changed(changed(eyes, 2, split="train", patient="x"), 3, split="test", patient="x")
    checked = check(manifest, processes=1)
    assert checked.manifest.photographs[1].split == "train"
    assert checked.moved == (1,)


def test_missing_digests_and_splits_are_filled_in(eyes: Manifest) -> None:
    bare = Manifest(tuple(Photograph(p.path, p.grade) for p in eyes.photographs), eyes.folder)
    checked = check(bare, processes=1).manifest
    assert [p.sha256 for p in checked.photographs] == [p.sha256 for p in eyes.photographs]
    assert sum(p.split == "test" for p in checked.photographs) == 12


def test_a_split_without_referable_photographs_is_a_problem(eyes: Manifest) -> None:
    easy = [replace(p, split="test" if (p.grade or 0) < 2 else "train") for p in eyes.photographs]
    assert check(Manifest(tuple(easy), eyes.folder), processes=1).problems == (
        "no non-referable (grade 0 or 1) photograph can be used in train",
        "no non-referable (grade 0 or 1) photograph can be used in tune",  # which is cut from train
        "no referable (grade 2 to 4) photograph can be used in test",
    )
    for_testing = tuple(replace(p, split="test") for p in eyes.photographs)
    assert check(Manifest(for_testing, eyes.folder), processes=1).problems == ()
    absent = tuple(replace(p, path="absent.jpg") for p in eyes.photographs)
    assert check(Manifest(absent, eyes.folder), processes=1).problems == ("no photograph can be used",)
    by_hand = tuple(replace(p, left_out="not today") for p in eyes.photographs)
    assert check(Manifest(by_hand, eyes.folder), processes=1).problems == ("no photograph can be used",)


def test_ungradable_ones_are_noted_and_kept(eyes: Manifest) -> None:
    dark = picture(eyes, 2).point(lambda value: value // 12 + 2)
    checked = check(with_file(eyes, "dark.jpg", jpeg(dark, 95)), processes=1)
    assert 40 in checked.ungradable
    assert reason(checked, 42) == ""
    blurred = picture(eyes, 2).resize((10, 8)).resize((256, 200))
    again = check(with_file(eyes, "blurred.jpg", jpeg(blurred, 95)), processes=1)
    assert 40 in again.ungradable
    assert reason(again, 42) == ""
    assert (again.manifest.photographs[40].gradability or 0) < 0.5


def test_one_process_and_two_find_the_same(eyes: Manifest) -> None:
    manifest = with_file(eyes, "copy.jpg", jpeg(picture(eyes, 7), 70), grade=eyes.photographs[5].grade)
    assert check(manifest, processes=1) == check(manifest, processes=2)


def test_real_photographs_at_two_resolutions_are_told_to_be_the_same(shared_data: Path, tmp_path: Path) -> None:
    """idrid_fullres holds 40 of the 405 photographs of idrid_640, at 4,288 instead of 640 pixels."""
    small, large = (
        import_photographs("tar", shared_data / "fundus" / f"{name}.tar", folder=tmp_path).photographs
        for name in ("idrid_640", "idrid_fullres")
    )
    wanted = {Path(p.path).name for p in large[:12]}
    both = [*(p for p in small if Path(p.path).name in wanted), *small[:40], *large[:12]]
    listed = tuple({p.path: p for p in both}.values())
    checked = check(Manifest(tuple(replace(p, split="train") for p in listed), tmp_path)).manifest
    left_out = [p for p in checked.photographs if p.left_out.startswith("near-duplicate")]
    assert {Path(p.path).name for p in left_out} == wanted
    assert len(left_out) == 12


def test_different_real_eyes_are_told_apart(shared_data: Path, tmp_path: Path) -> None:
    """That the two sets hold no duplicate was found by others: shared/data/README.md."""
    for name in ("eyepacs2015_224", "aptos2019_224"):
        manifest = import_photographs("tar", shared_data / "fundus" / f"{name}.tar", folder=tmp_path)
        some = Manifest(manifest.photographs[:200], tmp_path)
        assert not [p.left_out for p in check(some).manifest.photographs if "duplicate" in p.left_out]


def test_fingerprints_compare_every_pair_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n = 2048 + 300  # more than one block
    size = len(fingerprint_of_noise(rng))
    store = Fingerprints(tmp_path / "f.npy", n)
    vectors = rng.standard_normal((n, size)).astype(np.float32)
    vectors[2100] = vectors[5] + 0.3 * vectors[6]
    vectors[2200] = vectors[2101] - 0.3 * vectors[6]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for i, vector in enumerate(vectors):
        store[i] = vector
    pairs = list(store.pairs())
    assert [(p.first, p.second, p.mirrored) for p in pairs] == [(5, 2100, False), (2101, 2200, False)]
    assert pairs[0].likeness == pytest.approx(float(vectors[5] @ vectors[2100]), abs=1e-3)
    assert pairs[0].likeness > ALIKE


def fingerprint_of_noise(rng: np.random.Generator) -> np.ndarray:
    vector = fingerprint(rng.integers(60, 200, (224, 224, 3)).astype(np.uint8))
    assert vector is not None
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-3)
    return vector


def test_what_shows_nothing_has_no_fingerprint() -> None:
    assert fingerprint(np.zeros((224, 224, 3), np.uint8)) is None
    assert fingerprint(np.full((224, 224, 3), 120, np.uint8)) is None


def test_a_fingerprint_hardly_depends_on_the_size_it_was_prepared_at(eyes: Manifest) -> None:
    photo = eyes.read_bytes(eyes.photographs[0])
    at_224, at_299 = (fingerprint(prepare(photo, Preparation(size=size)).pixels) for size in (224, 299))
    assert at_224 is not None
    assert at_299 is not None
    assert float(at_224 @ at_299) > 0.9
