"""The page of a screening: who is to be seen first, what could not be graded and why. One HTML file, without a network.

File names are in it, since a clinic finds its patients by them; photographs are not. It is made from the log alone, so
that the same screening gives the same page.
"""

from pathlib import Path
from typing import Any

from fundoscope.provenance import write_whole
from fundoscope.report.template import fill
from fundoscope.screen.patients import NO_REFERRAL, REFER, RETAKE
from fundoscope.screen.screen import Screened, page_beside

RESULTS_PT = {REFER: "encaminhar", RETAKE: "refazer ou encaminhar", NO_REFERRAL: "sem encaminhamento"}
POINTS_PT = {"high_sensitivity": "alta sensibilidade", "high_specificity": "alta especificidade"}
REASONS_SHOWN = 25


def write_screening(screened: Screened) -> Path:
    """Beside the table, under its name, as .html."""
    out = page_beside(screened.asked.out)
    write_whole(out, render(screened).encode())
    return out


def render(screened: Screened) -> str:
    return fill("screening.html", _context(screened))


def _context(screened: Screened) -> dict[str, Any]:
    asked, counts = screened.asked, screened.counts
    artefact = asked.artefact
    return {
        "s": screened,
        "asked": asked,
        "artefact": artefact,
        "point": asked.operating_point,
        "measured": _measured(screened),
        "refused": artefact.refused,
        "caution": (artefact.guard or {}).get("caution", ""),
        "counts": counts,
        "not_graded": counts["photographs"] - counts["graded"],
        "grades": _grades(screened),
        "reasons": _reasons(screened),
        "people": counts.get("patients"),
        "results_pt": RESULTS_PT,
        "point_pt": POINTS_PT.get(asked.operating_point.name, asked.operating_point.name),
    }


def _measured(screened: Screened) -> list[dict[str, Any]]:
    """What the operating point did on the model's own test photographs, without and with the ungradable ones."""
    scores, name = screened.asked.artefact.scores, screened.asked.operating_point.name
    found = []
    for way, said in (("gradable", "gradable photographs"), ("all", "ungradable ones counted as referred")):
        at = scores.get(way, {}).get("operating_points", {}).get(name)
        if at:
            rates = {rate: at[rate] | {"reason": "not computed"} for rate in ("sensitivity", "specificity")}
            found.append({"way": said, "n": scores[way]["n"], "n_positive": scores[way]["n_positive"], **rates})
    return found


def _grades(screened: Screened) -> list[dict[str, Any]]:
    """Worst first."""
    counts, graded = screened.counts["grades"], max(1, screened.counts["graded"])
    if not counts:
        return []
    classes = screened.asked.artefact.output.classes
    rows = [{"grade": i, "name": name, "n": counts[str(i)]} for i, name in enumerate(classes)]
    return [row | {"share": counts[str(row["grade"])] / graded} for row in reversed(rows)]


def _reasons(screened: Screened) -> list[tuple[str, str, int]]:
    """Status, reason and how many, the commonest first."""
    commonest = sorted(screened.reasons.items(), key=lambda item: (-item[1], item[0]))[:REASONS_SHOWN]
    return [(status, reason, n) for (status, reason), n in commonest]
