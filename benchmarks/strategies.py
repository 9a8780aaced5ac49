"""Searches that are compared: each launches candidates through a `Player` until that has seen enough or nothing is left.

All begin with the default, which everybody has measured. What is no candidate of the grid, or the double of another one, costs
nobody a launch: plain Optuna pays for both in practice.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from advisor.progress import Silent
from advisor.records import Candidate, Trial
from advisor.request import TuneRequest
from advisor.search.budget import Budget
from advisor.search.effects import Point
from advisor.search.feasibility import Feasibility
from advisor.search.scores import better_by, score
from advisor.space.candidates import Limits, SearchSpace, SettingChoices
from benchmarks.player import Player

FREE_ASKS = 10  # proposals in a row that cost nothing, after which plain Optuna's next one is drawn at random
NO_LIMIT_S = 1e9


def ours(player: Player) -> None:
    """What `advisor tune` does between the baseline and the confirmation, its early stop included.

    It knows the short list of advisor/search/priors.py beforehand, and no profile: one of the grid's own model would be the answer.
    """
    _search(player, _known(player))


def ours_unaided(player: Player) -> None:
    """The same without that list, which was written with runs of the H200 in sight: what the method alone is worth."""
    _search(player, ())


def _search(player: Player, known: Sequence[Point]) -> None:
    from advisor.search.loop import search
    from advisor.search.sampler import Sampler
    from advisor.study.launches import Launches

    case, space = player.case, player.space
    budget = Budget(NO_LIMIT_S)
    request = TuneRequest(
        case.head.facts.model.model, "auto", case.head.workload, budget, "python3", objective=case.objective,
        serve_args=case.head.serve_args, samples=case.head.samples,
    )  # fmt: skip
    launch = Launches(request, player, space, player, Silent(), None)
    launch.baseline()
    sampler = Sampler(space, case.objective, player.seed, Feasibility())
    search(lambda candidate: launch("search", candidate), sampler, budget, case.objective, launch.done, known=known)


def _known(player: Player) -> Sequence[Point]:
    """Where the head tells the limits that the list asks for."""
    from advisor.search.priors import known_before

    head, resolved = player.case.head, player.space.resolved.get(Candidate().key, {})
    if "max_num_seqs" not in resolved or "max_num_batched_tokens" not in resolved:
        return ()
    limits, metric = Limits.of(resolved), player.case.objective.metric
    return known_before(head.facts.engine, head.workload, limits, player.space.settings, metric)[0]


def random_search(player: Player) -> None:
    """Every distinct legal candidate once, in a drawn order."""
    player.launch(Candidate())
    for candidate in random.Random(player.seed).sample(player.space.candidates, len(player.space.candidates)):
        player.launch(candidate)


def full_grid(player: Player) -> None:
    """Every candidate in the order of the search space's file."""
    for candidate in (Candidate(), *player.space.candidates):
        player.launch(candidate)


def one_factor(player: Player) -> None:
    """One setting after the other, each value of it beside the best of the settings before; again until nothing changes."""
    best, value = Candidate(), _score(player, player.launch(Candidate()))
    tried = {best.key: value}
    while True:
        before = best
        for choice in player.space.settings:
            for candidate in _variants(best, choice, player.space):
                if candidate.key not in tried:
                    tried[candidate.key] = _score(player, player.launch(candidate))
            known = [item for item in (best, *_variants(best, choice, player.space)) if tried[item.key] is not None]
            best = max(known, key=lambda item: better_by(tried[item.key], tried[known[0].key], player.case.objective))
        if best.key == before.key:
            return


def _variants(best: Candidate, choice: SettingChoices, space: SearchSpace) -> list[Candidate]:
    """The best so far with each value of one setting; settings whose condition that breaks go back to their default."""
    found = []
    for value in choice.values:
        chosen: dict[str, Any] = {}
        for other in space.settings:
            wanted = value if other.name == choice.name else best.settings.get(other.name)
            chosen[other.name] = wanted if other.exists(chosen) else None
        same = space.stands_for(Candidate({name: item for name, item in chosen.items() if item is not None}))
        if same is not None:
            found.append(same)
    return found


def plain_tpe(player: Player) -> None:
    """Optuna's TPE as it comes: ten random draws, failures told as failed."""
    import optuna

    _plain_optuna(player, optuna.samplers.TPESampler(seed=player.seed))


def plain_gp(player: Player) -> None:
    """Optuna's Gaussian process as it comes; it needs torch."""
    import optuna

    _plain_optuna(player, optuna.samplers.GPSampler(seed=player.seed))


def _plain_optuna(player: Player, sampler: Any) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    direction = "maximize" if player.case.objective.maximise else "minimize"
    study = optuna.create_study(direction=direction, sampler=sampler)
    rng = random.Random(player.seed)
    told: dict[str, float | None] = {}

    def tell(trial: Any, value: float | None) -> None:
        study.tell(trial, value) if value is not None else study.tell(trial, state=optuna.trial.TrialState.FAIL)

    told[Candidate().key] = _score(player, player.launch(Candidate()))
    left = {item.key: item for item in player.space.candidates}
    while left:
        candidate, trial = None, None
        for _ in range(FREE_ASKS):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                trial = study.ask()
                found = player.space.stands_for(_suggested(trial, player.space.settings))
            if found is not None and found.key in left:
                candidate = found
                break
            tell(trial, told.get(found.key) if found is not None else None)
            trial = None
        if candidate is None:
            candidate = left[rng.choice(sorted(left))]
        left.pop(candidate.key)
        told[candidate.key] = _score(player, player.launch(candidate))
        if trial is not None:
            tell(trial, told[candidate.key])


def _suggested(trial: Any, settings: Sequence[SettingChoices]) -> Candidate:
    chosen: dict[str, Any] = {}
    for choice in settings:
        index = (
            trial.suggest_categorical(choice.name, list(range(len(choice.values)))) if choice.exists(chosen) else None
        )
        chosen[choice.name] = None if index is None else choice.values[index]
    return Candidate({name: value for name, value in chosen.items() if value is not None})


def _score(player: Player, trial: Trial) -> float | None:
    return score(trial, player.case.objective)


Strategy = Callable[[Player], None]
STRATEGIES: dict[str, Strategy] = {
    "ours": ours,
    "ours-unaided": ours_unaided,
    "random": random_search,
    "tpe": plain_tpe,
    "gp": plain_gp,
    "one-factor": one_factor,
    "grid": full_grid,
}
