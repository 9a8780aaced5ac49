"""What a command line asks for, as values of the right types: the input of the resolution rules.

Where a release spells a thing in several ways, they meet here: the -O level before 0.12 and the `level` key are compilation
modes, `full_cuda_graph` is a graph mode, the backend may stand in a flag, a key of --attention-config or the environment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.engine.options import ATTENTION, COMPILATION, ServeOptions
from advisor.engine.rules.backend_table import Version
from advisor.engine.rules.graph_modes import COMPILATION_MODES, FULL, GRAPH_MODES, LEVELS_SINCE, NONE, PIECEWISE

SPECULATIVE = "--speculative-config"
# Old and new names; overlapping matrix products with communication brings sequence parallelism along.
_SEQUENCE_PARALLEL = ("enable_sp", "enable_sequence_parallelism", "fuse_gemm_comms", "enable_async_tp")
_TENS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_TWOS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class Problem:
    """A value that vLLM refuses: a stable code, what is wrong and what to write instead."""

    code: str
    message: str
    fix: str = ""


@dataclass(frozen=True)
class Requested:
    """Values as given; None where nothing was. Lengths and sizes are tokens."""

    level: int | None = None
    compilation: str | None = None
    graphs: str | None = None
    eager: bool = False
    sizes: tuple[int, ...] | None = None
    sizes_by_flag: bool = False
    maximum: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    performance_mode: str = "balanced"
    speculative_method: str | None = None
    speculative_tokens: int | None = None  # None with a method: the model decides
    block_size: int | None = None
    dtype: str | None = None
    kv_cache_dtype: str = "auto"
    flash_attention_version: int | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    chunked_prefill: bool | None = None
    sequence_parallel: bool = False
    split: bool = True
    warmups: Any = None
    problems: tuple[Problem, ...] = ()
    set_by: Mapping[str, str] = field(default_factory=dict)  # field -> the words that set it


def read_request(options: ServeOptions, env: Mapping[str, str], version: Version) -> Requested:
    """The request in `options` (as parse_options gives them) and the environment. Bad values become problems, never errors."""
    reader = Reader(options, version)
    compilation = reader.config(COMPILATION)
    speculative = reader.config(SPECULATIVE)
    sizes, by_flag, maximum = _capture(reader, compilation)
    _check_memory_share(reader)
    passes = compilation.get("pass_config") if isinstance(compilation.get("pass_config"), Mapping) else {}
    values = {
        "level": _level(reader),
        "compilation": _compilation_mode(reader, compilation),
        "graphs": _graph_mode(reader, compilation),
        "eager": reader.options.get("--enforce-eager") is True,
        "sizes": sizes,
        "sizes_by_flag": by_flag,
        "maximum": maximum,
        "max_num_seqs": reader.number("--max-num-seqs"),
        "max_num_batched_tokens": reader.number("--max-num-batched-tokens"),
        "max_model_len": reader.number("--max-model-len", automatic=True),
        "performance_mode": reader.choice("--performance-mode", ("balanced", "interactivity", "throughput"))
        or "balanced",
        "speculative_method": _speculative_method(speculative),
        "speculative_tokens": _whole(speculative.get("num_speculative_tokens")),
        "block_size": reader.number("--block-size"),
        "dtype": reader.choice("--dtype", ("auto", "half", "float16", "bfloat16", "float", "float32")),
        "kv_cache_dtype": str(reader.options.get("--kv-cache-dtype", "auto")),
        "flash_attention_version": _flash_attention(reader, env),
        "tensor_parallel": reader.number("--tensor-parallel-size") or 1,
        "pipeline_parallel": reader.number("--pipeline-parallel-size") or 1,
        "chunked_prefill": reader.switch("--enable-chunked-prefill"),
        "sequence_parallel": any(passes.get(key) for key in _SEQUENCE_PARALLEL),
        "split": compilation.get("splitting_ops") != [],
        "warmups": compilation.get("cudagraph_num_of_warmups"),
    }
    return Requested(**values, problems=tuple(reader.problems))


@dataclass
class Reader:
    """Typed access to the options; collects what is wrong with them."""

    source: ServeOptions
    version: Version
    problems: list[Problem] = field(default_factory=list)

    @property
    def options(self) -> Mapping[str, Any]:
        return self.source.values

    def config(self, name: str) -> dict[str, Any]:
        """A config option as a dictionary, from JSON text or dotted options too; {} where it is absent or unreadable."""
        value = self.options.get(name)
        dotted = {
            key.removeprefix(name + "."): item for key, item in self.options.items() if key.startswith(name + ".")
        }
        if isinstance(value, str):
            value = _json(value)
        if isinstance(value, int) and not isinstance(value, bool):
            value = {"level": value}  # `--compilation-config 3` of 0.9
        return {**(value if isinstance(value, Mapping) else {}), **dotted}

    def number(self, name: str, automatic: bool = False, zero: bool = False) -> int | None:
        """`automatic`: auto and -1 mean that vLLM decides; `zero`: 0 is allowed too."""
        value = self.options.get(name)
        if value is None or (zero and str(value) == "0") or (automatic and str(value) in ("auto", "-1")):
            return None
        found = _whole(value)
        if found is None or found < 1:
            message = f"{name} takes a whole number of at least 1, found {value!r}"
            self.problems.append(Problem("value-invalid", message, f"{name} 1, or leave it out"))
            return None
        return found

    def choice(self, name: str, allowed: tuple[str, ...]) -> str | None:
        value = self.options.get(name)
        if value is None or value in allowed:
            return value
        self.problems.append(Problem("value-invalid", f"{name} {value!r} is none of {', '.join(allowed)}"))
        return None

    def switch(self, name: str) -> bool | None:
        value = self.options.get(name)
        return value if isinstance(value, bool) else None


# ---------------------------------------------------------------- single values


def _check_memory_share(reader: Reader) -> None:
    """`CacheConfig.gpu_memory_utilization`: at most 1 in every release, above 0 from 0.11.2 on."""
    given = reader.options.get("--gpu-memory-utilization")
    try:
        share = float(str(given)) if given is not None else None
    except ValueError:
        return
    if share is not None and (not share <= 1 or (share <= 0 and reader.version >= (0, 11, 2))):
        message = f"--gpu-memory-utilization is a share of the GPU's memory above 0 and at most 1, vLLM refuses {given}"
        reader.problems.append(Problem("value-invalid", message, "0.9, for example"))


def _level(reader: Reader) -> int | None:
    value = reader.options.get("--optimization-level")
    if value is None or reader.version < LEVELS_SINCE:
        return None
    digits = re.fullmatch(r"[oO]?([0-3])", str(value))
    if digits is None:
        reader.problems.append(Problem("value-invalid", f"--optimization-level {value!r} is none of 0, 1, 2, 3"))
        return None
    return int(digits[1])


def _compilation_mode(reader: Reader, compilation: Mapping[str, Any]) -> str | None:
    value = compilation.get("mode") if reader.version >= (0, 11, 2) else None  # an unknown key, ignored, before
    if value is None and reader.version < (0, 18, 1):
        value = compilation.get("level")
    if value is None and reader.version < LEVELS_SINCE:
        value = reader.options.get("--optimization-level")
        value = _whole(value) if value is not None else None
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(COMPILATION_MODES):
        return COMPILATION_MODES[value]
    if isinstance(value, str) and value.upper() in COMPILATION_MODES:
        return value.upper()
    fix = f"one of {', '.join(COMPILATION_MODES)}, or its number 0 to 3 without quotes"
    reader.problems.append(Problem("compilation-mode-unknown", f"there is no compilation mode {value!r}", fix))
    return None


def _graph_mode(reader: Reader, compilation: Mapping[str, Any]) -> str | None:
    value = compilation.get("cudagraph_mode") if reader.version >= (0, 10, 2) else None
    if value is None:
        return _graph_switches(reader.version, compilation)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 2:
        return (NONE, PIECEWISE, FULL)[value]
    if isinstance(value, str) and value.upper() in GRAPH_MODES:
        return value.upper()
    fix = f"one of {', '.join(GRAPH_MODES)}"
    reader.problems.append(Problem("graph-mode-refused", f"there is no graph mode {value!r}", fix))
    return None


def _graph_switches(version: Version, compilation: Mapping[str, Any]) -> str | None:
    """The booleans of 0.9.0 to 0.11.0. In 0.9.0 vLLM sets use_cudagraph itself, so that giving it changes nothing."""
    if version >= (0, 11, 2):
        return None
    if compilation.get("use_cudagraph") is False and version >= (0, 9, 2):
        return NONE
    return FULL if compilation.get("full_cuda_graph") is True else None


def _capture(reader: Reader, compilation: Mapping[str, Any]) -> tuple[tuple[int, ...] | None, bool, int | None]:
    """(list, whether it came by --cuda-graph-sizes, maximum). Until 0.11.0 that option's single number is the maximum."""
    given = compilation.get("cudagraph_capture_sizes", reader.options.get("--cudagraph-capture-sizes"))
    maximum = compilation.get("max_cudagraph_capture_size", reader.options.get("--max-cudagraph-capture-size"))
    sizes = _sizes(reader, given)
    old = _sizes(reader, reader.options.get("--cuda-graph-sizes"))
    if old is not None and sizes is None:
        if reader.version < (0, 11, 2) and len(old) == 1:
            return None, False, old[0]
        return old, reader.version < (0, 11, 2), _whole(maximum)
    return sizes, False, _whole(maximum)


def _sizes(reader: Reader, value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    items = list(value) if isinstance(value, list | tuple) else [value]
    numbers = [_whole(item) for item in items]
    if any(number is None for number in numbers):
        fix = "whole numbers, separated by spaces on the command line"
        reader.problems.append(Problem("value-invalid", f"capture sizes {value!r} are not whole numbers", fix))
        return None
    return tuple(number for number in numbers if number is not None)


def _speculative_method(speculative: Mapping[str, Any]) -> str | None:
    if not speculative:
        return None
    method, model = speculative.get("method"), str(speculative.get("model", ""))
    if method is None:
        return "ngram" if model in ("ngram", "[ngram]") else "draft_model"
    return str(method)


def _flash_attention(reader: Reader, env: Mapping[str, str]) -> int | None:
    """Until 0.14 the environment variable wins over the key."""
    if reader.version < (0, 15) and "VLLM_FLASH_ATTN_VERSION" in env:
        return _whole(env["VLLM_FLASH_ATTN_VERSION"])
    return _whole(reader.config(ATTENTION).get("flash_attn_version")) if reader.version >= (0, 13) else None


def _whole(value: Any) -> int | None:
    """8192, "8192", "8k" (8000) or "8K" (8192) as a number; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    found = re.fullmatch(r"(-?\d+(?:\.\d+)?)([kKmMgGtT]?)", str(value).strip()) if value is not None else None
    if found is None or ("." in found[1] and not found[2]):
        return None
    return int(float(found[1]) * {**_TENS, **_TWOS, "": 1}[found[2]])


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None
