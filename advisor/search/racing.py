"""Whether a launch that is being measured can still win: after its start, its slice, and each of its samples. Pure.

A sequential test on paired seeds: at each look the launch is compared with the best one so far (the default included), seed by
seed, and dropped when the whole interval of its ratio lies below what still counts as a tie. The looks share ERROR, so that their
union is no larger, however they depend on each other. The interval is Student's t for the noise of race_noise.py; that the best of
many looks better than it is comes on top.

With several objectives a launch is dropped only if one other launch is ahead of it in every one of them: it is not on the front.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.measure.loads import SLICE_SEEDS_FROM, base_seed
from advisor.measure.slice_rules import LATENCY_WAVES, WAVES, objection
from advisor.records import Dropped, Objective, Sample, Trial
from advisor.search.race_noise import START, ByStage, Noise, luck, noise_of
from advisor.search.scores import TIE, evidence, sample_value, score, scores, slo_breaches
from advisor.units import changes

ERROR = 0.02  # probability that a launch which is no worse than a tie is dropped, all looks together
BASELINE_SLICES = 3  # one to compare with, and what they differ by is the first that is known of the noise
_THROUGHPUT = ("output_tok_s", "input_tok_s", "requests_s")


@dataclass(frozen=True)
class Figures:
    """One launch in one objective, as logarithms that are larger where it is better, by seed. A start is a sample of seed 0."""

    slices: ByStage
    samples: ByStage


@dataclass(frozen=True)
class Rival:
    """A launch that was measured in full; one entry an objective."""

    label: str
    figures: tuple[Figures, ...]
    scores: tuple[float, ...]


@dataclass(frozen=True)
class Gap:
    """How far a launch is from a rival in one objective: mean of the logarithms of the ratio over `pairs` of seeds."""

    mean: float
    pairs: int

    def text(self, metric: str, noise: Noise, error: float) -> str:
        half = noise.times(error) * noise.of_ratio(self.pairs)
        ends = (math.exp(self.mean + part) for part in (0.0, -half, half))
        middle, low, high = changes(*ends, Objective(metric).maximise)
        return f"{metric} {middle} ({low} to {high})"


@dataclass(frozen=True)
class Race:
    """What a launch of the search is measured against. `error` is that of one look."""

    objective: Objective
    rivals: tuple[Rival, ...]
    noises: tuple[Noise, ...]  # one an objective
    error: float
    lucky: float = 0.0  # deviations by which the best rival is expected to be flattered
    samples: int = 1  # of a whole launch

    def judge(self, start_s: float | None, slices: Sequence[Sample], samples: Sequence[Sample]) -> Dropped | None:
        """Why the launch cannot win, from what was measured of it so far; None: it can, or nothing can be said yet."""
        if any(sample.problems for sample in samples):
            return None  # it is no measurement, and ends as that
        own = [_figures(one, start_s, slices, samples) for one in self.objective.each]
        for rival in self.rivals:
            gaps = [_gap(mine, theirs) for mine, theirs in zip(own, rival.figures, strict=True)]
            known = [gap for gap in gaps if gap is not None]
            if len(known) == len(gaps) and all(map(self._behind, known, self.noises)):
                return self._dropped(rival, known, slices, samples)
        return None

    def _behind(self, gap: Gap, noise: Noise) -> bool:
        """Whether even the upper end of the interval is no tie."""
        upper = gap.mean + noise.times(self.error) * noise.of_ratio(gap.pairs)
        return upper + self.lucky * noise.of_launch(self.samples) < math.log(1 - TIE)

    def _dropped(
        self, rival: Rival, gaps: Sequence[Gap], slices: Sequence[Sample], samples: Sequence[Sample]
    ) -> Dropped:
        metrics = self.objective.metrics
        told = [gap.text(*rest, self.error) for gap, *rest in zip(gaps, metrics, self.noises, strict=True)]
        signs = [1 if one.maximise else -1 for one in self.objective.each]
        estimate = [
            value * math.exp(sign * gap.mean) for value, gap, sign in zip(rival.scores, gaps, signs, strict=True)
        ]
        return Dropped(
            f"after {_stage(slices, samples, self.samples)}: {', '.join(told)} against {rival.label}",
            {metric: float(f"{value:.6g}") for metric, value in zip(metrics, estimate, strict=True)},
        )


def race_for(trials: Sequence[Trial], objective: Objective, samples: int, since: int = 0) -> Race | None:
    """The race that the next launch of the search is in; None where nothing can be dropped.

    A load that is searched for on each launch has no samples to compare. A launch that breaks an SLO is nobody's rival: a slower
    one that meets it would win. `since`: number of the first trial of this sitting; the machine of another day may be slower.
    """
    if objective.find_load:
        return None
    measured = [item for item in map(evidence, trials) if item.phase in ("baseline", "search")]
    measured = [item for item in measured if scores(item, objective) is not None]
    rivals = [item for item in measured if item.number >= since and not slo_breaches(item, objective)]
    if not rivals:
        return None
    noises = tuple(_noise(measured, trials, one) for one in objective.each)
    lucky = luck(len(rivals))
    if not objective.secondary:
        pick = max if objective.maximise else min
        rivals = [pick(rivals, key=lambda trial: score(trial, objective))]
    looks = samples if slice_waves(objective) else 1  # a slice, and all samples but the last; or the start alone
    return Race(objective, tuple(_rival(item, objective) for item in rivals), noises, ERROR / looks, lucky, samples)


def slice_waves(objective: Objective) -> int:
    """Waves of the load that a slice has at least; 0: no slices for this objective."""
    measured = [metric for metric in objective.metrics if metric != "start_s"]
    if objective.find_load or not measured:
        return 0
    return WAVES if all(metric in _THROUGHPUT for metric in measured) else LATENCY_WAVES


def slice_seeds(phase: str, trials: Sequence[Trial], objective: Objective) -> tuple[int, ...]:
    """Seeds of a launch's slices: a few for the baseline, then for each candidate the first of which that one is of use."""
    if not slice_waves(objective):
        return ()
    if phase == "baseline":
        return tuple(range(SLICE_SEEDS_FROM, SLICE_SEEDS_FROM + BASELINE_SLICES))
    baseline = next((trial for trial in trials if trial.phase == "baseline" and trial.ok), None)
    if phase != "search" or baseline is None:
        return ()
    doubtful = {base_seed(item.pair_seed) for item in baseline.slices if objection(item) is not None}
    return tuple(base for item in baseline.slices if (base := base_seed(item.pair_seed)) not in doubtful)[:1]


def _rival(trial: Trial, objective: Objective) -> Rival:
    found = tuple(_figures(one, trial.start_s, trial.slices, trial.samples) for one in objective.each)
    return Rival(trial.candidate.label, found, scores(trial, objective) or ())


def _noise(measured: Sequence[Trial], trials: Sequence[Trial], objective: Objective) -> Noise:
    if objective.metric == "start_s":
        return START
    found = [_figures(objective, None, trial.slices, trial.samples) for trial in measured]
    first = max(found, key=lambda item: len(item.slices) + len(item.samples))  # the baseline: it has the most slices
    fresh = [item for item in trials if item.phase == "confirm" and item.candidate.is_baseline]
    repeats = [math.log(value) for item in fresh if (value := score(item, objective) or 0) > 0]
    launches = [{**item.slices, **item.samples} for item in found]
    return noise_of(launches, (list(first.slices.values()), list(first.samples.values())), repeats)


def _figures(
    objective: Objective, start_s: float | None, slices: Sequence[Sample], samples: Sequence[Sample]
) -> Figures:
    """Without what was disturbed or is no measurement, and without figures of zero, of which there is no ratio."""
    if objective.metric == "start_s":
        return Figures({}, {0: -math.log(start_s)} if start_s else {})
    return Figures(_logarithms(slices, objective), _logarithms(samples, objective))


def _logarithms(samples: Sequence[Sample], objective: Objective) -> ByStage:
    """A seed at several loads is one figure, the mean of the logarithms; without one of them it is none."""
    sign = 1 if objective.maximise else -1
    loads = {sample.load for sample in samples}
    found: dict[int, list[float]] = {}
    for sample in samples:
        value = _value(sample, objective)
        if objection(sample) is None and 0 < value < math.inf:
            found.setdefault(base_seed(sample.pair_seed), []).append(sign * math.log(value))
    return {seed: statistics.fmean(values) for seed, values in found.items() if len(values) == len(loads)}


def _value(sample: Sample, objective: Objective) -> float:
    try:
        return sample_value(sample, objective)
    except ValueError:  # the sample has no such figure
        return 0.0


def _gap(mine: Figures, theirs: Figures) -> Gap | None:
    """From whole samples where there are some, else from the slices; None where no seed is shared."""
    for own, other in ((mine.samples, theirs.samples), (mine.slices, theirs.slices)):
        shared = own.keys() & other.keys()
        if shared:
            return Gap(statistics.fmean(own[seed] - other[seed] for seed in shared), len(shared))
    return None


def _stage(slices: Sequence[Sample], samples: Sequence[Sample], whole: int) -> str:
    if samples:
        return f"{len({base_seed(sample.pair_seed) for sample in samples})} of {whole} samples"
    if slices:
        loads = f" at each of {len(slices)} loads" if len(slices) > 1 else f" of {slices[0].requests + slices[0].failed} requests"
        return f"a slice{loads}"
    return "its start"
