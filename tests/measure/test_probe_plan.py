"""The questions: they fit the server, share what must be shared, and are the same for every server."""

from __future__ import annotations

import json

import pytest

from advisor.errors import InputError
from advisor.measure.answers import Answers, Reply, read_answers, read_reply, write_answers
from advisor.measure.probe import forced_tokens
from advisor.measure.probe_plan import LONG_PROMPT_TOKENS, SHORT, Prompt, long_texts, plan, prompt_logprob_tokens

TOKENS = [Prompt(name, tuple(range(100 * index, 100 * index + 40))) for index, name in enumerate(SHORT)]
LONG = [Prompt("diary", tuple(range(1200))), Prompt("table", tuple(range(2000, 3200)))]
TEXTS = [Prompt(name, text) for name, text in SHORT.items()]


def questions(short=TOKENS, long=LONG, limit=4096, vocabulary=32000, salt="s"):
    made = plan("served", short, long, [7, 8, 9], vocabulary, limit, salt)
    return [*made.alone, *made.together, *made.early, *made.late]


def length(body) -> int:
    prompt = body["prompt"]
    return len(prompt.encode() if isinstance(prompt, str) else prompt)


@pytest.mark.parametrize("limit", [16, 64, 512, 4096])
@pytest.mark.parametrize("short", [TOKENS, TEXTS])
def test_every_request_fits_the_limit(limit, short):
    for question in questions(short, limit=limit):
        assert length(question.body) >= 1 and length(question.body) + question.body["max_tokens"] <= limit


def test_the_modes_ask_the_same_questions():
    sent: dict[tuple[str, str], set[str]] = {}
    modes: dict[tuple[str, str], set[str]] = {}
    for question in questions():
        key = question.reply.kind, question.reply.prompt
        sent.setdefault(key, set()).add(question.reply.sent)
        modes.setdefault(key, set()).add(question.reply.mode)
    assert all(len(found) == 1 for found in sent.values())
    for kind in ("greedy", "forced", "prompt"):
        assert any(len(found) > 1 for (asked, _), found in modes.items() if asked == kind), kind


def test_each_forced_token_has_several_contexts():
    together = [item.reply for item in questions() if item.reply.kind == "forced" and item.reply.mode == "together"]
    contexts = {token: [reply.prompt for reply in together if reply.forced == token] for token in ("7", "8", "9")}
    assert all(len(set(prompts)) >= 3 for prompts in contexts.values())


def test_equal_servers_are_asked_equal_questions_whatever_the_salt():
    first, second = questions(salt="a"), questions(salt="b")
    assert [item.reply for item in first] == [item.reply for item in second]
    assert all(one.body["cache_salt"] != other.body["cache_salt"] for one, other in zip(first, second, strict=True))


def test_modes_do_not_answer_each_other_from_the_prefix_cache():
    salts = {(item.reply.mode, item.reply.kind): item.body["cache_salt"] for item in questions()}
    assert len(set(salts.values())) == len(salts)


@pytest.mark.parametrize(
    ("vocabulary", "tokens"), [(1000, LONG_PROMPT_TOKENS), (32000, 1200), (128256, 523), (262144, 256), (10**7, 64)]
)
def test_log_probabilities_of_a_prompt_stay_within_the_memory_that_a_prefill_needs(vocabulary, tokens):
    assert prompt_logprob_tokens(vocabulary) == tokens
    asked = [item.body for item in questions(vocabulary=vocabulary) if item.reply.kind == "prompt"]
    assert asked and all(length(body) == min(tokens, 1200) for body in asked)


def test_long_prompts_are_long_and_differ():
    diary, table = long_texts().values()
    assert len(diary) > 8000 and len(table) > 4000 and diary[:50] != table[:50]


def test_forced_tokens_are_distinct_tokens_of_the_prompts():
    assert forced_tokens([tuple(range(100)), (5,) * 50]) == [8, 39, 70]
    assert forced_tokens([(3,) * 50]) == [3]


# ---------------------------------------------------------------- reading


QUESTION = Reply("alone", "greedy", "a", 2, "x")


def completion(**choice) -> bytes:
    return json.dumps({"choices": [{"text": "ab", **choice}], "usage": {"completion_tokens": 2}}).encode()


def test_a_completion_is_read_by_token_ids():
    logprobs = {
        "tokens": ["token_id:5", "token_id:6"],
        "token_logprobs": [-0.5, -9999.0],
        "top_logprobs": [{"token_id:5": -0.5, "token_id:9": -1.0}, None],
    }
    reply = read_reply(QUESTION, 200, completion(logprobs=logprobs))
    assert reply.ok and reply.tokens == ("5", "6") and reply.logprobs == (-0.5, -9999.0) and reply.generated == 2
    assert reply.top == ({"5": -0.5, "9": -1.0}, {})


def test_log_probabilities_of_a_prompt_are_those_of_its_own_tokens():
    listed = [
        None,
        {"5": {"logprob": -3.0, "rank": 4}, "1": {"logprob": -0.1, "rank": 1}},
        {"6": {"logprob": -0.2, "rank": 1}},
    ]
    reply = read_reply(Reply("alone", "prompt", "a", 1, "x"), 200, completion(prompt_logprobs=listed))
    assert reply.tokens == ("5", "6") and reply.logprobs == (-3.0, -0.2)


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (500, b'{"error": {"message": "nan is not\\n JSON", "code": 500}}', "HTTP 500: nan is not JSON"),
        (404, b'{"detail": "Not Found"}', 'HTTP 404: {"detail": "Not Found"}'),
        (502, b"<html>bad gateway</html>", "HTTP 502: <html>bad gateway</html>"),
        (200, b"", "not a completion"),
        (200, b"[]", "not a completion"),
        (200, b'{"choices": []}', "not a completion"),
        (200, b'{"choices": [{"text": "x", "logprobs": null}]}', "not a completion with log-probabilities"),
    ],
)
def test_whatever_a_server_says_is_read(status, body, problem):
    reply = read_reply(QUESTION, status, body)
    assert reply.problem.startswith(problem) and reply.status == status and not reply.ok


def test_no_number_is_none():
    logprobs = b'{"tokens": ["a", "b"], "token_logprobs": [NaN, null], "top_logprobs": [{"a": Infinity}, {}]}'
    body = b'{"choices": [{"text": "x", "logprobs": ' + logprobs + b"}]}"
    reply = read_reply(QUESTION, 200, body)
    assert reply.logprobs == (None, None) and reply.top == ({"a": None}, {})


def test_answers_come_back_from_their_file_and_the_file_is_plain_json(tmp_path):
    answers = Answers(
        (Reply("alone", "greedy", "海", 2, "x", 200, tokens=("1",), logprobs=(None,), top=({"1": None},)),),
        1.5,
        ("note",),
    )
    write_answers(tmp_path / "answers.json", answers)
    back = read_answers(tmp_path / "answers.json")
    assert back == answers
    assert read_answers(tmp_path / "answers.json") is back
    write_answers(tmp_path / "answers.json", Answers((), 2.5))
    assert read_answers(tmp_path / "answers.json").seconds == 2.5
    write_answers(tmp_path / "answers.json", answers)
    json.loads((tmp_path / "answers.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize("text", ["", "[]", '{"replies": 3}', '{"replies": [], "format": "advisor.answers/0"}'])
def test_a_file_that_holds_something_else_is_an_error(tmp_path, text):
    (tmp_path / "answers.json").write_text(text)
    with pytest.raises(InputError, match=r"answers\.json"):
        read_answers(tmp_path / "answers.json")
