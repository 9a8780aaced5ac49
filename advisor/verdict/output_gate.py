"""The output gate: are a launch's answers to the fixed prompts the baseline's? Pure, but for reading the answers' files.

Speed cannot reveal garbage. Byte equality is not asked for: other kernels and batch sizes round differently, and greedy text
then takes another branch where two tokens are nearly tied. What must agree are the log-probabilities over equal input, as far
as the baseline agrees with itself. Figures behind the limits: docs/output-gate.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from advisor.errors import InputError
from advisor.measure.answers import Answers, read_answers
from advisor.records import GateResult, Outcome, Trial
from advisor.verdict.gate_distance import (
    KINDS,
    compared,
    context_is_hidden,
    distances,
    greedy_agreement,
    instability,
    own_agreement,
    own_noise,
)
from advisor.verdict.gate_replies import asked_alike, own_faults, own_oddity, refusals, too_odd, wrong_replies

# Below this a distance is rounding, whatever the baseline's own noise. Measured on the H200 with six kernels and graph modes:
# 0.06, 0.02 and 0.12 at most; one swapped pair of heads in one layer of a small trained model: 0.25, 0.03 and 0.22.
FLOOR = {"decode": 0.15, "prefill": 0.04, "likeliest": 0.25}
NOISE_FACTOR = 3.0  # and above it, so many times what the baseline differs from itself
BLIND_NOISE = 0.5  # baseline against itself: from here on rounding hides what the context does to the answer
UNSTABLE = 0.5  # the same in units of all that its values vary: from here on its own output depends on chance
HIDDEN = "rounding hides what the context does to these answers"
LEAST_AGREEMENT = 0.3  # of the baseline's own agreement; judged only where there are no log-probabilities


def compare(baseline: Sequence[Answers], candidate: Answers, random_weights: bool = False) -> GateResult:
    """Judge a candidate. `baseline`: answers of one launch of it or more; the more there are, the better its noise is known."""
    own = judge_baseline(baseline, random_weights)
    if own.passed is None:
        return dataclasses.replace(own, notes=())
    if own.passed is False:
        return GateResult(None, f"not judged: {own.reason}", baselines=own.baselines, noise=own.noise)
    if not asked_alike(baseline, candidate):
        return GateResult(None, "not judged: it was asked other questions than the baseline", baselines=own.baselines)
    distance, agreed = distances(baseline, candidate), greedy_agreement(baseline, candidate)
    notes = (*own.notes, *refusals([candidate], "the candidate"))
    limit = {name: max(FLOOR[name], NOISE_FACTOR * own.noise.get(name, 0.0)) for name in distance}
    reasons = [
        *wrong_replies(baseline, candidate),
        *too_odd(baseline, candidate),
        *(
            _too_far(name, far, limit[name], own.noise.get(name, 0.0))
            for name, far in distance.items()
            if far > limit[name]
        ),
        *([] if distance else _too_different(agreed, own.agreement)),
    ]
    if not reasons and not distance and agreed is None:
        return GateResult(None, "not judged: no question was answered by both", baselines=own.baselines, notes=notes)
    return GateResult(
        passed=not reasons,
        reason=reasons[0] if reasons else "",
        distance=_rounded(distance),
        limit=_rounded(limit),
        noise=own.noise,
        agreement=_rounded_number(agreed),
        baseline_agreement=own.agreement,
        baselines=own.baselines,
        notes=notes,
    )


def judge_baseline(baseline: Sequence[Answers], random_weights: bool = False) -> GateResult:
    """Whether the baseline's own answers are sound and agree among themselves; else nothing can be held against it."""
    usable = [answers for answers in baseline if any(reply.ok for reply in answers.replies)]
    if not usable:
        return GateResult(None, "not judged: the baseline gave no answer that can be compared with")
    noise, agreed = own_noise(usable), own_agreement(usable)
    reasons = [
        *(f"the baseline's own output is wrong: {fault}" for fault in own_faults(usable)),
        *([] if random_weights else own_oddity(usable)),
        *(
            f"the baseline's own output is not stable: {name} differs from itself by {value:.2g} of all that it varies"
            for name, value in instability(usable).items()
            if value > UNSTABLE
        ),
    ]
    return GateResult(
        passed=not reasons,
        reason=reasons[0] if reasons else "",
        noise=_rounded(noise),
        agreement=_rounded_number(agreed),
        baseline_agreement=_rounded_number(agreed),
        baselines=len(usable),
        notes=tuple(_notes(usable, noise, random_weights)),
    )


# ---------------------------------------------------------------- trials


def gated(trial: Trial, trials: Sequence[Trial], root: Path, random_weights: bool = False) -> Trial:
    """The trial with its judgement, before it goes into the journal. `trials`: all so far; `root`: the study's folder.

    An OK trial whose answers fail becomes wrong_output, and so does one whose figure would count for another candidate.
    Other outcomes have their reason already.
    """
    answers = _answers_of(trial, root) if trial.outcome in (Outcome.OK, Outcome.NOT_AS_REQUESTED) else None
    if answers is None:
        return trial
    if trial.candidate.is_baseline:
        result = judge_baseline([*baseline_answers(trials, root), answers], random_weights)
    else:
        result = compare(baseline_answers(trials, root), answers, random_weights)
        if result.passed is False:
            trial = dataclasses.replace(trial, outcome=Outcome.WRONG_OUTPUT, reason=result.reason, credited_to=None)
    return dataclasses.replace(trial, gate=result)


def baseline_answers(trials: Iterable[Trial], root: Path) -> list[Answers]:
    """Of every OK launch of the baseline that the study's folder still has answers of."""
    found = (_answers_of(trial, root) for trial in trials if trial.candidate.is_baseline and trial.ok)
    return [answers for answers in found if answers is not None]


def _answers_of(trial: Trial, root: Path) -> Answers | None:
    if trial.answers is None:
        return None
    try:
        return read_answers(root / trial.answers)
    except InputError:  # deleted, or written by another version: then it is as if it had not been asked
        return None


# ---------------------------------------------------------------- words


def _too_far(name: str, distance: float, limit: float, noise: float) -> str:
    if name == "likeliest":
        return (
            f"{distance:.0%} of the likeliest tokens are others than the baseline's over the same input;"
            f" the limit is {limit:.0%}, the baseline differs from itself by {noise:.0%}"
        )
    what = {"decode": "while decoding", "prefill": "of the prompts"}[name]
    return (
        f"log-probabilities {what} are {distance:.2g} of their spread away from the baseline's;"
        f" the limit is {limit:.2g}, the baseline differs from itself by {noise:.2g}"
    )


def _too_different(agreed: float | None, own: float | None) -> list[str]:
    if agreed is None or own is None or agreed >= LEAST_AGREEMENT * own:
        return []
    return [
        f"only {agreed:.0%} of the greedy tokens are the baseline's, whose own launches and modes agree on {own:.0%}"
    ]


def _notes(baseline: Sequence[Answers], noise: Mapping[str, float], random_weights: bool) -> list[str]:
    """What could not be compared, and what would not be seen."""
    notes = refusals(baseline, "the baseline")
    if len(compared(baseline)) < len(KINDS):
        notes.append("decode is not compared: this server reports log-probabilities after masking (--logprobs-mode)")
    if noise.get("decode", 0.0) > BLIND_NOISE or context_is_hidden(baseline):
        notes.append(f"{HIDDEN}: an error of the attention would not be seen")
    if random_weights:
        notes.append("random weights: text says little, since tokens are nearly tied; log-probabilities are compared")
    return notes


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in values.items()}


def _rounded_number(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
