"""The graph side of resolution.py: modes, what the model runner makes of them, and the capture list."""

from __future__ import annotations

from collections.abc import Mapping

from advisor.engine.capture import CaptureList, CaptureRequest, capture_list, with_model_default
from advisor.engine.rules import legality
from advisor.engine.rules.backend_choice import Choice
from advisor.engine.rules.backend_table import UNKNOWN, Version
from advisor.engine.rules.batch_defaults import BatchLimits
from advisor.engine.rules.deployment import Deployment
from advisor.engine.rules.graph_modes import (
    COMPILED,
    NONE,
    Asked,
    Modes,
    Rewrite,
    configured,
    configured_on_cpu,
    rewritten_mode,
)
from advisor.engine.rules.graph_obstacles import Case, past_obstacles, sequence_parallel_on
from advisor.engine.rules.graph_support import with_context_parallel, with_recurrent
from advisor.engine.rules.requested import Requested
from advisor.engine.rules.resolution_notes import Machine, Notes
from advisor.records import Finding, ModelFacts

_BREAKABLE = "VLLM_USE_BREAKABLE_CUDAGRAPH"
# Model classes without torch.compile support, for which breakable graphs are on unless the variable says otherwise.
_BREAKABLE_MODELS = ("DeepseekV4", "DeepSeekV4", "Inkling", "MiniMaxM3Sparse")


def resolved_modes(
    asked: Requested,
    spread: Deployment,
    env: Mapping[str, str],
    version: Version,
    machine: Machine,
    model: ModelFacts | None,
    v2: bool | None,
    notes: Notes,
) -> Modes:
    breakable = _breakable(env, version, model)
    no_compile = "breakable-graphs" if breakable else None
    if env.get("TORCH_COMPILE_DISABLE") == "1" and version >= (0, 20, 2):
        no_compile = "torch-compile-disable"
    wanted = Asked(
        version=version,
        level=asked.level,
        compilation=asked.compilation,
        graphs=asked.graphs,
        eager=asked.eager,
        no_compile=no_compile,
        breakable=breakable,
        runner_v2=v2,
        split=asked.split,
    )
    if machine.platform == "cpu":
        return configured_on_cpu(wanted)
    modes = configured(wanted)
    notes.findings.extend(Finding("warning", "graph-mode-rewritten", *said) for said in modes.rewrites)
    if modes.refusal:
        notes.refuse("graph-mode-refused", f"vLLM refuses it: {modes.refusal}", "leave cudagraph_mode or the mode out")
        return modes
    modes, findings = past_obstacles(modes, obstacles_for(asked, spread, version, machine, model, v2, breakable))
    notes.findings.extend(findings)
    return modes


def obstacles_for(
    asked: Requested,
    spread: Deployment,
    version: Version,
    machine: Machine,
    model: ModelFacts | None,
    v2: bool | None,
    breakable: bool = False,
) -> Case:
    return Case(
        version=version,
        deployment=spread,
        platform=machine.platform,
        mode_given=asked.graphs is not None,
        runner_v2=bool(v2),
        sequence_parallel=sequence_parallel(asked, spread, version, machine, model),
        breakable=breakable,
        recurrent=bool(model and model.recurrent in ("mamba", "gated-delta")),
    )


def sequence_parallel(
    asked: Requested, spread: Deployment, version: Version, machine: Machine, model: ModelFacts | None
) -> bool:
    hidden = model.hidden_size if model else None
    return sequence_parallel_on(
        asked.sequence_parallel, asked.tensor_parallel, spread.sequence_parallel_from, hidden, machine.capability, version
    )


def _breakable(env: Mapping[str, str], version: Version, model: ModelFacts | None) -> bool:
    if version < (0, 22, 1):
        return False
    if _BREAKABLE in env:
        return env[_BREAKABLE].strip().lower() in ("1", "true")
    return bool(model and version >= (0, 23) and model.architecture.startswith(_BREAKABLE_MODELS))


def runner_rewrite(
    asked: Requested,
    spread: Deployment,
    version: Version,
    machine: Machine,
    model: ModelFacts | None,
    choice: Choice,
    modes: Modes,
    notes: Notes,
) -> tuple[str, Rewrite]:
    """(what the backend's graphs can hold, what the model runner makes of the graph mode)."""
    if machine.platform == "cpu":
        return "NEVER", Rewrite(NONE)
    flash = legality.flash_attention_version(version, machine.capability, asked.flash_attention_version)
    support = UNKNOWN
    if choice.name is not None:
        support = legality.graph_support(choice.name, version, flash, machine.capability)
        support = with_context_parallel(support, choice.name, spread.decode_context_parallel, version)
    if support == UNKNOWN and modes.graphs != NONE:
        notes.assumed.append(
            f"What graphs {choice.name or 'the backend'} can be captured in is not known: no rewriting is assumed."
        )
    recurrent = model.recurrent if model else None
    least = with_recurrent(support, recurrent, version)
    name = choice.name or "the backend"
    name = name if least == support else f"a model with {recurrent} layers"
    speculative, split = asked.speculative_method is not None, asked.split and modes.split
    rewrite = rewritten_mode(
        modes.graphs, least, version, modes.compilation == COMPILED, speculative, split, backend=name
    )
    if rewrite.refused:
        message = f"vLLM stops while it starts: {rewrite.reason}"
        notes.findings.append(
            Finding("error", "graph-mode-refused", message, "cudagraph_mode PIECEWISE, or another backend")
        )
    elif rewrite.reason:
        message = f"{modes.graphs} becomes {rewrite.mode}: {rewrite.reason}"
        fix = f"ask for {rewrite.mode}, or choose another backend"
        notes.findings.append(Finding("warning", "graph-mode-rewritten", message, fix))
    return least, rewrite


def captured_sizes(
    asked: Requested,
    version: Version,
    machine: Machine,
    limits: BatchLimits,
    modes: Modes,
    rewrite: Rewrite,
    v2: bool | None,
    parallel: bool,
    architecture: str | None,
    notes: Notes,
    old_engine: bool = False,
) -> CaptureList | None:
    """`parallel`: sequence parallelism is in effect. `old_engine`: V0 runs."""
    if machine.platform == "cpu":  # the maximum stays as given, though nothing reads it
        reset = modes.origins["cudagraph_mode"] == "rewrite:piecewise-needs-compilation"
        return CaptureList((), 0, configured_maximum=0 if reset else asked.maximum)  # type: ignore[arg-type]
    batch = limits.max_num_batched_tokens or (limits.max_num_seqs if old_engine else None)  # V0's list does not depend on it
    if limits.max_num_seqs is None or batch is None or limits.refusal:
        return None
    tokens = (asked.speculative_tokens or 1) if asked.speculative_method else 0
    if tokens and v2 is None:
        notes.assumed.append(
            "The model decides between model runner V1 and V2: V1's rounding of capture sizes is assumed."
        )
    request = with_model_default(
        CaptureRequest(
            version=version,
            max_num_seqs=limits.max_num_seqs,
            max_num_batched_tokens=batch,
            speculative_tokens=tokens,
            tensor_parallel=asked.tensor_parallel,
            sequence_parallel=parallel,
            sizes=asked.sizes,
            maximum=asked.maximum,
            performance_mode=asked.performance_mode,
            compute_capability=machine.capability,
            runner_v2=bool(v2),
            cudagraph_mode=rewrite.mode,
            sizes_by_flag=asked.sizes_by_flag,
            enforce_eager=asked.eager,
            old_engine=old_engine,
        ),
        architecture,
    )
    captured = capture_list(request)
    notes.findings.extend(captured.findings)
    if captured.refused:
        notes.refused.extend(item.message for item in captured.findings if _early(item))
    return captured


def _early(finding: Finding) -> bool:
    """Whether vLLM notices it while it builds its configuration, and not only once the model is loaded."""
    return finding.severity == "error" and finding.code in (
        "capture-list-and-maximum-disagree",
        "capture-maximum-below-one",
        "capture-list-empty",
    )
