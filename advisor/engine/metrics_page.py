"""What a vLLM server runs, told from its /metrics page. Pure.

`vllm:cache_config_info` is a gauge whose labels are the fields of vLLM's CacheConfig as text (`metrics_info` of config/cache.py
in 0.9.0 to 0.33.0). It is the copy that the API server holds. What the engine process changes reaches it only where the
two are told to exchange it: the number of blocks in all releases, the block size from 0.24.0 on (v1/engine/core_client.py).
"""

from __future__ import annotations

from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from advisor.engine.logs import SWITCH
from advisor.records import Active

CACHE_CONFIG = "vllm:cache_config_info"
BLOCK_SIZE_SINCE = (0, 24, 0)


def cache_labels(page: str) -> dict[str, str]:
    """Labels of the first engine's cache_config_info; {} where the page has none, or is no such page."""
    if CACHE_CONFIG not in page:
        return {}
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                if sample.name == CACHE_CONFIG:
                    return dict(sample.labels)
    except ValueError:  # cut off, or not the Prometheus text format
        pass
    return {}


def with_page(active: Active, page: str) -> Active:
    """What the log said, completed by the page. Where both speak the log wins: it is the engine process's own."""
    labels = cache_labels(page)
    told = {
        "kv_cache_dtype": labels.get("cache_dtype"),
        "prefix_caching": SWITCH.get(labels.get("enable_prefix_caching", "")),
        "kv_cache_blocks": _whole(labels.get("num_gpu_blocks")),
        "gpu_memory_utilization": _number(labels.get("gpu_memory_utilization")),
        "block_size": _whole(labels.get("block_size")) if _synchronised(active.vllm_version) else None,
        "kv_cache_tokens": _whole(labels.get("kv_cache_size_tokens")),
    }
    missing = {name: value for name, value in told.items() if value is not None and getattr(active, name) is None}
    return replace(active, **missing)


def _synchronised(version: str | None) -> bool:
    """Whether the page's block size is the one that the engine process settled on."""
    numbers = (version or "").split(".")[:3]
    return (
        len(numbers) == 3 and all(part.isdigit() for part in numbers) and tuple(map(int, numbers)) >= BLOCK_SIZE_SINCE
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:  # "None"
        return None
