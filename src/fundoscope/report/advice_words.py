"""Advice in sentences, the same on the terminal and on the page."""

from collections.abc import Sequence

from fundoscope.analysis.advise import Advice, Flip
from fundoscope.analysis.amounts import dollars, percent, seconds
from fundoscope.analysis.break_even import BreakEven
from fundoscope.analysis.month import Estimate
from fundoscope.analysis.options import Serverless

BREAK_EVENS_TOLD = 4


def headline(advice: Advice) -> str:
    """The advised way in one sentence, or that there is none."""
    best = advice.estimates[0]
    if advice.advised is None:
        return f"no way that was measured can be advised for {advice.objective}: {best.name}, for one, {_but(best)}"
    known = ", ".join(f"{name} {_said(best.latency_s[name])}" for name in ("p50", "p95", "p99"))
    cold = f"{percent(best.cold_share)} cold, " if isinstance(best.option, Serverless) else ""
    return (
        f"{best.name}: {dollars(best.usd)} USD a month, {dollars(best.usd_per_thousand)} a thousand; {known}; "
        f"{cold}{_throttled(best)}"
    )


def _said(value: float | None) -> str:
    return "not known from so few readings" if value is None else seconds(value)


def _throttled(best: Estimate) -> str:
    word = "throttled" if isinstance(best.option, Serverless) else "refused"
    return f"{percent(best.refused_share)} {word}" if best.refused_share else f"none {word}"


def _but(estimate: Estimate) -> str:
    return f"will not do: {estimate.why_not}"


def how_sure(advice: Advice) -> str:
    sure = advice.certainty
    if sure is None or not sure.resamples:
        return ""
    if sure.both == 1:
        return f"in all {sure.resamples} resamples of the readings it is the cheapest that meets {advice.objective}"
    return (
        f"in {percent(sure.both)} of {sure.resamples} resamples of the readings it is the cheapest that meets "
        f"{advice.objective}: it meets it in {percent(sure.meets)}, and none that does is cheaper in "
        f"{percent(sure.cheapest)}"
    )


def what_would_change(advice: Advice) -> str:
    """The smallest change of one price or one way's latencies that would give other advice."""
    flip = advice.flip
    if advice.advised is None:
        return ""
    if flip is None:
        return "no single price or latency, within a factor of 16, would"
    whose = "that one" if flip.to == flip.of else flip.to
    then = f"{whose} would be advised" if flip.to else "no way could be advised"
    return f"if {_change(flip, advice.advised)}, {then}"


def _change(flip: Flip, advised: str) -> str:
    if flip.what == "price":
        return f"{flip.of} cost {flip.factor:.3g} times as much"
    if flip.of == advised:
        return f"its requests took {flip.factor:.3g} times as long"
    return f"requests of {flip.of} took {100 * (1 - flip.factor):.3g} % less time"


def told_break_evens(advice: Advice) -> list[str]:
    """Those nearest to the traffic, of ways that may be advised and keep up there."""
    if advice.advised is None:
        return []
    open_ways = {each.name for each in advice.estimates if not each.why_not}
    kept = [each for each in advice.break_evens if each.keeps_up and {each.below, each.above} <= open_ways]
    above = [each for each in kept if each.below == advice.advised]
    below = [each for each in reversed(kept) if each.above == advice.advised]
    told = [*_nearest(below), *_nearest(above)]
    return told or ["no other way that may be advised and keeps up costs less at another rate"]


def _nearest(found: Sequence[BreakEven]) -> list[str]:
    return [break_even_words(each) for each in found[:BREAK_EVENS_TOLD]]


def break_even_words(each: BreakEven) -> str:
    return f"{each.requests_per_month:,.0f} requests a month: {each.below} below that, {each.above} above"
