"""When a server is warm: successive waves of the real mix give the same figures. Pure.

A wave is one run of the workload with as many requests as are in flight. Every wave has its ramp and its drain, so that
whole waves compare where parts of one run would not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.records import Sample, WarmUp, Workload

CLOSE = 0.10  # between two successive waves, in throughput and in time per token
LEAST_WAVES = 2
MOST_WAVES = 6
MOST_S = 60.0  # no further wave begins after that
FEWEST_REQUESTS = 8  # of a wave: fewer jump about; but never over an eighth of a sample, unless the load is that large
SHARE_OF_SAMPLE = 8


@dataclass(frozen=True)
class Wave:
    """What one wave gave. Zeros where no request was answered."""

    requests: int
    output_tok_s: float
    tpot_ms: float  # median
    compiled: tuple[str, ...] = ()  # kernels that were built meanwhile


def wave_of(sample: Sample | None, compiled: tuple[str, ...] = ()) -> Wave:
    if sample is None:
        return Wave(0, 0.0, 0.0, compiled)
    return Wave(sample.requests + sample.failed, sample.output_tok_s, sample.tpot_ms["p50"], compiled)


def wave_prompts(workload: Workload) -> int:
    """Requests of one wave: the load, several times where that is few; half of `warmup_prompts` where that is given."""
    if workload.warmup_prompts:
        wanted = math.ceil(workload.warmup_prompts / LEAST_WAVES)
    elif workload.concurrency:
        fewest = min(FEWEST_REQUESTS, workload.num_prompts // SHARE_OF_SAMPLE)
        wanted = workload.concurrency * max(1, math.ceil(fewest / workload.concurrency))
    else:
        wanted = max(FEWEST_REQUESTS, math.ceil(workload.rate or 0))
    return min(workload.num_prompts, wanted)


def judge_warm_up(waves: Sequence[Wave], elapsed_s: float) -> WarmUp | None:
    """The finished warm-up, or None while another wave is needed."""
    if len(waves) < LEAST_WAVES:
        return None
    before, last = waves[-2:]
    if not before.output_tok_s and not last.output_tok_s:
        return _ended(waves, False, "no request was answered")
    apart = max(_apart(before.output_tok_s, last.output_tok_s), _apart(before.tpot_ms, last.tpot_ms))
    if apart <= CLOSE and not last.compiled:
        return _ended(waves, True, f"waves {len(waves) - 1} and {len(waves)} are {apart:.0%} apart")
    if len(waves) < MOST_WAVES and elapsed_s < MOST_S:
        return None
    why = f"{last.compiled[0]} was compiled in the last wave" if last.compiled else f"the last two are {apart:.0%} apart"
    return _ended(waves, False, f"{len(waves)} waves in {elapsed_s:.0f} s were the limit, and {why}")


def _ended(waves: Sequence[Wave], steady: bool, why: str) -> WarmUp:
    return WarmUp(len(waves), sum(wave.requests for wave in waves), steady, why)


def _apart(first: float, second: float) -> float:
    largest = max(abs(first), abs(second))
    return abs(first - second) / largest if largest else 0.0
