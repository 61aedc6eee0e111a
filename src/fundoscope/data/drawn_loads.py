"""How much of each lesion a grade of diabetic retinopathy brings.

After the international scale: 1 is microaneurysms only; 2 adds haemorrhages, exudates, cotton-wool spots; 3 is many
haemorrhages all over, beaded veins or abnormal capillaries; 4 is new vessels and what they lead to. Neighbouring grades
overlap, as they do in clinics.
"""

from collections.abc import Callable

from numpy.random import Generator

Load = dict[str, int]  # lesion -> how many


def no_lesions(rng: Generator) -> Load:  # noqa: ARG001
    return {}


def mild(rng: Generator) -> Load:
    return {"microaneurysm": 1 + int(rng.poisson(3.5))}


def moderate(rng: Generator) -> Load:
    extent = rng.lognormal(0, 0.6)
    return {
        "microaneurysm": 3 + int(rng.poisson(7 * extent)),
        "dot": 3 + int(rng.poisson(5 * extent)),
        "blot": int(rng.poisson(1.6 * extent)),
        "flame": int(rng.poisson(0.8 * extent)),
        "exudates": _perhaps(rng, 0.6, more=1),
        "cotton_wool": _perhaps(rng, 0.3, more=0.8),
    }


def severe(rng: Generator) -> Load:
    extent = rng.lognormal(0, 0.5)
    return {
        "microaneurysm": 10 + int(rng.poisson(12 * extent)),
        "dot": 9 + int(rng.poisson(12 * extent)),
        "blot": 3 + int(rng.poisson(5 * extent)),
        "flame": 1 + int(rng.poisson(2.5 * extent)),
        "exudates": _perhaps(rng, 0.6, more=1.5),
        "cotton_wool": _perhaps(rng, 0.6, more=1.5),
        "beading": _perhaps(rng, 0.65),
        "abnormal_capillaries": _perhaps(rng, 0.6, more=2),
    }


def proliferative(rng: Generator) -> Load:
    load = severe(rng) if rng.uniform() < 0.5 else moderate(rng)
    load |= {
        "new_vessels_disc": _perhaps(rng, 0.45),
        "new_vessels": _perhaps(rng, 0.55, more=0.8),
        "preretinal": _perhaps(rng, 0.35),
        "vitreous": _perhaps(rng, 0.2),
        "fibrous": _perhaps(rng, 0.3),
    }
    if not any(load[sign] for sign in ("new_vessels_disc", "new_vessels", "preretinal", "vitreous")):
        load["new_vessels"] = 2
    load["laser"] = int(rng.uniform() < 0.3) * int(rng.integers(40, 150))
    return load


def _perhaps(rng: Generator, share: float, *, more: float = 0.0) -> int:
    """None, or in this share of eyes one and on average so many more."""
    return int(rng.uniform() < share) * (1 + int(rng.poisson(more)))


LOADS: dict[int, Callable[[Generator], Load]] = {0: no_lesions, 1: mild, 2: moderate, 3: severe, 4: proliferative}


def harmless(rng: Generator, *, drusen: bool) -> Load:
    """What an eye of any grade may have besides, and a grader must not mistake for retinopathy."""
    return {
        "drusen": int(rng.integers(8, 40)) if drusen else 0,
        "specks": int(rng.uniform() < 0.2) * int(rng.integers(1, 9)),
        "naevus": _perhaps(rng, 0.04),
    }
