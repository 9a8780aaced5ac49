"""What a server answered to the fixed prompts of the output gate: records, and how they are read from JSON. No network here.

Kinds of request: `greedy` writes freely, `forced` may only choose one token (so every server decodes over the same input),
`prompt` asks for the log-probabilities of the prompt's own tokens. Modes: `alone`, `together`, `mixed`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from advisor.errors import InputError
from advisor.journal import write_atomically
from advisor.records import from_json, to_json

FORMAT = "advisor.answers/1"
ID_PREFIX = "token_id:"  # what vLLM writes instead of a token's text when return_tokens_as_token_ids is set


@dataclass(frozen=True)
class Reply:
    """One answer. `tokens` are ids as text (what vLLM calls them elsewhere); a log-probability that is no finite number is None."""

    mode: str
    kind: str
    prompt: str  # name of the prompt
    wanted: int  # tokens asked for
    sent: str  # fingerprint of prompt and forced token: only replies to the same question are compared
    status: int = 0  # HTTP status; 0: no answer came
    problem: str = ""  # why there is nothing to compare
    forced: str = ""  # the only token allowed, for kind forced
    text: str = ""
    generated: int = 0  # tokens that the server says it generated
    tokens: tuple[str, ...] = ()
    logprobs: tuple[float | None, ...] = ()  # natural logarithm, one a token
    top: tuple[Mapping[str, float | None], ...] = ()  # the likeliest tokens and theirs, one mapping a token
    # Its mappings have no hash. What is worked out of a reply is kept for that very one (verdict/distance.py).
    __hash__ = object.__hash__

    @property
    def ok(self) -> bool:
        return not self.problem


@dataclass(frozen=True)
class Answers:
    """All replies of one probe of one server."""

    replies: tuple[Reply, ...]
    seconds: float = 0.0
    notes: tuple[str, ...] = ()  # what the probe had to do differently on this server
    format: str = FORMAT

    def of(self, kind: str) -> list[Reply]:
        return [reply for reply in self.replies if reply.kind == kind]


def write_answers(path: Path, answers: Answers) -> None:
    write_atomically(path, json.dumps(to_json(answers), separators=(",", ":"), ensure_ascii=False) + "\n")


def read_answers(path: Path) -> Answers:
    """Raises InputError where the file is missing or holds something else. A file that is read again is not read anew."""
    try:
        told = path.stat()
        answers = _read(path, told.st_mtime_ns, told.st_size)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path} holds no answers of the output gate: {error}") from None
    if answers.format != FORMAT:
        raise InputError(f"{path} has the format {answers.format!r}; this advisor reads {FORMAT!r}")
    return answers


@lru_cache(maxsize=32)
def _read(path: Path, _changed_ns: int, _size: int) -> Answers:
    """Each candidate is compared with all launches of the default: without a memory of them all are read again for each."""
    return from_json(Answers, json.loads(path.read_text(encoding="utf-8")))


# ---------------------------------------------------------------- from the server's JSON


def read_reply(question: Reply, status: int, body: bytes) -> Reply:
    """The question with what the server said. Never raises for what a server can say."""
    if status != 200:
        return _changed(question, status=status, problem=f"HTTP {status}: {_message(body)}")
    try:
        answer = json.loads(body)  # takes NaN and Infinity too: some servers write them although JSON has no such words
        choice = answer["choices"][0]
        generated = int((answer.get("usage") or {}).get("completion_tokens", 0))
        read = _prompt_part if question.kind == "prompt" else _generated_part
        found = read(choice)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        problem = f"not a completion with log-probabilities ({type(error).__name__}): {_message(body)}"
        return _changed(question, status=status, problem=problem)
    return _changed(question, status=status, text=str(choice.get("text") or ""), generated=generated, **found)


def _generated_part(choice: Mapping[str, Any]) -> dict[str, Any]:
    """Tokens and log-probabilities of what was generated (vLLM: CompletionLogProbs)."""
    listed = choice["logprobs"]
    return {
        "tokens": tuple(token_name(token) for token in listed["tokens"]),
        "logprobs": tuple(number(value) for value in listed["token_logprobs"]),
        "top": tuple(
            {token_name(token): number(value) for token, value in (item or {}).items()}
            for item in listed["top_logprobs"]
        ),
    }


def _prompt_part(choice: Mapping[str, Any]) -> dict[str, Any]:
    """The prompt's own tokens without the first one, which has no log-probability. Each mapping begins with the token itself."""
    own = [next(iter(item.items())) for item in choice["prompt_logprobs"][1:]]
    return {
        "tokens": tuple(token for token, _ in own),
        "logprobs": tuple(number(value["logprob"]) for _, value in own),
    }


def token_name(token: str) -> str:
    return token.removeprefix(ID_PREFIX)


def number(value: Any) -> float | None:
    """A finite number, or None."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _changed(question: Reply, **values: Any) -> Reply:
    return Reply(**{**vars(question), **values})


def _message(body: bytes) -> str:
    """The server's own words for an error, in one line."""
    text = body.decode(errors="replace")
    try:
        told = json.loads(text)
        inner = told.get("error", told)
        text = str(inner.get("message", text)) if isinstance(inner, dict) else text
    except (ValueError, AttributeError):
        pass
    return " ".join(text.split())[:200]
