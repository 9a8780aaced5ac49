"""Whether a load is below what the server can bear, so that no setting can raise its throughput. Pure.

With a rate the requests come whatever the server does: one that keeps up finishes as many as come, and its throughput is the
rate, not a property of the settings. With a number in flight the next request waits for an answer (a closed loop): throughput
is that number over the latency, so that a gain in throughput is the same gain in latency and always possible.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.measure.slo import with_slo
from advisor.measure.summary import Requests, requests_of
from advisor.records import Objective, Sample, SloLimit, Workload

QUARTERS = 4
# In flight in the last quarter over the first: a backlog that grows evenly from nothing gives 7; a server that keeps up gives
# 1, or 2 where an answer takes a quarter of the sample, because the first quarter begins with an idle server.
_GROWTH = 2.5
_FEW = 2.0  # so many more in flight are chance
_LEAST_ACHIEVED = 0.6  # of the rate, with the time that the last answers take
_THROUGHPUT = ("output_tok_s", "input_tok_s", "requests_s")
# One thread of an API server reads all requests and writes all answers; a whole sample has a beginning and an end without load.
API_SERVER_FULL = 0.9
GPU_FULL = 0.9  # of the time with some kernel: an engine that always computes is a limit as well


def with_requests(sample: Sample, raw: Mapping[str, Any], workload: Workload, slo: Sequence[SloLimit]) -> Sample:
    """The sample with what only the per-request lists tell: goodput and the queue. Raises ValueError as `requests_of`."""
    requests = requests_of(raw)
    return dataclasses.replace(with_slo(sample, requests, slo), in_flight=in_flight(raw, requests, workload))


def in_flight(raw: Mapping[str, Any], requests: Requests, workload: Workload) -> tuple[float, ...]:
    """Mean requests in flight in each quarter of the arrivals; empty without a rate or without the times of sending.

    What happens after the last arrival is left out: the queue drains, however long it was. Those that failed are left out too:
    nobody recorded how long they were in flight, and a flooded server that drops some has a queue all the same.
    """
    sent = raw.get("start_times")
    if workload.rate is None or not isinstance(sent, list) or len(sent) != requests.sent or requests.completed < 2:
        return ()
    starts = [sent[position] for position in requests.positions]
    first, last = min(starts), max(starts)
    step = (last - first) / QUARTERS
    if step <= 0:
        return ()
    spans = [(start, start + latency) for start, latency in zip(starts, requests.latency_s, strict=True)]
    edges = [(first + step * i, first + step * (i + 1)) for i in range(QUARTERS)]
    return tuple(round(sum(max(0.0, min(b, d) - max(a, c)) for a, b in spans) / step, 3) for c, d in edges)


def keeps_up(samples: Sequence[Sample], rate: float) -> bool | None:
    """Whether the server finishes what arrives at that rate: no backlog builds up, and the rate was really there.

    A client that shares its processor with a full server sends late, so that the queue does not grow but the arrivals do not
    come. None where nothing was recorded, or where most requests were still in flight when the last ones came: an answer takes
    longer than the arrivals, which then say nothing.
    """
    rows = [sample for sample in samples if len(sample.in_flight) == QUARTERS and not sample.problems]
    if not rows:
        return None
    first, last = (sum(sample.in_flight[i] for sample in rows) / len(rows) for i in (0, QUARTERS - 1))
    if last > first * _GROWTH + _FEW:
        return False
    if last > sum(sample.requests + sample.failed for sample in rows) / len(rows) / 2:
        return None
    return sum(sample.requests_s for sample in rows) / len(rows) >= rate * _LEAST_ACHIEVED


def api_server_note(samples: Sequence[Sample], metric: str) -> str | None:
    """The limit is not the engine where an API server's only thread is always busy and the GPU is not: told with both shares."""
    seen = [sample.telemetry for sample in samples if sample.telemetry and sample.telemetry.api_server_share is not None]
    if not seen:
        return None
    share = statistics.median(one.api_server_share for one in seen)
    if share < API_SERVER_FULL:
        return None
    gpu = [one.gpu_share.median for one in seen if one.gpu_share is not None]
    if gpu and statistics.median(gpu) >= GPU_FULL:
        return None
    idle = f", and the GPU was busy {statistics.median(gpu):.0%} of the time" if gpu else ""
    count = max(one.api_servers or 1 for one in seen)
    who, whose = ("the", "its thread") if count == 1 else ("an", f"the thread of the busiest of {count}")
    more, enough = ("several", 4) if count == 1 else ("more", 2 * count)
    return (
        f"{who} API server is the limit at this load: {whose} was busy {share:.0%} of the time{idle}. Settings of the engine can "
        f"hardly raise {metric} there; {more} API servers (--serve-args \"--api-server-count {enough}\") share the work"
    )


def load_note(samples: Sequence[Sample], workload: Workload, objective: Objective) -> str | None:
    """What a person should know about this load and this objective before the search; None: nothing, or several loads."""
    if workload.loads:
        return None
    # Goodput can be raised at any rate as long as a request misses its limits.
    all_good = workload.rate is not None and all(sample.slo_share == 1 for sample in samples)
    throughput = (*_THROUGHPUT, "goodput") if all_good else _THROUGHPUT
    if objective.find_load or not any(metric in throughput for metric in objective.metrics):
        return None
    metric = next(metric for metric in objective.metrics if metric in throughput)
    if note := api_server_note(samples, metric):
        return note
    if workload.rate is None:
        return (
            f"{workload.concurrency} requests are always in flight, so throughput is that over the time of a request: a gain "
            f"in {metric} is a gain in latency at this load"
        )
    if not keeps_up(samples, workload.rate):
        return None
    flying = sum(sample.in_flight[-1] for sample in samples) / len(samples)
    return (
        f"this load is below saturation: the server keeps up with {workload.rate:g} requests/s ({flying:.1f} in flight, no "
        f"growing queue), so no setting can raise {metric}. Optimise a latency (--objective e2el_ms.p50), or let "
        "--find-load rate with --slo find the highest load"
    )
