"""Whether the benchmark client or the server set the pace, and how many client processes a load needs. Pure.

One client process is one thread of Python: at most one core. On an H200, 1,024 requests in flight to a 0.6B model made
12,600 tokens a second in one launch and 8,900 in the next of the same configuration (docs/evidence): the client, not the
server, was measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from advisor.measure.merge import client_parts
from advisor.records import ClientLoad, Sample, Workload

SPLIT_SHARE = 0.6  # of a core, in the baseline: more processes, so that a faster candidate finds some room
AIM_SHARE = 0.4  # of a core for each process, when the load is divided
BOUND_SHARE = 0.9  # of a core: no room left, the server waits for the client
SPLIT_LAG = 0.10  # of the median time per token, by which the client's events are late on average
BOUND_LAG = 0.50
OWN_WORK = 0.3  # of a core: below, lag is the machine's doing, and further processes would only add to it
MOST_PROCESSES = 16


def client_load(raw: Mapping[str, Any]) -> ClientLoad | None:
    """The client's own part in a raw result; None where it was not watched."""
    parts = client_parts(raw)
    if not parts:
        return None
    return ClientLoad(
        processes=len(parts),
        cpu_share=round(max(_share(part) for part in parts), 4),
        loop_lag_ms=_lags([lag for part in parts for lag in part.get("loop_lags_s", ())]),
        send_lag_ms=_lags([lag for part in parts for lag in part.get("send_lags_s", ())]),
    )


def most_processes(cores: int, workload: Workload) -> int:
    """Half of the cores at most, the other half is the server's; and each process needs a request in flight."""
    return max(1, min(cores // 2, workload.concurrency or MOST_PROCESSES, MOST_PROCESSES))


def processes_for(sample: Sample, most: int) -> int:
    """Client processes for this load, from a sample that was taken with `sample.client.processes` of them."""
    load = sample.client
    if load is None or (load.cpu_share <= SPLIT_SHARE and not _late(sample, SPLIT_LAG)):
        return load.processes if load else 1
    needed = math.ceil(load.cpu_share * load.processes / AIM_SHARE)
    return min(most, max(needed, load.processes + 1))


def client_problem(sample: Sample, most: int | None = None) -> str | None:
    """Why the client and not the server may have set the pace of this sample, or None. `most`: processes that fit here."""
    load = sample.client
    if load is None:
        return None
    where = f"with {load.processes} client process{'es' if load.processes > 1 else ''}"
    more = " (no more fit on this machine's cores)" if most is not None and load.processes >= most else ""
    if load.cpu_share > BOUND_SHARE:
        return f"the client used {load.cpu_share:.0%} of a core {where}{more}: it set the pace, not the server"
    if _late(sample, BOUND_LAG):
        late, token = load.loop_lag_ms["mean"], sample.tpot_ms["p50"]
        return f"the client was {late:.1f} ms late on average, a token takes {token:.1f} ms, {where}{more}"
    return None


def _late(sample: Sample, limit: float) -> bool:
    """Lag that the client's own work causes. A machine whose cores are all taken delays one and many alike."""
    load, token_ms = sample.client, sample.tpot_ms.get("p50", 0.0)
    mean = load.loop_lag_ms.get("mean", 0.0)
    return load.cpu_share > OWN_WORK and token_ms > 0 and mean > limit * token_ms


def _share(part: Mapping[str, Any]) -> float:
    return part["cpu_s"] / part["wall_s"] if part["wall_s"] > 0 else 0.0


def _lags(seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {}
    values = np.asarray(seconds, dtype=float) * 1000
    figures = {"mean": values.mean(), "p99": np.percentile(values, 99), "max": values.max()}
    return {name: round(float(value), 3) for name, value in figures.items()}
