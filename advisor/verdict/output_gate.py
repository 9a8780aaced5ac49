"""The output gate: are a launch's answers to the fixed prompts the baseline's? Pure, but for reading the answers' files.

Speed cannot reveal garbage. Byte equality is not asked for: other kernels and batch sizes round differently, and greedy text
then takes another branch where two tokens are nearly tied. What must agree are the log-probabilities over equal input, as far
as the baseline agrees with itself. Figures behind the limits: docs/output-gate.md.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from advisor.errors import InputError
from advisor.measure.answers import Answers, Reply, read_answers
from advisor.records import GateResult, Outcome, Trial
from advisor.verdict.degenerate import ABOVE, never_right, odd
from advisor.verdict.distance import agreement, differences, forced_spread, pairs, prompt_spread

KINDS = {"decode": "forced", "prefill": "prompt"}  # what is judged, and by which questions
FLOOR = {"decode": 0.2, "prefill": 0.1}  # distances below this are rounding, whatever the baseline's own noise
NOISE_FACTOR = 3.0  # and above it, so many times what the baseline differs from itself
BLIND_NOISE = 0.5  # baseline against itself: from here on rounding hides what the context does to the answer
UNSTABLE = (
    0.5  # baseline against itself, in units of all that its log-probabilities vary: its own output depends on chance
)
RESOLUTION = 2.0**-20  # the least spread, as a share of a log-probability's size: about ten of float32's steps
ODD_SHARE = 0.25  # more degenerate answers than the baseline has, as a share of the answers
LEAST_AGREEMENT = 0.3  # of the baseline's own agreement; judged only where there are no log-probabilities
REFUSED = range(400, 500)  # HTTP: the question is not supported, which says nothing about answers

Key = tuple[str, str, str, str]


def compare(baseline: Sequence[Answers], candidate: Answers, random_weights: bool = False) -> GateResult:
    """Judge a candidate. `baseline`: answers of one launch of it or more; the more there are, the better its noise is known."""
    own = judge_baseline(baseline, random_weights)
    if own.passed is None:
        return dataclasses.replace(own, notes=())
    if own.passed is False:
        return GateResult(None, f"not judged: {own.reason}", baselines=own.baselines, noise=own.noise)
    if not _shared(baseline, candidate):
        return GateResult(None, "not judged: it was asked other questions than the baseline", baselines=len(baseline))
    distance, agreed = _distances(baseline, candidate), _agreement(baseline, candidate)
    notes = (*own.notes, *_refusals([candidate], "the candidate"))
    limit = {name: max(FLOOR[name], NOISE_FACTOR * own.noise.get(name, 0.0)) for name in distance}
    reasons = [
        *_wrong_replies(baseline, candidate),
        *_too_odd(baseline, candidate),
        *(
            _too_far(name, far, limit[name], own.noise.get(name, 0.0))
            for name, far in distance.items()
            if far > limit[name]
        ),
        *([] if distance else _too_different(agreed, own.agreement)),
    ]
    if not reasons and not distance and agreed is None:
        return GateResult(None, "not judged: no question was answered by both", baselines=len(baseline), notes=notes)
    return GateResult(
        passed=not reasons,
        reason=reasons[0] if reasons else "",
        distance=_rounded(distance),
        limit=_rounded(limit),
        noise=own.noise,
        agreement=_rounded_number(agreed),
        baseline_agreement=own.agreement,
        baselines=len(baseline),
        notes=notes,
    )


def judge_baseline(baseline: Sequence[Answers], random_weights: bool = False) -> GateResult:
    """Whether the baseline's own answers are sound and agree among themselves; else nothing can be held against it."""
    usable = [answers for answers in baseline if any(reply.ok for reply in answers.replies)]
    if not usable:
        return GateResult(
            None, "not judged: the baseline gave no answer that can be compared with", baselines=len(baseline)
        )
    noise, instability = _noise(usable), _instability(usable)
    agreed = _own_agreement(usable)
    reasons = [
        *(f"the baseline's own output is wrong: {problem}" for problem in _own_faults(usable)),
        *([] if random_weights else _own_oddity(usable)),
        *(
            f"the baseline's own output is not stable: {name} differs from itself by {value:.2g} of all that it varies"
            for name, value in instability.items()
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
    answers = read_of(trial, root) if trial.outcome in (Outcome.OK, Outcome.NOT_AS_REQUESTED) else None
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
    found = (read_of(trial, root) for trial in trials if trial.candidate.is_baseline and trial.ok)
    return [answers for answers in found if answers is not None]


def read_of(trial: Trial, root: Path) -> Answers | None:
    if trial.answers is None:
        return None
    try:
        return read_answers(root / trial.answers)
    except InputError:  # deleted, or written by another version: then it is as if it had not been asked
        return None


# ---------------------------------------------------------------- replies that are wrong by themselves


def _key(reply: Reply) -> Key:
    return reply.mode, reply.kind, reply.prompt, reply.sent


def _by_key(answers: Answers) -> dict[Key, Reply]:
    return {_key(reply): reply for reply in answers.replies}


def _shared(baseline: Sequence[Answers], candidate: Answers) -> bool:
    asked = {_key(reply) for answers in baseline for reply in answers.replies}
    return any(_key(reply) in asked for reply in candidate.replies)


def _wrong_replies(baseline: Sequence[Answers], candidate: Answers) -> list[str]:
    """Faults of the candidate in questions that a baseline answered soundly; the first one stands for its kind."""
    sound = {_key(reply) for answers in baseline for reply in answers.replies if not never_right(reply)}
    faults = [
        (reply, fault)
        for reply in candidate.replies
        if _key(reply) in sound and reply.status not in REFUSED and (fault := never_right(reply))
    ]
    if faults:
        reply, fault = faults[0]
        return [f"wrong output: {fault} ({_named(reply)}; {len(faults)} of {len(candidate.replies)} answers)"]
    missing = sound - set(_by_key(candidate))
    return [f"wrong output: {len(missing)} questions were not answered"] if missing else []


def _own_faults(baseline: Sequence[Answers]) -> list[str]:
    return [
        f"{fault} ({_named(reply)})"
        for answers in baseline
        for reply in answers.replies
        if reply.status not in REFUSED and (fault := never_right(reply))
        if not (fault == ABOVE and _logits(baseline))
    ]


def _logits(baseline: Sequence[Answers]) -> bool:
    """Whether the server was told to report logits (--logprobs-mode raw_logits): then every answer has values above 0."""
    faults = [never_right(reply) for answers in baseline for reply in answers.replies if reply.ok]
    return bool(faults) and all(fault == ABOVE for fault in faults)


def _masked(answers: Answers) -> bool:
    """Whether log-probabilities are reported after masking (--logprobs-mode processed_*): a forced token then always has 0."""
    forced = [value for reply in answers.of("forced") for value in reply.logprobs]
    return bool(forced) and all(value == 0 for value in forced)


def _named(reply: Reply) -> str:
    kinds = {"greedy": "free text", "forced": "forced tokens", "prompt": "log-probabilities of the prompt"}
    return f"{kinds.get(reply.kind, reply.kind)} for {reply.prompt!r}, {reply.mode}"


# ---------------------------------------------------------------- degenerate text


def _odd_replies(answers: Answers) -> dict[Key, str]:
    return {_key(reply): odd(reply) for reply in answers.of("greedy") if odd(reply)}


def _too_odd(baseline: Sequence[Answers], candidate: Answers) -> list[str]:
    texts = len(candidate.of("greedy"))
    found = _odd_replies(candidate)
    most = max(len(_odd_replies(answers)) for answers in baseline)
    if len(found) < most + max(2.0, ODD_SHARE * texts):
        return []
    common, _ = Counter(found.values()).most_common(1)[0]
    return [f"degenerate text: {len(found)} of {texts} answers, mostly {common}; the baseline has {most}"]


def _own_oddity(baseline: Sequence[Answers]) -> list[str]:
    for answers in baseline:
        found, texts = _odd_replies(answers), len(answers.of("greedy"))
        if texts and len(found) > texts / 2:
            common, _ = Counter(found.values()).most_common(1)[0]
            return [f"the baseline's own output is degenerate: {len(found)} of {texts} answers, mostly {common}"]
    return []


# ---------------------------------------------------------------- distances


def _distances(baseline: Sequence[Answers], candidate: Answers) -> dict[str, float]:
    """The worst reply's distance from the nearest baseline, for each kind that both answered."""
    scale, found = _scales(baseline), {}
    for name, kind in _kinds(baseline):
        worst = [max(gaps) for answers in baseline if (gaps := _finite(differences(pairs(answers, candidate, kind))))]
        if worst:
            found[name] = _ratio(min(worst), scale[name])
    return found


def _noise(baseline: Sequence[Answers]) -> dict[str, float]:
    """The worst reply's distance of baseline from baseline: other launches, and other modes of the same launch."""
    scale, found = _scales(baseline), {}
    for name, kind in _kinds(baseline):
        if groups := _own_gaps(baseline, kind):
            found[name] = _ratio(max(max(gaps) for gaps in groups), scale[name])
    return found


def _instability(baseline: Sequence[Answers]) -> dict[str, float]:
    """Distance of the two launches, or two modes of one, that are furthest apart, in units of all that the values vary."""
    whole = {
        "decode": _mean([forced_spread(answers).overall for answers in baseline]),
        "prefill": _mean([prompt_spread(answers) for answers in baseline]),
    }
    return {
        name: _ratio(max(_mean(gaps) for gaps in groups), whole[name])
        for name, kind in _kinds(baseline)
        if (groups := _own_gaps(baseline, kind))
    }


def _kinds(baseline: Sequence[Answers]) -> list[tuple[str, str]]:
    """(name, kind of question) of what can be compared by log-probabilities."""
    return [
        (name, kind)
        for name, kind in KINDS.items()
        if not (kind == "forced" and any(_masked(item) for item in baseline))
    ]


def _own_gaps(baseline: Sequence[Answers], kind: str) -> list[list[float]]:
    """The differences of each two launches of the baseline, and of the modes of each launch."""
    launches = [differences(pairs(one, other, kind)) for one, other in itertools.combinations(baseline, 2)]
    modes = [differences(pairs(answers, answers, kind, same_mode=False)) for answers in baseline]
    return [gaps for group in (*launches, *modes) if (gaps := _finite(group))]


def _scales(baseline: Sequence[Answers]) -> dict[str, float]:
    """What a distance of 1 is: the spread that only the context makes for decode, that of the prompt's tokens for prefill.

    Never below what float32 can tell apart at that size: with random weights all log-probabilities are nearly equal.
    """
    forced = [forced_spread(answers) for answers in baseline]
    least = RESOLUTION * max(1.0, _mean([_size(answers) for answers in baseline]))
    return {
        "decode": max(_mean([spread.context or spread.overall for spread in forced]), least),
        "prefill": max(_mean([prompt_spread(answers) for answers in baseline]), least),
    }


def _size(answers: Answers) -> float:
    """Mean absolute log-probability of what is compared."""
    compared = [reply for kind in KINDS.values() for reply in answers.of(kind)]
    values = [abs(value) for reply in compared for value in reply.logprobs if value is not None]
    return _mean(values)


def _too_far(name: str, distance: float, limit: float, noise: float) -> str:
    what = {"decode": "while decoding", "prefill": "of the prompts"}[name]
    return (
        f"log-probabilities {what} are {distance:.2g} of their spread away from the baseline's;"
        f" the limit is {limit:.2g}, the baseline differs from itself by {noise:.2g}"
    )


# ---------------------------------------------------------------- greedy text


def _agreement(baseline: Sequence[Answers], candidate: Answers) -> float | None:
    """Mean share of equal tokens before the first difference, with the baseline that is nearest."""
    shares = [_mean(found) for answers in baseline if (found := agreement(pairs(answers, candidate, "greedy")))]
    return max(shares, default=None)


def _own_agreement(baseline: Sequence[Answers]) -> float | None:
    launches = [agreement(pairs(one, other, "greedy")) for one, other in itertools.combinations(baseline, 2)]
    modes = [agreement(pairs(answers, answers, "greedy", same_mode=False)) for answers in baseline]
    found = [share for shares in (*launches, *modes) for share in shares]
    return _mean(found) if found else None


def _too_different(agreed: float | None, own: float | None) -> list[str]:
    if agreed is None or own is None or agreed >= LEAST_AGREEMENT * own:
        return []
    return [
        f"only {agreed:.0%} of the greedy tokens are the baseline's, whose own launches and modes agree on {own:.0%}"
    ]


# ---------------------------------------------------------------- what cannot be seen


def _notes(baseline: Sequence[Answers], noise: dict[str, float], random_weights: bool) -> list[str]:
    notes = _refusals(baseline, "the baseline")
    if len(_kinds(baseline)) < len(KINDS):
        notes.append("decode is not compared: this server reports log-probabilities after masking (--logprobs-mode)")
    if noise.get("decode", 0.0) > BLIND_NOISE:
        notes.append(
            "rounding hides what the context does to these answers: a small error of the attention would not be seen"
        )
    if random_weights:
        notes.append("random weights: text says little, since tokens are nearly tied; log-probabilities are compared")
    return notes


def _refusals(several: Sequence[Answers], whose: str) -> list[str]:
    notes = []
    for name, kind in (*KINDS.items(), ("text", "greedy")):
        refused = [reply for answers in several for reply in answers.of(kind) if reply.status in REFUSED]
        if refused:
            notes.append(f"{name} is not compared: {whose} refuses the question with {refused[0].problem}")
    return notes


# ---------------------------------------------------------------- numbers


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _finite(values: Sequence[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def _ratio(value: float, scale: float) -> float:
    return value / scale if scale > 0 else 0.0


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in values.items()}


def _rounded_number(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
