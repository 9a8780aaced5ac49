"""Does what the server's log says agree with what was asked for?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.records import Active, Candidate

# Of a resolved configuration, what a trial keeps.
KEPT = (
    "optimization_level", "compilation_mode", "cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size",
    "attention_backend", "enforce_eager", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "block_size",
    "kv_cache_dtype", "dtype", "enable_prefix_caching", "async_scheduling", "fingerprint",
)  # fmt: skip


def disagreement(candidate: Candidate, active: Active) -> str | None:
    """The first setting that is active otherwise than requested, or None. What the log does not say is no disagreement."""
    wanted = candidate.settings
    backend = wanted.get("attention_backend")
    if backend and active.attention_backends and backend not in active.attention_backends:
        return f"attention backend {backend} was asked for, {', '.join(active.attention_backends)} runs"
    for name, running in (
        ("enforce_eager", active.enforce_eager),
        ("compilation_mode", active.compilation_mode),
        ("cudagraph_mode", active.cudagraph_mode),
    ):
        if name in wanted and running is not None and wanted[name] != running:
            return f"{name}={wanted[name]} was asked for, {running} runs"
    sizes = wanted.get("cudagraph_capture_sizes")
    if sizes and active.capture_sizes is not None and list(sizes) != sorted(active.capture_sizes):
        return f"{len(sizes)} capture sizes were asked for, the server captured {len(active.capture_sizes)} others"
    return None


def as_active(candidate: Candidate, active: Active, default: Active) -> Candidate:
    """The candidate that describes what ran: settings that are active otherwise than asked get their active value.

    `default` is what the baseline's log said: a value equal to it is no override and is left out.
    """
    running = {
        "attention_backend": (active.attention_backends or (None,))[0],
        "enforce_eager": active.enforce_eager,
        "compilation_mode": active.compilation_mode,
        "cudagraph_mode": active.cudagraph_mode,
        "cudagraph_capture_sizes": list(active.capture_sizes) if active.capture_sizes is not None else None,
    }
    usual = {
        "attention_backend": (default.attention_backends or (None,))[0],
        "enforce_eager": default.enforce_eager,
        "compilation_mode": default.compilation_mode,
        "cudagraph_mode": default.cudagraph_mode,
        "cudagraph_capture_sizes": list(default.capture_sizes) if default.capture_sizes is not None else None,
    }
    settings = dict(candidate.settings)
    for name in running.keys() & settings.keys():
        value = settings[name]
        asked = sorted(value) if isinstance(value, list | tuple) else value
        if running[name] is None or running[name] == asked:
            continue
        if running[name] == usual[name]:
            del settings[name]
        else:
            settings[name] = running[name]
    return Candidate(settings)


def rewritten_at_start(resolved: Mapping[str, Any], active: Active) -> tuple[str, ...]:
    """What vLLM changed after it had resolved the command, once it knew the attention backend and the model: one line each."""
    pairs = (
        ("attention backend", resolved.get("attention_backend"), ", ".join(active.attention_backends) or None),
        ("compilation_mode", resolved.get("compilation_mode"), active.compilation_mode),
        ("cudagraph_mode", resolved.get("cudagraph_mode"), active.cudagraph_mode),
    )
    changed = [f"{name}: resolved {before}, active {now}" for name, before, now in pairs if before and now and before != now]
    before, now = resolved.get("cudagraph_capture_sizes"), active.capture_sizes
    if before and now is not None and sorted(before) != sorted(now):
        changed.append(f"cudagraph_capture_sizes: resolved {len(before)}, active {len(now)}")
    return tuple(changed)
