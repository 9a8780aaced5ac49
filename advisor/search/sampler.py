"""Which candidate to launch next. The only file that imports Optuna.

The first proposals are the designed ones (advisor/space/candidates.py), then Optuna's TPE; whenever the best so far has more
than one override, it is tried without each of them, since an override that does nothing should not be kept for years. A
proposal that was measured already is answered from memory, an illegal one as infeasible, both without a launch. A failed trial
is told as infeasible with the worst score seen: samplers do not look at FAIL trials, and zero would be a number that nobody
measured. A candidate that breaks the SLO is told with its own scores and as infeasible by as much as it misses the SLO. Several
objectives are several values of a trial, for which TPE splits the trials by Pareto rank. A candidate that failures of others
foretell to fail (advisor/search/feasibility.py) is skipped and told as infeasible too, without a launch.

A space that is too large to be known whole grows by what Optuna proposes: proposals that vLLM has not resolved yet are resolved
together, and the first of them that is legal and no other candidate's double is launched.
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
from advisor.records import Candidate, Objective, Rejection, Trial
from advisor.search.feasibility import Feasibility
from advisor.space.candidates import SearchSpace, SettingChoices, first_candidates
from advisor.space.design import one_less

_MAX_ASKS = (
    25  # proposals answered from memory before the first untried candidate is taken instead; an ask takes some 10 ms
)
_TOGETHER = 12  # proposals that are resolved in one go: a process that imports vLLM first may have to be started for it
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

    def __init__(self, space: SearchSpace, objective: Objective, seed: int = 0, feasibility: Feasibility | None = None):
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                seed=seed, multivariate=True, group=True, n_startup_trials=_STARTUP_TRIALS
            )
        self._study = optuna.create_study(directions=_directions(objective), sampler=sampler)
        self._objective = objective
        self._space = space
        self._feasibility = feasibility or Feasibility()
        self._legal = {candidate.key: candidate for candidate in space.candidates}
        self._designed = list(first_candidates(space))
        self._told: dict[str, _Told] = {}
        self._proposed: set[str] = set()
        self._open: dict[str, optuna.trial.Trial] = {}
        self._skipped: list[Rejection] = []

    def propose(self) -> Candidate | None:
        """An untried candidate, or None when every distinct legal one was tried, is in flight, or is taken to fail."""
        while True:
            candidate = self._from_design() or self._simpler_than_best() or self._from_optuna() or self._first_untried()
            if candidate is None:
                return None
            self._proposed.add(candidate.key)
            reason = self._feasibility.objection(candidate, self._space.resolved.get(candidate.key))
            if reason is None:
                return candidate
            self._skipped.append(Rejection(candidate, reason))
            self._space.skip(candidate, reason)
            self._record(candidate, _Told(None))

    @property
    def nothing_left(self) -> str:
        """Why `propose` has nothing more to propose."""
        tried = "every distinct candidate was tried" + (" or is taken to fail" if self._skipped else "")
        return tried if self._space.complete else f"{tried}, and {_MAX_ASKS} further proposals brought no new one"

    @property
    def skipped(self) -> tuple[Rejection, ...]:
        """What was not launched because failures foretell that it would fail too, with the reason."""
        return tuple(self._skipped)

    def learn(self, trial: Trial) -> list[str]:
        """Take in how a trial ended. Returns a sentence for each region of failures that is new or has changed."""
        return self._feasibility.observe(trial, self._space.resolved.get(trial.candidate.key))

    def tell(self, candidate: Candidate, scores: float | Scores | None, violation: float = 0.0) -> None:
        """Report the scores of a trial, or None for one that failed. Also takes what an earlier session measured.

        `violation`: by which share of the requests the SLO is missed; more than 0 makes the candidate infeasible.
        """
        self._record(candidate, _Told((scores,) if isinstance(scores, int | float) else scores, violation))

    def _record(self, candidate: Candidate, told: _Told) -> None:
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
        self._admit([candidate])
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
            best = pick(seen, key=lambda key, number=number: seen[key][number])
            simpler = one_less(self._legal[best])
            self._admit(simpler)
            for fewer in simpler:
                if fewer.key in self._legal and fewer.key not in self._proposed:
                    return self._legal[fewer.key]
        return None

    def _from_optuna(self) -> Candidate | None:
        if not self.untried and self._space.complete:
            return None
        unknown: list[tuple[optuna.trial.Trial, Candidate]] = []
        for _ in range(_MAX_ASKS):
            trial = self._study.ask()
            candidate = _suggest(trial, self._space.settings)
            if self._is_free(candidate):
                return self._opened(trial, candidate, unknown)
            if self._space.complete or self._space.knows(candidate):
                self._answer(trial, self._from_memory(candidate))
            else:
                unknown.append((trial, candidate))
            if len(unknown) == _TOGETHER:
                break
        return self._first_legal(unknown)

    def _first_legal(self, unknown: Sequence[tuple[optuna.trial.Trial, Candidate]]) -> Candidate | None:
        """Of proposals that nobody has judged yet, the first that is worth a launch, or the simpler one that runs the same."""
        self._admit([candidate for _, candidate in unknown])
        for number, (trial, candidate) in enumerate(unknown):
            same = self._space.stands_for(candidate) or candidate
            if self._is_free(same):
                return self._opened(trial, same, unknown[number + 1 :])
            self._answer(trial, self._from_memory(candidate))
        return None

    def _opened(
        self,
        trial: optuna.trial.Trial,
        candidate: Candidate,
        others: Sequence[tuple[optuna.trial.Trial, Candidate]],
    ) -> Candidate:
        """The proposal that is launched; the others are taken back: samplers do not look at failed trials."""
        for other, _ in others:
            self._study.tell(other, state=TrialState.FAIL)
        self._open[candidate.key] = trial
        return self._legal[candidate.key]

    def _is_free(self, candidate: Candidate) -> bool:
        return candidate.key in self._legal and candidate.key not in self._proposed

    def _from_memory(self, candidate: Candidate) -> _Told:
        """What was measured of the candidate that runs the same; infeasible where there is none."""
        same = self._space.stands_for(candidate) or candidate
        return self._told.get(same.key, _Told(None))

    def _admit(self, candidates: Sequence[Candidate]) -> None:
        """Have a large space judge what it does not know yet. One that is known whole has nothing to add."""
        if not self._space.complete and candidates:
            self._legal.update({item.key: item for item in self._space.admit(candidates, simplest=True)})

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
