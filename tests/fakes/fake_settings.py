"""Which settings an argument list of `vllm serve` asks the fake engine for, and how fast it is with them."""

from __future__ import annotations

import json
import os

SIZES = [1, 2, 4, *range(8, 257, 8), *range(272, 513, 16)]  # vLLM's own list for 256 sequences
_LEVELS = {0: ("NONE", "NONE"), 1: ("VLLM_COMPILE", "PIECEWISE")}
_DEFAULT = ("VLLM_COMPILE", "FULL_AND_PIECEWISE")
_MODE_NAMES = ("NONE", "STOCK_TORCH_COMPILE", "DYNAMO_TRACE_ONCE", "VLLM_COMPILE")

# Milliseconds a decoded token takes, and what multiplies them: roughly the proportions measured on an H200.
TPOT_MS = 5.0
GRAPH_FACTOR = {"FULL_AND_PIECEWISE": 1.0, "FULL": 1.0, "FULL_DECODE_ONLY": 1.02, "PIECEWISE": 1.15, "NONE": 4.0}
BACKEND_FACTOR = {"FLASH_ATTN": 1.0, "FLASHINFER": 0.9, "TRITON_ATTN": 1.1, "FLEX_ATTENTION": 1.6}
NO_COMPILE_FACTOR = 1.03
LOAD_FACTOR = 0.02  # more for each request that runs beside this one


FAULTS = {
    "other_backend": "TRITON_ATTN runs where another attention backend was asked for",
    "other_block_size": "blocks have 64 tokens where another number was asked for",
    "no_graphs": "no step runs in a graph where one kind of graph was asked for",
}


def replaced(asked: dict, fault: str) -> dict:
    """What runs where an engine with one of these faults is asked for something; the same where nothing is."""
    if fault == "other_backend" and asked["attention_backend"]:
        return asked | {"attention_backend": "TRITON_ATTN", "backend": "TRITON_ATTN"}
    if fault == "other_block_size" and asked["block_size"] != "16":
        return asked | {"block_size": "64"}
    if fault == "no_graphs" and asked["cudagraph_mode"] not in (_DEFAULT[1], "NONE"):
        return asked | {"step_mode": "NONE"}
    return asked


def read(argv: list[str]) -> dict:
    """Settings by name; spellings of `--x v`, `--x=v`, `-cc.key=v` and one JSON `--compilation-config` are known."""
    given: dict = {}
    words = [part for word in argv for part in _split(word)]
    for word, value in zip(words, [*words[1:], ""], strict=True):
        key = word.lstrip("-").replace("_", "-")
        if word in ("--compilation-config", "-cc") and value.startswith("{"):
            given.update(json.loads(value))
        elif word.startswith(("-cc.", "--compilation-config.")):
            given[word.partition(".")[2]] = _value(value)
        elif word in ("--attention-backend", "-ac.backend", "--attention-config.backend"):
            given["attention_backend"] = value
        elif key in ("optimization-level", "O"):
            given["level"] = int(value)
        elif word.startswith("-O") and word[2:].isdigit():
            given["level"] = int(word[2:])
        elif word == "--enforce-eager":
            given["enforce_eager"] = True
        elif word == "--cudagraph-capture-sizes":
            given["cudagraph_capture_sizes"] = _numbers(words[words.index(word) + 1 :])
        elif word in ("--block-size", "--kv-cache-dtype"):
            given[key] = value
    settings = _resolve(given)
    fallback = os.environ.get("FAKE_ACTIVE_BACKEND")  # says nothing but the backend that runs
    return {**settings, "backend": fallback, "attention_backend": fallback} if fallback else settings


def tpot_ms(settings: dict, running: int) -> float:
    """Milliseconds a token with `running` requests at once; beyond the largest captured size there is no graph."""
    graphs = settings["cudagraph_mode"]
    if settings["sizes"] and running > max(settings["sizes"]):
        graphs = "NONE"
    compiled = 1.0 if settings["mode"] == "VLLM_COMPILE" else NO_COMPILE_FACTOR
    backend = BACKEND_FACTOR.get(settings["backend"], 1.2)
    return TPOT_MS * GRAPH_FACTOR[graphs] * backend * compiled * (1 + LOAD_FACTOR * (running - 1))


def _resolve(given: dict) -> dict:
    """As vLLM does it: explicit fields beat the level, eager beats everything, piecewise graphs need VLLM_COMPILE."""
    mode, graphs = _LEVELS.get(given.get("level", 2), _DEFAULT)
    asked = given.get("mode", mode)
    mode = _MODE_NAMES[asked] if isinstance(asked, int) else str(asked).upper()
    graphs = str(given.get("cudagraph_mode", graphs)).upper()
    eager = bool(given.get("enforce_eager"))
    if eager:
        mode = graphs = "NONE"
    if "PIECEWISE" in graphs and mode != "VLLM_COMPILE":
        graphs = "NONE"
    chosen = given.get("attention_backend")
    return {
        "enforce_eager": eager,
        "mode": mode,
        "cudagraph_mode": graphs,
        "sizes": [] if graphs == "NONE" else sorted(given.get("cudagraph_capture_sizes", SIZES)),
        "attention_backend": chosen,
        "backend": chosen or "FLASH_ATTN",
        "block_size": os.environ.get("FAKE_BLOCK_SIZE") or given.get("block-size", "16"),
        "kv_cache_dtype": given.get("kv-cache-dtype", "auto"),
    }


def cache_config(settings: dict, caching: bool) -> str:
    """Labels of vllm:cache_config_info, as far as somebody reads them."""
    labels = {
        "block_size": settings["block_size"],
        "cache_dtype": settings["kv_cache_dtype"],
        "enable_prefix_caching": caching,
        "engine": 0,
        "gpu_memory_utilization": 0.92,
        "num_gpu_blocks": 57489,
    }
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


def step_mode(settings: dict, running: int) -> tuple[int, str]:
    """(padded tokens, kind of graph) of a decode step of `running` requests."""
    padded = next((size for size in settings["sizes"] if size >= running), None)
    mode = "NONE" if padded is None else "PIECEWISE" if settings["cudagraph_mode"] == "PIECEWISE" else "FULL"
    return padded or running, os.environ.get("FAKE_STEP_MODE") or settings.get("step_mode") or mode


def _split(word: str) -> list[str]:
    return word.split("=", 1) if word.startswith("-") and "=" in word else [word]


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _numbers(words: list[str]) -> list[int]:
    found: list[int] = []
    for word in words:
        if not word.isdigit():
            break
        found.append(int(word))
    return found
