"""What a launch of an untried candidate is expected to gain over the best one so far. Pure.

From a model of what values do (advisor/search/effects.py), fitted to the trials of the study and to figures that were known before
it (other profiles): the mean of the part of the difference that is above zero, times the chance that the candidate works at all.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from advisor.records import Candidate, Objective, Outcome, Trial
from advisor.search.effects import Effects, Point
from advisor.search.launch_noise import launch_noise
from advisor.search.scores import evidence, slo_violation, told_scores
from advisor.search.words import Word, values_of

_TOLD = ("baseline", "search")
_ONLY_FAILED, _GIVEN_UP = (1.0, 0.5, 0.1, 0.0), 3  # chance of a value after so many failures and no success
_DROPPED = 3.0  # times the noise of a launch that was measured in full: one that was dropped early is known by a slice


class Gains:
    """The model after the trials so far. `known`: figures of elsewhere, as logarithms of ratios to the default there.

    `own`, `octaves`: vLLM's own amounts of ordered settings, and how far from them the space goes.
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        objective: Objective,
        known: Sequence[Point] = (),
        own: Mapping[str, float] | None = None,
        octaves: Mapping[str, float] | None = None,
    ):
        self.floor = launch_noise(trials, objective)  # what nobody could tell from noise is no gain
        told = [
            evidence(trial) for trial in trials if trial.phase in _TOLD and trial.outcome is not Outcome.INTERRUPTED
        ]
        works = [trial for trial in told if trial.ok and slo_violation(trial, objective) <= 0]
        self._worked = _counts(works)
        again = _again([trial for trial in told if _is_invalid(trial)])
        self._failed = _counts([trial for trial in told if trial not in works and not _is_invalid(trial)]) + again
        self._tried = {value for trial in told if not _is_invalid(trial) for value in values_of(trial.candidate)} | set(again)
        self._foretold = {value for point in known if not point.hint for value in values_of(point.candidate)}
        self._models: list[tuple[Effects, Candidate]] = []
        self._tried_in_full = _in_full(works)
        for number, one in enumerate(objective.each):
            points = _points(told, one, self.floor)
            if points:
                model = Effects([*points, *(known if number == 0 else ())], own=own, octaves=octaves)
                self._models.append((model, _best(model, self._tried_in_full)))

    def of(self, candidates: Sequence[Candidate]) -> np.ndarray:
        """Expected gain of each, as a share of the best so far; with several objectives in the one where it is largest."""
        if not candidates or not self._models:
            return np.zeros(len(candidates))
        each = [_expected(*model.against(candidates, best)) for model, best in self._models]
        return np.max(each, axis=0) * np.array([self._chance(item) for item in candidates])

    def unseen(self, candidate: Candidate) -> frozenset[Word]:
        """Its values that no trial has had, or one that could not be measured, and of which nothing is known from elsewhere."""
        return values_of(candidate) - self._tried - self._foretold

    def tells_apart(self, candidate: Candidate) -> bool:
        """Whether its figure says what one value does: at most one is new, and then it stands on what is best so far."""
        new = self.unseen(candidate)
        if len(new) != 1 or not self._models:
            return len(new) <= 1
        return values_of(candidate) - new <= values_of(self._base)

    @functools.cached_property
    def _base(self) -> Candidate:
        """The simplest tried candidate that launches do not tell from the best so far: what noise has put ahead is not built on."""
        model, best = self._models[0]
        most = np.sum(model.against(self._tried_in_full, best), axis=0)
        alike = [item for item, value in zip(self._tried_in_full, most, strict=True) if value >= -self.floor]
        return min([*alike, best], key=lambda item: item.overrides)

    def as_good_as_best(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Those that may be as good as the best so far, within what launches differ by; none where that is hardly ahead."""
        if not candidates or not self._models:
            return []
        model, best = self._models[0]
        mean, deviation = model.against([*candidates, Candidate()], best)
        if mean[-1] >= -self.floor:  # the default
            return []
        return [item for item, most in zip(candidates, mean + deviation, strict=False) if most >= -self.floor]

    def _chance(self, candidate: Candidate) -> float:
        """That it works, by what became of its values: one that only ever failed is given up after the third time."""
        chance = 1.0
        for value in values_of(candidate):
            worked, failed = self._worked[value], self._failed[value]
            chance *= (worked + 1) / (worked + failed + 1) if worked else _ONLY_FAILED[min(failed, _GIVEN_UP)]
        return chance


def _points(trials: Sequence[Trial], objective: Objective, noise: float) -> list[Point]:
    """Logarithms of the scores, so oriented that more is better, and relative to the default's."""
    found = [(trial, values[0]) for trial in trials if (values := told_scores(trial, objective)) and values[0] > 0]
    sign = 1.0 if objective.maximise else -1.0
    default = next((value for trial, value in found if trial.candidate.is_baseline), found[0][1] if found else 1.0)
    return [
        Point(trial.candidate, sign * math.log(value / default), noise * (_DROPPED if trial.dropped else 1.0))
        for trial, value in found
    ]


def _is_invalid(trial: Trial) -> bool:
    return trial.outcome is Outcome.INVALID_MEASUREMENT


def _again(invalid: Sequence[Trial]) -> Counter[Word]:
    """Of each value, how often it could not be measured after the first time: once may be the machine's fault."""
    return Counter({value: times - 1 for value, times in _counts(invalid).items() if times > 1})


def _in_full(works: Sequence[Trial]) -> list[Candidate]:
    """What was tried and not dropped early; the default where there is nothing."""
    full = [trial.candidate for trial in works if not trial.dropped]
    return list({item.key: item for item in full}.values()) or [Candidate()]


def _best(model: Effects, tried: Sequence[Candidate]) -> Candidate:
    """The tried candidate with the largest expected figure: the largest measured one is mostly the luckiest."""
    return tried[int(np.argmax(model.means(tried)))]


def _expected(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Mean of the positive part of normal distributions."""
    ratio = mean / np.maximum(deviation, 1e-12)
    density = np.exp(-(ratio**2) / 2) / math.sqrt(2 * math.pi)
    below = np.array([(1 + math.erf(value / math.sqrt(2))) / 2 for value in ratio])
    return np.maximum(deviation * density + mean * below, 0.0)


def _counts(trials: Sequence[Trial]) -> Counter[Word]:
    return Counter(value for trial in trials for value in values_of(trial.candidate))
