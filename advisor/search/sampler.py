"""Which candidate to launch next. The only file that imports Optuna.

The first proposals are the designed ones (advisor/space/candidates.py), then Optuna's TPE; whenever the best so far has more
than one override, it is tried without each of them, since an override that does nothing should not be kept for years. A
proposal that was measured already is answered from memory, an illegal one as infeasible, both without a launch. A failed trial
is told as infeasible with the worst score seen: samplers do not look at FAIL trials, and zero would be a number that nobody
measured.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
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


class Sampler:
    """Proposes untried candidates of a space and learns from scores. Scores are raised as the objective says."""

    def __init__(self, space: SearchSpace, objective: Objective, seed: int = 0):
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                seed=seed, multivariate=True, group=True, n_startup_trials=_STARTUP_TRIALS
            )
        self._study = optuna.create_study(direction=_direction(objective), sampler=sampler)
        self._objective = objective
        self._space = space
        self._legal = {candidate.key: candidate for candidate in space.candidates}
        self._designed = list(first_candidates(space))
        self._scores: dict[str, float | None] = {}  # None: it failed
        self._proposed: set[str] = set()
        self._open: dict[str, optuna.trial.Trial] = {}

    def propose(self) -> Candidate | None:
        """An untried candidate, or None when every distinct legal one was tried or is in flight."""
        candidate = self._from_design() or self._simpler_than_best() or self._from_optuna() or self._first_untried()
        if candidate is not None:
            self._proposed.add(candidate.key)
        return candidate

    def tell(self, candidate: Candidate, score: float | None) -> None:
        """Report the score of a trial, or None for one that failed. Also takes what an earlier session measured."""
        self._scores[candidate.key] = score
        self._proposed.add(candidate.key)
        trial = self._open.pop(candidate.key, None)
        if trial is None:
            self._study.add_trial(frozen_trial(self._space.settings, candidate, score, self._worst()))
            return
        if score is None:
            trial.set_constraint("launched", 1.0)
        self._study.tell(trial, score if score is not None else self._worst())

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
        seen = {key: value for key, value in self._scores.items() if value is not None and key in self._legal}
        if not seen:
            return None
        best = self._legal[(max if self._objective.maximise else min)(seen, key=seen.__getitem__)].settings
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
            self._answer_from_memory(trial, candidate)
        return None

    def _answer_from_memory(self, trial: optuna.trial.Trial, candidate: Candidate) -> None:
        score = self._scores.get(candidate.key)
        if score is None:
            trial.set_constraint("launched", 1.0)
        self._study.tell(trial, score if score is not None else self._worst())

    def _first_untried(self) -> Candidate | None:
        return next((item for key, item in self._legal.items() if key not in self._proposed), None)

    def _worst(self) -> float:
        seen = [score for score in self._scores.values() if score is not None]
        if not seen:
            return 0.0  # nothing measured yet: the constraint alone marks it, no trial compares with this value
        return min(seen) if self._objective.maximise else max(seen)


def _direction(objective: Objective) -> str:
    return "maximize" if objective.maximise else "minimize"


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
    score: float | None,
    worst: float | None,
    attributes: Mapping[str, Any] | None = None,
) -> optuna.trial.FrozenTrial:
    """A finished Optuna trial for a candidate that was measured outside of ask and tell."""
    params: dict[str, Any] = {}
    distributions: dict[str, Any] = {}
    chosen = {choice.name: candidate.settings.get(choice.name) for choice in settings}
    for choice in settings:
        if not choice.exists(chosen):
            continue
        values = dict.fromkeys([*(_encode(value) for value in choice.values), _encode(chosen[choice.name])])
        distributions[choice.name] = CategoricalDistribution(tuple(values))
        params[choice.name] = _encode(chosen[choice.name])
    return create_trial(
        state=TrialState.COMPLETE,
        value=score if score is not None else worst,
        params=params,
        distributions=distributions,
        constraints={"launched": 1.0 if score is None else 0.0},
        user_attrs=dict(attributes or {}),
    )


class StorageMirror:
    """Copies finished trials into an Optuna storage (`sqlite:///file.db`, `postgresql://...`) for optuna-dashboard and teams.

    The journal stays the truth: what the storage lacks is added when a study is opened again, nothing is read back from it.
    """

    def __init__(self, url: str, study_name: str, objective: Objective):
        try:
            self._study = optuna.create_study(
                storage=url, study_name=study_name, direction=_direction(objective), load_if_exists=True
            )
        except Exception as error:  # SQLAlchemy and each database driver raise their own classes
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"--storage {_without_password(url)!r} cannot be opened: {first}") from None
        self._known = {trial.user_attrs.get("number") for trial in self._study.get_trials(deepcopy=False)}

    def add(
        self,
        settings: Sequence[SettingChoices],
        number: int,
        candidate: Candidate,
        score: float | None,
        attributes: Mapping[str, Any],
    ) -> None:
        """Copy one trial; one that is there already is left alone."""
        if number in self._known:
            return
        facts = {"number": number, "label": candidate.label, **attributes}
        trial = frozen_trial(settings, candidate, score, 0.0, facts)
        if score is None:
            trial.state, trial.values = TrialState.FAIL, None
        self._study.add_trial(trial)
        self._known.add(number)


def _without_password(url: str) -> str:
    head, at, tail = url.rpartition("@")
    return f"{head.split('://')[0]}://***@{tail}" if at else url
