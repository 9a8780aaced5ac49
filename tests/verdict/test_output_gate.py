"""The comparison itself, on answers made by hand."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

from advisor.measure.answers import Answers, Reply
from advisor.verdict.degenerate import loop, never_right, odd
from advisor.verdict.distance import forced_spread, prompt_spread
from advisor.verdict.output_gate import FLOOR, compare, judge_baseline

PROMPTS = ("a", "b", "c", "d", "e", "f")
WORDS = ("red", "blue", "green", "grey", "black", "white")


def answers(noise: float = 0.0, seed: int = 1, scale: float = 1.0, shift: float = 0.0, model: int = 0) -> Answers:
    """A server's answers: log-probabilities `shift` plus `scale` times a value that depends on the model, prompt and position,
    each with a deviation of `noise` drawn by `seed`. Forced tokens take turns, as in the real questions."""
    deviation = random.Random(seed)

    def value(*where: object) -> float:
        return shift + scale * (random.Random(f"{model} {where}").gauss(-6, 1) + deviation.gauss(0, noise))

    replies = []
    for mode in ("alone", "together"):
        for index, prompt in enumerate(PROMPTS):
            forced = str(index % 2)
            top = tuple({str(rank): value(prompt, position, rank) for rank in range(5)} for position in range(32))
            values = tuple(value(prompt, position) for position in range(32))
            replies.append(
                Reply(
                    mode,
                    "forced",
                    prompt,
                    32,
                    f"{prompt}{forced}",
                    200,
                    "",
                    forced,
                    "x",
                    32,
                    (forced,) * 32,
                    values,
                    top,
                )
            )
            words = tuple(random.Random(f"{prompt} {position}").choice(WORDS) for position in range(48))
            replies.append(
                Reply(mode, "greedy", prompt, 48, prompt, 200, "", "", " ".join(words), 48, words, (-1.0,) * 48, ())
            )
        values = tuple(value("long", position) for position in range(400))
        replies.append(Reply(mode, "prompt", "long", 1, "long", 200, "", "", "x", 1, ("t",) * 400, values, ()))
    return Answers(tuple(replies))


def changed(given: Answers, kind: str, **values) -> Answers:
    return Answers(
        tuple(dataclasses.replace(reply, **values) if reply.kind == kind else reply for reply in given.replies)
    )


# ---------------------------------------------------------------- distances


def test_equal_answers_have_distance_zero_and_unrelated_ones_about_one():
    same, other = compare([answers()], answers()), compare([answers()], answers(model=1))
    assert same.passed and same.distance == {"decode": 0.0, "prefill": 0.0, "likeliest": 0.0}
    assert other.passed is False and all(0.8 < other.distance[name] < 2.0 for name in ("decode", "prefill"))


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (1e-3, -11.76), (5.0, 0.0)])
def test_the_distance_does_not_depend_on_the_scale(scale, shift):
    """With random weights all log-probabilities are -log(vocabulary) and differ little."""
    base, other = answers(scale=scale, shift=shift), answers(0.05, 2, scale, shift)
    found = compare([base], other).distance
    plain = compare([answers()], answers(0.05, 2)).distance
    assert found["decode"] == pytest.approx(plain["decode"], rel=0.3)
    assert compare([base], answers(0, 2, scale, shift, model=1)).passed is False


def test_float32_steps_are_no_distance():
    """Values that are equal but for the last place of a float32, where the weights leave no spread at all."""
    flat = answers(scale=0.0, shift=-11.76)
    step = answers(scale=0.0, shift=-11.76 + 2**-20)
    result = compare([flat], step)
    assert result.passed, result.reason


def test_the_limit_follows_the_baselines_own_noise():
    quiet, loud = [answers(0.005, 1), answers(0.005, 2)], [answers(0.15, 1), answers(0.15, 2)]
    assert compare(quiet, answers(0.15, 3)).passed is False
    result = compare(loud, answers(0.15, 3))
    assert result.passed, result.reason
    assert compare(quiet, answers(0.005, 3)).limit == FLOOR
    assert (
        result.limit["decode"] == pytest.approx(3 * result.noise["decode"], rel=1e-3) and result.limit["decode"] > 0.3
    )
    assert compare(loud, answers(model=1)).passed is False


def test_garbage_is_seen_where_float32_cannot_tell_the_log_probabilities_apart():
    """vLLM's own random weights: only which tokens are the likeliest tells two models apart."""

    def with_likeliest(first: int) -> Answers:
        top = tuple({str(first + rank): -11.76 for rank in range(4)} for _ in range(32))
        return changed(answers(scale=0.0, shift=-11.76), "forced", top=top)

    own = judge_baseline([with_likeliest(100)], random_weights=True)
    assert own.passed and any("rounding hides what the context does" in note for note in own.notes)
    assert compare([with_likeliest(100)], with_likeliest(100), random_weights=True).passed
    result = compare([with_likeliest(100)], with_likeliest(102), random_weights=True)
    assert result.passed is False and result.reason.startswith("50% of the likeliest tokens are others")


def test_one_wrong_reply_is_enough():
    replies = list(answers().replies)
    bad = next(index for index, reply in enumerate(replies) if reply.kind == "forced" and reply.mode == "together")
    wrong = [value - 1.5 for value in replies[bad].logprobs]
    replies[bad] = dataclasses.replace(replies[bad], logprobs=tuple(wrong), top=())
    result = compare([answers()], Answers(tuple(replies)))
    assert result.passed is False and "while decoding" in result.reason


def test_spreads_are_of_the_context_and_of_everything():
    found = forced_spread(answers())
    assert found.context == pytest.approx(found.overall, rel=0.1)  # here only prompt and position make a difference
    assert 0.3 < found.overall < 0.8  # values by rank vary less than the 0.8 of a normal distribution
    assert prompt_spread(answers()) == pytest.approx(0.8, rel=0.1)
    apart = [dataclasses.replace(reply, logprobs=tuple(value - 9 * int(reply.forced) for value in reply.logprobs), top=())
             if reply.kind == "forced" else reply for reply in answers().replies]  # fmt: skip
    shifted = forced_spread(Answers(tuple(apart)))
    assert shifted.overall > 4 and shifted.context < 1  # what the token does is not the context's


# ---------------------------------------------------------------- baseline


def test_a_baseline_whose_launches_disagree_is_named_and_judges_nobody():
    own = judge_baseline([answers(), answers(model=1)])
    assert own.passed is False and "own output is not stable: decode" in own.reason
    assert compare([answers(), answers(model=1)], answers()).passed is None


def test_repeating_itself_is_no_fault_of_random_weights():
    same = changed(answers(), "greedy", tokens=("1",) * 48, text="1" * 48)
    assert judge_baseline([same]).passed is False
    assert "degenerate: 12 of 12 answers, mostly one token repeated" in judge_baseline([same]).reason
    own = judge_baseline([same], random_weights=True)
    assert own.passed and "random weights" in own.notes[0]
    assert compare([same], same, random_weights=True).passed
    assert compare([same], answers(model=1), random_weights=True).passed is False


def test_a_baseline_without_answers_judges_nobody():
    assert compare([], answers()).passed is None
    silent = Answers((Reply("alone", "greedy", "a", 48, "a", problem="no answer: refused"),))
    assert compare([silent], answers()).passed is None


def test_other_questions_are_not_compared():
    other = Answers(tuple(dataclasses.replace(reply, sent="else") for reply in answers().replies))
    assert "other questions" in compare([answers()], other).reason


def test_rounding_that_hides_the_context_is_said():
    """Context changes the values by a hundredth of what the token does, and rounding is as large as that."""
    both = []
    for seed in (1, 2):
        draw, replies = random.Random(seed), []
        for reply in answers().replies:
            if reply.kind == "forced":
                values = tuple(-6.0 - 2 * int(reply.forced) + 0.01 * draw.gauss(0, 1) for _ in reply.logprobs)
                reply = dataclasses.replace(reply, logprobs=values, top=())
            replies.append(reply)
        both.append(Answers(tuple(replies)))
    own = judge_baseline(both)
    assert own.passed and any("an error of the attention would not be seen" in note for note in own.notes)


# ---------------------------------------------------------------- servers that do not tell


def test_without_log_probabilities_the_text_is_judged():
    refused = {
        "status": 400,
        "problem": "HTTP 400: logprobs is larger than --max-logprobs",
        "tokens": (),
        "logprobs": (),
        "top": (),
    }

    def quiet(given: Answers) -> Answers:
        return changed(changed(given, "forced", **refused), "prompt", **refused)

    same = compare([quiet(answers())], quiet(answers()))
    assert same.passed and same.distance == {} and "decode is not compared: the baseline refuses" in same.notes[0]
    garbage = changed(
        quiet(answers()), "greedy", tokens=tuple(random.Random(index).choice(WORDS) for index in range(48))
    )
    result = compare([quiet(answers())], garbage)
    assert result.passed is False and "of the greedy tokens are the baseline's" in result.reason


def test_a_question_that_only_the_candidate_refuses_is_not_wrong_output():
    refused = changed(
        answers(), "forced", status=400, problem="HTTP 400: not with speculative decoding", logprobs=(), top=()
    )
    result = compare([answers()], refused)
    assert result.passed and any("the candidate refuses" in note for note in result.notes)
    assert set(result.distance) == {"prefill"}


def test_log_probabilities_after_masking_are_not_compared():
    def masked(given: Answers) -> Answers:
        return changed(given, "forced", logprobs=(0.0,) * 32, top=())

    result = compare([masked(answers())], masked(answers()))
    assert result.passed and set(result.distance) == {"prefill"}
    assert any("after masking" in note for note in result.notes)


def test_logits_instead_of_log_probabilities_are_compared_as_well():
    own = judge_baseline([answers(shift=40.0)])
    assert own.passed is False  # greedy answers of this test are no logits: one kind alone above 0 is wrong
    every = changed(answers(shift=40.0), "greedy", logprobs=(3.0,) * 48)
    assert judge_baseline([every]).passed
    assert compare([every], changed(answers(shift=40.0, model=1), "greedy", logprobs=(3.0,) * 48)).passed is False


# ---------------------------------------------------------------- degenerate text


@pytest.mark.parametrize(
    ("tokens", "period"),
    [
        ("a" * 48, 1),
        ("abc" * 16, 3),
        ("xyz" + "abcdefgh" * 6, 8),
        ("abcdefghijklmnopqrstuvwxyz", 0),
        ("hello" + "a" * 40, 1),
        ("a", 0),
        ("", 0),
        ("ab", 0),
    ],
)
def test_loops(tokens, period):
    assert loop(tuple(tokens)) == period


def test_odd_texts():
    reply = Reply("alone", "greedy", "a", 4, "a", 200, text="ok", tokens=tuple("abcd"))
    assert odd(reply) == ""
    assert odd(dataclasses.replace(reply, text=" \n")) == "an empty text"
    assert odd(dataclasses.replace(reply, text="\ufffd\ufffdab")) == "text that is not valid UTF-8"
    assert odd(dataclasses.replace(reply, text="a long enough text, cut in a character\ufffd")) == ""


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({}, ""),
        ({"logprobs": (-1.0, None)}, "no finite number"),
        ({"top": ({"a": -1.0, "b": None},)}, "no finite number"),
        ({"logprobs": (-1.0, 0.0005)}, ""),
        ({"logprobs": (-1.0, 0.5)}, "above 0"),
        ({"generated": 3}, "3 tokens instead of 4"),
        ({"problem": "HTTP 500: x"}, "HTTP 500"),
        ({"kind": "forced", "forced": "b"}, "another token"),
    ],
)
def test_never_right(values, fault):
    reply = Reply(
        "alone", "greedy", "a", 4, "a", 200, text="aaaa", generated=4, tokens=tuple("aaaa"), logprobs=(-1.0,) * 4
    )
    found = never_right(dataclasses.replace(reply, **values))
    assert fault in found and bool(fault) == bool(found)


def test_results_hold_numbers_that_json_can_carry():
    constant = changed(changed(answers(), "forced", logprobs=(-0.0,) * 32, top=()), "prompt", logprobs=(0.0,) * 400)
    for result in (compare([constant], answers()), compare([answers()], constant)):
        assert all(
            math.isfinite(value)
            for value in (*result.distance.values(), *result.limit.values(), *result.noise.values())
        )
