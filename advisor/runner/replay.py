"""Answers jobs from recorded launches, at their recorded cost: search strategies are compared in seconds.

A recorded launch is a trial of a study's journal or of a recorded grid. What it cost, how it failed and what it measured is as it
was; with a `seed`, which of several launches of a candidate answers is drawn, as it would be a matter of chance on the machine.

What cannot be had from a grid is drawn from recorded noise (`Noise`), never made up: a candidate that was launched once is
answered by that launch, moved by what launches of one configuration were recorded to differ by (docs/evidence/noise-*.json, or the
grid's own repeats), and a seed that was not recorded by a recorded seed of the same launch, moved by what two seeds of one launch
differ by beside what every launch has in common at them.

A short sample before the whole ones is answered by the first requests of the recorded sample (records.Slice), which had the rest
of the load behind them: only its end, which would drain, differs.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.journal import now
from advisor.measure.slice_rules import slice_prompts
from advisor.records import Dropped, Outcome, Sample, SamplingPlan, Slice, Trial, Workload
from advisor.runner.base import Job

_RATES = ("output_tok_s", "input_tok_s", "requests_s", "goodput_requests_s")
_TIMES = ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms")


@dataclass(frozen=True)
class Noise:
    """Deviations of throughput as natural logarithms, as recorded."""

    launches: tuple[float, ...] = ()  # of each recorded launch of one configuration, from their mean
    within: float = 0.0  # standard deviation of one seed on one launch, beside what launch and seed explain


class ReplayRunner:
    """A candidate that was not recorded is unsupported. Without a `seed` recorded launches answer in turn, as they were.

    `workload`: of the recorded trials; without it no short samples are taken.
    """

    def __init__(
        self,
        recorded: Sequence[Trial],
        seed: int | None = None,
        noise: Noise | None = None,
        workload: Workload | None = None,
    ):
        self._recorded: dict[str, list[Trial]] = {}
        for trial in recorded:
            if trial.outcome is not Outcome.INTERRUPTED:
                self._recorded.setdefault(trial.candidate.key, []).append(trial)
        self._rng = None if seed is None else random.Random(seed)
        self._noise, self._workload = noise or Noise(), workload
        self._left: dict[str, list[Trial]] = {}
        self._plan: SamplingPlan | None = None

    def run(self, job: Job) -> Trial:
        if job.candidate.key not in self._recorded:
            return Trial(job.number, job.phase, job.candidate, Outcome.UNSUPPORTED, "not recorded", round=job.round)
        trial = self._next(job.candidate.key)
        own = dataclasses.replace(
            trial,
            number=job.number,
            phase=job.phase,
            candidate=job.candidate,
            round=job.round,
            folder=None,
            answers=None,
            started_at=now(),
        )
        if not trial.ok or not trial.samples:
            return own
        return self._measured(own, job, self._moved(job.candidate.key))

    def _next(self, key: str) -> Trial:
        """Every recorded launch once, in turn or in an order that is drawn, then again."""
        if not self._left.get(key):
            left = list(self._recorded[key])
            if self._rng is not None:
                self._rng.shuffle(left)
            self._left[key] = left
        return self._left[key].pop(0)

    def _moved(self, key: str) -> float:
        """By which factor the launch is faster than the recorded one."""
        if self._rng is None or len(self._recorded[key]) > 1 or not self._noise.launches:
            return 1.0
        return math.exp(self._rng.choice(self._noise.launches))

    def _measured(self, trial: Trial, job: Job, factor: float) -> Trial:
        """The launch with the job's samples in the order of runner/stages.py, as far as its race lets it come."""
        recorded = [sample for sample in trial.samples if not sample.problems] or list(trial.samples)
        slices: list[Sample] = []
        samples: list[Sample] = []
        dropped = _judge(job, trial, slices, samples)
        begun = dropped is None
        if begun:
            slices += self._slices(job, trial, recorded, factor)
            for seed in job.seeds:
                dropped = _judge(job, trial, slices, samples)
                if dropped is not None:
                    break
                samples.append(self._sample(recorded, seed, factor))
        saved_s = _saved_s(trial, slices, samples) if begun else (trial.warmup_s or 0.0) + (trial.measure_s or 0.0)
        return dataclasses.replace(
            trial,
            samples=tuple(samples),
            slices=tuple(slices),
            dropped=dropped,
            plan=self._plan or trial.plan,
            warmup_s=trial.warmup_s if begun else None,
            measure_s=None
            if trial.measure_s is None
            else max(0.0, trial.measure_s - (saved_s if begun else trial.measure_s)),
            total_s=max(0.0, trial.total_s - saved_s),
        )

    def _sample(self, recorded: Sequence[Sample], seed: int, factor: float) -> Sample:
        found = next((sample for sample in recorded if sample.pair_seed == seed), None)
        if found is None:  # the same stand-in for every launch: what a seed does to all of them stays common
            found, factor = recorded[seed % len(recorded)], factor * self._jitter(1.0)
        return _scaled(dataclasses.replace(found, seed=seed, asked_seed=None, prompts=None), factor)

    def _slices(self, job: Job, trial: Trial, recorded: Sequence[Sample], factor: float) -> list[Sample]:
        """The job's short samples, as long as the study's first launch decides."""
        if not job.slice_seeds or self._workload is None or not recorded[0].slices:
            return []
        whole = recorded[0].requests + recorded[0].failed
        if self._plan is None:
            prompts = (
                slice_prompts(self._workload, whole, recorded[0].requests_s, job.slice_waves) if job.slice_waves else 0
            )
            self._plan = dataclasses.replace(trial.plan or SamplingPlan(whole), slice_prompts=prompts)
        if not self._plan.slice_prompts:
            return []
        taken = []
        for seed in job.slice_seeds:
            sample = recorded[seed % len(recorded)]
            part = min(sample.slices, key=lambda item: abs(item.requests - self._plan.slice_prompts))
            taken.append(_scaled(_as_sample(part, seed), factor * self._jitter(whole / part.requests)))
        return taken

    def _jitter(self, shorter: float) -> float:
        """`shorter`: how many of it make a whole sample."""
        return math.exp(self._rng.gauss(0.0, self._noise.within * math.sqrt(shorter))) if self._rng is not None else 1.0


def _judge(job: Job, trial: Trial, slices: Sequence[Sample], samples: Sequence[Sample]) -> Dropped | None:
    return job.race.judge(trial.start_s, slices, samples) if job.race is not None and trial.ok else None


def _saved_s(trial: Trial, slices: Sequence[Sample], samples: Sequence[Sample]) -> float:
    """Seconds by which these cost less than the recorded samples did; less than zero where they cost more."""
    if not trial.measure_s:
        return 0.0
    each = trial.measure_s / len(trial.samples)
    client = trial.measure_s / (sum(sample.duration_s for sample in trial.samples) or trial.measure_s)
    return trial.measure_s - each * len(samples) - client * sum(item.duration_s for item in slices)


def _as_sample(part: Slice, seed: int) -> Sample:
    """Gaps between tokens are not kept with a slice."""
    return Sample(
        seed=seed, duration_s=part.duration_s, requests=part.requests, failed=0,
        input_tokens=round(part.input_tok_s * part.duration_s), output_tokens=round(part.output_tok_s * part.duration_s),
        output_tok_s=part.output_tok_s, input_tok_s=part.input_tok_s, requests_s=part.requests_s,
        ttft_ms=part.ttft_ms, tpot_ms=part.tpot_ms, itl_ms=dict.fromkeys(part.tpot_ms, 0.0), e2el_ms=part.e2el_ms,
    )  # fmt: skip


def _scaled(sample: Sample, factor: float) -> Sample:
    """The sample on a launch that is so many times as fast."""
    if factor == 1.0:
        return sample
    rates = {name: value * factor for name in _RATES if (value := getattr(sample, name)) is not None}
    times = {name: {key: value / factor for key, value in getattr(sample, name).items()} for name in _TIMES}
    return dataclasses.replace(sample, duration_s=sample.duration_s / factor, **rates, **times)
