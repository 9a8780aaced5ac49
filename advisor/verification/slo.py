"""Is what the profile serves with still within its SLO? A figure alone does not tell: a fast default can break it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.records import Candidate, Objective, SloLimit, Trial
from advisor.search.scores import slo_breaches
from advisor.serving_profile.schema import Side
from advisor.verdict.fresh import fresh
from advisor.verification.figure import Held


@dataclass(frozen=True)
class SloCheck:
    """The served side. `before` None: the profile's figures do not tell. `broken`: one line a launch that breaks the SLO.

    `held` None: the profile claims nothing, as a default that broke its SLO then does.
    """

    side: str  # default or tuned
    before: bool | None
    percent: float | None  # of the profile's requests, within every limit
    launches: int
    broken: tuple[str, ...]
    held: Held | None


def slo_check(
    side: str, told: Side | None, trials: Sequence[Trial], item: Candidate, objective: Objective
) -> SloCheck | None:
    """None where no SLO rules anything out: there is none, or the objective counts what breaks it."""
    if not objective.constrained:
        return None
    percent = told.slo_percent.mean if told and told.slo_percent else None
    before = None if percent is None else was_met(percent / 100, objective.slo)
    launches = [trial for trial in fresh(trials, item).values() if trial.ok]
    broken = tuple(found[0] for trial in launches if (found := slo_breaches(trial, objective)))
    return SloCheck(side, before, percent, len(launches), broken, _held(before, len(launches), len(broken)))


def was_met(share: float, slo: Sequence[SloLimit]) -> bool | None:
    """By the share of requests within every limit, all that a profile holds. None where it leaves that open.

    Each limit's own share is at least this one, and requests outside all limits together are at most those outside each added up.
    """
    rounding = 1e-4  # a profile holds four digits
    if share >= max(limit.share for limit in slo) - rounding:
        return True
    return False if share < 1 - sum(1 - limit.share for limit in slo) - rounding else None


def _held(before: bool | None, launches: int, broken: int) -> Held | None:
    """Met on each launch: it holds. Missed on each: refuted, if the profile met it. Else, or without launches, it is open."""
    if launches and not broken:
        return Held.HOLDS
    if before is not True:
        return None
    return Held.FAILS if launches and broken == launches else Held.UNCLEAR
