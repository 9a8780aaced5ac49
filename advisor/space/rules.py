"""Named rules of legality. Each looks at one candidate's settings and gives a reason to drop it, or None.

They hold what vLLM itself does not refuse but what would waste a launch: contradictions, settings with no effect, and
settings that vLLM rewrites into another candidate's, many of them only after it has loaded the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.engine.render import version_tuple
from advisor.engine.rules import legality
from advisor.engine.rules.backend_table import ALWAYS, NEVER, UNKNOWN
from advisor.engine.rules.graph_support import flash_attention_version, graph_support
from advisor.engine.rules.inert import inert_settings
from advisor.records import EngineFacts, GpuFacts, ModelFacts

Settings = Mapping[str, Any]
Rule = Callable[[Settings, "Place"], "str | None"]

# Without a compute capability: backends whose graphs can hold any batch on the GPUs they are the default of.
_ANY_BATCH = {"FLASH_ATTN", "TRITON_ATTN", "FLEX_ATTENTION", "ROCM_ATTN"}
_QUANTISED = ("fuse_norm_quant", "fuse_act_quant", "fuse_attn_quant")
_OF_FLASH = ("flash_attention_version", "flash_attention_splits")


@dataclass(frozen=True)
class Place:
    """Where candidates would run. `baseline`: what vLLM makes of the person's own arguments. None and empty: not known."""

    engine: EngineFacts
    gpu: GpuFacts | None = None
    model: ModelFacts | None = None
    baseline: Mapping[str, Any] = field(default_factory=dict)

    @property
    def version(self) -> tuple[int, ...]:
        return version_tuple(self.engine.vllm_version)

    @property
    def capability(self) -> tuple[int, int] | None:
        """Of a CUDA GPU; the tables know no others."""
        if self.engine.platform != "cuda" or self.gpu is None or not self.gpu.compute_capability:
            return None
        major, _, minor = self.gpu.compute_capability.partition(".")
        return int(major), int(minor or 0)

    def backend(self, settings: Settings) -> str | None:
        """The attention backend that would run: the one asked for, else vLLM's own choice."""
        return settings.get("attention_backend") or self.own_backend(settings)

    def own_backend(self, settings: Settings) -> str | None:
        """vLLM's own choice beside the other settings: a cache format or block size may rule its first one out."""
        given = self.baseline.get("attention_backend") or automatic_backend(self.engine)
        narrowed = {"kv_cache_dtype", "block_size"} & set(settings)
        if not narrowed or self.capability is None or self.model is None or self.model.mla:
            return given
        cache = settings.get("kv_cache_dtype") or self.baseline.get("kv_cache_dtype")
        return legality.automatic_backend(self._around(cache, settings.get("block_size")))

    def _around(self, kv_cache_dtype: str | None, block_size: int | None) -> legality.Surroundings:
        """Of a model without MLA, where GPU and model are known."""
        return legality.Surroundings(
            self.version, self.capability, _dtype(self.baseline, self.model), kv_cache_dtype, block_size,
            self.model.head_size, sinks=self.sinks,
        )  # fmt: skip

    def objections(self, backend: str, kv_cache_dtype: str | None, block_size: int | None) -> tuple[str, ...]:
        return legality.objections(backend, self._around(kv_cache_dtype, block_size))

    @property
    def sinks(self) -> bool:
        return self.model is not None and self.model.architecture.startswith("GptOss")

    def flash_version(self, settings: Settings) -> int | None:
        """The FlashAttention that FLASH_ATTN would run; None for another backend or where that is not known."""
        if self.capability is None or self.backend(settings) != "FLASH_ATTN":
            return None
        head = self.model.head_size if self.model else None
        return flash_attention_version(self.version, self.capability, settings.get("flash_attention_version"), head)


def _dtype(baseline: Mapping[str, Any], model: ModelFacts) -> str:
    known = baseline.get("dtype") or model.dtype or "bfloat16"
    return "bfloat16" if known in ("float32", "auto") else known


# ---------------------------------------------------------------- rules


def inert_settings_are_dropped(settings: Settings, place: Place) -> str | None:
    """Eager mode makes graph settings inert, a processor too, -O3 equals -O2, and what else advisor/engine/rules/inert.py says."""
    inert = inert_settings(settings, place.engine.platform, place.version)
    return "; ".join(f"{name} is inert: {reason}" for name, reason in inert.items()) or None


def piecewise_needs_compilation(settings: Settings, place: Place) -> str | None:
    mode = settings.get("cudagraph_mode")
    if settings.get("compilation_mode") == "NONE" and mode in (None, "PIECEWISE", "FULL_AND_PIECEWISE"):
        return "piecewise graphs are cut by the compiler: without compilation vLLM turns them off, which is eager mode"
    return None


def nothing_left_is_eager(settings: Settings, place: Place) -> str | None:
    if settings.get("compilation_mode") == "NONE" and settings.get("cudagraph_mode") == "NONE":
        return "neither compilation nor graphs: the same as eager mode"
    return None


def backend_must_be_valid(settings: Settings, place: Place) -> str | None:
    wanted = settings.get("attention_backend")
    if wanted is None or not place.engine.backends:
        return None
    known = {backend.name: backend for backend in place.engine.backends}
    if wanted not in known:
        return f"this vLLM has no attention backend {wanted}"
    return "; ".join(known[wanted].reasons) or None


def backend_must_take_cache(settings: Settings, place: Place) -> str | None:
    """What the backend said when it was asked with the default cache may not hold for another format or block size."""
    asked = {name: settings.get(name) for name in ("kv_cache_dtype", "block_size")}
    if not any(asked.values()) or place.capability is None or place.model is None or place.model.mla:
        return None
    backend = place.backend(settings)
    if backend is None:
        return "no attention backend takes this KV cache here"
    reasons = place.objections(backend, **asked)
    return f"{backend}: {'; '.join(reasons)}" if reasons else None


def own_choice_is_no_setting(settings: Settings, place: Place) -> str | None:
    """A backend that vLLM would take anyway beside these settings: the same trial as without it."""
    wanted = settings.get("attention_backend")
    others = {name: value for name, value in settings.items() if name != "attention_backend"}
    if wanted is not None and place.baseline and place.own_backend(others) == wanted:
        return f"vLLM takes {wanted} by itself beside these settings"
    return None


def flash_settings_need_flash_attention(settings: Settings, place: Place) -> str | None:
    backend = place.backend(settings)
    asked = [name for name in _OF_FLASH if name in settings]
    if asked and backend not in (None, "FLASH_ATTN", "FLASH_ATTN_MLA"):
        return f"{', '.join(asked)} is inert: {backend} does not read it"
    return None


def flash_version_must_differ(settings: Settings, place: Place) -> str | None:
    asked, runs = settings.get("flash_attention_version"), place.flash_version(settings)
    if asked is None or runs is None or place.capability is None:
        return None
    without = {name: value for name, value in settings.items() if name != "flash_attention_version"}
    if asked == 4 and place.capability[0] not in (9, 10, 11):
        return f"FlashAttention 4 does not run on compute capability {place.capability[0]}.{place.capability[1]}"
    if runs == place.flash_version(without):
        return f"vLLM runs FlashAttention {runs} with and without flash_attention_version={asked}"
    return None


def flash_2_has_no_fp8_cache(settings: Settings, place: Place) -> str | None:
    cache = str(settings.get("kv_cache_dtype") or place.baseline.get("kv_cache_dtype") or "auto")
    if cache.startswith("fp8") and place.flash_version(settings) == 2:
        return f"FlashAttention 2 does not take a KV cache of {cache}"
    return None


def splits_need_graphs_and_version_3(settings: Settings, place: Place) -> str | None:
    if "flash_attention_splits" not in settings:
        return None
    if settings.get("cudagraph_mode") in ("NONE", "PIECEWISE"):
        return "flash_attention_splits is inert: it is read for attention inside full graphs only"
    version = place.flash_version(settings)
    if version not in (None, 3):
        return f"flash_attention_splits is inert: FlashAttention {version} does not read it"
    return None


def full_needs_any_batch_graphs(settings: Settings, place: Place) -> str | None:
    """Where a backend's graphs cannot hold mixed batches, vLLM turns FULL into its default, or without compilation into
    FULL_DECODE_ONLY (resolve_cudagraph_mode_and_sizes of 0.24, 0.28 and 0.33, run with stubs)."""
    backend = place.backend(settings)
    if settings.get("cudagraph_mode") != "FULL" or backend is None or place.engine.platform == "cpu":
        return None
    compiled = settings.get("compilation_mode") in (None, "VLLM_COMPILE")
    if place.capability is None:
        support = ALWAYS if backend in _ANY_BATCH or not compiled else ""
    else:
        support = graph_support(backend, place.version, place.flash_version(settings), place.capability)
    if support in (ALWAYS, UNKNOWN):
        return None
    becomes = "its default" if compiled else "FULL_DECODE_ONLY"
    return f"{backend} cannot put mixed batches into full graphs: vLLM turns FULL into {becomes}"


def full_graphs_need_a_backend_that_takes_any(settings: Settings, place: Place) -> str | None:
    """Where a backend takes no full graph at all, vLLM refuses FULL (before 0.11.0 FULL_DECODE_ONLY too); of every other mode,
    its default's too, it leaves the piecewise graphs, and without compilation none (graph_modes.py)."""
    backend, mode = place.backend(settings), settings.get("cudagraph_mode")
    if backend is None or place.capability is None or mode in (None, "NONE"):
        return None
    if graph_support(backend, place.version, place.flash_version(settings), place.capability) != NEVER:
        return None
    if mode == "FULL" or (mode == "FULL_DECODE_ONLY" and place.version < (0, 11)):
        return f"{backend} takes no full graphs: vLLM refuses {mode}"
    if settings.get("compilation_mode") in (None, "VLLM_COMPILE"):
        return f"{backend} takes no full graphs: {mode} leaves piecewise ones, like vLLM's default"
    return f"{backend} takes no full graphs: {mode} without compilation leaves none, which is eager mode"


def compile_sizes_are_captured(settings: Settings, place: Place) -> str | None:
    """vLLM refuses a compile size that a graph would pad (cudagraph_dispatcher.py); above the largest graph nothing is padded."""
    sizes = [size for size in settings.get("compile_sizes") or () if isinstance(size, int)]
    captured = settings.get("cudagraph_capture_sizes") or place.baseline.get("cudagraph_capture_sizes") or ()
    if settings.get("cudagraph_mode") == "NONE" or not captured:
        return None
    padded = [str(size) for size in sizes if size <= max(captured) and size not in captured]
    return f"vLLM refuses to compile for {', '.join(padded)}, which is no captured size" if padded else None


def fusions_need_something_to_fuse(settings: Settings, place: Place) -> str | None:
    asked = [name for name in _QUANTISED if settings.get(name)]
    if asked and place.model is not None and place.model.quantization is None:
        return f"{', '.join(asked)} is inert: the model is not quantised"
    workers = place.baseline.get("tensor_parallel_size")
    if "fuse_allreduce_rms" in settings and workers == 1:
        return "fuse_allreduce_rms is inert: one GPU reduces nothing"
    return None


RULES: tuple[Rule, ...] = (
    inert_settings_are_dropped,
    piecewise_needs_compilation,
    nothing_left_is_eager,
    backend_must_be_valid,
    backend_must_take_cache,
    own_choice_is_no_setting,
    flash_settings_need_flash_attention,
    flash_version_must_differ,
    flash_2_has_no_fp8_cache,
    splits_need_graphs_and_version_3,
    full_graphs_need_a_backend_that_takes_any,
    full_needs_any_batch_graphs,
    compile_sizes_are_captured,
    fusions_need_something_to_fuse,
)


def automatic_backend(engine: EngineFacts) -> str | None:
    """The backend that vLLM picks by itself: the first valid one in its own order of preference."""
    return next((backend.name for backend in engine.backends if backend.valid), None)


def objection(settings: Settings, place: Place) -> str | None:
    """The reason of the first rule that drops the candidate, or None."""
    for rule in RULES:
        reason = rule(settings, place)
        if reason:
            return reason
    return None
