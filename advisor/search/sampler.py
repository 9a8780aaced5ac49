"""Which candidate to launch next. The only file that imports Optuna.

The first proposals are the designed ones (advisor/space/candidates.py), then Optuna's TPE; whenever the best so far has more
than one override, it is tried without each of them, since an override that does nothing should not be kept for years. A
proposal that was measured already is answered from memory, an illegal one as infeasible, both without a launch. A failed trial
is told as infeasible with the worst score seen: samplers do not look at FAIL trials, and zero would be a number that nobody
measured. A candidate that breaks the SLO is told with its own scores and as infeasible by as much as it misses the SLO. Several
objectives are several values of a trial, for which TPE splits the trials by Pareto rank.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.trial import TrialState, create_trial

from advisor.errors import InputError
from advisor.records import Candidate, Objective
from advisor.space.candidates import SearchSpace, SettingChoices, first_candidates

_MAX_ASKS = (
    25  # proposals answered from memory before the first untried candidate is taken instead; an ask takes some 10 ms
)
_STARTUP_TRIALS = 6  # TPE draws at random until so many trials are told; the designed ones count among them


Scores = tuple[float, ...]  # one an objective, in the order of Objective.metrics


@dataclass(frozen=True)
class _Told:
    scores: Scores | None  # None: it failed
    violation: float = 0.0  # by which the SLO is missed; more than 0 rules the candidate out

    @property
    def feasible(self) -> bool:
        return self.scores is not None and self.violation <= 0

    @property
    def constraints(self) -> dict[str, float]:
        """Optuna's names and values: above zero is infeasible."""
        return {"launched": 1.0 if self.scores is None else 0.0, "slo": self.violation}


class Sampler:
    """Proposes untried candidates of a space and learns from scores. Scores are raised as the objective says."""

    def __init__(self, space: SearchSpace, objective: Objective, seed: int = 0):
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                seed=seed, multivariate=True, group=True, n_startup_trials=_STARTUP_TRIALS
            )
        self._study = optuna.create_study(directions=_directions(objective), sampler=sampler)
        self._objective = objective
        self._space = space
        self._legal = {candidate.key: candidate for candidate in space.candidates}
        self._designed = list(first_candidates(space))
        self._told: dict[str, _Told] = {}
        self._proposed: set[str] = set()
        self._open: dict[str, optuna.trial.Trial] = {}

    def propose(self) -> Candidate | None:
        """An untried candidate, or None when every distinct legal one was tried or is in flight."""
        candidate = self._from_design() or self._simpler_than_best() or self._from_optuna() or self._first_untried()
        if candidate is not None:
            self._proposed.add(candidate.key)
        return candidate

    def tell(self, candidate: Candidate, scores: float | Scores | None, violation: float = 0.0) -> None:
        """Report the scores of a trial, or None for one that failed. Also takes what an earlier session measured.

        `violation`: by which share of the requests the SLO is missed; more than 0 makes the candidate infeasible.
        """
        told = _Told((scores,) if isinstance(scores, int | float) else scores, violation)
        self._told[candidate.key] = told
        self._proposed.add(candidate.key)
        trial = self._open.pop(candidate.key, None)
        if trial is None:
            values = told.scores or self._worst()
            self._study.add_trial(frozen_trial(self._space.settings, candidate, values, told.constraints))
            return
        self._answer(trial, told)

    def is_untried(self, candidate: Candidate) -> bool:
        """Whether it is a legal candidate that was neither told nor proposed."""
        return candidate.key in self._legal and candidate.key not in self._proposed

    @property
    def untried(self) -> int:
        return sum(key not in self._proposed for key in self._legal)

    def _from_design(self) -> Candidate | None:
        while self._designed:
            candidate = self._designed.pop(0)
            if candidate.key not in self._proposed:
                return candidate
        return None

    def _simpler_than_best(self) -> Candidate | None:
        """The best so far, or with several objectives the best in each of them, without one of its overrides."""
        seen = {key: told.scores for key, told in self._told.items() if told.feasible and key in self._legal}
        if not seen:
            return None
        for number, objective in enumerate(self._objective.each):
            pick = max if objective.maximise else min
            best = self._legal[pick(seen, key=lambda key, number=number: seen[key][number])].settings
            for name in best:
                fewer = Candidate({other: value for other, value in best.items() if other != name})
                if fewer.key in self._legal and fewer.key not in self._proposed:
                    return self._legal[fewer.key]
        return None

    def _from_optuna(self) -> Candidate | None:
        if not self.untried:
            return None
        for _ in range(_MAX_ASKS):
            trial = self._study.ask()
            candidate = _suggest(trial, self._space.settings)
            if candidate.key in self._legal and candidate.key not in self._proposed:
                self._open[candidate.key] = trial
                return self._legal[candidate.key]
            self._answer(trial, self._told.get(candidate.key, _Told(None)))  # from memory, or illegal
        return None

    def _answer(self, trial: optuna.trial.Trial, told: _Told) -> None:
        for name, value in told.constraints.items():
            trial.set_constraint(name, value)
        self._study.tell(trial, told.scores or self._worst())

    def _first_untried(self) -> Candidate | None:
        return next((item for key, item in self._legal.items() if key not in self._proposed), None)

    def _worst(self) -> Scores:
        """The worst score seen in each objective."""
        seen = [told.scores for told in self._told.values() if told.scores is not None]
        if not seen:  # nothing measured yet: the constraint alone marks it, no trial compares with this value
            return (0.0,) * len(self._objective.metrics)
        columns = zip(*seen, strict=True)
        return tuple(
            min(column) if objective.maximise else max(column)
            for objective, column in zip(self._objective.each, columns, strict=True)
        )


def _directions(objective: Objective) -> list[str]:
    return ["maximize" if one.maximise else "minimize" for one in objective.each]


def _suggest(trial: optuna.trial.Trial, settings: Sequence[SettingChoices]) -> Candidate:
    chosen: dict[str, Any] = {}
    for choice in settings:
        if choice.exists(chosen):
            encoded = trial.suggest_categorical(choice.name, [_encode(value) for value in choice.values])
            chosen[choice.name] = choice.values[[_encode(value) for value in choice.values].index(encoded)]
        else:
            chosen[choice.name] = None
    return Candidate({name: value for name, value in chosen.items() if value is not None})


def _encode(value: Any) -> str:
    """Optuna's categories must be plain values; lists become their JSON, vLLM's own choice the word `default`."""
    return "default" if value is None else value if isinstance(value, str) else json.dumps(value)


def frozen_trial(
    settings: Sequence[SettingChoices],
    candidate: Candidate,
    values: Scores,
    constraints: Mapping[str, float],
    attributes: Mapping[str, Any] | None = None,
) -> optuna.trial.FrozenTrial:
    """A finished Optuna trial for a candidate that was measured outside of ask and tell."""
    params: dict[str, Any] = {}
    distributions: dict[str, Any] = {}
    chosen = {choice.name: candidate.settings.get(choice.name) for choice in settings}
    for choice in settings:
        if not choice.exists(chosen):
            continue
        names = dict.fromkeys([*(_encode(value) for value in choice.values), _encode(chosen[choice.name])])
        distributions[choice.name] = CategoricalDistribution(tuple(names))
        params[choice.name] = _encode(chosen[choice.name])
    return create_trial(
        state=TrialState.COMPLETE,
        values=list(values),
        params=params,
        distributions=distributions,
        constraints=dict(constraints),
        user_attrs=dict(attributes or {}),
    )


class StorageMirror:
    """Copies finished trials into an Optuna storage (`sqlite:///file.db`, `postgresql://...`) for optuna-dashboard and teams.

    The journal stays the truth: what the storage lacks is added when a study is opened again, nothing is read back from it.
    """

    def __init__(self, url: str, study_name: str, objective: Objective):
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            self._study = optuna.create_study(
                storage=url, study_name=study_name, directions=_directions(objective), load_if_exists=True
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                self._study.set_metric_names(list(objective.metrics))
        except Exception as error:  # SQLAlchemy and each database driver raise their own classes
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"--storage {_without_password(url)!r} cannot be opened: {first}") from None
        self._objectives = len(objective.metrics)
        self._known = {trial.user_attrs.get("number") for trial in self._study.get_trials(deepcopy=False)}

    def add(
        self,
        settings: Sequence[SettingChoices],
        number: int,
        candidate: Candidate,
        scores: float | Scores | None,
        attributes: Mapping[str, Any],
        violation: float = 0.0,
    ) -> None:
        """Copy one trial; one that is there already is left alone. `scores`, `violation`: as Sampler.tell takes them."""
        if number in self._known:
            return
        facts = {"number": number, "label": candidate.label, **attributes}
        told = _Told((scores,) if isinstance(scores, int | float) else scores, violation)
        trial = frozen_trial(settings, candidate, told.scores or (0.0,) * self._objectives, told.constraints, facts)
        if told.scores is None:
            trial.state, trial.values = TrialState.FAIL, None
        self._study.add_trial(trial)
        self._known.add(number)


def _without_password(url: str) -> str:
    head, at, tail = url.rpartition("@")
    return f"{head.split('://')[0]}://***@{tail}" if at else url
