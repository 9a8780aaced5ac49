"""Shape of the requests and the load."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """Shape of the requests and the load. Lengths are tokens; exactly one of concurrency and rate drives the load."""

    name: str
    input_tokens: int
    output_tokens: int
    num_prompts: int  # requests of one sample
    concurrency: int | None = None  # requests in flight
    rate: float | None = None  # requests a second, Poisson arrivals
    length_spread: float = 0.0  # lengths are drawn from [1 - spread, 1 + spread] times the length
    shared_prefix_tokens: int = 0  # the same first tokens in every prompt of a sample
    warmup_prompts: int = 0  # requests of the first two waves of a warm-up, same mix, not counted; 0: as many as fit the load
    source: str = ""  # where the lengths come from
    loads: tuple[float, ...] | None = None  # all that a launch measures; `concurrency` or `rate` is then the highest of them
    preemptions: str | None = None  # "allowed": running out of cache blocks is what the workload is for
