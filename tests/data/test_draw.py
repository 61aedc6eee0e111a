import csv
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFilter

from fundoscope.data.draw import COLUMNS, GRADE_SHARES, draw_eye, draw_folder, paint, plan_eye
from fundoscope.data.drawn_camera import SPOILS
from fundoscope.errors import FundoscopeError

SMALL = 192  # pixels: enough to look at, quick to draw


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def first(seed: int, *, grade: int, spoilt: str = "") -> int:
    plans = (plan_eye(seed, index) for index in range(10_000))
    return next(plan.index for plan in plans if plan.grade == grade and plan.spoilt == spoilt)


@pytest.fixture(scope="module")
def drawing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_folder(tmp_path_factory.mktemp("drawn") / "eyes", n=37, seed=5, size=SMALL, processes=1)


def test_the_same_seed_gives_the_same_bytes_with_any_number_of_processes(drawing: Path, tmp_path: Path):
    again = draw_folder(tmp_path / "again", n=37, seed=5, size=SMALL, processes=2)
    assert files_of(again) == files_of(drawing)
    assert len(files_of(again)) == 37 + 2  # labels.csv and drawn.json


def test_the_order_of_drawing_does_not_matter():
    forwards = [draw_eye(2, index, size=96).jpeg() for index in range(4)]
    backwards = [draw_eye(2, index, size=96).jpeg() for index in reversed(range(4))]
    assert forwards == backwards[::-1]


def test_other_seeds_and_other_indices_give_other_eyes():
    drawn = [draw_eye(seed, index, size=96).jpeg() for seed in range(3) for index in range(4)]
    assert len(set(drawn)) == 12


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_four_hundred_eyes_hold_every_grade_about_as_often_as_said(seed: int):
    plans = [plan_eye(seed, index) for index in range(400)]
    grades = Counter(plan.grade for plan in plans)
    for grade, share in enumerate(GRADE_SHARES):
        assert abs(grades[grade] / 400 - share) < 0.08
    assert min(grades.values()) >= 15
    assert 0.02 < sum(not plan.gradable for plan in plans) / 400 < 0.11


def test_two_thousand_eyes_hold_every_way_of_spoiling_a_photograph():
    spoilt = Counter(plan_eye(1, index).spoilt for index in range(2000))
    assert set(spoilt) == {"", *SPOILS}


def test_the_eyes_of_a_patient_are_neighbours_with_related_grades_and_the_same_colours():
    left, right = ([plan_eye(1, index) for index in range(side, 600, 2)] for side in (0, 1))
    assert [plan.patient for plan in left] == [plan.patient for plan in right]
    assert len({plan.patient for plan in left}) == 300
    assert plan_eye(2, 0).patient != plan_eye(1, 0).patient
    assert {plan.eye for plan in left} == {"left"}
    assert {plan.eye for plan in right} == {"right"}
    grades = np.array([[plan.grade for plan in eyes] for eyes in (left, right)])
    assert np.corrcoef(grades)[0, 1] > 0.5
    assert (grades[0] != grades[1]).mean() > 0.2
    means = np.array([draw_eye(7, index, size=96).pixels.mean(axis=(0, 1)) for index in range(40)]).reshape(20, 2, 3)
    within = np.abs(means[:, 0] - means[:, 1]).mean()
    between = np.abs(means[:-1, 0] - means[1:, 1]).mean()
    assert within < 0.6 * between


@pytest.mark.parametrize("eye", ["left", "right"])
def test_the_optic_disc_lies_towards_the_nose(eye: str):
    sides = []
    for index in range(eye == "right", 40, 2):
        healthy = replace(plan_eye(11, index), grade=0, spoilt="")
        green = paint(healthy, size=96).pixels[:, 8:-8, 1].astype(float)
        bright = np.argwhere(green >= np.quantile(green, 0.995)).mean(axis=0)[1] / green.shape[1]
        sides.append(bright)
    assert np.median(sides) < 0.4 if eye == "left" else np.median(sides) > 0.6


def test_lesions_change_more_of_the_retina_the_worse_the_grade():
    changed = np.zeros(5)
    for index in range(30):
        plan = replace(plan_eye(3, index), spoilt="")
        eyes = [paint(replace(plan, grade=grade), size=320).pixels.astype(int) for grade in range(5)]
        changed += [(np.abs(eye - eyes[0]).max(axis=-1) > 25).mean() / 30 for eye in eyes]
    assert changed[0] == 0  # the same eye, not another one
    assert 0 < changed[1] < 0.002
    assert changed[2] > 3 * changed[1]
    assert changed[3] > 1.5 * changed[2]
    assert changed[4] > 2 * changed[2]


def test_the_retina_is_bright_and_what_surrounds_it_is_black():
    for index in range(24):
        eye = paint(replace(plan_eye(4, index), spoilt=""), size=SMALL).pixels
        height, width = eye.shape[:2]
        corners = np.concatenate([eye[:6, :6], eye[:6, -6:], eye[-6:, :6], eye[-6:, -6:]])
        assert np.median(corners) <= 8
        middle = eye[height // 3 : -height // 3, width // 3 : -width // 3]
        assert middle[..., 0].mean() > 60  # red …
        assert middle[..., 0].mean() > middle[..., 1].mean() > middle[..., 2].mean() - 8  # … then green, then blue


def test_photographs_differ_in_shape_and_some_are_cut_off_above_and_below():
    eyes = [draw_eye(6, index, size=96).pixels for index in range(0, 60, 2)]
    assert {max(eye.shape[:2]) for eye in eyes} == {96}
    assert len({eye.shape for eye in eyes}) >= 4
    cut_off = [eye[0, eye.shape[1] // 2].max() > 25 for eye in eyes if eye.mean() > 25]
    assert 0.2 < np.mean(cut_off) < 0.9


def detail(pixels: np.ndarray) -> float:
    """How far the middle of a photograph differs from a blurred copy, noise averaged out."""
    height, width = pixels.shape[:2]
    middle = pixels[height // 5 : -height // 5, 3 * width // 10 : -3 * width // 10]
    green = Image.fromarray(middle).getchannel(1).reduce(3)
    smooth = green.filter(ImageFilter.GaussianBlur(6))
    return float((np.asarray(green, dtype=float) - np.asarray(smooth)).std())


@pytest.mark.parametrize("reason", SPOILS)
def test_a_spoilt_photograph_shows_less_of_its_vessels(reason: str):
    for index in range(0, 20, 2):
        plan = replace(plan_eye(1, index), spoilt="", grade=0)
        spoilt = replace(plan, spoilt=reason)
        assert detail(paint(spoilt, size=512).pixels) < 0.8 * detail(paint(plan, size=512).pixels)
        assert (plan.gradable, spoilt.gradable) == (True, False)


@pytest.mark.parametrize("size", [64, 65, 333, 2050])
def test_any_size_will_do_and_shows_the_same_eye(size: int):
    index = first(1, grade=2)
    eye, usual = (Image.fromarray(draw_eye(1, index, size=wanted).pixels) for wanted in (size, 512))
    assert max(eye.size) == size
    thumbs = [np.asarray(picture.resize((32, 24), Image.Resampling.BOX), dtype=float) for picture in (eye, usual)]
    assert np.abs(thumbs[0] - thumbs[1]).mean() < 6


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**40), st.integers(0, 100_000), st.integers(64, 130))
def test_every_eye_can_be_drawn(seed: int, index: int, size: int):
    eye = draw_eye(seed, index, size=size)
    assert eye.pixels.dtype == np.uint8
    assert max(eye.pixels.shape[:2]) == size
    assert eye.grade in range(5)
    assert eye.patient == plan_eye(seed, index ^ 1).patient


def test_the_folder_holds_jpeg_files_and_a_table_that_says_what_they_are(drawing: Path):
    with (drawing / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS == ("file", "grade", "patient", "eye", "gradable")
    assert [row["file"] for row in rows] == [f"{index:05d}.jpg" for index in range(37)]
    assert {row["file"] for row in rows} == {file.name for file in (drawing / "images").iterdir()}
    assert rows[0]["patient"] == rows[1]["patient"] != rows[2]["patient"]
    assert [row["eye"] for row in rows[:3]] == ["left", "right", "left"]
    for index, row in enumerate(rows):
        plan = plan_eye(5, index)
        assert (int(row["grade"]), row["gradable"]) == (plan.grade, "true" if plan.gradable else "false")
        with Image.open(drawing / "images" / row["file"]) as photograph:
            assert photograph.format == "JPEG"
            assert max(photograph.size) == SMALL
            assert not photograph.getexif()


def test_drawing_the_same_again_is_no_error_and_changes_nothing(drawing: Path):
    before = files_of(drawing)
    draw_folder(drawing, n=37, seed=5, size=SMALL, processes=1)
    assert files_of(drawing) == before


@pytest.mark.parametrize(
    ("n", "seed", "size", "told"), [(38, 5, SMALL, "n 37"), (37, 6, SMALL, "seed 5"), (37, 5, 96, "size 192")]
)
def test_a_folder_with_another_drawing_is_refused_and_left_alone(
    drawing: Path, n: int, seed: int, size: int, told: str
):
    before = files_of(drawing)
    with pytest.raises(FundoscopeError, match=rf"already holds another drawing \({told}\)"):
        draw_folder(drawing, n=n, seed=seed, size=size)
    assert files_of(drawing) == before


def test_a_folder_with_other_photographs_is_refused(tmp_path: Path):
    (tmp_path / "labels.csv").write_text("file,grade\n")
    with pytest.raises(FundoscopeError, match="not drawn"):
        draw_folder(tmp_path, n=1, seed=1)
    assert [file.name for file in tmp_path.iterdir()] == ["labels.csv"]


def test_a_damaged_note_in_the_folder_is_refused_in_plain_words(tmp_path: Path):
    (tmp_path / "drawn.json").write_text("{")
    with pytest.raises(FundoscopeError, match="cannot be read"):
        draw_folder(tmp_path, n=1, seed=1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n": 0}, "cannot draw 0 photographs"),
        ({"size": 63}, "cannot draw a photograph of 63 pixels"),
        ({"size": 8193}, "cannot draw a photograph of 8193 pixels"),
        ({"seed": -1}, "seed -1"),
    ],
)
def test_what_cannot_be_drawn_is_said_before_anything_is_written(tmp_path: Path, wrong: dict[str, int], message: str):
    with pytest.raises(FundoscopeError, match=message):
        draw_folder(tmp_path / "out", **({"n": 1, "seed": 1, "size": 64} | wrong))
    assert not (tmp_path / "out").exists()


def test_a_file_in_the_place_of_the_folder_is_an_error(tmp_path: Path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(FundoscopeError, match="is a file, not a folder"):
        draw_folder(tmp_path / "out", n=1, seed=1)
    with pytest.raises(FundoscopeError, match="cannot be written: "):
        draw_folder(tmp_path / "out" / "eyes", n=1, seed=1)
    assert (tmp_path / "out").read_text() == "mine"


def test_progress_counts_every_photograph(tmp_path: Path):
    seen = []

    def track(items, *, total, label):
        assert (total, label) == (20, "drawing")
        for item in items:
            seen.append(item)
            yield item

    out = draw_folder(tmp_path, n=20, seed=1, size=64, processes=1, track=track)
    assert seen == list(range(20))
    assert json.loads((out / "drawn.json").read_text()) == {"drawing": 1, "n": 20, "seed": 1, "size": 64}
