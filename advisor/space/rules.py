"""Named rules of legality. Each looks at one candidate's settings and gives a reason to drop it, or None.

They hold what vLLM itself does not refuse but what would waste a launch: contradictions, settings with no effect, and
settings that vLLM rewrites into another candidate's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from advisor.engine.render import version_tuple
from advisor.engine.rules.inert import inert_settings
from advisor.records import EngineFacts

Settings = Mapping[str, Any]
Rule = Callable[[Settings, EngineFacts], "str | None"]

# Backends whose graphs can hold any batch, so that FULL is a mode of its own with normal compilation; elsewhere vLLM turns FULL
# into FULL_AND_PIECEWISE, its default (resolve_cudagraph_mode_and_sizes of 0.24, 0.28 and 0.33, run with stubs).
_ANY_BATCH = {"FLASH_ATTN", "TRITON_ATTN", "FLEX_ATTENTION", "ROCM_ATTN"}


def inert_settings_are_dropped(settings: Settings, engine: EngineFacts) -> str | None:
    """Eager mode makes graph settings inert, a processor too, -O3 equals -O2, and what else advisor/engine/rules/inert.py says."""
    inert = inert_settings(settings, engine.platform, version_tuple(engine.vllm_version))
    return "; ".join(f"{name} is inert: {reason}" for name, reason in inert.items()) or None


def piecewise_needs_compilation(settings: Settings, engine: EngineFacts) -> str | None:
    mode = settings.get("cudagraph_mode")
    if settings.get("compilation_mode") == "NONE" and mode in (None, "PIECEWISE", "FULL_AND_PIECEWISE"):
        return "piecewise graphs are cut by the compiler: without compilation vLLM turns them off, which is eager mode"
    return None


def nothing_left_is_eager(settings: Settings, engine: EngineFacts) -> str | None:
    if settings.get("compilation_mode") == "NONE" and settings.get("cudagraph_mode") == "NONE":
        return "neither compilation nor graphs: the same as eager mode"
    return None


def backend_must_be_valid(settings: Settings, engine: EngineFacts) -> str | None:
    wanted = settings.get("attention_backend")
    if wanted is None or not engine.backends:
        return None
    known = {backend.name: backend for backend in engine.backends}
    if wanted not in known:
        return f"this vLLM has no attention backend {wanted}"
    return "; ".join(known[wanted].reasons) or None


def full_needs_any_batch_graphs(settings: Settings, engine: EngineFacts) -> str | None:
    backend = settings.get("attention_backend") or automatic_backend(engine)
    compiled = settings.get("compilation_mode") in (None, "VLLM_COMPILE")
    if settings.get("cudagraph_mode") == "FULL" and compiled and backend not in _ANY_BATCH:
        return f"{backend} cannot put mixed batches into full graphs: vLLM turns FULL into its default"
    return None


RULES: tuple[Rule, ...] = (
    inert_settings_are_dropped,
    piecewise_needs_compilation,
    nothing_left_is_eager,
    backend_must_be_valid,
    full_needs_any_batch_graphs,
)


def automatic_backend(engine: EngineFacts) -> str | None:
    """The backend that vLLM picks by itself: the first valid one in its own order of preference."""
    return next((backend.name for backend in engine.backends if backend.valid), None)


def objection(settings: Settings, engine: EngineFacts) -> str | None:
    """`rule: reason` of the first rule that drops the candidate, or None."""
    for rule in RULES:
        reason = rule(settings, engine)
        if reason:
            return reason
    return None
