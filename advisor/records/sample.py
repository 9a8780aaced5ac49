"""One benchmark run on a launch: its figures, and why it is no measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from advisor.records.machine import Telemetry


class Invalid(str, Enum):
    """Why a sample is no measurement: a closed list; docs/measuring.md says what each means and what to do about it."""

    FAILED_REQUESTS = "failed-requests"
    WRONG_LENGTH = "wrong-length"
    NOT_A_NUMBER = "not-a-number"
    TOO_SHORT = "too-short"
    CLIENT_BOUND = "client-bound"
    CLIENT_DIED = "client-died"
    CACHED_PROMPTS = "cached-prompts"
    OTHER_PROMPTS = "other-prompts"
    PREEMPTIONS = "preemptions"
    JIT_COMPILED = "jit-compiled"
    ANOTHER_SERVER = "another-server"
    LOAD_NOT_REACHED = "load-not-reached"
    IMPOSSIBLE_TIMES = "impossible-times"


@dataclass(frozen=True)
class ClientLoad:
    """How busy the benchmark client was during a sample: whether it or the server set the pace."""

    processes: int
    cpu_share: float  # of one core, of the busiest process
    loop_lag_ms: Mapping[str, float] = field(default_factory=dict)  # keys mean, p99, max: a due event was handled so late
    send_lag_ms: Mapping[str, float] = field(default_factory=dict)  # the same keys: a due request was sent so late


@dataclass(frozen=True)
class SamplingPlan:
    """What all samples of a study have in common beside the workload, decided from the baseline and fixed from then on."""

    num_prompts: int
    client_processes: int = 1
    why: str = ""  # where it differs from the workload's own number, or from one process
    slice_prompts: int = 0  # requests of a short sample by which a launch can be dropped before its whole ones; 0: none is taken
    load_prompts: tuple[int, ...] = ()  # requests of a sample at each load but the main one (advisor/measure/loads.py)


@dataclass(frozen=True)
class WarmUp:
    """The warm-up of a launch: waves of the real mix until two successive ones agree."""

    waves: int
    prompts: int
    steady: bool
    why: str  # it ended


@dataclass(frozen=True)
class Slice:
    """What the first requests of a sample, in the order of sending, came to while the rest of its load was behind them.

    A sample of so few requests alone would say nearly the same: only its end, which drains, differs. Four significant digits.
    """

    requests: int
    duration_s: float  # from the first request sent until all of these were answered
    output_tok_s: float
    input_tok_s: float
    requests_s: float
    ttft_ms: Mapping[str, float]  # keys mean, p50, p90, p99
    tpot_ms: Mapping[str, float]
    e2el_ms: Mapping[str, float]


@dataclass(frozen=True)
class Sample:
    """One benchmark run on one launch, summarised from the raw per-request file at `raw`."""

    seed: int
    duration_s: float
    requests: int
    failed: int
    input_tokens: int
    output_tokens: int
    output_tok_s: float
    input_tok_s: float
    requests_s: float
    ttft_ms: Mapping[str, float]  # keys mean, p50, p90, p99
    tpot_ms: Mapping[str, float]
    itl_ms: Mapping[str, float]
    e2el_ms: Mapping[str, float]
    prefix_hit_ratio: float | None = None  # cached prompt tokens over all prompt tokens, from the server's counters
    preemptions: int | None = None
    goodput_requests_s: float | None = None  # requests a second that were within every limit of --slo
    slo_share: float | None = None  # of the requests sent, those within every limit
    slo_within: Mapping[str, float] = field(default_factory=dict)  # label of a limit -> share of requests within it
    in_flight: tuple[float, ...] = ()  # with a rate: mean requests in flight in each quarter of the arrivals
    load: float | None = None  # with --find-load: requests in flight, or requests a second, of this sample
    raw: str | None = None  # path of the raw result, relative to the study's folder
    problems: tuple[str, ...] = ()  # why this sample must not be used; empty: valid
    classes: tuple[Invalid, ...] = ()  # of the problems, one each
    asked_seed: int | None = None  # this sample repeats one of that seed, which was not valid; pairs are made by this
    prompts: str | None = None  # digest of the prompts: equal for all samples of a seed in a study
    client: ClientLoad | None = None
    running: float | None = None  # requests that the server itself says it runs, on average over the polls
    telemetry: Telemetry | None = None
    taints: tuple[str, ...] = ()  # what disturbed the machine meanwhile: the figures stand, but are not the candidate's alone
    slices: tuple[Slice, ...] = ()  # its first parts, shortest first (advisor/measure/slices.py); empty: they are not known

    @property
    def pair_seed(self) -> int:
        """The seed that the launch was asked to measure: samples of two launches are paired by it."""
        return self.seed if self.asked_seed is None else self.asked_seed


@dataclass(frozen=True)
class LoadPoint:
    """One load that --find-load tried on a launch."""

    load: float  # requests in flight, or requests a second
    met: bool  # whether the SLO was met there
    requests_s: float  # that the server finished
    reason: str = ""  # what was not met
