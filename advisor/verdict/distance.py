"""How far two servers' log-probabilities are from each other, in units of how much they vary by themselves. Pure.

Both servers decoded over the same input (forced tokens) or read the same prompt, so positions compare one to one. The mean
absolute difference is divided by a spread, so that a model with random weights, whose log-probabilities differ in the sixth
digit only, is judged on the same scale as a trained one: 0 is equal, about 1.1 is what two unrelated answers give.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from advisor.measure.answers import Answers, Reply

LIKELIEST = 4
SKIPPED = 1  # the first position of a forced answer: its input is the prompt's own last token, not the forced one


@lru_cache(maxsize=1024)  # replies of some 25 launches
def series(reply: Reply) -> np.ndarray:
    """positions x values: the token's log-probability and, where asked for, those of the likeliest ones by rank. NaN where None.

    Not to be written to: it is kept, since every candidate is held against the same baselines.
    """
    ranks = min((len(item) for item in reply.top), default=0)
    rows = []
    for position, value in enumerate(reply.logprobs):
        best = (
            sorted((_number(item) for item in reply.top[position].values()), reverse=True)[:ranks] if reply.top else []
        )
        rows.append([_number(value), *best])
    found = np.array(rows, dtype=float).reshape(len(rows), 1 + ranks)
    found.flags.writeable = False
    return found


def _number(value: float | None) -> float:
    return np.nan if value is None else value


@dataclass(frozen=True)
class Spread:
    """Of a baseline's values. `context`: among prompts that share the forced token, so only the context makes it; `overall`."""

    context: float
    overall: float


def forced_spread(answers: Answers) -> Spread:
    """Mean absolute deviation from the mean, over the values of series(); 0 where there is nothing."""
    groups: dict[str, list[np.ndarray]] = defaultdict(list)
    for reply in answers.of("forced"):
        if reply.ok and reply.mode == "together" and len(reply.logprobs) > SKIPPED:
            groups[reply.forced].append(series(reply)[SKIPPED:])
    everything, context = [], []
    for members in groups.values():
        length, width = min(len(item) for item in members), min(item.shape[1] for item in members)
        stack = np.stack([item[:length, :width] for item in members])
        everything.append(stack.reshape(-1, width))
        if len(members) > 1:
            context.append(
                np.abs(stack - stack.mean(axis=0)) * (len(members) / (len(members) - 1)) ** 0.5
            )  # few of them
    if not everything:
        return Spread(0.0, 0.0)
    width = min(item.shape[1] for item in everything)
    values = np.concatenate([item[:, :width] for item in everything])
    values = values[np.isfinite(values).all(axis=1)]
    overall = np.abs(values - values.mean(axis=0)) if len(values) else values
    return Spread(_mean(part.ravel() for part in context), _mean([overall.ravel()]))


def prompt_spread(answers: Answers) -> float:
    """Mean absolute deviation of the prompts' own log-probabilities from their mean."""
    values = np.array([value for reply in answers.of("prompt") for value in reply.logprobs if value is not None])
    return _mean([np.abs(values - values.mean())]) if values.size else 0.0


def _mean(parts: Iterable[np.ndarray]) -> float:
    """Of all finite numbers in the parts, 0 where there is none."""
    values = np.concatenate([*parts, np.empty(0)])
    values = values[np.isfinite(values)]
    return float(values.mean()) if values.size else 0.0


# ---------------------------------------------------------------- differences


def pairs(first: Answers, second: Answers, kind: str, same_mode: bool = True) -> Iterator[tuple[Reply, Reply]]:
    """Replies to the same question; in the same mode, or (same_mode False) in each two different modes."""
    others: dict[tuple[str, str], list[Reply]] = defaultdict(list)
    for reply in second.of(kind):
        if reply.ok:
            others[reply.prompt, reply.sent].append(reply)
    for reply in first.of(kind):
        for other in others[reply.prompt, reply.sent] if reply.ok else ():
            if (reply.mode == other.mode) == same_mode:
                yield reply, other


def differences(matched: Iterable[tuple[Reply, Reply]]) -> list[float]:
    """The mean absolute difference of each pair, over the positions and values that both have."""
    return [_difference(series(one), series(other), SKIPPED if one.kind == "forced" else 0) for one, other in matched]


def _difference(one: np.ndarray, other: np.ndarray, skipped: int) -> float:
    length, width = min(len(one), len(other)), min(one.shape[1], other.shape[1])
    gap = np.abs(one[skipped:length, :width] - other[skipped:length, :width])
    return _mean([gap.ravel()]) if np.isfinite(gap).any() else np.nan


# ---------------------------------------------------------------- likeliest tokens


def likeliest_gaps(matched: Iterable[tuple[Reply, Reply]]) -> list[float]:
    """Share of the likeliest tokens that are not the other's too, for each pair of forced answers: 0 is equal, 1 nothing common.

    It needs no scale at all, and sees garbage even where weights are so small that all log-probabilities are equal in float32.
    """
    return [_not_common(one, other) for one, other in matched]


def _not_common(one: Reply, other: Reply) -> float:
    shares = [
        1 - len(mine & theirs) / min(len(mine), len(theirs))
        for mine, theirs in zip(_likeliest(one), _likeliest(other), strict=False)
        if mine and theirs
    ]
    return float(np.mean(shares)) if shares else np.nan


@lru_cache(maxsize=1024)
def _likeliest(reply: Reply) -> tuple[frozenset[str], ...]:
    """At each position the four likeliest without the forced one, which is listed wherever it ranks."""
    return tuple(_four_likeliest(values, reply.forced) for values in reply.top[SKIPPED:])


def _four_likeliest(values: Mapping[str, float | None], forced: str) -> frozenset[str]:
    ranked = sorted((token for token in values if token != forced), key=lambda token: -(values[token] or 0.0))
    return frozenset(ranked[:LIKELIEST])


# ---------------------------------------------------------------- greedy text


def agreement(matched: Iterable[tuple[Reply, Reply]]) -> list[float]:
    """Share of the tokens before the first one that differs, for each pair."""
    return [_common(one.tokens, other.tokens) for one, other in matched if one.tokens and other.tokens]


def _common(one: Sequence[str], other: Sequence[str]) -> float:
    length = max(len(one), len(other))
    same = next(
        (index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    return same / length
