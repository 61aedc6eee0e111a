"""A run folder that no training made: plausible numbers from a seed, to see what the report makes of them."""

import json
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from fundoscope.data.grades import grade_of
from fundoscope.model.operating import OperatingPoint
from fundoscope.model.predictions import Predictions
from fundoscope.model.scores import score_elsewhere, score_run

SHARES = (0.42, 0.13, 0.30, 0.06, 0.09)


def fabricate(
    folder: Path, *, drawn=False, patients=True, head="ordinal", n=1500, skill=1.0, seed=7, **changes
) -> Path:
    """Write every file a finished training leaves (but the network). `changes` go into run.json."""
    folder.mkdir(parents=True, exist_ok=True)
    made = fabricated_predictions(n, skill=skill, seed=seed, patients=patients, grades=head != "referral")
    made.write_csv(folder / "predictions.csv")
    scores = score_run(made, seed=seed)
    write(folder / "scores.json", scores)
    other = fabricated_predictions(400, skill=0.55 * skill, seed=seed + 1, patients=False, grades=head != "referral")
    points = [OperatingPoint(**point) for point in scores["operating_points"]]
    there = score_elsewhere(other, points) | {"about": {"command": "fundoscope evaluate runs/x --on idrid.csv"}}
    write(folder / "on/idrid/scores.json", there)
    history = fabricated_history(seed)
    (folder / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in history))
    write(folder / "run.json", fabricated_facts(made, head, drawn) | changes)
    fabricate_gallery(folder, made.of("test"), scores["operating_points"][0]["threshold"])
    return folder


def write(path: Path, value) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, allow_nan=False))


def fabricated_predictions(n, *, skill=1.0, seed=0, patients=True, grades=True) -> Predictions:
    rng = np.random.default_rng(seed)
    grade = rng.choice(5, n, p=SHARES)
    seen = grade + rng.normal(0, 0.62 / skill, n)
    p = np.exp(-2.2 * (seen[:, None] - np.arange(5)) ** 2) + 1e-4
    p /= p.sum(axis=1, keepdims=True)
    whose = np.arange(n) // 2
    return Predictions(
        id=np.array([f"{number:016x}" for number in rng.integers(0, 2**62, n)]),
        patient=np.array([f"p{number:05d}" if patients else "" for number in whose]),
        eye=np.array(["left" if i % 2 else "right" for i in range(n)]) if patients else np.full(n, ""),
        grade=grade,
        split=np.where(whose % 10 < 4, "tune", "test"),
        gradable=rng.random(n) > 0.045,
        probabilities=p if grades else None,
        referral=p[:, 2:].sum(axis=1),
    )


def fabricated_history(seed) -> list[dict]:
    rng, rows = np.random.default_rng(seed), []
    for epoch in range(1, 31):
        head, t = epoch <= 12, epoch if epoch <= 12 else epoch + 12
        loss = 0.38 + 1.1 * np.exp(-t / 9) + rng.normal(0, 0.01)
        rows.append(
            {
                "epoch": epoch,
                "phase": "head" if head else "fine",
                "learning_rate": 1e-3 if head else 3e-4 * 0.5 ** ((epoch - 13) // 7),
                "loss": loss,
                "tune_loss": loss + 0.05 + 0.004 * max(0, epoch - 20) + rng.normal(0, 0.015),
                "tune_auc": 0.972 - 0.09 * np.exp(-t / 8) + rng.normal(0, 0.002),
                "tune_kappa": 0.84 - 0.3 * np.exp(-t / 9) + rng.normal(0, 0.008),
                "seconds": (0.6 if head else 38) + rng.random() + (20 if epoch in (1, 13) else 0),
                "tune_seconds": 4.2,
                "images_per_second": 2100.0 if head else 31.5,
            }
        )
    return rows


def fabricated_facts(made: Predictions, head: str, drawn: bool) -> dict:
    counts = {part: np.bincount(made.grade[made.split == part], minlength=5) for part in ("tune", "test")}
    counts = {"train": counts["tune"] * 4, **counts}
    return {
        "status": "done",
        "recipe": {
            "name": "finetune", "backbone": "MobileNet-0.75", "size": 224, "head": head, "weights": "imagenet",
            "referral_from": 2, "head_epochs": 12, "epochs": 18, "batch": 32, "learning_rate": 3e-4,
            "schedule": "plateau", "augment": "fundus", "target_auc": None,
        },
        "seed": 1,
        "backend": "tensorflow",
        "precision": "float32",
        "records": {
            "digest": "3f" * 32, "folder": "/data/records", "manifest_sha256": "a1" * 32,
            "preparation": {"size": 224, "way": "recommended", "max_pixels": 100_000_000}, "rule": {"version": 1},
            "drawn": drawn, "source": "drawn" if drawn else "aptos2019",
            "commands": ["fundoscope data prepare manifest.csv --size 224 --out records/"],
            "n": {part: {str(k): int(v) for k, v in enumerate(row)} for part, row in counts.items()},
        },
        "device": "Intel Xeon, 2 cores",
        "versions": {"fundoscope": "0.1.0", "python": "3.11.2", "numpy": "2.4.6", "keras": "3.12.0"},
        "command": "fundoscope train records/ --recipe finetune --out runs/x --seed 1",
        "started": "2026-11-15T08:00:00Z", "finished": "2026-11-15T08:21:40Z", "seconds": 1300.4,
        "parameters": 1_950_000, "backbone_parameters": 1_832_976, "best_epoch": 24,
        "stopped_because": "no better tuning score in 6 epochs", "model_sha256": "0c" * 32,
    }  # fmt: skip


def fabricate_gallery(folder: Path, test: Predictions, threshold: float) -> None:
    (folder / "gallery").mkdir(exist_ok=True)
    items: list[dict] = []
    should, does = test.grade >= 2, test.referral >= threshold
    stories = {
        (True, False): ("wrong", "missed"),
        (False, True): ("wrong", "referred needlessly"),
        (True, True): ("right", "referred, rightly"),
        (False, False): ("right", "not referred, rightly"),
    }
    for (want, got), (kind, story) in stories.items():
        for row in np.flatnonzero((should == want) & (does == got))[:3]:
            name = f"gallery/{len(items):02d}"
            for suffix, glow in ((".jpg", False), ("-cam.jpg", True)):
                (folder / f"{name}{suffix}").write_bytes(picture(int(row), int(test.grade[row]), glow=glow))
            given = None if test.probabilities is None else int(grade_of(test.probabilities[row]))
            items.append(
                {"id": str(test.id[row]), "grade": int(test.grade[row]), "predicted": given,
                 "referral": float(test.referral[row]), "kind": kind, "story": story,
                 "picture": f"{name}.jpg", "overlay": f"{name}-cam.jpg"}
            )  # fmt: skip
    write(folder / "gallery.json", items)


def picture(seed: int, grade: int, *, glow: bool) -> bytes:
    """A disc with a bright spot and, by grade, dark ones: enough to see that pictures arrive."""
    rng, image = np.random.default_rng(seed), Image.new("RGB", (224, 224))
    draw = ImageDraw.Draw(image)
    draw.ellipse((4, 4, 220, 220), fill=(176, 84, 40))
    draw.ellipse((150, 96, 182, 128), fill=(246, 208, 140))
    for x, y in rng.integers(40, 180, (6 * grade, 2)).tolist():
        draw.ellipse((x, y, x + 5, y + 5), fill=(96, 24, 16))
        if glow:
            draw.ellipse((x - 9, y - 9, x + 14, y + 14), outline=(255, 230, 80), width=3)
    data = BytesIO()
    image.save(data, "JPEG", quality=85)
    return data.getvalue()
