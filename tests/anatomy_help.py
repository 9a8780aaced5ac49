"""Invented anatomies of a GPU, made with the code that makes real ones: shapes for tables and plots, no evidence of anything."""

from __future__ import annotations

from advisor.anatomy.document import SCHEMA, with_words
from advisor.anatomy.floor import floor_ms
from advisor.anatomy.modes import MODES
from advisor.anatomy.rows import decode_row, prefill_row

POWERS = tuple(2**power for power in range(11))
WEIGHTS = {"dense_bytes": 16.06e9, "embedding_bytes": 0, "experts_bytes": 0, "experts": 0, "experts_per_token": None}
KV = [{"layers": 32, "kind": "FullAttentionSpec", "bytes_per_token": 4096.0, "window": None, "state_bytes": 0}]
HOST_MS = {"none": 19.0, "compile": 17.0, "full": 0.5, "piecewise": 3.5, "both": 0.35}  # of a step at least
WORK = {"none": 1.25, "compile": 1.15, "full": 1.25, "piecewise": 1.16, "both": 1.14}  # of the GPU, over the floor
LAUNCHES = {"none": 420, "compile": 260, "full": 8, "piecewise": 110, "both": 8}
STARTS = {"none": (55.1, None, None), "compile": (78.9, None, "cold"), "full": (58.6, 0.68, None),
          "piecewise": (77.2, 0.35, "cold"), "both": (98.8, 0.98, "cold")}  # fmt: skip
RESOLVED = {"none": ("NONE", "NONE"), "compile": ("VLLM_COMPILE", "NONE"), "full": ("NONE", "FULL"),
            "piecewise": ("VLLM_COMPILE", "PIECEWISE"), "both": ("VLLM_COMPILE", "FULL_AND_PIECEWISE")}  # fmt: skip


def three(median, spread=0.02):
    return {"median": median, "low": median * (1 - spread / 2), "high": median * (1 + spread / 2)}


def decode(name, batch, gb_s=4000.0, traced=True, spread=0.02):
    """A row of an invented 8B model on a GPU of that bandwidth: the longer of host and GPU is the step."""
    floor = floor_ms(WEIGHTS, KV, batch, 512, gb_s)
    gpu = floor * WORK[name] * (1 + batch / 900)
    step = max(HOST_MS[name], gpu) + 0.15
    timed = {"ok": True, "context_tokens": 512.0, "step_ms": three(step, spread), "serial_ms": three(step + gpu),
             "host_ms": three(HOST_MS[name])}  # fmt: skip
    found = {
        "ok": True,
        "gpu_ms": gpu,
        "gpu_reason": None,
        "launches": LAUNCHES[name],
        "kernels": 400,
        "traced_ms": 2 * step,
    }
    return decode_row(batch, timed, found if traced else {"ok": False, "error": "CUPTI_ERROR"}, floor)


def prefill(name, tokens):
    step = tokens / 20 + HOST_MS[name]
    found = {"ok": True, "gpu_ms": tokens / 20, "gpu_reason": None, "launches": 400, "kernels": 400, "traced_ms": step}
    return prefill_row(tokens, {"ok": True, "chunks": 1, "step_ms": three(step)}, found)


def mode(name, batches=POWERS, prefills=(128, 512, 2048, 8192), **words):
    start, memory, cache = STARTS[name]
    compilation, graphs = RESOLVED[name]
    return {
        "title": next(item.title for item in MODES if item.name == name), "status": "measured", "reason": None,
        "resolved": {"compilation_mode": compilation, "cudagraph_mode": graphs},
        "start": {"start_s": start, "imports_s": 20.0, "graph_memory_gib": memory, "cache": cache},
        "decode": [decode(name, batch, **words) for batch in batches],
        "prefill": [prefill(name, tokens) for tokens in prefills],
    }  # fmt: skip


def skipped(name, same_as):
    return {
        "title": next(item.title for item in MODES if item.name == name), "status": "skipped",
        "reason": f"vLLM runs the same as for '{same_as}' here", "same_as": same_as,
        "resolved": {"compilation_mode": "NONE", "cudagraph_mode": "NONE"}, "decode": [], "prefill": [],
    }  # fmt: skip


def document(modes=None, name="Invented-8B", **changed):
    """A whole one; `modes` maps names to what mode() or skipped() returns."""
    return with_words({
        "schema": SCHEMA, "date": "2026-11-30T10:00:00+00:00", "command": "advisor anatomy --model Invented-8B",
        "gpu": {"name": "NVIDIA H200", "slug": "h200", "memory_gib": 139.8, "driver": "580.0"}, "cores": 16,
        "versions": {"vllm": "0.26.0", "torch": "2.11.0", "cuda": "13.0", "python": "3.12.0", "platform": "cuda"},
        "model": {"name": name, "architecture": "LlamaForCausalLM", "config": "0", "quantization": None, "random_weights": True},
        "serve_args": ["--load-format", "dummy"], "env": {}, "context": 512, "steps": 60,
        "commands": ["advisor anatomy --model Invented-8B"],
        "bandwidth": {"gb_s": 4000.0, "copied_bytes": 1 << 30}, "launch": {"bare_us": 2.5, "op_us": 6.1},
        "loaded": {"parameters": 8.03e9, "weight_bits": None, "weights": WEIGHTS, "kv": KV},
        "modes": {item.name: mode(item.name) for item in MODES} if modes is None else modes,
        **changed,
    })  # fmt: skip
