"""What the stand-in writes where log-probabilities are asked for: a tiny language model of 48 words, sound or wrong in one way.

The likelihood of each word depends on the prompt, the position and the last word, which choose a stretch of a fixed row of
random numbers; so equal questions get equal answers, and another context other ones. FAKE_ROUNDING is the size of the
deviation that sound servers have among each other (default 0.01), drawn anew for each process.
"""

from __future__ import annotations

import json
import math
import os
import random
import zlib

VOCABULARY = 48
OFFSET = 1000  # of the token ids, so that none looks like a count
MAX_LENGTH = 4096
LONG = 512  # tokens from which a prompt is long, for the faults of long ones
ROUNDING = float(os.environ.get("FAKE_ROUNDING", "0.01"))
# Rows to take stretches from: a launch is asked for some 4,000 tables, and drawing each anew would take most of its time.
_ROW = 4096
_draw, _process = random.Random(7), random.Random(os.getpid())
_LOGITS = [_draw.gauss(0, 2) for _ in range(_ROW)]
_ROUNDING = [_process.gauss(0, ROUNDING) for _ in range(_ROW)]

FAULTS = {
    "repeat_token": "free text is one token repeated",
    "loop_text": "free text is three tokens over and over",
    "empty_text": "tokens are counted but the text is empty",
    "broken_utf8": "the text is replacement characters",
    "nan_logprobs": "log-probabilities are NaN, written as such",
    "null_logprobs": "log-probabilities are null",
    "nan_500": "NaN cannot be written: HTTP 500 for questions with log-probabilities",
    "positive_logprobs": "log-probabilities above 0",
    "short_answers": "half of the tokens that were asked for",
    "another_token": "a token that was not allowed",
    "other_weights": "the answers of another model",
    "stale_kv": "the last prompt's context instead of this one's",
    "wrong_positions": "positions are off by one in the whole context",
    "wrong_scale": "logits are a third too large",
    "shuffled": "each token has the likelihood of another one",
    "shifted": "all log-probabilities are too low by the same amount",
    "layer_skipped": "the answers differ as those of a model with a layer less",
    "wrong_together": "wrong as soon as three requests run at once",
    "wrong_long": "wrong for long prompts only",
    "wrong_mixed": "wrong where a long prompt came in during the decoding",
    "wrong_prefill": "log-probabilities of prompts are wrong, decoding is right",
}


class Text:
    """The answers of one process."""

    def __init__(self, fault: str):
        self.fault = fault
        self.last_context = 0

    def tokenise(self, text: str) -> list[int]:
        return [OFFSET + zlib.crc32(word.encode()) % VOCABULARY for word in text.split()]

    def answer(self, body: dict, running: int, mixed: bool = False, late: bool = False) -> tuple[int, dict]:
        """(HTTP status, JSON of the choice without index) for a completion with log-probabilities.

        `running`: requests at once; `mixed`: a long prompt came in meanwhile; `late`: the fault is on from now on.
        """
        if self.fault == "nan_500":
            return 500, {"error": {"message": "Out of range float values are not JSON compliant: nan", "code": 500}}
        prompt = body["prompt"] if isinstance(body["prompt"], list) else self.tokenise(body["prompt"])
        wrong = late or self.wrong_now(prompt, running, mixed)
        context = zlib.crc32(json.dumps(prompt).encode())
        if self.fault == "stale_kv":
            context, self.last_context = self.last_context, context
        if "prompt_logprobs" in body and body["prompt_logprobs"] is not None:
            wrong = wrong and self.fault != "wrong_mixed"  # which spoils the decoding of others, not the prompt
            return 200, self.read(prompt, wrong or self.fault == "wrong_prefill")
        return 200, self.write(body, context, prompt[-1] if prompt else 0, wrong)

    def wrong_now(self, prompt: list[int], running: int, mixed: bool) -> bool:
        return (
            self.fault == "other_weights"
            or (self.fault == "wrong_together" and running >= 3)
            or (self.fault == "wrong_mixed" and mixed)
            or (self.fault == "wrong_long" and len(prompt) >= LONG)
        )

    def write(self, body: dict, context: int, last: int, wrong: bool) -> dict:
        wanted = int(body.get("max_tokens", 16))
        count = wanted // 2 if self.fault == "short_answers" else wanted
        allowed = body.get("allowed_token_ids")
        tokens, values, top = [], [], []
        for position in range(count):
            table = self.table(context, position + (self.fault == "wrong_positions"), last, wrong)
            last = self.choose(table, position, allowed)
            if last not in table:
                table[last] = -20.0
            best = sorted(table, key=table.get, reverse=True)[: body.get("logprobs") or 1]
            tokens.append(last)
            values.append(self.shown(table[last]))
            top.append({f"token_id:{token}": self.shown(table[token]) for token in dict.fromkeys((last, *best))})
        names = [f"token_id:{token}" for token in tokens]
        logprobs = {"tokens": names, "token_logprobs": values, "top_logprobs": top, "text_offset": []}
        return {"text": self.text(tokens), "logprobs": logprobs, "finish_reason": "length"}

    def choose(self, table: dict[int, float], position: int, allowed: list[int] | None) -> int:
        if allowed:
            return allowed[0] + (self.fault == "another_token")
        if self.fault in ("repeat_token", "loop_text"):
            return OFFSET + (position % 3 if self.fault == "loop_text" else 7)
        return max(table, key=table.get)

    def text(self, tokens: list[int]) -> str:
        if self.fault == "empty_text":
            return ""
        if self.fault == "broken_utf8":
            return "\ufffd" * len(tokens)
        return " ".join(f"w{token}" for token in tokens)

    def read(self, prompt: list[int], wrong: bool) -> dict:
        listed: list[dict | None] = [None]
        for position in range(1, len(prompt)):
            before = tuple(prompt[max(0, position - 3) : position])
            table = self.table(zlib.crc32(repr(before).encode()), position, before[-1], wrong)
            value = self.shown(table.get(prompt[position], -20.0))
            listed.append({str(prompt[position]): {"logprob": value, "rank": 1, "decoded_token": "w"}})
        return {"text": "w", "logprobs": None, "prompt_logprobs": listed, "finish_reason": "length"}

    def table(self, context: int, position: int, last: int, wrong: bool) -> dict[int, float]:
        """Token -> log-probability: the model itself."""
        key = context * 1_000_003 + position * 8191 + last + (77 if wrong else 0)
        logits = _stretch(_LOGITS, key)
        if self.fault == "layer_skipped":
            logits = [0.8 * value + 0.6 * other for value, other in zip(logits, _stretch(_LOGITS, key + 1), strict=True)]
        if self.fault == "shuffled":
            logits = [logits[(index * 7 + 3) % VOCABULARY] for index in range(VOCABULARY)]
        if self.fault == "wrong_scale":
            logits = [value * 4 / 3 for value in logits]
        noise = _stretch(_ROUNDING, _process.getrandbits(32))
        logits = [value + deviation for value, deviation in zip(logits, noise, strict=True)]
        total = math.log(sum(map(math.exp, logits)))
        return {OFFSET + index: value - total for index, value in enumerate(logits)}

    def shown(self, value: float) -> float | None:
        special = {"nan_logprobs": math.nan, "null_logprobs": None, "positive_logprobs": abs(value), "shifted": value - 1}
        return special.get(self.fault, value)


def _stretch(row: list[float], key: int) -> list[float]:
    """The piece of a row that a key stands for; neighbouring keys stand for pieces far apart."""
    start = (key * 2_654_435_761 >> 9) % (_ROW - VOCABULARY)
    return row[start : start + VOCABULARY]
