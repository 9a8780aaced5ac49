"""Untried candidates of a space, and what Optuna proposes of them. The only file that imports Optuna.

Which of them is launched is weighed by the search (advisor/search/choice.py); without it: the designed ones first
(advisor/space/candidates.py), then Optuna's TPE, and whenever the best so far has more than one override, it without each of
them, since an override that does nothing should not be kept for years.

A proposal that was measured already is answered from memory, an illegal one as infeasible, both without a launch. A failed trial
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
_Asked = tuple[optuna.trial.Trial, Candidate]


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
        """An untried candidate, or None when every distinct legal one was tried, is in flight, or is taken to fail.

        By the design first, then by Optuna alone. Who weighs gains and costs uses `untried`, `asked` and `take` instead.
        """
        while True:
            candidate = self._from_design() or next(iter(self.simpler_than_best()), None)
            candidate = candidate or next(iter(self.asked(1)), None) or next(iter(self.untried), None)
            if candidate is None or self.take(candidate):
                return candidate

    def take(self, candidate: Candidate) -> bool:
        """Whether an untried candidate is worth a launch, which is then to be made; not, where failures foretell another one."""
        self._proposed.add(candidate.key)
        others = [key for key in self._open if key not in self._proposed]
        self._withdraw([(self._open.pop(key), candidate) for key in others])
        reason = self._objection(candidate)
        if reason is None:
            return True
        self._skipped.append(Rejection(candidate, reason))
        self._space.skip(candidate, reason)
        self._record(candidate, _Told(None))
        return False

    def skip_foretold(self) -> bool:
        """Whether failures foretell of every untried candidate that it would fail too; only then are they skipped for it."""
        untried = self.untried
        return all(map(self._objection, untried)) and not any(map(self.take, untried))

    def _objection(self, candidate: Candidate) -> str | None:
        return self._feasibility.objection(candidate, self._space.resolved.get(candidate.key))

    def leave(self, candidates: Sequence[Candidate], reason: str) -> None:
        """Keep with the rejections why candidates are not launched although nothing speaks against them."""
        for candidate in candidates:
            self._space.skip(candidate, reason)

    @property
    def nothing_left(self) -> str:
        """Why `propose` has nothing more to propose."""
        if self._space.complete and len(self._skipped) == len(self._legal) > 0:
            return "every distinct candidate is taken to fail, by what failed before"
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
        if trial is not None:
            self._answer(trial, told)
        elif expressible(self._space.settings, candidate):  # Optuna takes no values that its space does not have
            values = told.scores or self._worst()
            self._study.add_trial(frozen_trial(self._space.settings, candidate, values, told.constraints))

    def is_untried(self, candidate: Candidate) -> bool:
        """Whether it is a legal candidate that was neither told nor proposed."""
        self._admit([candidate])
        return candidate.key in self._legal and candidate.key not in self._proposed

    @property
    def untried(self) -> tuple[Candidate, ...]:
        """The known legal candidates that were neither told nor proposed, in the order of the space."""
        return tuple(item for key, item in self._legal.items() if key not in self._proposed)

    @property
    def designed(self) -> tuple[Candidate, ...]:
        """Those of the design that are still untried."""
        return tuple(item for item in self._designed if item.key not in self._proposed)

    @property
    def resolved(self) -> Mapping[str, Mapping[str, Any]]:
        """What vLLM makes of each known candidate, by its key."""
        return self._space.resolved

    @property
    def complete(self) -> bool:
        """Whether every candidate of the space is known; else Optuna proposes those that are not."""
        return self._space.complete

    def simpler_than_best(self) -> list[Candidate]:
        """The untried ones that are the best so far, or with several objectives the best in one of them, without one override."""
        seen = {key: told.scores for key, told in self._told.items() if told.feasible and key in self._legal}
        found: dict[str, Candidate] = {}
        for number, objective in enumerate(self._objective.each if seen else ()):
            pick = max if objective.maximise else min
            best = pick(seen, key=lambda key, number=number: seen[key][number])
            simpler = one_less(self._legal[best])
            self._admit(simpler)
            found |= {fewer.key: self._legal[fewer.key] for fewer in simpler if self._is_free(fewer)}
        return list(found.values())

    def asked(self, count: int) -> list[Candidate]:
        """Up to `count` untried candidates that Optuna proposes; they stay open until one is taken."""
        if not self.untried and self._space.complete:
            return []
        found: list[Candidate] = []
        unknown: list[_Asked] = []
        for _ in range(_MAX_ASKS):
            trial = self._study.ask()
            candidate = _suggest(trial, self._space.settings)
            if candidate.key in self._open:
                self._withdraw([(trial, candidate)])
            elif self._is_free(candidate):
                found.append(self._opened(trial, candidate))
            elif self._space.complete or self._space.knows(candidate):
                self._answer(trial, self._from_memory(candidate))
            else:
                unknown.append((trial, candidate))
            if len(unknown) == _TOGETHER:
                found += self._judged(unknown, count - len(found))
                unknown = []
            if len(found) >= count:
                self._withdraw(unknown)
                return found
        return found + self._judged(unknown, count - len(found))

    def _judged(self, unknown: Sequence[_Asked], count: int) -> list[Candidate]:
        """Of proposals that nobody has judged yet, those that are worth a launch, or the simpler ones that run the same."""
        self._admit([candidate for _, candidate in unknown])
        found: list[Candidate] = []
        for trial, candidate in unknown:
            same = self._space.stands_for(candidate) or candidate
            if not self._is_free(same):
                self._answer(trial, self._from_memory(candidate))
            elif same.key in self._open or len(found) == count:
                self._withdraw([(trial, same)])
            else:
                found.append(self._opened(trial, same))
        return found

    def _opened(self, trial: optuna.trial.Trial, candidate: Candidate) -> Candidate:
        """A proposal that may be launched."""
        self._open[candidate.key] = trial
        return self._legal[candidate.key]

    def _withdraw(self, proposals: Sequence[_Asked]) -> None:
        """Samplers do not look at failed trials."""
        for trial, _ in proposals:
            self._study.tell(trial, state=TrialState.FAIL)

    def _from_design(self) -> Candidate | None:
        return next(iter(self.designed), None)

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


def expressible(settings: Sequence[SettingChoices], candidate: Candidate) -> bool:
    """Whether the candidate has only values of this space: an earlier session may have searched another one."""
    values = {choice.name: {_encode(value) for value in choice.values} for choice in settings}
    return all(_encode(value) in values.get(name, ()) for name, value in candidate.settings.items())


def frozen_trial(
    settings: Sequence[SettingChoices],
    candidate: Candidate,
    values: Scores,
    constraints: Mapping[str, float],
    attributes: Mapping[str, Any] | None = None,
) -> optuna.trial.FrozenTrial:
    """A finished Optuna trial for a candidate that was measured outside of ask and tell.

    Values that the space does not have are attributes, since Optuna takes no new ones into a study.
    """
    params: dict[str, Any] = {}
    distributions: dict[str, Any] = {}
    others: dict[str, Any] = {}
    chosen = {choice.name: candidate.settings.get(choice.name) for choice in settings}
    for choice in settings:
        names, value = tuple(dict.fromkeys(map(_encode, choice.values))), _encode(chosen[choice.name])
        if not choice.exists(chosen):
            continue
        if value in names:
            distributions[choice.name], params[choice.name] = CategoricalDistribution(names), value
        else:
            others[choice.name] = value
    return create_trial(
        state=TrialState.COMPLETE,
        values=list(values),
        params=params,
        distributions=distributions,
        constraints=dict(constraints),
        user_attrs={**(attributes or {}), **others},
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
        try:
            self._study.add_trial(trial)
        except ValueError:  # the storage has this study with other values, of capture lists that were not planned yet
            trial.user_attrs |= trial.params
            trial.params, trial.distributions = {}, {}
            self._study.add_trial(trial)
        self._known.add(number)


def _without_password(url: str) -> str:
    head, at, tail = url.rpartition("@")
    return f"{head.split('://')[0]}://***@{tail}" if at else url
