"""The values that the stages hand to each other. Imports nothing of ours.

inspect -> Facts; space -> Candidate; launch + measure -> Trial (with Samples); verdict -> Verdict; profile.
Everything is frozen and JSON-shaped: `to_json` gives plain dictionaries for the journal, `from_json` reads them back.
Units stand in the names: `_s` seconds, `_ms` milliseconds, `_gib` GiB (2**30 bytes), `_tok_s` tokens a second.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

# ---------------------------------------------------------------- inspect


@dataclass(frozen=True)
class GpuFacts:
    """What NVML says about the GPU to tune for; `kind` is `cpu` where vLLM will run on the processor."""

    kind: str  # "cuda", "rocm" or "cpu"
    name: str  # as the driver prints it, e.g. "NVIDIA H200"; the processor's model on a CPU
    slug: str  # short name for folders: "h200", "rtx4090", "cpu"
    count: int
    memory_gib: float
    compute_capability: str | None = None  # "9.0"
    driver: str | None = None
    uuids: tuple[str, ...] = ()


@dataclass(frozen=True)
class BackendFacts:
    """One attention backend and why the installed vLLM would refuse it for this model and GPU (empty: it is valid)."""

    name: str
    reasons: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        return not self.reasons


@dataclass(frozen=True)
class EngineFacts:
    """The installed vLLM, as it describes itself from inside the target interpreter."""

    python: str  # path of the target interpreter
    python_version: str
    vllm_version: str  # "0.26.0", without a local suffix such as +cpu
    torch_version: str
    platform: str  # "cuda", "rocm" or "cpu": what this vLLM build would run on here
    cuda_version: str | None = None
    flashinfer_version: str | None = None
    flags: tuple[str, ...] = ()  # long option names of `vllm serve`, "--max-num-seqs"
    backends: tuple[BackendFacts, ...] = ()  # valid ones first, in vLLM's order of preference
    backends_error: str | None = None  # why vLLM could not be asked; then `backends` is empty


@dataclass(frozen=True)
class ModelFacts:
    """What the model's config.json says."""

    model: str  # as the person gave it: folder or hub id
    architecture: str
    config_hash: str  # sha256 of the canonical config, 16 hex digits
    layers: int
    hidden_size: int
    heads: int
    kv_heads: int
    head_size: int
    vocab_size: int
    max_length: int  # tokens, before any --max-model-len
    dtype: str | None = None
    quantization: str | None = None
    experts: int = 0
    mla: bool = False
    sparse: bool = False  # MLA that attends to the tokens an index chooses, as in DeepSeek-V3.2
    has_weights: bool = True  # False: the folder holds no weights, only --load-format dummy can serve it
    revision: str | None = None  # commit of a hub model


@dataclass(frozen=True)
class Facts:
    gpu: GpuFacts
    engine: EngineFacts
    model: ModelFacts


# ---------------------------------------------------------------- space


@dataclass(frozen=True)
class Candidate:
    """Settings that differ from what the person serves today; the empty candidate is the baseline.

    Names are abstract (see advisor/engine/render.py): `attention_backend`, `cudagraph_mode`, `cudagraph_capture_sizes`,
    `compilation_mode`, `enforce_eager`, `optimization_level`; a name with dashes in front is a plain vLLM flag, a name in
    capitals an environment variable.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def key(self) -> str:
        """Identity of the candidate: equal settings give equal keys, whatever their order."""
        return json.dumps(self.settings, sort_keys=True, separators=(",", ":"))

    @property
    def is_baseline(self) -> bool:
        return not self.settings

    @property
    def overrides(self) -> int:
        return len(self.settings)

    @property
    def label(self) -> str:
        """One line for people: `attention_backend=TRITON_ATTN enforce_eager` or `default`."""
        return " ".join(_label(name, value) for name, value in self.settings.items()) or "default"


def _label(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return name if value else f"{name}=false"
    if isinstance(value, list | tuple):
        shown = [str(item) for item in value]
        if len(shown) > 6:
            return f"{name}={','.join(shown[:3])}..{shown[-1]} ({len(shown)})"
        return f"{name}=" + ",".join(shown)
    return f"{name}={value}"


@dataclass(frozen=True)
class Command:
    """What is executed for a candidate: the argument list (without a shell) and the environment variables added to it."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


# ---------------------------------------------------------------- workload


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
    preemptions: str | None = None  # "allowed": running out of cache blocks is what the workload is for


# ---------------------------------------------------------------- launch and measure


class Outcome(str, Enum):
    """How a trial ended: a closed list, always with a reason."""

    OK = "ok"
    FAILED_TO_START = "failed_to_start"
    OUT_OF_MEMORY = "out_of_memory"
    UNSUPPORTED = "unsupported"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    INVALID_MEASUREMENT = "invalid_measurement"
    WRONG_OUTPUT = "wrong_output"
    NOT_AS_REQUESTED = "not_as_requested"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class GraphSteps:
    """Model steps of one kind, counted by the server itself (vLLM's --cudagraph-metrics)."""

    tokens: int  # of the batch, before padding
    padded: int  # tokens that the step ran with
    mode: str  # FULL or PIECEWISE graph; NONE: without a graph
    count: int


@dataclass(frozen=True)
class StartUp:
    """What a start went into, seconds. None: the log does not tell."""

    cache: str | None = None  # "cold": compiled anew; "warm": compiled code was found; None: nothing had to be compiled
    imports_s: float | None = None  # from exec until the engine begins: interpreters, imports, configuration
    load_s: float | None = None  # weights
    compile_s: float | None = None  # torch.compile, from the cache or anew
    capture_s: float | None = None  # CUDA graphs
    kernels_s: float | None = None  # autotuner, warm-up of kernels: built where they are not there yet
    rest_s: float | None = None  # memory profiling, KV cache, the first token, and what the log does not tell


@dataclass(frozen=True)
class Active:
    """What the server itself says that it runs, in its log and on its /metrics page. None: it does not say."""

    vllm_version: str | None = None
    attention_backends: tuple[str, ...] = ()  # every "Using X attention backend" line, in order, without repeats
    flash_attention_version: int | None = None
    compilation_mode: str | None = None  # NONE, STOCK_TORCH_COMPILE, DYNAMO_TRACE_ONCE, VLLM_COMPILE
    cudagraph_mode: str | None = None
    capture_sizes: tuple[int, ...] | None = None
    enforce_eager: bool | None = None
    kv_cache_tokens: int | None = None
    graph_memory_gib: float | None = None
    weights_gib: float | None = None
    load_s: float | None = None
    compile_s: float | None = None
    capture_s: float | None = None
    engine_init_s: float | None = None
    rewrites: tuple[str, ...] = ()  # log lines in which vLLM says that it changed a setting
    block_size: int | None = None  # tokens of a block of the KV cache
    kv_cache_dtype: str | None = None  # "auto": the model's own
    prefix_caching: bool | None = None
    kv_cache_blocks: int | None = None
    gpu_memory_utilization: float | None = None
    model_runner: str | None = None  # V1 or V2
    graph_steps: tuple[GraphSteps, ...] = ()  # with --cudagraph-metrics: every step since the start, most frequent first
    decode_modes: Mapping[str, float] | None = None  # share of the decode steps by GraphSteps.mode


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


@dataclass(frozen=True)
class WarmUp:
    """The warm-up of a launch: waves of the real mix until two successive ones agree."""

    waves: int
    prompts: int
    steady: bool
    why: str  # it ended


@dataclass(frozen=True)
class Spread:
    """A figure over the polls of one sample."""

    median: float
    least: float
    most: float


@dataclass(frozen=True)
class Foreign:
    """A process that is not of our launch and was there during a sample. None: not known."""

    pid: int
    name: str
    gpu_mib: int | None = None
    gpu_share: float | None = None  # of the GPU's multiprocessors, 0 to 1, the most that was seen
    cores: float | None = None  # processor cores that it used on average
    since_before: bool = False  # it had its GPU memory before our server was launched


@dataclass(frozen=True)
class Telemetry:
    """The machine during one sample (advisor/measure/telemetry.py). None: this machine does not say.

    With several GPUs: the slowest clock, the highest heat and power, the lowest share. Shares are 0 to 1.
    """

    kind: str = "cpu"  # what the server ran on: "cuda", "rocm" or "cpu"
    polls: int = 0
    duration_s: float = 0.0
    longest_gap_s: float | None = None  # between two polls: a machine that stood still shows here
    # GPU, through NVML. Clocks only from polls in which the GPU was not idle.
    sm_clock_mhz: Spread | None = None
    sm_clock_limit_mhz: int | None = None  # the highest that the GPU has
    memory_clock_mhz: Spread | None = None
    temperature_c: Spread | None = None
    power_w: Spread | None = None
    power_limit_w: float | None = None
    gpu_share: Spread | None = None  # of the time in which some kernel ran
    gpu_share_before: float | None = None  # the same, when our server was not launched yet
    gpu_memory_mib: Spread | None = None  # on all GPUs of the launch together
    gpu_growth_mib: int | None = None  # the most above the use when the server was warm
    clock_reasons: Mapping[str, float] = field(default_factory=dict)  # why clocks were held down -> share of the polls
    gpu_processes: tuple[Foreign, ...] = ()
    # Processor: the cores that this process may use.
    cores: int | None = None
    own_cores: float | None = None  # used by the advisor and everything that it started
    foreign_cores: float | None = None  # used by all others
    steal_share: float | None = None  # of the cores' time that a hypervisor gave to others
    pressure_share: float | None = None  # of the time in which some task waited for a core, ours included
    throttled_share: float | None = None  # of the periods in which the container's quota stopped it
    load: Spread | None = None  # the system's load average over a minute
    cpu_processes: tuple[Foreign, ...] = ()  # the busiest of the others


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


@dataclass(frozen=True)
class GateResult:
    """Whether a launch's answers to fixed prompts are the baseline's, as far as that can be judged.

    Distances are mean absolute differences of log-probabilities over their own spread in the baseline: 0 is equal, about 1 is
    unrelated. Keys: `decode` (forced tokens) and `prefill` (the prompt's own tokens), each the worst reply.
    """

    passed: bool | None = None  # None: it cannot be judged, and `reason` says why
    reason: str = ""
    distance: Mapping[str, float] = field(default_factory=dict)
    limit: Mapping[str, float] = field(default_factory=dict)
    noise: Mapping[str, float] = field(default_factory=dict)  # baseline against baseline, and its modes against each other
    agreement: float | None = None  # share of the greedy tokens before the first difference, mean over prompts
    baseline_agreement: float | None = None  # the same for baseline against baseline
    baselines: int = 0  # launches of the baseline that were compared with
    notes: tuple[str, ...] = ()  # what could not be judged, as sentences


@dataclass(frozen=True)
class QualityScore:
    """What a person's own evaluation said of one server. No problem and no score: it passed, and names no number."""

    score: float | None = None  # more is better
    exit_code: int | None = None
    seconds: float = 0.0
    problem: str = ""


@dataclass(frozen=True)
class Trial:
    """One launch of one candidate and what came of it. Only an OK trial has samples that count."""

    number: int
    phase: str  # as of runner/base.py's Job
    candidate: Candidate
    outcome: Outcome
    reason: str = ""
    samples: tuple[Sample, ...] = ()
    active: Active = Active()
    resolved: Mapping[str, Any] = field(default_factory=dict)  # what vLLM made of the command before the start
    credited_to: Candidate | None = None  # not_as_requested: what was active instead, and whose figure this is
    notes: tuple[str, ...] = ()  # where active and resolved differ, and other things that the report should name
    command: Command = Command(())
    folder: str | None = None  # of the launch, relative to the study's folder
    start_s: float | None = None  # from exec to the first token
    start_up: StartUp | None = None  # what that went into
    memory_free: float | None = None  # share of the memory that was free after the samples, on the fullest GPU
    warmup_s: float | None = None
    warm_up: WarmUp | None = None
    plan: SamplingPlan | None = None
    measure_s: float | None = None
    stop_s: float | None = None
    leftovers: tuple[str, ...] = ()  # processes that it left behind when it had ended, and that had to be killed
    total_s: float = 0.0  # wall time that the trial cost
    loads: tuple[LoadPoint, ...] = ()  # tried by --find-load, in order; `samples` are those of the highest that met the SLO
    round: int | None = None  # of the confirmation
    started_at: str = ""  # ISO 8601, UTC
    answers: str | None = None  # path of the answers to the output gate's prompts, relative to the study's folder
    gate: GateResult | None = None
    quality: QualityScore | None = None

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.OK


# ---------------------------------------------------------------- engine truth


@dataclass(frozen=True)
class Finding:
    """Something about a command that a person should know; `code` never changes its meaning, so that scripts can rely on it."""

    severity: str  # "error": vLLM will refuse it or do something else than asked; "warning"; "info"
    code: str  # "json-lost-to-dotted-key"
    message: str  # what is wrong, with the offending words
    fix: str = ""  # what to write instead


@dataclass(frozen=True)
class Resolved:
    """What a command comes to before it runs. `values` holds at least these names, which scripts rely on.

    optimization_level (int or None before 0.12), compilation_mode, cudagraph_mode, cudagraph_capture_sizes (list),
    max_cudagraph_capture_size, attention_backend (None: automatic and not known), enforce_eager, max_num_seqs,
    max_num_batched_tokens. `origins` says where each came from: default, level, flag, env, config-file, rewrite:RULE.
    """

    vllm_version: str
    source: str  # "installed": vLLM itself said so; "rules": our tables
    values: Mapping[str, Any]
    origins: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    assumed: tuple[str, ...] = ()  # what was taken for granted, as sentences


# ---------------------------------------------------------------- verdict


class Decision(str, Enum):
    IMPROVED = "improved"
    KEEP_DEFAULTS = "keep-defaults"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Interval:
    """A value and its two-sided 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Compared:
    """A further objective on the fresh launches."""

    metric: str
    standing: str  # better, worse, same (within the noise), or unclear
    ratio: Interval | None = None  # as Verdict.ratio


@dataclass(frozen=True)
class FrontPoint:
    """A point of the Pareto front: no other one is at least as good in every objective and better in one."""

    candidate: Candidate
    values: Mapping[str, float]  # metric -> mean of the search's launch, in the metric's own unit
    recommended: bool = False
    why: str = ""  # it is recommended


@dataclass(frozen=True)
class Finalist:
    """What the fresh launches said of one candidate."""

    candidate: Candidate
    decision: Decision
    reason: str
    launches: int = 0  # pairs with the baseline
    ratio: Interval | None = None  # as Verdict.ratio


@dataclass(frozen=True)
class Tradeoff:
    """A figure that got worse on the challenger's fresh launches, beyond what launches differ by."""

    metric: str
    ratio: Interval  # challenger over baseline as it is: 1.27 is 27% more, whichever way is better


@dataclass(frozen=True)
class Verdict:
    """Outcome of the confirmation: fresh launches of baseline and finalist, paired by round and seeds."""

    decision: Decision
    reason: str
    objective: str
    winner: Candidate  # the empty candidate unless the decision is IMPROVED
    challenger: Candidate | None = None  # the candidate that was confirmed against the baseline
    ratio: Interval | None = None  # challenger over baseline, oriented so that more than 1 is better
    baseline: Mapping[str, Interval] = field(default_factory=dict)  # metric -> mean over launches
    tuned: Mapping[str, Interval] = field(default_factory=dict)
    launches: int = 0  # fresh launches an arm
    noise: float | None = None  # relative standard deviation between the baseline's fresh launches
    smallest_gain: float | None = None  # that these launches could show, as a fraction: half the interval of the ratio
    ratios: Mapping[str, Interval] = field(default_factory=dict)  # metric -> challenger over baseline, not oriented
    tradeoffs: tuple[Tradeoff, ...] = ()  # what the challenger costs, worst first
    finalists: tuple[Finalist, ...] = ()  # all that were launched afresh, best first
    others: tuple[Compared, ...] = ()  # the objectives after the first, in their order
    front: tuple[FrontPoint, ...] = ()  # several objectives: candidates of the search that none other beats in all


@dataclass(frozen=True)
class SloLimit:
    """One limit of a service level objective: at least `share` of the requests must be at `limit_ms` or below."""

    metric: str  # of a single request: ttft_ms, tpot_ms, itl_ms (its longest gap between tokens) or e2el_ms
    limit_ms: float
    share: float = 0.99

    @property
    def label(self) -> str:
        """As a person writes it: `ttft_p99<500ms`."""
        return f"{self.metric.removesuffix('_ms')}_p{self.share * 100:g}<{self.limit_ms:g}ms"


@dataclass(frozen=True)
class Objective:
    """The figure that is optimised, those that are optimised with it, and the SLO (docs/objectives.md).

    `metric` and each of `secondary`: output_tok_s, requests_s, goodput, start_s, max_concurrency, max_rate, or a latency
    such as `ttft_ms.p99`. `find_load`: "concurrency" or "rate", which is raised on each launch as far as the SLO is met.
    """

    metric: str = "output_tok_s"
    secondary: tuple[str, ...] = ()
    slo: tuple[SloLimit, ...] = ()
    find_load: str | None = None

    @property
    def maximise(self) -> bool:
        return not (self.metric == "start_s" or self.metric.split(".")[0].endswith("_ms"))

    @property
    def metrics(self) -> tuple[str, ...]:
        return (self.metric, *self.secondary)

    @property
    def each(self) -> tuple[Objective, ...]:
        """One objective a metric, the first one first."""
        return tuple(dataclasses.replace(self, metric=metric, secondary=()) for metric in self.metrics)

    @property
    def constrained(self) -> bool:
        """Whether a candidate that breaks the SLO is out, whatever its figures. Goodput counts the breaches itself."""
        return bool(self.slo) and ("goodput" not in self.metrics or self.find_load is not None)


@dataclass(frozen=True)
class Rejection:
    """A candidate, or a whole setting value, that was not launched or not chosen, and why."""

    candidate: Candidate
    reason: str


@dataclass(frozen=True)
class StudyResult:
    """All that a profile and a report are written from."""

    name: str
    advisor_version: str
    created_at: str  # ISO 8601, UTC
    facts: Facts
    workload: Workload
    objective: Objective
    serve_args: tuple[str, ...]  # what the person gave, verbatim
    serve_env: Mapping[str, str]
    random_weights: bool
    trials: tuple[Trial, ...]
    verdict: Verdict
    baseline_command: Command
    tuned_command: Command  # equals the baseline's unless the decision is IMPROVED
    rejections: tuple[Rejection, ...] = ()
    elapsed_s: float = 0.0  # wall time of the study, all sessions of it together


# ---------------------------------------------------------------- JSON


def to_json(value: Any) -> Any:
    """Records, enums, tuples and mappings as plain JSON values; fields at their default None are kept out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {name: to_json(item) for name, item in pairs if item is not None}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value


def from_json(kind: Any, value: Any) -> Any:
    """Read back what `to_json` wrote, following the type hints of `kind`. Unknown fields are ignored (a newer writer)."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        inner = [arg for arg in typing.get_args(kind) if arg is not type(None)]
        return None if value is None else from_json(inner[0], value)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        names = {f.name for f in dataclasses.fields(kind)}
        return kind(**{name: from_json(hints[name], item) for name, item in value.items() if name in names})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if origin is tuple:
        item_kind = typing.get_args(kind)[0]
        return tuple(from_json(item_kind, item) for item in value)
    return value


def fingerprint(value: Any) -> str:
    """16 hex digits of the sha256 over canonical JSON: equal values, equal fingerprints."""
    text = json.dumps(to_json(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
