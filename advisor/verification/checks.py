"""The profile's figures against those of the fresh launches, side by side and objective by objective. Pure."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.measure.load_search import RESOLUTION
from advisor.measure.taints import tainted
from advisor.records import Candidate, Interval, Objective, Trial
from advisor.serving_profile.schema import Profile, Side
from advisor.verdict.disturbed import MOST
from advisor.verdict.fresh import figures, fresh
from advisor.verification.figure import Held, Was, judged, launches_needed, ratio, was

_FIELDS = {"goodput": "goodput_requests_s", "max_concurrency": "load", "max_rate": "load"}
_OTHERWISE = "output_tok_s"  # every profile has it


@dataclass(frozen=True)
class FigureCheck:
    """One side's figure. `now`: each present launch's, in the order of the rounds; `ratio`: present mean over the profile's."""

    side: str  # default, tuned or challenger
    metric: str
    before: Was
    now: tuple[float, ...]
    ratio: Interval | None
    held: Held
    needed: int | None = None  # launches that would settle an open one
    tolerance: float = 0.0  # that this figure has: of a load that was searched, a step of the search with it


def compared_metrics(profile: Profile, objective: Objective) -> tuple[str, ...]:
    """Those of the objectives that the profile holds: a gain in a further one may be all that was claimed."""
    first = compared_metric(profile, objective.metric)
    further = [metric for metric in objective.secondary if compared_metric(profile, metric) == metric]
    return tuple(dict.fromkeys([first, *further]))


def compared_metric(profile: Profile, metric: str) -> str:
    """The objective's, or output tokens a second where the profile has no figure of it (`ttft_ms.p90`)."""
    sides = [profile.measured.default, profile.other_side()[1]]
    told = all(getattr(side, _field(metric), None) is not None for side in sides if side is not None)
    return metric if told else _OTHERWISE


def _field(metric: str) -> str:
    name, _, percentile = metric.partition(".")
    return f"{name.removesuffix('_ms')}_{percentile}_ms" if percentile else _FIELDS.get(name, name)


def figure_check(
    profile: Profile, trials: Sequence[Trial], objective: Objective, side: tuple[str, Candidate], tolerance: float
) -> FigureCheck:
    """`objective`: of one metric, that the profile has; `side`: its name there, and who was launched."""
    name, item = side
    there: Side | None = getattr(profile.measured, name)
    told = getattr(there, _field(objective.metric)) if there else None
    now = _now(trials, item, objective)
    if there is None or told is None:
        return FigureCheck(name, objective.metric, Was(0.0, 0), now, None, Held.UNCLEAR, tolerance=tolerance)
    before = was(told, there.launches)
    shown = _good(trials, item) if objective.metric == "goodput" else now
    if not before.mean:
        return FigureCheck(name, objective.metric, before, shown, None, _held_at_nothing(shown), tolerance=tolerance)
    tolerance = tolerance_of(objective.metric, before.mean, tolerance)
    found = ratio(before, now)
    settled = held = judged(found, tolerance)
    if held is Held.FAILS and mostly_disturbed(trials, item):
        held = Held.UNCLEAR  # what other programs did is nothing against the profile
    needed = launches_needed(before, now, tolerance) if settled is Held.UNCLEAR else None
    return FigureCheck(name, objective.metric, before, shown, found, held, needed, tolerance)


def tolerance_of(metric: str, load: float, tolerance: float) -> float:
    """A load that was searched for is known to a step: two days may find neighbouring ones though nothing changed.

    A step is what `find_load` narrows the gap to: RESOLUTION, or one request in flight.
    """
    if metric not in ("max_concurrency", "max_rate") or load <= 0:
        return tolerance
    step = max(RESOLUTION, 1 / load) if metric == "max_concurrency" else RESOLUTION
    return (1 + tolerance) * (1 + step) - 1


def mostly_disturbed(trials: Sequence[Trial], item: Candidate) -> bool:
    good = [trial for trial in fresh(trials, item).values() if trial.ok]
    return sum(bool(tainted(trial)) for trial in good) > MOST * len(good)


def _now(trials: Sequence[Trial], item: Candidate, objective: Objective) -> tuple[float, ...]:
    try:
        found = figures(trials, item, objective)
    except ValueError:  # a sample without the figure
        return ()
    return tuple(found[number] for number in sorted(found))


def _good(trials: Sequence[Trial], item: Candidate) -> tuple[float, ...]:
    """Goodput as it was measured, zeros included: a ratio takes half a request for them."""
    launches = [trial for _, trial in sorted(fresh(trials, item).items()) if trial.ok and trial.samples]
    return tuple(statistics.fmean(one.goodput_requests_s or 0.0 for one in trial.samples) for trial in launches)


def _held_at_nothing(now: Sequence[float]) -> Held:
    """Against a goodput of the profile in which not one request was in time: there is no ratio to it."""
    if len(now) < 2 or (any(now) and not all(now)):
        return Held.UNCLEAR
    return Held.FAILS if all(now) else Held.HOLDS


def one_metric(objective: Objective, metric: str) -> Objective:
    return dataclasses.replace(objective, metric=metric, secondary=())
