"""What a command comes to, by rules: for a vLLM that is not installed, or no engine at hand. Pure; answers in milliseconds.

The final values are what will run as far as it can be said beforehand. `cudagraph_mode_in_config` and
`cudagraph_capture_sizes_in_config` are what vLLM's configuration holds before it has loaded the model and chosen a backend:
that is what `create_engine_config()` shows. What the rules do not know is None and has a sentence in `assumed`.
"""

from __future__ import annotations

from collections.abc import Mapping

from advisor.engine.options import ServeOptions
from advisor.engine.rules import legality, old_engine_values
from advisor.engine.rules.backend_choice import Choice, Surroundings, asked_backend, checked_against, with_fitting_names
from advisor.engine.rules.backend_table import UNKNOWN, Version
from advisor.engine.rules.batch_defaults import BatchLimits, batch_limits, default_tier
from advisor.engine.rules.deployment import batches_in_halves_refused, read_deployment
from advisor.engine.rules.graph_modes import Rewrite
from advisor.engine.rules.inert import inert_settings
from advisor.engine.rules.model_runner import runner_v2
from advisor.engine.rules.old_engine import Command, Engine, engine_of
from advisor.engine.rules.old_engine_values import chunks_prefill, old_limits
from advisor.engine.rules.requested import Reader, Requested, read_request
from advisor.engine.rules.resolution_graphs import captured_sizes, resolved_modes, runner_rewrite, sequence_parallel
from advisor.engine.rules.resolution_notes import (
    BFLOAT16_SINCE,
    Machine,
    Notes,
    assume_model,
    machine_of,
    origins_of,
    remark,
)
from advisor.engine.versions import version_text
from advisor.records import Finding, ModelFacts, Resolved

__all__ = ["inert_settings", "resolve_by_rules"]

_CPU_BACKEND_SINCE = (0, 11, 2)


def resolve_by_rules(
    options: ServeOptions,
    env: Mapping[str, str],
    version: Version,
    *,
    compute_capability: tuple[int, int] | None = None,
    gpu_memory_gib: float | None = None,
    platform: str = "cuda",
    model: ModelFacts | None = None,
) -> Resolved:
    """Resolved values, origins, findings and assumptions for the API server (`vllm serve`).

    `values["refused"]` lists why vLLM would not even build its configuration; empty where it would. Without a GPU an
    H100 is assumed, without a model a dense decoder with head size 128 in bfloat16; both are said in `assumed`.
    """
    notes = Notes()
    asked = read_request(options, env, version)
    for problem in asked.problems:
        notes.refuse(problem.code, problem.message, problem.fix)
    machine = machine_of(platform, compute_capability, gpu_memory_gib, version, notes)
    spread = read_deployment(options, env, version, model)
    command = Command(version, asked, Reader(options, version), env, spread, machine.capability, model)
    engine = _engine(command, machine.platform, notes)
    assume_model(model, asked, spread.pooling, notes)
    limits = _limits(command, engine, machine, notes)
    if machine.platform == "cuda" and (problem := batches_in_halves_refused(spread, version)):
        notes.refuse(problem.code, problem.message, problem.fix)
    choice = _backend(options, command, engine, machine, notes)
    v2 = _runner(asked, env, version, machine, model)
    if engine.old and machine.platform != "cpu":
        modes = old_engine_values.old_modes(command)
        notes.assumed += old_engine_values.told(command, modes)
        support, rewrite = UNKNOWN, Rewrite(modes.graphs)
    else:
        modes = resolved_modes(asked, spread, env, version, machine, model, v2, notes)
        support, rewrite = runner_rewrite(asked, spread, version, machine, model, choice, modes, notes)
    architecture = model.architecture if model else None
    parallel = sequence_parallel(asked, spread, version, machine, model)
    captured = captured_sizes(asked, version, machine, limits, modes, rewrite, v2, parallel, architecture, notes, engine.old)
    remark(options, asked, version, machine, modes, notes)
    values = {
        "engine": engine.name,
        "optimization_level": modes.level,
        "compilation_mode": modes.compilation,
        "cudagraph_mode": rewrite.mode,
        "cudagraph_capture_sizes": list(captured.sizes) if captured else None,
        "max_cudagraph_capture_size": captured.maximum if captured else None,
        "attention_backend": choice.name,
        "enforce_eager": asked.eager,
        "max_num_seqs": limits.max_num_seqs,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        "max_model_len": asked.max_model_len or (model.max_length if model else None),
        "performance_mode": asked.performance_mode if version >= (0, 17, 1) else None,
        "speculative_tokens": asked.speculative_tokens if asked.speculative_method else 0,
        "tensor_parallel_size": asked.tensor_parallel,
        "sequence_parallel": parallel,
        "kv_cache_dtype": asked.kv_cache_dtype,
        "model_runner": {True: "V2", False: "V1", None: None}[v2],
        "graph_support": support,
        "cudagraph_mode_in_config": "NONE" if engine.old else modes.graphs,
        "cudagraph_capture_sizes_in_config": list(captured.configured) if captured else None,
        "max_cudagraph_capture_size_in_config": captured.configured_maximum if captured else None,
        "refused": notes.refused,
    }
    origins = {"engine": engine.origin, **origins_of(asked, modes, rewrite, limits, choice, machine)}
    return Resolved(version_text(version), "rules", values, origins, tuple(notes.findings), tuple(notes.assumed))


# ---------------------------------------------------------------- steps


def _engine(command: Command, platform: str, notes: Notes) -> Engine:
    engine = engine_of(command, platform)
    if engine.refusal:
        notes.refuse("old-engine", f"vLLM {version_text(command.version)} refuses it: {engine.refusal}", engine.instead)
    if engine.old:
        effect = "it compiles nothing that is not asked for, and has a batch and a capture list of its own"
        notes.findings.append(Finding("warning", "old-engine", f"{engine.reason}: {effect}", engine.instead))
        if platform == "cuda" and command.spread.pooling:
            notes.assumed.append("A pooling model on the V0 engine: whether its graphs run is not in the rules.")
        if platform != "cuda":
            notes.assumed.append(f"The V0 engine was read for CUDA: what it does on {platform} is not known.")
    return engine


def _limits(command: Command, engine: Engine, machine: Machine, notes: Notes) -> BatchLimits:
    asked, env, version, model = command.asked, command.env, command.version, command.model
    length = asked.max_model_len or (model.max_length if model else None)
    allowed = env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0").strip().lower() in ("1", "true")
    if model and asked.max_model_len and asked.max_model_len > model.max_length and not allowed:
        notes.refuse(
            "max-model-len-above-model",
            f"vLLM refuses --max-model-len {asked.max_model_len}: the model's config allows {model.max_length} tokens",
            "lower it",
        )
    batched = command.spread.batched_experts
    if engine.old and machine.platform != "cpu":
        limits = old_limits(command, length)
    else:
        limits = batch_limits(
            version,
            default_tier(version, machine.platform, machine.memory_gib, machine.capability, batched),
            seqs=asked.max_num_seqs,
            tokens=asked.max_num_batched_tokens,
            workers=asked.tensor_parallel * asked.pipeline_parallel,
            throughput=asked.performance_mode == "throughput",
            model_length=length,
            chunked_prefill=asked.chunked_prefill is not False,
        )
    if limits.max_num_seqs is not None and limits.max_num_batched_tokens is None:
        notes.assumed.append("max_num_batched_tokens depends on the model's length here, which is not known.")
    elif limits.max_num_seqs is None or limits.max_num_batched_tokens is None:
        notes.assumed.append(f"The default batch of vLLM {version_text(version)} on {machine.platform} is not known.")
    if limits.refusal:
        notes.refuse(
            "batched-tokens-below-seqs",
            f"vLLM refuses it: {limits.refusal}",
            "raise --max-num-batched-tokens or lower --max-num-seqs",
        )
    tokens = limits.max_num_batched_tokens
    whole = not chunks_prefill(command, length) if engine.old else asked.chunked_prefill is False
    if whole and asked.max_num_batched_tokens and length and tokens and tokens < length:
        notes.refuse(
            "batched-tokens-below-length",
            f"vLLM refuses it: without chunked prefill a prompt of {length} tokens does not fit {tokens} batched tokens",
            f"--max-num-batched-tokens {length}, a lower --max-model-len, or --enable-chunked-prefill",
        )
    return limits


def _backend(
    options: ServeOptions, command: Command, engine: Engine, machine: Machine, notes: Notes
) -> Choice:
    asked, env, version, model = command.asked, command.env, command.version, command.model
    choice = asked_backend(options, env, version)
    if choice.refused:
        notes.refused.append(choice.findings[-1].message)
    if machine.platform == "cpu":
        return _cpu_backend(choice, version, notes)
    if machine.platform != "cuda":
        notes.findings.extend(choice.findings)
        return choice
    if choice.name is None:
        notes.assumed.append(
            "The backend is vLLM's own choice for an ordinary decoder; its packages are taken as present."
        )
    if engine.old:
        around = _surroundings(asked, version, machine, model)
        notes.findings.extend(with_fitting_names(choice.findings, around))
        return old_engine_values.old_backend(choice, around, model, asked.flash_attention_version)
    if version < legality.CHECKED_SINCE:
        notes.assumed.append("Before 0.11.2 backends do not state what they need: the needs of 0.11.2 are taken.")
    around = _surroundings(asked, version, machine, model)
    if around.sparse and choice.name is None and not legality.sparse_order(version, machine.capability):
        notes.assumed.append(
            "The backend of a model with sparse MLA is not in the rules for this GPU and release: it is left open."
        )
    found = checked_against(choice, around)
    notes.findings.extend(found.findings)
    return found


def _cpu_backend(choice: Choice, version: Version, notes: Notes) -> Choice:
    own = "CPU_ATTN" if version >= _CPU_BACKEND_SINCE else "TORCH_SDPA"
    notes.findings.extend(choice.findings)
    notes.assumed.append("On a CPU the backend of models with ordinary attention is named; MLA models get another.")
    if choice.name in (None, own):
        return Choice(own, choice.origin, choice.findings, choice.refused)
    message = f"on a CPU vLLM takes {own} instead of {choice.name}, with no more than a log line"
    notes.findings.append(Finding("warning", "backend-invalid", message, "leave the backend out"))
    return Choice(own, "rewrite:cpu", choice.findings, choice.refused)


def _surroundings(asked: Requested, version: Version, machine: Machine, model: ModelFacts | None) -> Surroundings:
    given = asked.dtype if asked.dtype not in (None, "auto") else None
    dtype = given or (model.dtype if model else None) or "bfloat16"
    if given is None and dtype == "bfloat16" and machine.capability < BFLOAT16_SINCE:
        dtype = "float16"  # vLLM's own fallback, with a warning in the log
    return Surroundings(
        version=version,
        compute_capability=machine.capability,
        # vLLM serves float32 checkpoints in half precision unless it is told to keep them.
        dtype="bfloat16" if given is None and dtype == "float32" else dtype,
        kv_cache_dtype=_cache_dtype(asked, version, model),
        block_size=asked.block_size,
        # MLA kernels see another head size than the config's: not judged.
        head_size=128 if model is None else None if model.mla else model.head_size,
        mla=bool(model and model.mla),
        sinks=bool(model and model.architecture.startswith("GptOss")),
        sparse=bool(model and model.sparse),
    )


def _cache_dtype(asked: Requested, version: Version, model: ModelFacts | None) -> str:
    """DeepSeek-V3.2's own reading of --kv-cache-dtype (`models/config.py`): until 0.17.1 fp8 means its own format."""
    given = asked.kv_cache_dtype
    if model is None or model.architecture != "DeepseekV32ForCausalLM":
        return given
    if given.startswith("fp8") and version < (0, 18, 1):
        return "fp8_ds_mla"
    return "auto" if given == "bfloat16" else given


def _runner(
    asked: Requested, env: Mapping[str, str], version: Version, machine: Machine, model: ModelFacts | None
) -> bool | None:
    if machine.platform == "cpu":
        return None
    return runner_v2(
        version,
        env,
        architecture=model.architecture if model else None,
        experts=bool(model.experts) if model else None,
        quantised=bool(model.quantization) if model else None,
        speculative_method=asked.speculative_method,
        compilation=asked.compilation,
    )
