"""The questions of the output gate: fixed prompts, and which of them are asked alone, together, and while others decode.

A change here makes old answers incomparable with new ones; the fingerprint in each reply notices that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from advisor.measure.answers import Reply
from advisor.records import fingerprint

GREEDY_TOKENS = 48
FORCED_TOKENS = 32
MIXED_TOKENS = 48  # short requests of the mixed part: long enough that they still decode while the long prompts come in
LONG_FORCED_TOKENS = 16
TOP = 5  # alternatives a token: what the OpenAI API allows, and below the --max-logprobs of every vLLM
LONG_PROMPT_TOKENS = 1200
# The log-probabilities of a prompt cost a row of the vocabulary in float32 and in the model's type for each token. A server
# keeps room for its largest prefill but not for that, so it must stay well below what a prefill itself needs.
PROMPT_LOGPROB_BYTES = 512 * 2**20
BYTES_A_VALUE = 8  # 2 of bfloat16, 4 of float32, and some for what lies between

SHORT: Mapping[str, str] = {
    "rivers": "Three large rivers of Europe, each with the sea that it flows into:\n1.",
    "function": 'def running_mean(values, window):\n    """Mean of the last `window` values, one for each value."""\n',
    "squares": "0, 1, 4, 9, 16, 25, 36, 49, 64,",
    "german": "Wer am Abend noch Brot kaufen will, sollte wissen, dass die Bäckerei am Markt",
    "packing": "To pack for two days in the mountains:\n- a warm jacket\n- water for a day\n-",
    "spanish": "Cuando hierve el agua en una olla abierta, el vapor",
    "query": "-- customers with more than three orders this year\nSELECT c.name, count(*) AS orders\nFROM",
    "product": "Question: A box holds 17 rows of 23 eggs. How many eggs are in it?\nAnswer:",
    "chinese": "我们昨天去了海边，天气很好，",
    "json": '{"city": "Oslo", "country": "Norway", "capital": true}\n{"city": "Lyon", "country":',
}
_HERBS = ("mint", "sage", "dill", "thyme", "basil", "chive", "fennel", "sorrel", "rue", "lovage", "cress")
_VERBS = ("crosses", "follows", "leaves", "meets", "passes", "repairs", "paints")
_THINGS = ("the old bridge", "a green boat", "the third lamp", "her brother's cart", "an empty mill")


def long_texts() -> dict[str, str]:
    """Two long prompts: prose in which something always comes up again, and a table of numbers."""
    lines = []
    for day in range(1, 161):
        herb, verb, thing = _HERBS[day * 7 % 11], _VERBS[day * day % 7], _THINGS[day * 3 % 5]
        lines.append(f"On day {day} the woman who sells {herb} {verb} {thing} and writes {day * 37 % 101} in her book.")
    rows = (f"{row};{row * row % 997};{_HERBS[row * 5 % 11]};{(row * 31 + 7) % 89 / 4:.2f}" for row in range(1, 241))
    return {"diary": " ".join(lines), "table": "row;residue;herb;weight\n" + "\n".join(rows)}


@dataclass(frozen=True)
class Prompt:
    """A prompt as it is sent: token ids, or text where the server does not tokenise for us."""

    name: str
    content: tuple[int, ...] | str

    def cut(self, tokens: int) -> Prompt:
        """At most so many tokens. A token of a byte-level vocabulary has at least one byte, so text is cut by its bytes."""
        if isinstance(self.content, str):
            return Prompt(self.name, self.content.encode()[:tokens].decode(errors="ignore"))
        return Prompt(self.name, self.content[:tokens])


@dataclass(frozen=True)
class Question:
    """One request: the reply it will become, and the body that is posted."""

    reply: Reply
    body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """In the order in which they are asked. `late` ones are sent when those of `early` have begun to decode."""

    alone: tuple[Question, ...]
    together: tuple[Question, ...]
    early: tuple[Question, ...]
    late: tuple[Question, ...]
    herald: Mapping[str, Any]  # streamed; its first token says that the early ones decode


def plan(
    served_name: str,
    short: Sequence[Prompt],
    long: Sequence[Prompt],
    forced: Sequence[int],
    vocabulary: int,
    limit: int,
    salt: str,
) -> Plan:
    """All questions. `forced` are token ids to force, `limit` the longest request in tokens, `salt` keeps this probe's prompts
    from being answered from the prefix cache by those of another mode or probe."""
    ask = _Asker(served_name, forced, vocabulary, limit, salt)
    return Plan(
        alone=(
            *(ask.greedy("alone", index, short[index]) for index in (0, 1)),
            *(ask.forced("alone", index, short[index], FORCED_TOKENS) for index in (2, 3)),
            *(ask.prompt("alone", prompt) for prompt in long),
        ),
        together=(
            *(ask.greedy("together", index, prompt) for index, prompt in enumerate(short)),
            *(ask.forced("together", index, prompt, FORCED_TOKENS) for index, prompt in enumerate(short)),
            *(ask.forced("together", index, prompt, LONG_FORCED_TOKENS) for index, prompt in enumerate(long)),
        ),
        early=tuple(ask.forced("mixed", index, prompt, MIXED_TOKENS) for index, prompt in enumerate(short[:6])),
        late=(
            *(ask.forced("mixed", index, prompt, LONG_FORCED_TOKENS) for index, prompt in enumerate(long)),
            *(ask.prompt("mixed", prompt) for prompt in long),
            *(ask.greedy("mixed", index, short[index]) for index in (0, 1)),
        ),
        herald=ask.greedy("herald", 2, short[2]).body | {"stream": True},
    )


def prompt_logprob_tokens(vocabulary: int) -> int:
    """How many tokens of a prompt may have their log-probabilities asked for at once."""
    return max(64, min(LONG_PROMPT_TOKENS, math.floor(PROMPT_LOGPROB_BYTES / (BYTES_A_VALUE * max(vocabulary, 1)))))


class _Asker:
    """Builds questions; cuts each prompt so that prompt and answer fit the server's limit."""

    def __init__(self, served_name: str, forced: Sequence[int], vocabulary: int, limit: int, salt: str):
        self._name, self._tokens, self._vocabulary = served_name, forced, vocabulary
        self._limit, self._salt = limit, salt

    def greedy(self, mode: str, index: int, prompt: Prompt) -> Question:
        del index
        return self._question(mode, "greedy", prompt, GREEDY_TOKENS, {})

    def forced(self, mode: str, index: int, prompt: Prompt, tokens: int) -> Question:
        """Prompts take turns with the tokens: those that share one differ in nothing but their context."""
        token = self._tokens[index % len(self._tokens)]
        return self._question(mode, "forced", prompt, tokens, {"allowed_token_ids": [token]}, str(token))

    def prompt(self, mode: str, prompt: Prompt) -> Question:
        shorter = prompt.cut(prompt_logprob_tokens(self._vocabulary))
        return self._question(mode, "prompt", shorter, 1, {"prompt_logprobs": 1})

    def _question(
        self, mode: str, kind: str, prompt: Prompt, wanted: int, more: Mapping[str, Any], forced: str = ""
    ) -> Question:
        wanted = max(1, min(wanted, self._limit // 2))
        fitting = prompt.cut(self._limit - wanted)
        content = fitting.content if isinstance(fitting.content, str) else list(fitting.content)
        body: dict[str, Any] = {
            "model": self._name,
            "prompt": content,
            "max_tokens": wanted,
            "temperature": 0,
            "seed": 0,
            "ignore_eos": True,
            "cache_salt": f"{self._salt}-{mode}-{kind}",
            **more,
        }
        if kind != "prompt":
            body |= {"logprobs": TOP, "return_tokens_as_token_ids": True}
        sent = fingerprint([kind, content, forced])
        return Question(Reply(mode, kind, prompt.name, wanted, sent, forced=forced), body)
