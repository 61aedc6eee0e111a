"""What makes a photograph ungradable is found, named, and told from what is not a photograph of a retina at all."""

import dataclasses
import gzip
import io
import tarfile
import time

import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFilter

from fundoscope.config import build
from fundoscope.data.draw import draw_eye
from fundoscope.data.gradability import (
    FAULTS,
    NO_RETINA,
    GradabilityRule,
    Limit,
    Measures,
    _planes,
    assess,
    judge,
    measure,
)
from fundoscope.data.photo import Circle, Preparation, Prepared, encode_png, prepare

SOUND = Measures(
    field=1,
    luminance=96,
    glare=0,
    contrast=0.044,
    sharpness=0.9,
    noise=0.68,
    visible=0.86,
    surround=1,
    solid=0.73,
    warmth=1,
)


def prepared(pixels, size=224) -> Prepared:
    return prepare(
        encode_png(np.ascontiguousarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8))), Preparation(size)
    )


@pytest.fixture(scope="module")
def eyes():
    """Drawn eyes that are gradable by design, as floating-point pixels."""
    drawn = (draw_eye(11, index, size=512) for index in range(12))
    return [eye.pixels.astype(np.float32) for eye in drawn if eye.gradable]


def real_photographs(archive, every):
    with tarfile.open(archive) as tar:
        for member in [one for one in tar if one.name.startswith("images/")][::every]:
            yield tar.extractfile(member).read()


def blurred(eye):
    return np.asarray(Image.fromarray(eye.astype(np.uint8)).filter(ImageFilter.GaussianBlur(eye.shape[0] / 40)))


def veiled(eye):
    return np.where(eye.max(axis=2, keepdims=True) > 12, eye * 0.15 + 0.85 * np.array([150, 140, 130]), eye)


def half_covered(eye):
    lid = np.array([40, 15, 8]) * (eye.max(axis=2, keepdims=True) > 12)
    return np.where(np.arange(len(eye))[:, None, None] < 0.55 * len(eye), lid, eye)


def noisy(eye):
    return np.where(eye.max(axis=2, keepdims=True) > 12, eye + np.random.default_rng(1).normal(0, 60, eye.shape), eye)


def cut_off(eye):
    lit = np.flatnonzero(eye.max(axis=2).max(axis=0) > 12)
    return eye[:, : int(lit[0] + 0.4 * (lit[-1] - lit[0]))]


SPOILT = {
    "out of focus": blurred,
    "too dark": lambda eye: eye * 0.15,
    "over-exposed": lambda eye: eye * 6,
    "hazy: too little contrast": veiled,
    "detail to be seen in too small a part": half_covered,
    "too much noise": noisy,
    "too little of the retina in the picture": cut_off,
}


def test_sound_eyes_are_gradable_without_reasons(eyes):
    for eye in eyes:
        rated = assess(prepared(eye))
        assert rated.gradable
        assert rated.is_fundus
        assert rated.score >= 0.5
        assert rated.reasons == ()
        assert set(rated.parts) == set(FAULTS)


@pytest.mark.parametrize("reason", SPOILT)
def test_a_spoilt_eye_is_ungradable_and_the_reason_is_named(reason, eyes):
    for eye in eyes:
        rated = assess(prepared(SPOILT[reason](eye)))
        assert not rated.gradable
        assert rated.score < 0.5
        assert reason in rated.reasons
        assert rated.is_fundus


def test_most_drawn_eyes_are_rated_as_they_were_drawn():
    drawn = [draw_eye(12, index, size=512) for index in range(150)]
    rated = [assess(prepare(eye.jpeg(), Preparation())).gradable for eye in drawn]
    sound = [found for eye, found in zip(drawn, rated, strict=True) if eye.gradable]
    spoilt = [found for eye, found in zip(drawn, rated, strict=True) if not eye.gradable]
    assert len(spoilt) >= 4
    assert sum(sound) >= 0.95 * len(sound)
    assert sum(spoilt) <= 0.3 * len(spoilt)  # a lid with noise on it can pass for a retina


def test_a_worse_blur_scores_lower(eyes):
    eye = Image.fromarray(eyes[0].astype(np.uint8))
    scores = [assess(prepared(np.asarray(eye.filter(ImageFilter.GaussianBlur(r))))).score for r in (0, 2, 4, 8, 16)]
    assert scores[0] > scores[1] > scores[2] > scores[3]
    assert scores[3] < 0.5
    assert scores[4] < 0.5


def test_the_size_it_was_prepared_at_hardly_matters(eyes):
    for eye in eyes:
        scores = [assess(prepared(eye, size)).score for size in (112, 224, 299, 448)]
        assert max(scores) - min(scores) < 0.15


def test_a_photograph_without_a_retina_is_ungradable():
    rated = assess(prepared(np.full((300, 300, 3), 4)))
    assert (rated.score, rated.gradable, rated.is_fundus, rated.reasons) == (0, False, False, ("no retina found",))


def test_the_score_is_the_least_part_and_reasons_come_worst_first():
    rule = GradabilityRule()
    poor = dataclasses.replace(SOUND, luminance=rule.dark.half - 1, sharpness=0.0)
    rated = judge(poor, rule)
    assert rated.score == min(rated.parts.values()) == 0
    assert rated.reasons == ("out of focus", "too dark")
    assert judge(SOUND, rule).score > 0.9


def test_a_photograph_on_the_limit_is_just_gradable():
    rule = GradabilityRule()
    assert judge(dataclasses.replace(SOUND, sharpness=rule.sharpness.half), rule).score == pytest.approx(0.5)
    assert judge(dataclasses.replace(SOUND, sharpness=rule.sharpness.half), rule).gradable
    assert not judge(dataclasses.replace(SOUND, sharpness=rule.sharpness.half - 1e-6), rule).gradable


@given(st.floats(-10, 300), st.floats(-10, 300))
def test_a_part_rises_towards_what_is_sound_and_stays_between_0_and_1(one, other):
    for limit in (Limit(30, 95), Limit(0.3, 0.0)):  # more is better; less is better
        assert 0 <= limit.part(one) <= 1
        nearer = min(one, other, key=lambda value: -np.sign(limit.sound - limit.half) * value)
        assert limit.part(nearer) >= max(limit.part(one), limit.part(other)) - 1e-12


def test_a_stricter_rule_passes_fewer(eyes):
    strict = GradabilityRule(sharpness=Limit(5.0, 6.0))
    assert not assess(prepared(eyes[0]), strict).gradable


def test_a_rule_travels_as_a_table():
    rule = GradabilityRule(noise=Limit(3.0, 1.0), fundus_field=0.5)
    assert build(GradabilityRule, dataclasses.asdict(rule), where="index.json") == rule


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 255), st.integers(0, 2**32 - 1))
def test_any_picture_can_be_assessed(width, height, level, seed):
    noise = np.random.default_rng(seed).integers(0, level + 1, (height, width, 3))
    rated = assess(prepared(noise, 32))
    assert 0 <= rated.score <= 1
    assert rated.gradable == (rated.score >= 0.5)
    assert bool(rated.reasons) != rated.gradable


def test_a_page_noise_and_flat_colours_are_not_fundus_photographs():
    page = Image.new("RGB", (300, 400), (250, 250, 245))
    pen = ImageDraw.Draw(page)
    for line in range(20, 380, 14):
        pen.text((20, line), "Diabetic retinopathy, left eye, 2026-11-15", fill=(20, 20, 20))
    noise = np.random.default_rng(2).integers(0, 256, (200, 260, 3))
    for picture in (np.asarray(page), noise, np.full((200, 200, 3), 255), np.full((200, 200, 3), (60, 120, 200))):
        rated = assess(prepared(picture))
        assert not rated.is_fundus
        assert rated.score == 0
        assert rated.reasons == ("not a fundus photograph",)


def test_a_retina_without_any_border_is_still_one(eyes):
    for eye in eyes[:4]:
        square = prepared(eye, 320).pixels[70:250, 70:250]
        assert assess(prepared(square)).is_fundus


def test_a_grey_photograph_of_a_retina_is_still_one(eyes):
    grey = np.repeat(eyes[0][..., 1:2], 3, axis=2)
    assert assess(prepared(grey)).is_fundus


def test_real_photographs_are_gradable_fundus_photographs(shared_data):
    for archive, every, at_least in (("aptos2019_224", 20, 0.95), ("idrid_640", 5, 0.95), ("idrid_fullres", 4, 0.9)):
        rated = [
            assess(prepare(photo, Preparation()))
            for photo in real_photographs(shared_data / f"fundus/{archive}.tar", every)
        ]
        assert all(one.is_fundus for one in rated)
        assert sum(one.gradable for one in rated) >= at_least * len(rated)


def test_other_peoples_pictures_are_not_fundus_photographs(shared_data):
    with np.load(shared_data / "cifar10" / "cifar10_subset_6000_1200.npz") as archive:
        pictures = archive["x_test"][::10]
    refused = [not assess(prepared(picture)).is_fundus for picture in pictures]
    assert sum(refused) >= 0.93 * len(refused)
    with gzip.open(shared_data / "mnist" / "t10k-images-idx3-ubyte.gz") as file:
        digits = np.frombuffer(file.read(16 + 100 * 784)[16:], np.uint8).reshape(-1, 28, 28)
    assert not any(assess(prepared(np.repeat(digit[..., None], 3, axis=2))).is_fundus for digit in digits)


def test_assessing_takes_less_than_a_sixth_of_preparing():
    """Two milliseconds of the twelve and more that a photograph of 2,048 pixels takes; both slow down together."""
    photo = simplejpeg.encode_jpeg(draw_eye(11, 0, size=2048).pixels, quality=90)

    def spent(work):
        start = time.thread_time()
        work()
        return time.thread_time() - start

    done = prepare(photo, Preparation(224))
    assessing, preparing = zip(
        *((spent(lambda: assess(done)), spent(lambda: prepare(photo, Preparation(224)))) for _ in range(20)),
        strict=True,
    )
    assert min(assessing) < min(preparing) / 6


def test_measures_are_plain_numbers(eyes):
    values = dataclasses.asdict(measure(prepared(eyes[0])))
    assert {type(value) for value in values.values()} == {float}
    assert io.StringIO(str(values)).read()


def test_a_circle_that_lies_beside_its_picture_shows_no_retina():
    pixels = np.zeros((64, 64, 3), np.uint8)
    found = assess(Prepared(pixels, Circle(500.0, 500.0, 20.0), width=100, height=1))
    assert (found.gradable, found.reasons) == (False, (NO_RETINA,))


def test_the_usual_size_is_averaged_to_the_values_that_pillow_gives():
    pixels = prepare(encode_png(draw_eye(5, 1, size=300).pixels), Preparation(224)).pixels
    halved = np.asarray(Image.fromarray(pixels).reduce(2))
    assert np.array_equal(_planes(pixels).transpose(1, 2, 0), halved)
    assert halved.std() > 10  # there was something to average
