"""What the gate measures: how far log-probabilities are from the baseline's, and those of the baseline from each other. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from advisor.measure.answers import Answers
from advisor.verdict.distance import agreement, differences, forced_spread, likeliest_gaps, pairs, prompt_spread

KINDS = {"decode": "forced", "prefill": "prompt", "likeliest": "forced"}  # what is compared, and by which questions
RESOLUTION = 2.0**-18  # the least spread, as a share of a log-probability's size: some forty of float32's steps


def distances(baseline: Sequence[Answers], candidate: Answers) -> dict[str, float]:
    """The worst reply's distance from the nearest baseline, for each thing that can be compared."""
    scale, found = scales(baseline), {}
    for name in compared(baseline):
        worst = [max(gaps) for answers in baseline if (gaps := _gaps(name, answers, candidate))]
        if worst:
            found[name] = min(worst) / scale[name]
    return found


def own_noise(baseline: Sequence[Answers]) -> dict[str, float]:
    """The worst reply's distance of baseline from baseline: other launches, and other modes of the same launch."""
    scale = scales(baseline)
    groups = {name: _own_gaps(name, baseline) for name in compared(baseline)}
    return {name: max(max(gaps) for gaps in found) / scale[name] for name, found in groups.items() if found}


def instability(baseline: Sequence[Answers]) -> dict[str, float]:
    """Distance of the two launches, or two modes of one, that are furthest apart, in units of all that the values vary."""
    least = least_spread(baseline)
    whole = {
        "decode": max(least, mean([forced_spread(answers).overall for answers in baseline])),
        "prefill": max(least, mean([prompt_spread(answers) for answers in baseline])),
        "likeliest": 1.0,
    }
    groups = {name: _own_gaps(name, baseline) for name in compared(baseline)}
    return {name: max(mean(gaps) for gaps in found) / whole[name] for name, found in groups.items() if found}


def scales(baseline: Sequence[Answers]) -> dict[str, float]:
    """What a distance of 1 is: the spread that only the context makes for decode, that of the prompt's tokens for prefill.

    Never below what float32 can tell apart: with vLLM's random weights all log-probabilities are nearly equal.
    """
    forced, least = [forced_spread(answers) for answers in baseline], least_spread(baseline)
    return {
        "decode": max(mean([spread.context or spread.overall for spread in forced]), least),
        "prefill": max(mean([prompt_spread(answers) for answers in baseline]), least),
        "likeliest": 1.0,
    }


def least_spread(baseline: Sequence[Answers]) -> float:
    """A spread at which float32's steps begin to matter."""
    replies = [reply for answers in baseline for kind in ("forced", "prompt") for reply in answers.of(kind)]
    return RESOLUTION * max(
        1.0, mean([abs(value) for reply in replies for value in reply.logprobs if value is not None])
    )


def context_is_hidden(baseline: Sequence[Answers]) -> bool:
    """Whether equal tokens get equal log-probabilities after whatever prompt, as far as float32 can tell."""
    asked = {(reply.forced, reply.prompt) for answers in baseline for reply in answers.of("forced") if reply.ok}
    several = len(asked) > len({forced for forced, _ in asked})
    return several and max(forced_spread(answers).context for answers in baseline) < least_spread(baseline)


def compared(baseline: Sequence[Answers]) -> list[str]:
    """What can be compared: not the log-probabilities of forced tokens where the server reports them after masking."""
    masked = any(_masked(answers) for answers in baseline)
    return [name for name, kind in KINDS.items() if not (masked and kind == "forced")]


def _masked(answers: Answers) -> bool:
    """--logprobs-mode processed_*: a forced token then always has the log-probability 0."""
    values = [value for reply in answers.of("forced") for value in reply.logprobs]
    return bool(values) and all(value == 0 for value in values)


def _gaps(name: str, one: Answers, other: Answers, same_mode: bool = True) -> list[float]:
    measure = likeliest_gaps if name == "likeliest" else differences
    return [gap for gap in measure(pairs(one, other, KINDS[name], same_mode)) if math.isfinite(gap)]


def _own_gaps(name: str, baseline: Sequence[Answers]) -> list[list[float]]:
    """Those of each two launches of the baseline, and of the modes of each launch."""
    launches = [_gaps(name, one, other) for one, other in itertools.combinations(baseline, 2)]
    modes = [_gaps(name, answers, answers, same_mode=False) for answers in baseline]
    return [gaps for gaps in (*launches, *modes) if gaps]


# ---------------------------------------------------------------- greedy text


def greedy_agreement(baseline: Sequence[Answers], candidate: Answers) -> float | None:
    """Mean share of equal tokens before the first difference, with the baseline that is nearest; None without any text."""
    shares = [mean(found) for answers in baseline if (found := agreement(pairs(answers, candidate, "greedy")))]
    return max(shares, default=None)


def own_agreement(baseline: Sequence[Answers]) -> float | None:
    launches = [agreement(pairs(one, other, "greedy")) for one, other in itertools.combinations(baseline, 2)]
    modes = [agreement(pairs(answers, answers, "greedy", same_mode=False)) for answers in baseline]
    found = [share for shares in (*launches, *modes) for share in shares]
    return mean(found) if found else None


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
