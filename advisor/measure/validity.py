"""Whether a sample may be used: every reason against it, as a class and a short sentence. Pure.

Zero is not a measurement: vLLM's client ends with exit code 0 and a full table when every request has failed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from advisor.measure.client_load import client_problem
from advisor.measure.counters import Counters
from advisor.measure.length import length_problem
from advisor.measure.summary import Requests, requests_of
from advisor.records import Invalid, Sample, Workload

CLIENT_TOLERANCE = 0.01  # between our figures and vLLM's own
SERVER_TOLERANCE = 0.02  # between client and server counters
CACHE_TOLERANCE = 0.02  # prompt tokens that unique prompts may find in the prefix cache
LENGTH_TOLERANCE = 0.10  # between asked and sent prompt lengths: re-encoding random tokens changes them a little
LEAST_LOAD = 0.5  # of the concurrency, on average over the sample; of the rate at which requests were sent
HELD_FROM_S = 5.0  # in a shorter sample the ways between client and server are a good part of the requests' time
LEAST_TPOT_MS = 0.01  # below: tokens came in one piece; the fastest real decode step takes some 0.3 ms


PREEMPTED_SHARE = 0.10  # preemptions for each request: above, the cache is too small for the load
FEW_PREEMPTIONS = 3
ALLOWED = "allowed"  # Workload.preemptions


class Problem(NamedTuple):
    """One reason against a sample."""

    kind: Invalid
    text: str


def judge(
    raw: Mapping[str, Any],
    sample: Sample,
    workload: Workload,
    counted: Counters | None,
    most_processes: int | None = None,
    vocabulary: int = 0,
) -> tuple[Problem, ...]:
    """Why the sample must not be used; empty: it is valid. `counted` is the server's own count of its interval,
    `most_processes` the client processes that fit on this machine, `vocabulary` the model's entries (0: not known)."""
    requests = requests_of(raw)
    failed = _failures(requests, workload)
    if not requests.completed:
        return tuple(failed)
    return (
        *failed,
        *_lengths(requests, sample, workload),
        *_numbers(sample, workload),
        *_times(requests),
        *_durations(requests, sample, workload),
        *_of(Invalid.LOAD_NOT_REACHED, _arrivals(raw, workload)),
        *_client_disagreements(raw, sample),
        *_of(Invalid.CLIENT_BOUND, client_problem(sample, most_processes)),
        *(_told_by_server(sample, workload, counted, vocabulary) if counted is not None else ()),
    )


def judge_length(sample: Sample, workload: Workload) -> tuple[Problem, ...]:
    """Whether it lasted long enough. Apart from `judge`, because a wave of the warm-up need not."""
    return tuple(_of(Invalid.TOO_SHORT, length_problem(sample, workload)))


def with_problems(sample: Sample, found: Iterable[Problem]) -> Sample:
    """The sample with further reasons against it."""
    found = tuple(found)
    return dataclasses.replace(
        sample,
        problems=(*sample.problems, *(problem.text for problem in found)),
        classes=(*sample.classes, *(problem.kind for problem in found)),
    )


def first_problem(sample: Sample) -> str:
    """Class and sentence of the first reason against the sample: `too-short: the sample lasted ...`."""
    kind = f"{sample.classes[0].value}: " if sample.classes else ""
    return kind + sample.problems[0]


def _of(kind: Invalid, text: str | None) -> list[Problem]:
    return [Problem(kind, text)] if text else []


def allowed_prefix_hits(workload: Workload, vocabulary: int = 0) -> float:
    """Share of prompt tokens that may come from the prefix cache.

    Prompts are new in each sample, so only the shared prefix may be found, the rest of prompts that equal another one of the
    sample, and a small tolerance or, in a small sample, one prompt. vLLM's random data set knows as many prompts as the vocabulary
    has entries (measure/client.py), so of n prompts about n^2 / 2 vocabulary equal an earlier one (birthday problem): 3% of 2,000
    prompts where the vocabulary has 32,000 entries. They are the same ones for every candidate.
    """
    shared = workload.shared_prefix_tokens / (workload.shared_prefix_tokens + workload.input_tokens)
    recurring = _recurring(workload.num_prompts, vocabulary) * (1 - shared)
    return min(1.0, shared + recurring + max(CACHE_TOLERANCE, 1 / workload.num_prompts))


def _recurring(prompts: int, vocabulary: int) -> float:
    """Expected share of so many draws that equal an earlier one; 0 where the number of entries is not known."""
    if vocabulary < 2:
        return 0.0
    different = -vocabulary * math.expm1(prompts * math.log1p(-1 / vocabulary))
    return 1 - different / prompts


def _failures(requests: Requests, workload: Workload) -> list[Problem]:
    found: list[str] = []
    if requests.sent != workload.num_prompts:
        found.append(f"{requests.sent} requests were sent instead of {workload.num_prompts}")
    if requests.errors:
        shown = requests.errors[0].strip().splitlines()[-1][:160]
        found.append(f"{len(requests.errors)} of {requests.sent} requests failed: {shown}")
    if not requests.completed:
        found.append("no request completed")
    return [Problem(Invalid.FAILED_REQUESTS, text) for text in found]


def _lengths(requests: Requests, sample: Sample, workload: Workload) -> list[Problem]:
    """EOS is ignored, so every answer has the length that was asked for."""
    spread = workload.length_spread
    least = max(1, math.floor(workload.output_tokens * (1 - spread)))
    most = math.ceil(workload.output_tokens * (1 + spread))
    wrong = [tokens for tokens in requests.output_tokens if not least <= tokens <= most]
    found = []
    if wrong:
        asked = f"{least}" if least == most else f"{least} to {most}"
        found.append(f"{len(wrong)} of {requests.completed} answers have {wrong[0]} tokens or so instead of {asked}")
    wanted = workload.shared_prefix_tokens + workload.input_tokens
    sent = sample.input_tokens / requests.completed
    if abs(sent - wanted) > wanted * (LENGTH_TOLERANCE + spread) + 1:
        found.append(f"prompts have {sent:.0f} tokens on average instead of {wanted}")
    return [Problem(Invalid.WRONG_LENGTH, text) for text in found]


def _numbers(sample: Sample, workload: Workload) -> list[Problem]:
    """Rates and latencies must be finite and more than zero."""
    values = {name: getattr(sample, name) for name in ("duration_s", "output_tok_s", "input_tok_s", "requests_s")}
    for name in ("ttft_ms", "e2el_ms"):
        values |= {f"{name} {key}": value for key, value in getattr(sample, name).items()}
    found = [f"{name} is {value:g}" for name, value in values.items() if not 0 < value < math.inf]
    for name in ("tpot_ms", "itl_ms"):
        found += [f"{name} {key} is {v:g}" for key, v in getattr(sample, name).items() if not math.isfinite(v)]
    told = [Problem(Invalid.NOT_A_NUMBER, text) for text in found]
    if workload.output_tokens > 1 and sample.tpot_ms["p50"] < LEAST_TPOT_MS:
        starved = f"the median TPOT is {sample.tpot_ms['p50']:.4f} ms: the client was starved, or tokens held back"
        told.append(Problem(Invalid.CLIENT_BOUND, starved))
    return told


def _durations(requests: Requests, sample: Sample, workload: Workload) -> list[Problem]:
    """Requests cannot take longer than the sample, nor overlap more than allowed, nor much less than asked."""
    longest_s, together_s = max(requests.latency_s), sum(requests.latency_s)
    if sample.duration_s <= 0:
        return []  # told already
    found = []
    if longest_s > sample.duration_s * 1.01:
        text = f"a request of {longest_s:.3f} s cannot belong to a sample of {sample.duration_s:.3f} s"
        found.append(Problem(Invalid.IMPOSSIBLE_TIMES, text))
    if workload.concurrency:
        flying = together_s / sample.duration_s
        if flying > workload.concurrency * 1.02:
            text = f"{flying:.1f} requests were in flight on average, more than {workload.concurrency}"
            found.append(Problem(Invalid.IMPOSSIBLE_TIMES, text))
        if flying < workload.concurrency * LEAST_LOAD:
            text = f"only {flying:.1f} of {workload.concurrency} requests were in flight on average"
            found.append(Problem(Invalid.LOAD_NOT_REACHED, text))
    return found


def _times(requests: Requests) -> list[Problem]:
    """An average hides a single request that was answered before it was sent, or at once."""
    none, turned = sum(not ttft > 0 for ttft in requests.ttft_s), sum(gap < 0 for gap in requests.gaps_s)
    found = [f"{none} of {requests.completed} requests have a time to the first token of zero or less"] if none else []
    found += [f"{turned} gaps between tokens are below zero"] if turned else []
    return [Problem(Invalid.IMPOSSIBLE_TIMES, text) for text in found]


def _arrivals(raw: Mapping[str, Any], workload: Workload) -> str | None:
    """A client without time for it sends late, and the latencies are those of a lower rate. vLLM stretches or shortens the random
    arrivals so that the last one is due after prompts over rate, hence a span of twice that is no matter of chance."""
    starts = raw.get("start_times")
    if workload.rate is None or not isinstance(starts, list) or len(starts) != workload.num_prompts:
        return None
    took_s, due_s = max(starts) - min(starts), workload.num_prompts / workload.rate
    if not took_s > due_s / LEAST_LOAD:
        return None
    return f"the requests were sent in {took_s:.1f} s instead of {due_s:.1f} s, at less than half of {workload.rate:g} a second"


def _client_disagreements(raw: Mapping[str, Any], sample: Sample) -> list[Problem]:
    """Our figures against vLLM's own, where it gives them."""
    ours = {
        "output_throughput": sample.output_tok_s,
        "request_throughput": sample.requests_s,
        "median_ttft_ms": sample.ttft_ms["p50"],
        "median_tpot_ms": sample.tpot_ms["p50"],
        "mean_e2el_ms": sample.e2el_ms["mean"],
    }
    pairs = ((name, value, raw.get(name)) for name, value in ours.items())
    return [
        Problem(Invalid.NOT_A_NUMBER, f"{name} is {value:g} from the raw lists and {theirs:g} by vLLM")
        for name, value, theirs in pairs
        if theirs is not None and _apart(value, theirs) > CLIENT_TOLERANCE
    ]


def _told_by_server(sample: Sample, workload: Workload, counted: Counters, vocabulary: int) -> list[Problem]:
    return [
        *_of(Invalid.CACHED_PROMPTS, _cache(counted, workload, vocabulary)),
        *_of(Invalid.PREEMPTIONS, _preemptions(sample, workload, counted)),
        *_of(Invalid.LOAD_NOT_REACHED, _held(sample, workload, counted)),
        *(Problem(Invalid.ANOTHER_SERVER, text) for text in _server_disagreements(sample, counted)),
    ]


def _cache(counted: Counters, workload: Workload, vocabulary: int) -> str | None:
    ratio, allowed = counted.prefix_hit_ratio, allowed_prefix_hits(workload, vocabulary)
    if ratio is None or ratio <= allowed:
        return None
    return f"{ratio:.1%} of the prompt tokens came from the prefix cache, over {allowed:.1%}: not new prompts"


def _preemptions(sample: Sample, workload: Workload, counted: Counters) -> str | None:
    """A storm: requests are thrown out of the cache and computed again, and the figure is the cache size's."""
    limit = max(FEW_PREEMPTIONS, PREEMPTED_SHARE * sample.requests)
    if workload.preemptions == ALLOWED or counted.preemptions is None or counted.preemptions <= limit:
        return None
    return (
        f"{counted.preemptions:.0f} preemptions in {sample.requests} requests: the KV cache is too small for this load "
        "(`preemptions: allowed` in the workload's file, if that is what it is for)"
    )


def _held(sample: Sample, workload: Workload, counted: Counters) -> str | None:
    """Requests in the server on average: the time that they were there, over the sample's (Little's law).

    Polls of its gauges would not tell. On a processor that client and server share it answers them between two bursts, when
    nobody is there.
    """
    if not workload.concurrency or counted.latency_s is None or sample.duration_s < HELD_FROM_S:
        return None
    held = counted.latency_s / sample.duration_s
    if held >= workload.concurrency * LEAST_LOAD:
        return None
    return f"the server had {held:.1f} of {workload.concurrency} requests on average, by its own count"


def _server_disagreements(sample: Sample, counted: Counters) -> list[str]:
    """Another server answered, another client used ours, or tokens got lost on the way."""
    pairs = {
        "generated tokens": (sample.output_tokens, counted.generation_tokens),
        "prompt tokens": (sample.input_tokens, counted.prompt_tokens),
        "finished requests": (sample.requests, counted.requests),
    }
    return [
        f"the server counts {theirs:.0f} {name}, the client {ours}"
        for name, (ours, theirs) in pairs.items()
        if theirs is not None and _apart(ours, theirs) > SERVER_TOLERANCE
    ]


def _apart(ours: float, theirs: float) -> float:
    """Relative difference; infinite for a value that is no number."""
    if not (math.isfinite(ours) and math.isfinite(theirs)):
        return math.inf
    largest = max(abs(ours), abs(theirs))
    return abs(ours - theirs) / largest if largest else 0.0
