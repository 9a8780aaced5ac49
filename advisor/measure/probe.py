"""Asks a running server the fixed questions of the output gate and writes its answers into the launch's folder.

A few hundred decode steps in all: 2 to 4 s for an 8B model on a GPU. What the answers mean is judged elsewhere
(verdict/output_gate.py); here nothing raises for what a server says or does not say.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from advisor.measure.answers import Answers, Reply, read_reply, write_answers
from advisor.measure.probe_plan import LONG_PROMPT_TOKENS, SHORT, Plan, Prompt, Question, long_texts, plan
from advisor.records import ModelFacts

ANSWERS = "answers.json"
FORCED_TOKENS_KINDS = 3
CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 180.0  # for one request; the long ones queue behind each other on a slow machine
HERALD_WAIT_S = 60.0


def probe(
    server_url: str,
    served_name: str,
    model: ModelFacts,
    folder: Path,
    api_key: str | None = None,
    timeout_s: float = REQUEST_TIMEOUT_S,
    ends_at: float = math.inf,
) -> Path:
    """Ask everything and leave `answers.json` in the folder; returns its path. `ends_at`: as `ask` takes it."""
    path = folder / ANSWERS
    write_answers(path, ask(server_url, served_name, model, api_key, timeout_s, ends_at))
    return path


def ask(
    server_url: str,
    served_name: str,
    model: ModelFacts,
    api_key: str | None = None,
    timeout_s: float = REQUEST_TIMEOUT_S,
    ends_at: float = math.inf,
) -> Answers:
    """The answers of one server, in about the time of 160 decode steps of one request and 100 of twenty.

    `ends_at`: moment of time.monotonic() beyond which no answer is waited for.
    """

    def in_time(request: httpx.Request) -> None:
        left_s = max(ends_at - time.monotonic(), 0.0)
        if left_s < timeout_s:
            request.extensions["timeout"] = httpx.Timeout(left_s).as_dict()

    begun = time.monotonic()
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
    limits = httpx.Limits(max_connections=64)
    # trust_env off: a proxy must not stand between us and our own machine. verify off: there is no TLS here.
    with httpx.Client(
        base_url=server_url, trust_env=False, verify=False, timeout=timeout, headers=headers, limits=limits,
        event_hooks={"request": [in_time]},
    ) as client:  # fmt: skip
        questions, notes = _questions(client, served_name, model)
        replies = _ask_all(client, questions)
    return Answers(tuple(replies), round(time.monotonic() - begun, 3), tuple(notes))


# ---------------------------------------------------------------- questions


def _questions(client: httpx.Client, served_name: str, model: ModelFacts) -> tuple[Plan, list[str]]:
    texts = {**SHORT, **long_texts()}
    told = {name: _tokenised(client, served_name, text) for name, text in texts.items()}
    limits = [int(item["max_model_len"]) for item in told.values() if item and item.get("max_model_len")]
    limit = min([*limits, model.max_length])
    if all(told.values()):
        prompts = {name: Prompt(name, tuple(item["tokens"])) for name, item in told.items() if item}
        forced = forced_tokens([prompt.content for prompt in prompts.values() if prompt.name not in SHORT])
        notes = []
    else:
        prompts = {name: Prompt(name, text) for name, text in texts.items()}
        forced = [model.vocab_size * share // 100 for share in (7, 23, 41)]
        notes = ["the server did not tokenise for us (/tokenize): prompts were sent as text"]
    short = [prompts[name] for name in SHORT]
    long = [prompt.cut(LONG_PROMPT_TOKENS) for name, prompt in prompts.items() if name not in SHORT]
    return plan(served_name, short, long, forced, model.vocab_size, limit, uuid.uuid4().hex), notes


def forced_tokens(long: Sequence[Any]) -> list[int]:
    """Three different tokens of the long prompts: ids that the vocabulary surely has, and not its special ones."""
    distinct = list(dict.fromkeys(token for prompt in long for token in prompt[8:]))
    count = min(FORCED_TOKENS_KINDS, len(distinct))
    return [distinct[index * len(distinct) // count] for index in range(count)]


def _tokenised(client: httpx.Client, served_name: str, text: str) -> dict[str, Any] | None:
    """vLLM's answer of /tokenize (tokens, max_model_len); None where there is none."""
    try:
        response = client.post("/tokenize", json={"model": served_name, "prompt": text})
        answer = response.json() if response.status_code == 200 else None
    except (httpx.HTTPError, ValueError):
        return None
    return answer if isinstance(answer, dict) and answer.get("tokens") else None


# ---------------------------------------------------------------- asking


def _ask_all(client: httpx.Client, questions: Plan) -> list[Reply]:
    replies = []
    for question in questions.alone:
        replies.append(_ask(client, question))
        if not replies[-1].status:
            return replies  # nobody answers: the rest would only wait
    with ThreadPoolExecutor(len(questions.together) + 1, thread_name_prefix="gate") as pool:
        replies += pool.map(lambda question: _ask(client, question), questions.together)
        decoding = threading.Event()
        early = [pool.submit(_ask, client, question) for question in questions.early]
        herald = pool.submit(_herald, client, questions.herald, decoding)
        decoding.wait(HERALD_WAIT_S)
        late = [pool.submit(_ask, client, question) for question in questions.late]
        replies += [future.result() for future in (*early, *late)]
        herald.result()
    return replies


def _ask(client: httpx.Client, question: Question) -> Reply:
    try:
        response = client.post("/v1/completions", json=dict(question.body))
    except httpx.HTTPError as error:
        return read_no_reply(question.reply, str(error) or type(error).__name__)
    return read_reply(question.reply, response.status_code, response.content)


def read_no_reply(question: Reply, why: str) -> Reply:
    return Reply(**{**vars(question), "problem": f"no answer: {why}"})


def _herald(client: httpx.Client, body: Mapping[str, Any], decoding: threading.Event) -> None:
    """A streamed request whose first line says that decoding has begun; what it says is not judged."""
    try:
        with client.stream("POST", "/v1/completions", json=dict(body)) as response:
            for _ in response.iter_lines():
                decoding.set()
    except httpx.HTTPError:
        pass
    finally:
        decoding.set()
