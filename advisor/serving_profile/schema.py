"""The profile file: what it holds, as pydantic models. Unknown keys are errors; descriptions become comments.

History of the schema (`schema:` in the file). A reader accepts its own version and older ones and refuses newer ones:
- advisor.profile/1: the first.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from advisor.records import Decision, Outcome
from advisor.serving_profile.args import ServeLine, format_line, normal_options, parse_line
from advisor.serving_profile.values import Count, Env, Figure, Number, Options, Part, Ratio, commented

SCHEMA_NAME = "advisor.profile"
SCHEMA_VERSION = 1
SCHEMA = f"{SCHEMA_NAME}/{SCHEMA_VERSION}"
# Version -> what turns the data of that version into data of the next. Empty as long as there is one version.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


def schema_version(schema: Any) -> int:
    """Version number in `advisor.profile/1`. Raises ValueError for another kind of file and for a newer version."""
    match = re.fullmatch(rf"{re.escape(SCHEMA_NAME)}/([1-9]\d*)", str(schema))
    if not match:
        raise ValueError(f"schema must be {SCHEMA!r}, found {schema!r}: this is not a serving profile")
    version = int(match[1])
    if version > SCHEMA_VERSION:
        raise ValueError(
            f"schema {schema!r} is newer than this advisor reads (up to {SCHEMA!r}): update the advisor to read it"
        )
    return version


def upgraded(data: Any) -> Any:
    """Data of an older version in the form of the present one; anything else as it is."""
    if not isinstance(data, dict) or "schema" not in data:
        return data
    try:
        version = schema_version(data["schema"])
    except ValueError:
        return data  # the field's own check reports it
    for step in range(version, SCHEMA_VERSION):
        data = MIGRATIONS[step](data)
    return {**data, "schema": SCHEMA}


def _known_schema(value: str) -> str:
    schema_version(value)
    return value


class Model(Part):
    id: str = Field(description="hub id as given, or the name of a local folder (never its path)")
    local_folder: bool = Field(description="the model came from a folder: give its path with --model when exporting")
    revision: str | None = Field(default=None, description="commit of a hub model")
    config_hash: str = Field(description="sha256 of the canonical config.json, 16 hex digits")
    architecture: str = Field(description="class named by config.json")
    dtype: str | None = Field(default=None, description="--dtype if given, else config.json's")
    quantization: str | None = Field(default=None, description="method named by config.json")
    load_format: str = Field(description="--load-format; auto if not given")
    random_weights: bool = Field(description="true: the weights were random")
    note: str | None = Field(default=None, description="what random weights mean for these figures")


class Gpu(Part):
    name: str = Field(description="as the driver prints it")
    slug: str = Field(description="short name, the profile's folder")
    count: Count = Field(description="GPUs of this kind that the machine has")
    memory_gib: Number = Field(description="memory of one GPU, GiB")
    compute_capability: str | None = Field(default=None, description="CUDA compute capability")
    driver: str | None = Field(default=None, description="driver version")


class Software(Part):
    vllm: str = Field(description="vLLM version")
    torch: str = Field(description="torch version")
    cuda: str | None = Field(default=None, description="CUDA version of that torch")
    flashinfer: str | None = Field(default=None, description="FlashInfer version")
    python: str = Field(description="version of the interpreter that ran vLLM")
    advisor: str = Field(description="advisor version that measured and wrote the profile")


class Workload(Part):
    name: str = Field(description="preset or workload file")
    input_tokens: Count = Field(description="prompt length, without the shared prefix")
    output_tokens: Count = Field(description="answer length")
    num_prompts: Count = Field(description="requests of one sample")
    concurrency: Count | None = Field(default=None, description="requests in flight")
    rate_requests_s: Number | None = Field(default=None, description="arrivals a second, Poisson")
    loads: list[Number] | None = Field(default=None, description="all that each launch measured; the highest stands above")
    length_spread: Number = Field(description="lengths vary by this fraction both ways")
    shared_prefix_tokens: Count = Field(description="first tokens that all prompts of a sample share")
    warmup_prompts: Count = Field(description="uncounted requests before the first sample; 0: as many as fit the load")
    preemptions: str | None = Field(default=None, description="allowed: running out of KV cache is what it is for")
    client_processes: Count | None = Field(default=None, description="that sent the load together")
    seeds: list[int] = Field(description="seeds of the samples behind `measured`")
    source: str = Field(description="where the lengths come from")


class FrontEntry(Part):
    """A point of the Pareto front."""

    candidate: str = Field(description="settings in one line")
    values: dict[str, Number] = Field(description="metric and its mean in the search")
    recommended: bool = Field(description="whether it is the recommended one")
    why: str | None = Field(default=None, description="why it is recommended")


class Goal(Part):
    metric: str = Field(description="the figure that was optimised")
    better: str = Field(description="more or less")
    secondary: list[str] | None = Field(default=None, description="figures that were optimised with it")
    slo: list[str] | None = Field(
        default=None, description="limits for a request: pN, the share of requests that must be within"
    )
    find_load: str | None = Field(
        default=None, description="the load that was raised on each launch as far as the SLO was met"
    )
    front: list[FrontEntry] | None = Field(
        default=None, description="Pareto front of the search: no candidate is better than these in every figure"
    )


class Cost(Part):
    metric: str = Field(description="figure that got worse")
    ratio: Ratio = Field(description="challenger over default, not oriented")
    proven: bool | None = Field(default=None, description="false: measured, but the interval does not exclude that it is luck")
    load: Number | None = Field(default=None, description="at which it got worse, where the workload has several")


class FinalistEntry(Part):
    candidate: str = Field(description="settings in one line")
    outcome: Decision = Field(description="what its fresh launches say")
    launches: Count = Field(description="pairs of fresh launches with the default")
    ratio: Ratio | None = Field(default=None, description="as decision.ratio")
    failed: str | None = Field(default=None, description="why it cannot win: a fresh launch failed, or its proof")


class OtherObjective(Part):
    metric: str = Field(description="a figure that was optimised with the first one")
    standing: str = Field(description="better, worse, same (within the noise) or unclear, on the fresh launches")
    ratio: Ratio | None = Field(default=None, description="challenger over default, above 1 is better")


class DecisionPart(Part):
    outcome: Decision = Field(description="improved, keep-defaults or inconclusive")
    reason: str = Field(description="why, in one sentence")
    challenger: str | None = Field(
        default=None, description="candidate that was compared with the default, in one line"
    )
    ratio: Ratio | None = commented("challenger over default on the objective, oriented so that more than 1 is better")
    launches_per_arm: Count = Field(description="fresh launches of each side")
    noise_percent: Number | None = commented("relative standard deviation between the default's fresh launches")
    noise_not_measured: str | None = Field(default=None, description="why noise_percent is missing")
    smallest_gain_percent: Number | None = commented("gain that these launches could have shown")
    others: list[OtherObjective] | None = commented("the same for the objectives after the first")
    costs: list[Cost] | None = commented("what else got worse on the challenger, as challenger over default")
    finalists: list[FinalistEntry] | None = commented("all candidates that were launched afresh")


class Output(Part):
    """The output gate's judgement (docs/output-gate.md)."""

    passed: bool | None = Field(default=None, description="null: it could not be judged")
    reason: str | None = Field(default=None, description="why not, in one sentence")
    distance: dict[str, Number] | None = Field(
        default=None, description="to the default's answers: 0 equal, 1 unrelated"
    )
    limit: dict[str, Number] | None = Field(default=None, description="above which a candidate fails")
    noise: dict[str, Number] | None = Field(default=None, description="the default against itself")
    equal_text: Number | None = Field(default=None, description="share of greedy tokens before the first difference")
    notes: list[str] | None = Field(default=None, description="what could not be judged")


class OutputSides(Part):
    default: Output | None = Field(default=None, description="the default against its own launches")
    tuned: Output | None = Field(default=None, description="the settings in `serve` against the default")
    challenger: Output | None = Field(default=None, description="the candidate that was not chosen against the default")


class Proof(Part):
    """What the winner stood before it was recommended."""

    soak_s: Number = Field(description="seconds of load, sample after sample")
    soak_samples: Count = Field(description="samples in that time, all valid")
    output_tok_s_first: Number = Field(description="first sample of the soak")
    output_tok_s_last: Number = Field(description="last sample of the soak")
    memory_free_percent: Number | None = Field(default=None, description="free afterwards, on the fullest GPU")
    cold_start_s: Number | None = Field(default=None, description="first start, with empty caches")
    second_start_s: Number | None = Field(default=None, description="start on the code that the first one compiled")
    quality: Number | None = Field(default=None, description="score of the quality command")
    quality_default: Number | None = Field(default=None, description="the same, of the default")


class Serve(Part):
    args: Options = Field(description="options of `vllm serve`, without the dashes")
    env: Env = Field(description="environment variables; ${NAME} stands for a secret")
    command: str = Field(description="the same as one command line; args and env must agree with it")

    @model_validator(mode="after")
    def _agrees(self) -> Serve:
        line = parse_line(self.command)
        # Both through the parser of today, so that a file written by an older one still agrees with itself.
        ours, theirs = normal_options(self.args), normal_options(line.options())
        differing = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
        differing += sorted(n for n in {*self.env, *line.env} if self.env.get(n) != line.env.get(n))
        if differing:
            raise ValueError(f"command disagrees with args and env on: {', '.join(differing)}")
        object.__setattr__(self, "command", format_line(line))  # one spelling, however the file breaks its lines
        return self

    def line(self) -> ServeLine:
        return parse_line(self.command)


class StartParts(Part):
    launches: Count = Field(description="starts behind these medians")
    total_s: Number = Field(description="from starting the process to its first token")
    imports_s: Number | None = Field(default=None, description="interpreters, imports, configuration")
    load_s: Number | None = Field(default=None, description="weights")
    compile_s: Number | None = Field(default=None, description="torch.compile")
    capture_s: Number | None = Field(default=None, description="CUDA graphs")
    kernels_s: Number | None = Field(default=None, description="autotuner, warm-up and builds of kernels")
    rest_s: Number | None = Field(default=None, description="all else")


class LeftBehind(Part):
    stops: Count = Field(description="stops after which processes had to be killed")
    of: Count = Field(description="stops of all its launches")
    example: str = Field(description="one of the processes")


class AtLoad(Part):
    """Figures of one candidate at one of several loads."""

    load: Number = Field(description="requests in flight, or arrivals a second")
    output_tok_s: Figure = Field(description="tokens out a second, all requests together")
    ttft_p50_ms: Figure | None = Field(default=None, description="time to the first token, median")
    ttft_p99_ms: Figure | None = Field(default=None, description="the same, 99th percentile")
    tpot_p50_ms: Figure | None = Field(default=None, description="time per output token after the first, median")
    tpot_p99_ms: Figure | None = Field(default=None, description="the same, 99th percentile")


class Side(Part):
    """Figures of one candidate; where the workload has several loads, geometric means over them."""

    phase: str = Field(description="confirm: fresh launches; search: no confirmation was run")
    launches: Count = Field(description="launches behind each figure")
    samples: Count = Field(description="benchmark runs on those launches")
    output_tok_s: Figure = Field(description="tokens out a second, all requests together")
    input_tok_s: Figure = Field(description="tokens in a second")
    requests_s: Figure = Field(description="requests a second")
    goodput_requests_s: Figure | None = Field(
        default=None, description="requests a second within every limit of the SLO"
    )
    slo_percent: Figure | None = Field(default=None, description="share of the requests within every limit, percent")
    load: Figure | None = Field(
        default=None, description="highest load that met the SLO: in flight, or requests a second"
    )
    loads: list[AtLoad] | None = Field(default=None, description="the same at each load, where there are several")
    ttft_p50_ms: Figure | None = Field(default=None, description="time to the first token, median")
    ttft_p99_ms: Figure | None = Field(default=None, description="the same, 99th percentile")
    tpot_p50_ms: Figure | None = Field(
        default=None, description="time per output token after the first, median over requests"
    )
    tpot_p99_ms: Figure | None = Field(default=None, description="the same, 99th percentile")
    itl_p50_ms: Figure | None = Field(default=None, description="time between tokens, median over tokens")
    itl_p99_ms: Figure | None = Field(default=None, description="the same, 99th percentile")
    e2el_p50_ms: Figure | None = Field(default=None, description="whole request, median")
    e2el_p99_ms: Figure | None = Field(default=None, description="the same, 99th percentile")
    start_s: Figure | None = Field(default=None, description="from starting the process to its first token")
    start_cold: StartParts | None = commented("starts that compiled anew, seconds; parts as the log gives them")
    start_warm: StartParts | None = commented("starts that found their compiled code, or had nothing to compile")
    graph_memory_gib: Number | None = Field(default=None, description="memory of the CUDA graphs, median over launches")
    kv_cache_tokens: Count | None = Field(default=None, description="tokens the KV cache holds, median over launches")
    prefix_hit_ratio: Number | None = Field(default=None, description="prompt tokens served from the prefix cache")
    left_behind: LeftBehind | None = commented("processes that outlived their server and had to be killed")


class Running(Part):
    """What the server's log and /metrics page say that it ran."""

    attention_backends: list[str] = Field(description="attention backends in use")
    flash_attention_version: int | None = Field(default=None, description="FlashAttention version")
    compilation_mode: str | None = Field(default=None, description="torch.compile mode")
    cudagraph_mode: str | None = Field(default=None, description="CUDA-graph mode")
    capture_sizes: list[int] | None = Field(default=None, description="captured batch sizes, tokens")
    enforce_eager: bool | None = Field(default=None, description="eager mode")
    model_runner: str | None = Field(default=None, description="V1 or V2")
    block_size: Count | None = Field(default=None, description="tokens of a block of the KV cache")
    kv_cache_dtype: str | None = Field(default=None, description="type of the KV cache; auto: the model's own")
    prefix_caching: bool | None = Field(default=None, description="prefix caching")
    decode_modes: dict[str, Number] | None = Field(default=None, description="share of decode steps by kind of graph")
    rewrites: list[str] | None = Field(default=None, description="settings that vLLM says it changed")
    notes: list[str] | None = Field(
        default=None, description="where what ran differs from what was asked for or resolved"
    )
    varies: list[str] | None = Field(default=None, description="fields in which a later launch differed from this one")


class Measured(Part):
    default: Side | None = Field(default=None, description="what the person serves today")
    tuned: Side | None = Field(default=None, description="the settings in `serve`, proven better")
    challenger: Side | None = Field(default=None, description="the best other candidate: NOT recommended")


class ActiveSides(Part):
    default: Running | None = Field(default=None, description="the default's launches")
    tuned: Running | None = Field(default=None, description="launches with the settings in `serve`")
    challenger: Running | None = Field(default=None, description="launches of the candidate that was not chosen")


class Tried(Part):
    candidate: str = Field(description="settings in one line")
    state: Outcome = Field(description="ok, or how its last launch ended")
    score: Number | None = Field(default=None, description="mean of objective.metric over its launches")
    launches: Count = Field(description="launches of it")
    ran_as: str | None = Field(default=None, description="settings that ran instead; the figure counts for those")
    dropped: str | None = Field(default=None, description="why it was not measured in full; the score is an estimate from that")


class Rejected(Part):
    state: str = Field(description="outcome of the launches, or not_launched")
    reason: str = Field(description="why")
    count: Count = Field(description="candidates or launches with this reason")
    examples: list[str] = Field(description="up to three of them")


class Study(Part):
    name: str = Field(description="name of the study")
    created_at: str = Field(description="start, ISO 8601, UTC")
    serve_args: str = Field(description="what the person gave with --serve-args: part of the default too")
    serve_env: Env = Field(description="what the person gave with --env: part of the default too")
    space: str | None = Field(default=None, description="name of the search space; of a person's own file NAME.yaml")
    launches: Count = Field(description="servers launched")
    launches_by_phase: dict[str, Count] = Field(
        description="baseline, search, confirm; soak, restart, quality: the proof"
    )
    outcomes: dict[Outcome, Count] = Field(description="launches by how they ended")
    elapsed_min: Number = Field(description="wall time, minutes")
    gpu_min: Number = Field(description="minutes of launches times GPUs")
    candidates: list[Tried] = Field(description="tried, best first; those without fresh launches flatter the best")
    rejected: list[Rejected] = Field(description="not usable or not launched, by reason")


class Profile(Part):
    schema_: Annotated[str, AfterValidator(_known_schema)] = Field(alias="schema", description="kind and version")
    model: Model = Field(description="What was served.")
    gpu: Gpu = Field(description="Where it was measured.")
    software: Software = Field(description="Versions it was measured with.")
    workload: Workload = Field(description="Requests and load.")
    objective: Goal = Field(description="What was optimised.")
    decision: DecisionPart = Field(description="What the fresh launches say.")
    serve: Serve = Field(description="What to serve with.")
    measured: Measured = Field(description="Mean over launches, with the 95% interval of that mean.")
    active: ActiveSides = Field(description="What ran, as the servers' logs state it.")
    output: OutputSides | None = Field(
        default=None, description="Whether the answers are right, as far as fixed prompts tell."
    )
    proof: Proof | None = Field(default=None, description="What the settings stood before they were recommended.")
    study: Study = Field(description="What it took.")

    @model_validator(mode="before")
    @classmethod
    def _older_versions(cls, data: Any) -> Any:
        return upgraded(data)

    @model_validator(mode="after")
    def _names_match_decision(self) -> Profile:
        for part, sides in (("measured", self.measured), ("active", self.active)):
            wrong = "challenger" if self.decision.outcome is Decision.IMPROVED else "tuned"
            if getattr(sides, wrong) is not None:
                raise ValueError(f"{part}.{wrong} does not belong to the decision {self.decision.outcome.value!r}")
        return self

    def other_side(self) -> tuple[str, Side | None]:
        """`tuned` or `challenger` and its figures: what the default was compared with."""
        name = "tuned" if self.decision.outcome is Decision.IMPROVED else "challenger"
        return name, getattr(self.measured, name)
