"""The search of a study: what is known before it, what it may cost, and why it ended."""

from __future__ import annotations

from advisor.journal import Study
from advisor.progress import Progress
from advisor.records import Facts
from advisor.request import TuneRequest
from advisor.search.costs import Costs
from advisor.search.loop import recall, search
from advisor.search.sampler import Sampler
from advisor.study.failures import feasibility
from advisor.study.launches import Launches, search_goes_on
from advisor.study.spaces import Spaces
from advisor.study.warm_start import known_figures
from advisor.units import duration


def search_study(
    request: TuneRequest, facts: Facts, study: Study, spaces: Spaces, launch: Launches, progress: Progress
) -> str:
    """Launch candidates as long as it pays; returns why it ended. A study that was searched enough is only told that again."""
    budget, objective = request.budget, request.objective
    sampler = Sampler(launch.space, objective, request.seed, feasibility(request, facts, study))
    known = known_figures(request, facts, launch.space, spaces.limits(), (study.name, study.created_at))
    if not search_goes_on(budget, study.trials, objective):
        return recall(sampler, budget, objective, study.trials, known.points)
    progress.stage("search")
    for note in (*known.notes, *room(request, launch)):
        progress.note(note)
    reason = search(
        lambda candidate: launch("search", candidate),
        sampler, budget, objective, launch.done, progress.note, request.retry_failed, known.points,
    )  # fmt: skip
    progress.note(f"search ended: {reason}")
    return reason


def room(request: TuneRequest, launch: Launches) -> list[str]:
    """How many launches fit, at what the baseline cost: nothing to say where none does, since the search says that itself."""
    trials, budget = launch.done(), request.budget
    seconds = budget.search_s(trials, request.objective)
    tried = {trial.candidate.key for trial in trials if trial.phase == "search"}
    untried = [item for item in launch.space.candidates if item.key not in tried]
    costs = Costs(trials, launch.space.resolved).of(untried)
    if not len(costs) or seconds < costs.min():
        return []
    cheapest, dearest = duration(float(costs.min())), duration(float(costs.max()))
    each = cheapest if cheapest == dearest else f"{cheapest} to {dearest}"
    reserve = duration(budget.reserve_s(trials, request.objective))
    count, most = max(1, round(seconds / float(costs.mean()))), len(untried)
    launches = f"about {count} launches"
    if launch.space.complete and count >= most:
        launches = f"all {most} candidates" if most > 1 else "the only candidate left"
    return [
        f"{duration(seconds)} for the search, {reserve} kept for the confirmation: room for {launches}, estimated at {each} each"
    ]
