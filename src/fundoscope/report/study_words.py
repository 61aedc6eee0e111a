"""What a study found, in words and in numbers for people: rounded to what their intervals support, exact underneath."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp, floor, isfinite, log10

from markupsafe import Markup

from fundoscope.analysis.effects import Part, Term
from fundoscope.analysis.findings import CellFinding, Comparison, Findings
from fundoscope.experiment.design import Cell

LABELS_PT = {
    "train_s": "tempo de treinamento",
    "wall_s": "duração do ensaio",
    "steady_epoch_s": "tempo de uma época",
    "images_per_s": "imagens por segundo",
    "accuracy": "acurácia",
}
REASONS_TOLD = 3


@dataclass(frozen=True)
class Found:
    """A number with its interval, whatever it is of."""

    value: float
    low: float | None = None
    high: float | None = None


def places_of(value: float, low: float | None = None, high: float | None = None) -> int:
    """Decimal places: three significant digits, or two of the interval's half width where that says more."""
    if not value or not isfinite(value):
        return 1
    places = 2 - floor(log10(abs(value)))
    half = (high - low) / 2 if low is not None and high is not None else 0.0
    if half > 0 and isfinite(half):
        places = max(places, min(1 - floor(log10(half)), places + 2))
    return max(0, min(places, 12))


def rounded(value: float, places: int, *, comma: bool = False) -> str:
    text = f"{value:,.{places}f}" if isfinite(value) else str(value)
    text = text.replace("-", "−")
    return text.translate({ord(","): ".", ord("."): ","}) if comma else text


def plain(found: Found, unit: str = "", *, comma: bool = False) -> str:
    """12.3 s (11.9–12.7)"""
    places = places_of(found.value, found.low, found.high)
    text = rounded(found.value, places, comma=comma) + (f"\u00a0{unit}" if unit else "")
    if found.low is None or found.high is None:
        return text
    return f"{text} ({rounded(found.low, places, comma=comma)}–{rounded(found.high, places, comma=comma)})"


def shown(found: Found, unit: str = "") -> Markup:
    """The same for the page, with the exact value in it."""
    places = places_of(found.value, found.low, found.high)
    text = rounded(found.value, places) + (f"\u00a0{unit}" if unit else "")
    number = Markup('<data value="{}">{}</data>').format(repr(found.value), text)
    if found.low is None or found.high is None:
        return number
    ends = rounded(found.low, places), rounded(found.high, places)
    return number + Markup(' <span class="interval">({}–{})</span>').format(*ends)


def dollars(value: float, *, comma: bool = False) -> str:
    places = 2 if value >= 1 or value == 0 else places_of(value)
    return f"US$\u00a0{rounded(value, places, comma=comma)}"


def shown_dollars(value: float) -> Markup:
    return Markup('<data value="{}">{}</data>').format(repr(value), dollars(value))


def percent(share: float, *, comma: bool = False) -> str:
    """63.8 %, 0.21 %; what rounds to nothing but is not is said to be below."""
    if 0 < share < 0.00005:
        return f"< {rounded(0.01, 2, comma=comma)}\u00a0%"
    return f"{rounded(100 * share, 1 if share >= 0.01 or not share else 2, comma=comma)}\u00a0%"


def chance(p: float | None) -> Markup | str:
    """p-values: below a thousandth nobody needs the digits."""
    if p is None:
        return "–"
    return Markup('<data value="{}">{}</data>').format(repr(p), "< 0.001" if p < 0.001 else f"{p:.3f}")


def number_of(n: int, one: str, more: str = "") -> str:
    return f"{n:,} {one if n == 1 else more or one + 's'}"


def listed(words: Iterable[str]) -> str:
    """a, b and c"""
    *first, last = list(words) or [""]
    return f"{', '.join(first)} and {last}" if first else last


def levels_of(cell: Cell, but: Iterable[str] = ()) -> str:
    left_out = set(but)
    return ", ".join(str(level) for name, level in cell.levels.items() if name not in left_out)


def is_time(metric: str) -> bool:
    return metric.endswith("_s") and not metric.endswith("_per_s")


def response_of(findings: Findings) -> str | None:
    """The metric that the study is about, also where too little was measured to explain it."""
    if findings.response is not None:
        return findings.response.metric
    asked = findings.design.get("response")
    return asked if asked in findings.metrics else next(iter(findings.metrics), None)


def time_of(findings: Findings) -> str | None:
    """The metric that is drawn as time: the response where it is one, as published otherwise."""
    for name in (response_of(findings), "train_s", "wall_s"):
        if name is not None and name in findings.metrics and is_time(name):
            return name
    return None


def measured_cells(findings: Findings, metric: str) -> list[CellFinding]:
    return [found for found in findings.cells if metric in found.readings]


def strongest(parts: Mapping[Term, Part]) -> Term | None:
    return max(parts, key=lambda term: parts[term].share, default=None)


def short(reason: str) -> str:
    return reason.partition(": ")[0]


def failed_reasons(findings: Findings) -> list[tuple[str, int]]:
    """In short, without what follows a colon; the commonest first."""
    reasons: Counter[str] = Counter()
    for found in findings.failures:
        reasons[short(found.reason)] += len(found.trials)
    return sorted(reasons.items(), key=lambda item: (-item[1], item[0]))


@dataclass(frozen=True)
class Widest:
    """The two levels of a factor that are furthest apart."""

    most: str
    least: str
    ratio: Found | None  # None: the effects add, and a ratio would mislead
    difference: Found


def widest(findings: Findings, factor: str) -> Widest | None:
    response = findings.response
    if response is None or (factor,) not in response.effects.parts:
        return None
    found = {levels[0]: effect.value for levels, effect in response.effects.parts[factor,].effects.items()}
    most, least = max(found, key=lambda level: found[level]), min(found, key=lambda level: found[level])
    apart = found[most] - found[least]
    compared = _compared(findings.comparisons, response.metric, factor, most, least)
    ratio = compared or (Found(exp(apart)) if response.scale == "log" else None)
    return Widest(most, least, ratio, Found(apart))


def _compared(comparisons: Iterable[Comparison], metric: str, factor: str, most: str, least: str) -> Found | None:
    for one in comparisons:
        if (one.metric, one.factor) == (metric, factor) and {one.one, one.other} == {most, least}:
            ratio = one.ratio if one.one == most else one.ratio.inverse
            return Found(ratio.value, ratio.low, ratio.high)
    return None


def extremes(findings: Findings) -> list[str]:
    """The names of the cells whose trials are worth a look: the least and the greatest for each level of a factor."""
    metric, factors = response_of(findings), list(findings.design["factors"])
    cells = measured_cells(findings, metric) if metric and factors else []
    by_level: dict[str, list[CellFinding]] = {}
    for found in sorted(cells, key=lambda found: found.readings[metric or ""].mean):
        by_level.setdefault(str(found.cell.levels[factors[0]]), []).append(found)
    return list(dict.fromkeys(some[i].cell.name for some in by_level.values() for i in (0, -1)))


def answer(findings: Findings) -> list[str]:
    """The sentences at the top: what mattered, which cells to take, what it cost, what failed."""
    said = [_mattered(findings), _best(findings), _cost(findings), _failures(findings)]
    return [sentence for sentence in said if sentence]


def unexplained(findings: Findings) -> str:
    """Why there is no response, to go after a colon."""
    why = findings.no_response.rstrip(". ") or "too little was measured"
    return why[0].lower() + why[1:]


def _mattered(findings: Findings) -> str:
    response = findings.response
    if response is None:
        return f"Nothing can be said of what matters: {unexplained(findings)}."
    label = _label(findings, response.metric)
    term = strongest(response.effects.parts)
    if term is None:
        return f"No factor could be shown to matter for {label}."
    share = percent(response.effects.parts[term].share)
    if len(term) > 1:
        return f"What mattered most for {label} is how {listed(term)} go together: {share} of its variation."
    said = f"What mattered most for {label} is {term[0]}: {share} of its variation"
    apart = widest(findings, term[0])
    if apart is not None and apart.ratio is not None:
        return f"{said}; {apart.most} has {plain(apart.ratio)} times that of {apart.least}."
    if apart is not None:
        unit = findings.metrics[response.metric].unit
        return f"{said}; between {apart.most} and {apart.least} lie {plain(apart.difference, unit)}."
    return f"{said}."


def _best(findings: Findings) -> str:
    metric, said = response_of(findings), []
    if metric is not None and (cells := measured_cells(findings, metric)):
        least = min(cells, key=lambda found: found.readings[metric].mean)
        told = is_time(metric)
        ends = [("The fastest cell is" if told else f"The least {_label(findings, metric)} has", least)]
        if not told:
            ends.append(("the greatest", max(cells, key=lambda found: found.readings[metric].mean)))
        said += [f"{words} {_cell(found, metric, findings)}" for words, found in ends]
    if findings.costs is not None and findings.costs.cells:
        cheap = min(findings.costs.cells, key=lambda found: found.usd.mean)
        which = f"{cheap.cell.name} ({levels_of(cheap.cell)})"
        if said and f" {which} " in said[0]:
            which = "the same one,"
        said.append(f"{'the' if said else 'The'} cheapest is {which} with {dollars(cheap.usd.mean)} a trial")
    return f"{'; '.join(said)}." if said else ""


def _cell(found: CellFinding, metric: str, findings: Findings) -> str:
    reading = found.readings[metric]
    amount = plain(Found(reading.mean, reading.low, reading.high), findings.metrics[metric].unit)
    return f"{found.cell.name} ({levels_of(found.cell)}) with {amount}"


def _cost(findings: Findings) -> str:
    costs = findings.costs
    if costs is None:
        return ""
    failed = f", {dollars(costs.failed_usd)} of it for trials that failed" if costs.failed_usd else ""
    way = "spot prices" if costs.spot else "prices"
    return f"All trials together cost {dollars(costs.total_usd)}{failed}, at the {way} of {costs.prices}."


def _failures(findings: Findings) -> str:
    done = findings.measured + findings.failed
    if findings.failed:
        reasons = failed_reasons(findings)
        told = [f"{reason} ({n:,})" for reason, n in reasons[:REASONS_TOLD]]
        more = f"; {number_of(len(reasons) - REASONS_TOLD, 'other reason')}" if len(reasons) > REASONS_TOLD else ""
        said = f"{findings.failed:,} of {number_of(done, 'trial')} failed: {'; '.join(told)}{more}."
    else:
        said = f"None of {number_of(done, 'trial')} failed."
    return said + (f" {number_of(findings.not_run, 'trial')} of the plan not run yet." if findings.not_run else "")


def answer_pt(findings: Findings) -> list[str]:
    """Three to six sentences."""
    done = findings.measured + findings.failed
    said = [
        f"O estudo “{findings.study}” planejou {_n(findings.planned)} ensaios em {_n(len(findings.cells))} cenários;"
        f" {_n(findings.measured)} foram medidos e {_n(findings.failed)} falharam"
        + (f", e {_n(findings.not_run)} ainda não foram executados." if findings.not_run else ".")
    ]
    said += filter(None, [_mattered_pt(findings), _best_pt(findings)])
    if findings.costs is not None:
        total, failed = (dollars(x, comma=True) for x in (findings.costs.total_usd, findings.costs.failed_usd))
        lost = f", dos quais {failed} em ensaios que falharam" if findings.costs.failed_usd else ""
        said.append(f"O custo de todos os ensaios foi de {total}{lost} (preços: {findings.costs.prices}).")
    if findings.failed:
        reason, n = failed_reasons(findings)[0] if findings.failures else ("motivo desconhecido", findings.failed)
        said.append(f"O motivo mais comum das {_n(findings.failed)} falhas em {_n(done)} ensaios: {reason} ({_n(n)}).")
    said.append("Entre parênteses, intervalos de 95\u00a0%.")
    return said


def _mattered_pt(findings: Findings) -> str:
    response = findings.response
    if response is None:
        return "Mediu-se muito pouco para dizer quais fatores importam."
    term = strongest(response.effects.parts)
    label = LABELS_PT.get(response.metric, _label(findings, response.metric))
    if term is None:
        return ""
    share = percent(response.effects.parts[term].share, comma=True)
    what = f"o fator “{term[0]}”" if len(term) == 1 else f"a combinação de {' e '.join(f'“{name}”' for name in term)}"
    said = f"O que mais influenciou ({label}) foi {what}, com {share} da variação"
    apart = widest(findings, term[0]) if len(term) == 1 else None
    if apart is None or apart.ratio is None:
        return f"{said}."
    return f"{said}: {apart.most} tem {plain(apart.ratio, comma=True)} vezes o valor de {apart.least}."


def _best_pt(findings: Findings) -> str:
    metric, said = response_of(findings), []
    if metric is not None and is_time(metric) and (cells := measured_cells(findings, metric)):
        least = min(cells, key=lambda found: found.readings[metric].mean)
        reading, unit = least.readings[metric], findings.metrics[metric].unit
        amount = plain(Found(reading.mean, reading.low, reading.high), unit, comma=True)
        said.append(f"O cenário mais rápido foi {least.cell.name} ({levels_of(least.cell)}), com {amount}")
    if findings.costs is not None and findings.costs.cells:
        cheap = min(findings.costs.cells, key=lambda found: found.usd.mean)
        amount = dollars(cheap.usd.mean, comma=True)
        said.append(f"{'o' if said else 'O'} mais barato, {cheap.cell.name} ({levels_of(cheap.cell)}), com {amount}")
    return f"{'; '.join(said)}." if said else ""


def _label(findings: Findings, metric: str) -> str:
    return findings.metrics[metric].label if metric in findings.metrics else metric


def _n(n: int) -> str:
    return rounded(n, 0, comma=True)
