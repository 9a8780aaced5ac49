"""Which decode batches of a command the rules foretell to run in FULL graphs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.engine.capture import CaptureRequest, Coverage, coverage
from advisor.engine.options import ServeOptions
from advisor.engine.rules.requested import Requested, read_request
from advisor.engine.rules.resolution import resolve_by_rules
from advisor.engine.versions import known_version
from advisor.records import Active, Facts


@dataclass(frozen=True)
class Foretold:
    """Coverage of a launch's decode batches, and the tokens of one request in them (more than one with speculation)."""

    coverage: Coverage | None
    query_length: int
    max_num_seqs: int | None


def foretell(
    options: ServeOptions, env: Mapping[str, str], facts: Facts, resolved: Mapping[str, Any], active: Active
) -> Foretold:
    """What a running server's capture list covers, before any step is counted.

    Sizes, modes and limits are those that the server says it runs, where it says so, then what vLLM resolved, then the rules.
    """
    version, _ = known_version(facts.engine.vllm_version)
    gpu = facts.gpu
    capability = tuple(map(int, gpu.compute_capability.split("."))) if gpu.compute_capability else None
    rules = resolve_by_rules(
        options, env, version,
        compute_capability=capability, gpu_memory_gib=gpu.memory_gib, platform=facts.engine.platform, model=facts.model,
    ).values  # fmt: skip
    told = {
        "cudagraph_mode": active.cudagraph_mode,
        "enforce_eager": active.enforce_eager,
        "model_runner": active.model_runner,
    }
    known = {name: resolved.get(name) for name in ("max_num_seqs", "max_num_batched_tokens")}
    values = {**rules, **_given(known), **_given(told)}
    if active.capture_sizes is not None and list(active.capture_sizes) != values["cudagraph_capture_sizes_in_config"]:
        values["cudagraph_capture_sizes"] = list(active.capture_sizes)
    asked = read_request(options, env, version)
    found = decode_coverage(asked, values, version, facts.engine.platform, capability)
    return Foretold(found, 1 + speculative_tokens(asked, values), values.get("max_num_seqs"))


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def speculative_tokens(asked: Requested, values: Mapping[str, Any]) -> int:
    """Tokens that the drafter proposes for one request; 1 where the model decides and nobody says."""
    return values.get("speculative_tokens") or (1 if asked.speculative_method else 0)


def decode_coverage(
    asked: Requested,
    values: Mapping[str, Any],
    version: tuple[int, ...],
    platform: str,
    capability: tuple[int, int] | None,
) -> Coverage | None:
    """Coverage by resolved `values`; None where nothing is captured by intent (a CPU) or the batch is not known."""
    request, sizes = (
        capture_request(asked, values, version, platform, capability),
        values.get("cudagraph_capture_sizes"),
    )
    return None if request is None or sizes is None else coverage(sizes, request)


def capture_request(
    asked: Requested,
    values: Mapping[str, Any],
    version: tuple[int, ...],
    platform: str,
    capability: tuple[int, int] | None,
) -> CaptureRequest | None:
    """All that the capture list depends on, by resolved `values`; None as for decode_coverage."""
    seqs, tokens = values.get("max_num_seqs"), values.get("max_num_batched_tokens")
    old = values.get("engine") == "V0"
    tokens = seqs if old and tokens is None else tokens
    if old and asked.speculative_method:  # what V0 makes one batch of, with drafts, is not in the rules
        return None
    if platform == "cpu" or seqs is None or tokens is None or tokens < seqs:
        return None
    return CaptureRequest(
        version=version,
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        speculative_tokens=speculative_tokens(asked, values),
        tensor_parallel=asked.tensor_parallel,
        sequence_parallel=values.get("sequence_parallel", asked.sequence_parallel),
        sizes=asked.sizes,
        maximum=asked.maximum,
        performance_mode=asked.performance_mode,
        compute_capability=capability or (9, 0),
        runner_v2=values.get("model_runner") == "V2",
        cudagraph_mode=values.get("cudagraph_mode") or "NONE",
        sizes_by_flag=asked.sizes_by_flag,
        enforce_eager=bool(values.get("enforce_eager")),
        old_engine=old,
    )
