"""Several objectives: the Pareto front of the search, and which of its points is recommended for which reason. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.records import Candidate, FrontPoint, Objective, Trial
from advisor.search.scores import TIE, eligible, gains, measured_default, ranked, scores, slo_breaches
from advisor.units import change


@dataclass(frozen=True)
class Front:
    """`points`: the default too, where nothing beats it; `reason`: why one of them is recommended, in one sentence."""

    points: tuple[FrontPoint, ...] = ()
    reason: str = ""

    @property
    def recommended(self) -> Candidate | None:
        return next((point.candidate for point in self.points if point.recommended), None)


def pareto_front(trials: Sequence[Trial], objective: Objective) -> Front:
    """The front of the default and all candidates of the search that may win; empty for one objective.

    Recommended is the best first objective among those that lose no more than 2% against the default in any other: a gain
    that costs something else is a choice, and the front is there to make it.
    """
    if not objective.secondary:
        return Front()
    default = measured_default(trials, objective)
    rivals = _one_each(eligible(trials, objective))
    if default is not None and not slo_breaches(default, objective):
        rivals = [default, *rivals]
    best = _undominated(rivals, objective)
    chosen, reason = _recommended(trials, default, objective)
    if chosen is not None and chosen.number not in [trial.number for trial in best]:
        best = [*best, chosen]  # within the noise of a point of the front, with fewer overrides
    points = sorted(best, key=lambda t: scores(t, objective)[0], reverse=objective.maximise)
    return Front(
        tuple(
            FrontPoint(
                trial.candidate,
                dict(zip(objective.metrics, scores(trial, objective), strict=True)),
                recommended=(is_chosen := chosen is not None and trial.number == chosen.number),
                why=reason if is_chosen else "",
            )
            for trial in points
        ),
        reason,
    )


def _one_each(trials: Sequence[Trial]) -> list[Trial]:
    """The first launch of each candidate."""
    return list({trial.candidate.key: trial for trial in reversed(trials)}.values())[::-1]


def _undominated(trials: Sequence[Trial], objective: Objective) -> list[Trial]:
    return [trial for trial in trials if not any(_dominates(other, trial, objective) for other in trials)]


def _dominates(one: Trial, other: Trial, objective: Objective) -> bool:
    """At least as good in every objective and better in one; the figures as measured, without a margin for noise."""
    ratios = gains(one, other, objective)
    return min(ratios) >= 1 and max(ratios) > 1


def _recommended(trials: Sequence[Trial], default: Trial | None, objective: Objective) -> tuple[Trial | None, str]:
    order = ranked(trials, objective)
    if not order:
        return default, "nothing else was measured that may win"
    best = order[0]
    if default is None:
        return best, f"it has the best {objective.metric}"
    ratios = gains(best, default, objective)
    each = zip(objective.each, ratios, strict=True)
    told = ", ".join(f"{one.metric} {change(ratio, one.maximise)}" for one, ratio in each)
    if slo_breaches(default, objective) and min(ratios) < 1 - TIE:
        return best, f"the default breaks the SLO, and this has the best mean gain ({told})"
    if not any(max(gains(trial, default, objective)) > 1 + TIE for trial in order):
        return default, f"no candidate gains more than {TIE:.0%} in any objective"
    if min(ratios) < 1 - TIE:
        return (
            default,
            f"whatever gains in one objective loses in another; the best compromise, {best.candidate.label}: {told}",
        )
    if max(ratios) <= 1 + TIE:
        return default, f"no candidate gains more than {TIE:.0%} in any objective without a loss in another"
    return best, f"the best {objective.metric} of those that lose nothing beyond {TIE:.0%} against the default ({told})"
