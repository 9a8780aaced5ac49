"""Replies that are wrong by themselves, that look degenerate beside the baseline's, or that a server refuses to give. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from advisor.measure.answers import Answers, Reply
from advisor.verdict.degenerate import ABOVE, never_right, odd

ODD_SHARE = 0.25  # more degenerate answers than the baseline has, as a share of the answers; two more at least
REFUSED = range(400, 500)  # HTTP: the question is not supported, which says nothing about answers

Key = tuple[str, str, str, str]


def key(reply: Reply) -> Key:
    return reply.mode, reply.kind, reply.prompt, reply.sent


def asked_alike(baseline: Sequence[Answers], candidate: Answers) -> bool:
    """Whether most of what the candidate was asked was asked of the baseline too: not with another tokenizer or length limit."""
    asked = {key(reply) for answers in baseline for reply in answers.replies}
    return sum(key(reply) in asked for reply in candidate.replies) > len(candidate.replies) / 2


def wrong_replies(baseline: Sequence[Answers], candidate: Answers) -> list[str]:
    """Faults of the candidate in questions that a baseline answered soundly; the first one stands for all."""
    sound = {key(reply) for answers in baseline for reply in answers.replies if not never_right(reply)}
    faults = [
        (reply, fault)
        for reply in candidate.replies
        if key(reply) in sound and reply.status not in REFUSED and (fault := never_right(reply))
    ]
    if faults:
        reply, fault = faults[0]
        return [f"wrong output: {fault} ({_named(reply)}; {len(faults)} of {len(candidate.replies)} answers)"]
    missing = sound - {key(reply) for reply in candidate.replies}
    return [f"wrong output: {len(missing)} questions were not answered"] if missing else []


def own_faults(baseline: Sequence[Answers]) -> list[str]:
    """Faults of the baseline's own replies."""
    logits = _logits(baseline)
    return [
        f"{fault} ({_named(reply)})"
        for answers in baseline
        for reply in answers.replies
        if reply.status not in REFUSED and (fault := never_right(reply)) and not (logits and fault == ABOVE)
    ]


def _logits(baseline: Sequence[Answers]) -> bool:
    """Whether the server was told to report logits (--logprobs-mode raw_logits): then every answer has values above 0."""
    faults = [never_right(reply) for answers in baseline for reply in answers.replies if reply.ok]
    return bool(faults) and all(fault == ABOVE for fault in faults)


def _named(reply: Reply) -> str:
    kinds = {"greedy": "free text", "forced": "forced tokens", "prompt": "log-probabilities of the prompt"}
    return f"{kinds.get(reply.kind, reply.kind)} for {reply.prompt!r}, {reply.mode}"


def refusals(several: Sequence[Answers], whose: str) -> list[str]:
    """One sentence for each kind of question that was refused."""
    notes = []
    for name, kind in (("decode", "forced"), ("prefill", "prompt"), ("text", "greedy")):
        refused = [reply for answers in several for reply in answers.of(kind) if reply.status in REFUSED]
        if refused:
            notes.append(f"{name} is not compared: {whose} refuses the question with {refused[0].problem}")
    return notes


# ---------------------------------------------------------------- degenerate text


def too_odd(baseline: Sequence[Answers], candidate: Answers) -> list[str]:
    """Degenerate texts, where there are clearly more of them than the baseline has."""
    texts, found = len(candidate.of("greedy")), _odd(candidate)
    most = max(len(_odd(answers)) for answers in baseline)
    if len(found) < most + max(2.0, ODD_SHARE * texts):
        return []
    return [f"degenerate text: {len(found)} of {texts} answers, mostly {_commonest(found)}; the baseline has {most}"]


def own_oddity(baseline: Sequence[Answers]) -> list[str]:
    """Degenerate texts of the baseline, where most are."""
    for answers in baseline:
        found, texts = _odd(answers), len(answers.of("greedy"))
        if texts and len(found) > texts / 2:
            return [
                f"the baseline's own output is degenerate: {len(found)} of {texts} answers, mostly {_commonest(found)}"
            ]
    return []


def _odd(answers: Answers) -> list[str]:
    return [found for reply in answers.of("greedy") if (found := odd(reply))]


def _commonest(found: Sequence[str]) -> str:
    return Counter(found).most_common(1)[0][0]
