"""The parts of resolution.py that only speak: assumptions about what is not given, remarks, and where values came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.engine.options import COMPILATION, ServeOptions
from advisor.engine.rules.backend_choice import Choice
from advisor.engine.rules.backend_table import Version
from advisor.engine.rules.batch_defaults import BatchLimits, small_in_spite_of_memory
from advisor.engine.rules.graph_modes import LEVELS_SINCE, NONE, Modes, Rewrite
from advisor.engine.rules.requested import Requested
from advisor.records import Finding, ModelFacts

ASSUMED_CAPABILITY = (9, 0)
ASSUMED_MEMORY_GIB = 80.0
BFLOAT16_SINCE = (8, 0)  # compute capability


@dataclass
class Notes:
    """What is gathered on the way: findings, assumptions, and why vLLM would refuse the configuration."""

    findings: list[Finding] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def refuse(self, code: str, message: str, fix: str = "") -> None:
        self.findings.append(Finding("error", code, message, fix))
        self.refused.append(message)


@dataclass(frozen=True)
class Machine:
    platform: str
    capability: tuple[int, int]
    memory_gib: float


# ---------------------------------------------------------------- what is not given


def machine_of(
    platform: str, capability: tuple[int, int] | None, memory_gib: float | None, version: Version, notes: Notes
) -> Machine:
    if platform != "cpu":
        missing = [
            text
            for value, text in (
                (capability, f"compute capability {'.'.join(map(str, ASSUMED_CAPABILITY))}"),
                (memory_gib, f"{ASSUMED_MEMORY_GIB:.0f} GiB of GPU memory"),
            )
            if value is None
        ]
        if missing and platform == "cuda":
            notes.assumed.append(f"The GPU is not given: {' and '.join(missing)} is assumed, as on an H100.")
        elif memory_gib is None:
            notes.assumed.append(f"The GPU's memory is not known: {ASSUMED_MEMORY_GIB:.0f} GiB are assumed.")
        if capability is not None and (memory_gib or 0) >= 70 and small_in_spite_of_memory(version, capability):
            notes.assumed.append(
                f"A GPU of compute capability {'.'.join(map(str, capability))} is taken for "
                f"{'an A100' if capability == (8, 0) else 'a GB10'}, whose default batch is that of a small GPU."
            )
    if platform not in ("cuda", "cpu"):
        notes.assumed.append(
            f"The rules were read for CUDA: on {platform} they may differ, and vLLM's own choice of a backend is left open."
        )
    return Machine(platform, capability or ASSUMED_CAPABILITY, memory_gib or ASSUMED_MEMORY_GIB)


def assume_model(model: ModelFacts | None, asked: Requested, pooling: bool, notes: Notes) -> None:
    if model is None:
        notes.assumed.append(
            "The model's config is not given: a dense decoder without MLA and attention sinks, head size 128, in bfloat16 "
            "and longer than the default batch is assumed."
        )
    if pooling:
        notes.assumed.append("It is a pooling server: its backend and its default batch are taken to be those of a decoder.")
    if asked.speculative_method and asked.speculative_tokens is None:
        notes.assumed.append("The number of speculative tokens is not given: 1 is assumed, the model may set more.")


# ---------------------------------------------------------------- things worth saying


def remark(
    options: ServeOptions, asked: Requested, version: Version, machine: Machine, modes: Modes, notes: Notes
) -> None:
    compilation = options.values.get(COMPILATION)
    keys = set(compilation) if isinstance(compilation, Mapping) else set()
    graph_keys = keys & {"cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size"}
    beaten = {"the compilation mode"} if asked.compilation not in (None, modes.compilation) else set()
    if asked.eager and (graph_keys or asked.sizes or asked.maximum or beaten):
        said = ", ".join(sorted(graph_keys | beaten)) or "the capture sizes"
        message = f"--enforce-eager makes {said} inert: the graph mode is {modes.graphs}, the compilation mode {modes.compilation}"
        fix = f"leave --enforce-eager out to have graphs, or leave {said} out"
        notes.findings.append(Finding("warning", "eager-with-graph-settings", message, fix))
    if machine.platform == "cuda" and asked.dtype == "bfloat16" and machine.capability < BFLOAT16_SINCE:
        # The worker's check, in all releases (check_if_supports_dtype since 0.10.2): the configuration is built before it.
        capability = ".".join(map(str, machine.capability))
        message = f"vLLM stops while it starts: bfloat16 needs compute capability 8.0, this GPU has {capability}"
        notes.findings.append(Finding("error", "dtype-not-supported", message, "--dtype half"))
    if asked.level == 3 and version >= LEVELS_SINCE:
        message = "-O3 is the same as -O2, the default, in every release read"
        notes.findings.append(Finding("info", "optimization-o3-equals-o2", message, "leave it out"))
    if asked.warmups is not None:
        message = "vLLM sets cudagraph_num_of_warmups to 1 whenever graphs are on"
        notes.findings.append(Finding("info", "warmups-always-reset", message, "leave it out"))
    if machine.platform == "cpu" and (asked.graphs not in (None, NONE) or asked.sizes or asked.maximum):
        message = "vLLM captures no graphs on a CPU: graph mode and capture sizes have no effect"
        notes.findings.append(Finding("info", "graphs-on-cpu", message, "leave them out"))


def origins_of(
    asked: Requested, modes: Modes, rewrite: Rewrite, limits: BatchLimits, choice: Choice, machine: Machine
) -> dict[str, str]:
    """Where each value came from: default, level, flag, env or rewrite:RULE."""
    origins: dict[str, str] = {
        **modes.origins,
        "enforce_eager": "flag" if asked.eager else "default",
        "attention_backend": choice.origin,
        "max_num_seqs": limits.seqs_origin,
        "max_num_batched_tokens": limits.tokens_origin,
        "cudagraph_capture_sizes": "flag" if asked.sizes is not None or asked.maximum is not None else "default",
        "max_cudagraph_capture_size": "flag" if asked.maximum is not None else "default",
    }
    if rewrite.mode != modes.graphs:
        origins["cudagraph_mode"] = "rewrite:backend-support"
    if rewrite.mode == NONE:
        rule = origins["cudagraph_mode"]
        if origins["cudagraph_capture_sizes"] == "flag":
            origins["cudagraph_capture_sizes"] = origins["max_cudagraph_capture_size"] = "rewrite:no-graphs"
        if machine.platform == "cpu" and rule == "flag":
            origins["cudagraph_mode"] = "rewrite:cpu"
    return origins
