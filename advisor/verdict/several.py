"""One judgement of several objectives: a gain in one must not cost another. Pure. The rule is in docs/objectives.md."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from advisor.records import Compared, Decision, Interval, Objective
from advisor.units import changes
from advisor.verdict.sequential import MIN_GAIN, Judgement, Looks, judge
from advisor.verdict.statistics import Comparison

TRADE = "a trade, not an improvement; it is in the Pareto front"


@dataclass(frozen=True)
class Figures:
    """A finalist against the baseline in every objective, oriented so that above zero is better."""

    first: Comparison
    further: tuple[Comparison | None, ...]  # of the other objectives; None: too few launches have the figure
    others: tuple[Compared, ...]  # the same with plain intervals, for telling

    @property
    def every(self) -> list[Comparison]:
        return [self.first, *(item for item in self.further if item is not None)]


def weighed(first: Judgement, described: str, seen: Figures, looks: Looks, ended: bool) -> Judgement:
    """What the launches say when all objectives count; the reason is a sentence whose subject is the finalist.

    `first` is the judgement of the first objective and `described` its figures, as `gave +3% (...)`. The error of a gain in any
    of the others is that of one (Bonferroni).
    """
    told = ", ".join(map(_told, seen.others))
    looks = dataclasses.replace(looks, finalists=looks.finalists * max(1, len(seen.others)))
    if first.decision is Decision.IMPROVED:
        return _first_gained(f"{described}; {told}", seen, looks, ended)
    gained = any(judge(item, looks, ended).decision is Decision.IMPROVED for item in seen.every[1:])
    if gained and not any(map(_seems_lost, seen.every)):
        reason = f"gave {told}, without a measured loss in the first objective, which {described}"
        return Judgement(Decision.IMPROVED, reason)
    if first.decision is not None and not ended and _may_still_gain(gained, seen, looks):
        return Judgement(None, f"{described}; {told}")
    reason = f"{described}: {first.reason}" if first.reason else described
    return Judgement(first.decision, f"{reason}; {told}")


def _first_gained(told: str, seen: Figures, looks: Looks, ended: bool) -> Judgement:
    """The first objective is better: is it a trade, or may further launches show that it is one?"""
    if any(map(_surely_lost, seen.others)):
        return Judgement(Decision.KEEP_DEFAULTS, f"{told}: {TRADE}")
    is_open = not ended and any(_loss_is_open(item, looks) for item in seen.every[1:])
    return Judgement(None if is_open else Decision.IMPROVED, told)


def _may_still_gain(gained: bool, seen: Figures, looks: Looks) -> bool:
    """Whether further launches could show a gain in another objective that costs nothing."""
    if any(map(_surely_lost, seen.others)) or _loss_is_sure(seen.first, looks):
        return False
    open_gain = any(judge(item, looks, ended=False).decision is None for item in seen.every[1:])
    return open_gain or (gained and any(_loss_is_open(item, looks) for item in seen.every))


def _surely_lost(item: Compared) -> bool:
    """Worse by 2% or more, with the whole (plain) interval on that side."""
    return item.standing == "worse" and item.ratio is not None and item.ratio.value <= 1 - MIN_GAIN


def _seems_lost(found: Comparison) -> bool:
    """Measured as worse by 2% or more, whether proven or not."""
    return found.ratio <= 1 - MIN_GAIN


def _loss_is_sure(found: Comparison, looks: Looks) -> bool:
    return _seems_lost(found) and found.interval(looks.tail(found.launches)).high < 1


def _loss_is_open(found: Comparison, looks: Looks) -> bool:
    """A loss was measured, and further launches may tell whether it is one: the gain of the other way round, judged."""
    return _seems_lost(found) and judge(found.mirrored(), looks, ended=False).decision is None


def _told(item: Compared) -> str:
    if item.ratio is None:
        return f"{item.metric} was not measured often enough"
    unclear = item.standing in ("same", "unclear")
    return f"{item.metric} {told_interval(item.ratio, item.metric)}{', not beyond the noise' if unclear else ''}"


def told_interval(ratio: Interval | None, metric: str) -> str:
    """`+3.0% [+1.0%, +5.0%]`: the change of the figure itself, whichever way is better."""
    if ratio is None:
        return "not compared"
    value, low, high = changes(ratio.value, ratio.low, ratio.high, Objective(metric).maximise)
    return f"{value} [{low}, {high}]"
