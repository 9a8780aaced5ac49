"""Detectors for answers that no sound model gives: empty, cut short, not a number, one thing repeated, broken text. Pure.

A model with random weights, and a trained one that was told to go on after its end, repeats itself too. So repetition counts
only in comparison with the baseline; what is never right (not a number, fewer tokens than asked for) counts by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from advisor.measure.answers import Reply

ABOVE_ZERO = 1e-3  # a log-probability above this is no rounding error
ABOVE = "a log-probability above 0"
LONGEST_LOOP = 8  # tokens
LOOP_SHARE = 0.75  # of the answer that repeats itself
REPLACEMENT = "\ufffd"
BROKEN_SHARE = 0.25  # of the characters


def never_right(reply: Reply) -> str:
    """What is wrong with a reply whatever the model is; empty: nothing."""
    if not reply.ok:
        return reply.problem
    values = [*reply.logprobs, *(value for item in reply.top for value in item.values())]
    if any(value is None for value in values):
        return "log-probabilities that are no finite number"
    if any(value is not None and value > ABOVE_ZERO for value in values):
        return ABOVE
    if reply.generated < reply.wanted:
        return f"{reply.generated} tokens instead of {reply.wanted}"
    if reply.kind == "forced" and any(token != reply.forced for token in reply.tokens):
        return "another token than the only one allowed"
    return ""


def odd(reply: Reply) -> str:
    """What looks degenerate in a free answer, to be held against the baseline's own; empty: nothing."""
    if not reply.tokens:
        return ""
    if not reply.text.strip():
        return "an empty text"
    if reply.text.count(REPLACEMENT) > BROKEN_SHARE * len(reply.text):
        return "text that is not valid UTF-8"
    period = loop(reply.tokens)
    if period == 1:
        return "one token repeated"
    return f"a loop of {period} tokens" if period else ""


def loop(tokens: Sequence[str]) -> int:
    """Length of the loop that most of the tokens are part of, 0 where there is none: the tokens equal those `period` before."""
    for period in range(1, LONGEST_LOOP + 1):
        pairs = len(tokens) - period
        same = sum(tokens[index] == tokens[index - period] for index in range(period, len(tokens)))
        if pairs >= 2 * period and same >= LOOP_SHARE * len(tokens):
            return period
    return 0
