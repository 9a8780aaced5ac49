"""Which batches a server runs, tokens -> steps, from what a person has at hand. Pure.

A file is taken for what it looks like: JSON ({"64": 2000} or [[64, 2000]]), two columns, a log with the table of
--cudagraph-metrics, a raw result of vLLM's benchmark client, or a saved /metrics page. What is exact and what is not stands
in `Histogram.approximations`.

vLLM's page has `vllm:iteration_tokens_total` in 0.9.0 to 0.33.0: a histogram of new tokens a step, in buckets up to 1, 8, 16,
32 ... 16384 (own ones with --custom-histogram-buckets from 0.32.0). A prompt counts whole in the step that ends it, and with
speculation only accepted tokens count. `vllm:num_requests_running` is a gauge: the requests of the last step.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from advisor.engine.graph_steps import step_row
from advisor.errors import InputError
from advisor.search.token_times import step_histogram

TOKENS_METRIC = "vllm:iteration_tokens_total_bucket"
_SAMPLE = re.compile(r"^(?P<name>[\w:]+)\{(?P<labels>[^}]*)\}\s+(?P<value>\S+)", re.MULTILINE)
_BOUND = re.compile(r'\ble="(?P<bound>[^"]+)"')
_FORMS = (
    'give JSON {"64": 2000}, two columns (tokens steps), a server log with the table of --cudagraph-metrics, a raw result of the '
    "benchmark client, or a saved /metrics page"
)
_MOST_TOKENS = 1 << 20


@dataclass(frozen=True)
class Histogram:
    """Tokens of a batch, before padding -> steps (need not be whole). `raw`: the benchmark result that it was made of."""

    steps: Mapping[int, float]
    source: str
    approximations: tuple[str, ...] = ()
    raw: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def total(self) -> float:
        return sum(self.steps.values())


def read_histogram(text: str, name: str, tokens_a_request: int = 1, most: int = 8192) -> Histogram:
    """The histogram in a file's text. `tokens_a_request` (1 + speculative tokens) and `most` (max_num_batched_tokens) are for
    what counts requests.

    Raises InputError naming the file and what is wrong with it.
    """
    if text.lstrip().startswith(("{", "[")):
        return _from_json(text, name, tokens_a_request, most)
    rows = [row for line in text.splitlines() if (row := step_row(line))]
    if rows:
        counts: Counter[int] = Counter()
        for row in rows:
            counts[row.tokens] += row.count
        return Histogram(dict(counts), f"{name}: table of --cudagraph-metrics")
    if TOKENS_METRIC in text:
        return from_pages(None, text, (), tokens_a_request, name)
    return Histogram(_checked(_columns(text, name), name), name)


def _from_json(text: str, name: str, tokens_a_request: int, most: int) -> Histogram:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{name} line {error.lineno}: not valid JSON: {error.msg}", _FORMS) from None
    if isinstance(data, Mapping) and isinstance(data.get("itls"), list):
        try:
            steps = step_histogram(data, tokens_a_request, most)
        except (ValueError, TypeError) as error:
            raise InputError(
                f"{name}: {error}", "a result saved by `vllm bench serve --save-detailed` has them"
            ) from None
        said = "counted from when the client saw its tokens; one prompt a step is taken, and none from the prefix cache"
        return Histogram(_checked(list(steps.items()), name), f"{name}: benchmark result", (said,), data)
    return Histogram(_checked(_pairs(data, name), name), name)


def read_pairs(text: str, name: str) -> list[tuple[float, float]]:
    """Pairs of numbers in JSON or two columns. Raises InputError."""
    if not text.lstrip().startswith(("{", "[")):
        return _columns(text, name)
    try:
        return _pairs(json.loads(text), name)
    except json.JSONDecodeError as error:
        raise InputError(f"{name} line {error.lineno}: not valid JSON: {error.msg}") from None


def _pairs(data: Any, name: str) -> list[tuple[float, float]]:
    if isinstance(data, Mapping) and isinstance(data.get("histogram"), Mapping | list):
        data = data["histogram"]
    pairs = list(data.items()) if isinstance(data, Mapping) else data
    if not all(isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2 for pair in pairs):
        raise InputError(f"{name} holds no pairs of numbers", _FORMS)
    return [(_number(first, name), _number(second, name)) for first, second in pairs]


def _columns(text: str, name: str) -> list[tuple[float, float]]:
    pairs = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].replace(",", " ").replace(";", " ").split()
        if not words or (not pairs and not words[0][0].isdigit()):  # a heading
            continue
        if len(words) != 2:
            raise InputError(f"{name} line {number}: {len(words)} columns, not two", _FORMS)
        pairs.append((_number(words[0], f"{name} line {number}"), _number(words[1], f"{name} line {number}")))
    return pairs


def _number(value: Any, where: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"{where}: {value!r} is no number", _FORMS) from None


def _checked(pairs: Sequence[tuple[float, float]], name: str) -> dict[int, float]:
    """Equal sizes added up, sizes without a step left out. Raises InputError where nothing is left or a figure is impossible."""
    steps: dict[int, float] = {}
    for tokens, count in pairs:
        if not math.isfinite(tokens) or tokens != int(tokens) or not 0 < tokens <= _MOST_TOKENS or not 0 <= count < float("inf"):
            raise InputError(f"{name}: {tokens:g} tokens in {count:g} steps is impossible", _FORMS)
        if count:
            steps[int(tokens)] = steps.get(int(tokens), 0.0) + count
    if not steps:
        raise InputError(f"{name} holds no step", _FORMS)
    return dict(sorted(steps.items()))


# ---------------------------------------------------------------- /metrics


def from_pages(
    before: str | None, page: str, running: Sequence[float], tokens_a_request: int = 1, name: str = "/metrics"
) -> Histogram:
    """Of one page (all steps since the server's start) or of two (those between), and `running` requests seen meanwhile.

    The buckets say how many steps there were, the polls how they spread inside a bucket; a bucket without a poll is spread
    evenly. With speculation the buckets count accepted tokens only, so that the polls alone are taken. Raises InputError.
    """
    polled = Counter(round(value) * tokens_a_request for value in running if value >= 1)
    if tokens_a_request > 1:
        if not polled:
            raise InputError(
                f"{name} counts accepted tokens only, not the batch, with speculation", "--watch 30s polls it"
            )
        said = f"{len(running)} polls of the running requests, each taken for a step"
        return Histogram(dict(sorted(polled.items())), name, (said,))
    counted = _buckets(page)
    if not counted:
        raise InputError(f"{name} has no {TOKENS_METRIC.removesuffix('_bucket')}", "is it a vLLM server's /metrics?")
    earlier = _buckets(before) if before else {}
    cumulated = {bound: value - earlier.get(bound, 0.0) for bound, value in counted.items()}
    steps = _spread(cumulated, polled)
    if not steps:
        raise InputError(
            f"{name}: the server has run no step" + (" meanwhile" if before else ""), "send it the real load"
        )
    return Histogram(_checked(list(steps.items()), name), name, _said(cumulated, polled, len(running)))


def _spread(cumulated: Mapping[float, float], polled: Mapping[int, int]) -> dict[float, float]:
    steps: dict[float, float] = {}
    low, passed = 0, 0.0
    for bound, so_far in sorted(cumulated.items()):
        count, passed = so_far - passed, so_far
        high = int(bound) if bound != float("inf") else max(low + 1, *polled, 1)
        if count > 0 and high > low:
            seen = {tokens: times for tokens, times in polled.items() if low < tokens <= high}
            shares = seen or dict.fromkeys(range(low + 1, high + 1), 1)
            whole = sum(shares.values())
            for tokens, share in shares.items():
                steps[tokens] = steps.get(tokens, 0.0) + count * share / whole
        low = max(low, high)
    return steps


def _said(cumulated: Mapping[float, float], polled: Mapping[int, int], polls: int) -> tuple[str, ...]:
    bounds = [0, *sorted(bound for bound in cumulated if bound != float("inf"))]
    widest = max((b - a for a, b in pairwise(bounds) if b <= 1024), default=0)
    if widest <= 1:
        return ()
    inside = f"as {polls} polls of the running requests say" if polled else "evenly"
    exact = (
        "exact: --custom-histogram-buckets '{\"iteration_tokens\": [1, 2, 3, ...]}' (0.32.0 or newer), or the log of a server with "
        "--cudagraph-metrics (0.13.0 or newer)"
    )
    return (f"vLLM counts steps in buckets such as 33 to 64 tokens; inside one they are spread {inside}. {exact}",)


def _buckets(page: str) -> dict[float, float]:
    """Upper bound -> steps of at most so many tokens, all engines together."""
    found: dict[float, float] = {}
    for labels, value in _samples(page, TOKENS_METRIC):
        if bound := _BOUND.search(labels):
            limit = float(bound["bound"])
            found[limit] = found.get(limit, 0.0) + value
    return found


def _samples(page: str, name: str) -> list[tuple[str, float]]:
    return [(found["labels"], float(found["value"])) for found in _SAMPLE.finditer(page) if found["name"] == name]
