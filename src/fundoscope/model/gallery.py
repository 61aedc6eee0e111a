"""Right and wrong gradings to look at, each with the places in the photograph that spoke for referral (Grad-CAM).

Average pooling is linear, so the gradient of the referral log-odds at the feature map is that at the pooled features,
spread evenly. The head from there on is a few small matrices: its derivative is taken by central differences in
float64, which needs no automatic differentiation and so is the same under every backend.
"""

from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fundoscope.model.network import Network
from fundoscope.provenance import write_json, write_whole

PICTURE_PX = 224
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Shown:
    """One grading in the gallery."""

    id: str
    grade: int
    predicted: int | None
    referral: float
    kind: str  # right | wrong
    story: str  # which of the four: referred rightly, left alone rightly, missed, referred needlessly
    picture: str
    overlay: str


STORIES = {
    (True, True): ("right", "referred, rightly"),
    (False, False): ("right", "not referred, rightly"),
    (True, False): ("wrong", "missed"),
    (False, True): ("wrong", "referred needlessly"),
}


def choose(
    should: NDArray[np.bool_], referral: Floats, threshold: float, *, each: int = 3
) -> list[tuple[int, str, str]]:
    """Rows to show: of the wrong ones the surest, of the right ones typical (median) cases."""
    does, picked = referral >= threshold, []
    for (want, got), (kind, story) in STORIES.items():
        rows = np.flatnonzero((should == want) & (does == got))
        distance = np.abs(referral[rows] - threshold)
        centre = np.median(distance) if len(rows) and kind == "right" else np.inf
        order = np.argsort(-distance if kind == "wrong" else np.abs(distance - centre), kind="stable")
        picked += [(int(row), kind, story) for row in rows[order[:each]]]
    return picked


def write_gallery(
    folder: Path,
    network: Network,
    pixels: NDArray[np.uint8],
    chosen: list[tuple[int, str, str]],
    facts: list[dict[str, Any]],
    *,
    referral_from: int,
) -> None:
    """Pictures under folder/gallery and their table, folder/gallery.json. `facts` holds a row per photograph."""
    shown = []
    to_map = keras.Model(network.whole.input, network.whole.get_layer("pooled").input)
    for number, (row, kind, story) in enumerate(chosen):
        photograph = np.asarray(pixels[row])
        feature_map = np.asarray(to_map.predict_on_batch(photograph[None]), np.float64)[0]
        heat = grad_cam(feature_map, network.head, referral_from=referral_from)
        names = [f"gallery/{number:02d}.jpg", f"gallery/{number:02d}-cam.jpg"]
        # As strong as the answer: without that, the faintest trace in a healthy eye would glow as a lesion does.
        glowing = overlay(photograph, heat * facts[row]["referral"])
        for name, picture in zip(names, (photograph, glowing), strict=True):
            write_whole(folder / name, _jpeg(picture), lasting=False)
        shown.append(Shown(**facts[row], kind=kind, story=story, picture=names[0], overlay=names[1]))
    write_json(folder / "gallery.json", [asdict(item) for item in shown])


def grad_cam(feature_map: Floats, head: Any, *, referral_from: int) -> Floats:
    """Where the evidence for referral is, 0 to 1, on the grid of the feature map."""
    pooled = feature_map.mean(axis=(0, 1))
    step = 1e-3 * max(float(np.abs(pooled).max()), 1e-3)
    nudges = np.eye(len(pooled)) * step
    above, below = (referral_log_odds(head, pooled + d, referral_from) for d in (nudges, -nudges))
    heat = np.maximum(feature_map @ ((above - below) / (2 * step)), 0)
    return np.asarray(heat / heat.max() if heat.max() > 0 else heat)


def referral_log_odds(head: Any, features: Floats, referral_from: int) -> Floats:
    """The head once more, in numpy and float64: log odds of a grade of at least `referral_from`."""
    x = features
    for layer in head.layers:
        if isinstance(layer, keras.layers.Dense):
            kernel, bias = (np.asarray(w, np.float64) for w in layer.get_weights())
            x = x @ kernel + bias
            x = np.maximum(x, 0) if layer.name.startswith("hidden") else x
    if x.shape[1] == 1:
        return x[:, 0]
    if x.shape[1] == 4:  # a chain of sigmoids (OrdinalProbabilities)
        log_p = -np.logaddexp(0, -x[:, :referral_from]).sum(axis=1)
        return np.asarray(log_p - np.log(-np.expm1(np.minimum(log_p, -1e-12))))
    return np.asarray(
        np.logaddexp.reduce(x[:, referral_from:], axis=1) - np.logaddexp.reduce(x[:, :referral_from], axis=1)
    )


def overlay(photograph: NDArray[np.uint8], heat: Floats) -> NDArray[np.uint8]:
    """The photograph with the evidence glowing over it, from nothing over yellow to white."""
    side = photograph.shape[0]
    grey = np.asarray(Image.fromarray((heat * 255).astype(np.uint8)).resize((side, side), Image.Resampling.BICUBIC))
    glow = grey.astype(np.float64)[..., None] / 255
    colour = np.concatenate([np.full_like(glow, 255), 255 * glow, 64 * glow**2], axis=-1)
    strength = 0.65 * glow
    return np.asarray(photograph * (1 - strength) + colour * strength, np.uint8)


def _jpeg(picture: NDArray[np.uint8]) -> bytes:
    image = Image.fromarray(picture)
    if image.width != PICTURE_PX:
        image = image.resize((PICTURE_PX, PICTURE_PX), Image.Resampling.LANCZOS)
    data = BytesIO()
    image.save(data, "JPEG", quality=85)
    return data.getvalue()
