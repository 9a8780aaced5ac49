"""Graph modes that vLLM changes because of the model's kind, how it is spread, or a pass: before it knows the backend. Pure.

Read in `VllmConfig.__post_init__`, `CompilationConfig.set_splitting_ops_for_v1` and `check_and_update_config` of the platforms, in
the releases of versions.py. They stand in the order in which vLLM comes to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from advisor.engine.rules.backend_table import Version
from advisor.engine.rules.deployment import Deployment
from advisor.engine.rules.graph_modes import (
    COMPILED,
    FULL,
    FULL_AND_PIECEWISE,
    FULL_DECODE_ONLY,
    NONE,
    PIECEWISE,
    Modes,
)
from advisor.records import Finding

_FULL = (FULL, FULL_DECODE_ONLY, FULL_AND_PIECEWISE)
_PIECES = (PIECEWISE, FULL_AND_PIECEWISE)
_ANY = (PIECEWISE, *_FULL)
_NEVER_GONE: Version = (10**6,)
# Hidden size from which sequence parallelism is on by itself, by the first number of the compute capability, and since when.
_SP_HIDDEN = {9: (8192, (0, 17, 1)), 10: (8192, (0, 21, 0))}
_SP_CHOSEN_SINCE, _SP_WHOLE_GRAPHS_SINCE, _SP_GONE = (0, 17, 1), (0, 20, 2), (0, 32, 0)


@dataclass(frozen=True)
class Case:
    version: Version
    deployment: Deployment
    platform: str = "cuda"
    mode_given: bool = False  # the person named a graph mode
    runner_v2: bool = False
    sequence_parallel: bool = False  # in effect, see sequence_parallel_on
    breakable: bool = False
    recurrent: bool = False  # the model has layers with a state instead of a KV cache


@dataclass(frozen=True)
class Obstacle:
    """In releases from `since` to before `gone`, graph modes among `modes` become `becomes` where `holds(case)`.

    `compiled`: only with compilation mode VLLM_COMPILE. `unsplit`: attention is no cut in the compiled graph any more.
    """

    rule: str
    why: str
    instead: str
    holds: Callable[[Case], bool]
    modes: tuple[str, ...]
    becomes: str
    since: Version = (0, 9, 0)
    gone: Version = _NEVER_GONE
    compiled: bool = False
    unsplit: bool = False


def _context_parallel(case: Case) -> bool:
    spread, version = case.deployment, case.version
    decode, prefill = spread.decode_context_parallel > 1, spread.prefill_context_parallel > 1
    if case.platform == "rocm":
        return (decode and (0, 13, 0) <= version < (0, 29, 0)) or (prefill and version >= (0, 13, 0))
    return version < (0, 13, 0) and (decode or (prefill and version >= (0, 12, 0)))


def _dynamic_speculation(case: Case) -> bool:
    version, spread = case.version, case.deployment
    kept = (case.runner_v2 and version >= (0, 25, 1)) or (spread.data_parallel > 1 and version >= (0, 26, 0))
    return spread.dynamic_speculation and not kept


def _deepep(case: Case) -> bool:
    """Until 0.13 of every model; then a dense one counts as not data parallel."""
    spread = case.deployment
    dense = spread.experts is False and case.version >= (0, 14, 1)
    return spread.all2all == "deepep_high_throughput" and spread.data_parallel > 1 and not dense


def _pooling_default(case: Case) -> bool:
    return not case.mode_given and (case.deployment.pooling or case.deployment.encoder_decoder)


def _attention_fusion(case: Case) -> bool:
    spread = case.deployment
    return spread.attention_fusion and not spread.graph_partition and not spread.splitting_given


def _sequence_parallel(case: Case) -> bool:
    return case.sequence_parallel and not case.deployment.graph_partition


_DEEPEP_WHY = "DeepEP's high-throughput kernels with data parallelism cannot be captured"
_DEEPEP_FIX = "--all2all-backend deepep_low_latency, or another one"
_ENCODER_WHY = "encoder-decoder models have no such graphs"

OBSTACLES: tuple[Obstacle, ...] = (
    Obstacle(
        "recurrent-layers", "layers with a state get decode graphs by default", "cudagraph_mode: PIECEWISE for the other one",
        lambda case: case.recurrent and not case.mode_given, (PIECEWISE,), FULL_AND_PIECEWISE,
        since=(0, 10, 2), gone=(0, 11, 0), compiled=True,
    ),
    Obstacle(
        "dynamic-speculation", "num_speculative_tokens_per_batch_size changes the length of decode steps",
        "VLLM_USE_V2_MODEL_RUNNER=1 from 0.25.1, or a fixed num_speculative_tokens",
        _dynamic_speculation, _FULL, PIECEWISE, since=(0, 24, 0),
    ),
    Obstacle(
        "context-parallel", "context parallelism has no full graphs here", "ask for PIECEWISE, or leave it out",
        _context_parallel, _FULL, PIECEWISE, since=(0, 11, 2),
    ),
    Obstacle(
        "pooling-model", "pooling and encoder-decoder models get piecewise graphs by default", "nothing: it is the default",
        _pooling_default, _FULL, PIECEWISE, since=(0, 11, 0), gone=(0, 11, 2),
    ),
    Obstacle(
        "pooling-model", "pooling models have no full graphs", "ask for PIECEWISE",
        lambda case: case.deployment.pooling, _FULL, PIECEWISE, since=(0, 11, 2),
    ),
    Obstacle(
        "encoder-decoder", _ENCODER_WHY, "ask for PIECEWISE",
        lambda case: case.deployment.encoder_decoder and not case.deployment.pooling, _FULL, PIECEWISE,
        since=(0, 11, 2), gone=(0, 13, 0),
    ),
    Obstacle(
        "encoder-decoder", _ENCODER_WHY, "ask for FULL_DECODE_ONLY",
        lambda case: case.deployment.encoder_decoder and not case.deployment.pooling,
        (FULL, PIECEWISE, FULL_AND_PIECEWISE), FULL_DECODE_ONLY, since=(0, 13, 0),
    ),
    Obstacle(
        "layerwise-transfer", "LMCache moves the KV cache layer by layer, which no full graph can hold",
        "ask for PIECEWISE, or leave use_layerwise out",
        lambda case: case.deployment.layerwise_transfer, _FULL, PIECEWISE, since=(0, 17, 1),
    ),
    Obstacle(
        "attention-fusion", "fusing attention with quantisation leaves no pieces", "use_inductor_graph_partition: true",
        _attention_fusion, _PIECES, FULL, since=(0, 11, 2), compiled=True, unsplit=True,
    ),
    Obstacle(
        "sequence-parallel", "sequence parallelism compiles the graph as a whole", "use_inductor_graph_partition: true",
        _sequence_parallel, _PIECES, FULL, since=_SP_WHOLE_GRAPHS_SINCE, gone=_SP_GONE, compiled=True, unsplit=True,
    ),
    Obstacle(
        "data-parallel", "this version runs data parallel ranks eagerly", "use 0.9.2 or newer",
        lambda case: case.deployment.data_parallel > 1, _ANY, NONE, gone=(0, 9, 2),
    ),
    Obstacle(
        "deepep-high-throughput", _DEEPEP_WHY, "VLLM_ALL2ALL_BACKEND=deepep_low_latency",
        _deepep, _ANY, NONE, since=(0, 9, 2), gone=(0, 10, 2),
    ),
    Obstacle(
        "deepep-high-throughput", _DEEPEP_WHY, "VLLM_ALL2ALL_BACKEND=deepep_low_latency",
        _deepep, _FULL, PIECEWISE, since=(0, 10, 2), gone=(0, 11, 0),
    ),
    Obstacle("deepep-high-throughput", _DEEPEP_WHY, _DEEPEP_FIX, _deepep, _ANY, NONE, since=(0, 11, 0), gone=(0, 13, 0)),
    Obstacle("deepep-high-throughput", _DEEPEP_WHY, _DEEPEP_FIX, _deepep, _ANY, NONE, since=(0, 13, 0), compiled=True),
    Obstacle(
        "moonep", "MoonEP runs eagerly only", _DEEPEP_FIX,
        lambda case: case.deployment.all2all == "moonep" and case.deployment.data_parallel > 1, _ANY, NONE,
        since=(0, 31, 0),
    ),
)  # fmt: skip


def past_obstacles(modes: Modes, case: Case) -> tuple[Modes, tuple[Finding, ...]]:
    """The modes as vLLM holds them when its configuration is done, and a finding for each change."""
    findings: list[Finding] = []
    for obstacle in OBSTACLES:
        if not _in_the_way(obstacle, modes, case):
            continue
        before, modes = modes.graphs, _past(modes, obstacle, case)
        if before != modes.graphs:
            # A default that loses its graphs for some batches is what everybody gets; no graphs at all is not.
            severity = "warning" if case.mode_given or modes.graphs == NONE else "info"
            message = f"{before} becomes {modes.graphs}: {obstacle.why}"
            findings.append(Finding(severity, "graph-mode-rewritten", message, obstacle.instead))
    return modes, tuple(findings)


def _in_the_way(obstacle: Obstacle, modes: Modes, case: Case) -> bool:
    now = obstacle.since <= case.version < obstacle.gone
    return now and (modes.compilation == COMPILED or not obstacle.compiled) and obstacle.holds(case)


def _past(modes: Modes, obstacle: Obstacle, case: Case) -> Modes:
    split = modes.split and not obstacle.unsplit
    if modes.graphs not in obstacle.modes:
        return replace(modes, split=split)
    # What has no pieces cannot become piecewise: vLLM looks at that after it has looked at the drafts.
    pieces = modes.compilation == COMPILED or case.breakable or obstacle.rule != "dynamic-speculation"
    graphs = obstacle.becomes if obstacle.becomes != PIECEWISE or pieces else NONE
    return replace(modes, graphs=graphs, origins={**modes.origins, "cudagraph_mode": f"rewrite:{obstacle.rule}"}, split=split)


def sequence_parallel_on(
    asked: bool,
    tensor_parallel: int,
    least_tokens: int | None,
    hidden_size: int | None,
    capability: tuple[int, int],
    version: Version,
) -> bool:
    """Whether `enable_sp` takes effect: from 0.17.1 on vLLM drops it for small models and on GPUs it has no threshold for.

    `hidden_size` None: the model is not known, and taken for a large one.
    """
    if not asked or tensor_parallel < 2 or version >= _SP_GONE:
        return False
    if version < _SP_CHOSEN_SINCE or least_tokens is not None:
        return True
    least, since = _SP_HIDDEN.get(capability[0], (0, _NEVER_GONE))
    return version >= since and (hidden_size is None or hidden_size >= least)
