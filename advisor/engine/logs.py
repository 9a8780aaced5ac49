"""What a vLLM server runs, told from its log. Pure.

Patterns follow the format strings in the sources of vLLM 0.9 to 0.33. The resolved configuration is in one long line
("Initializing a V1 LLM engine (vX) with config: ..."), written before the attention backend is known; what a worker
changes after that is in lines of their own, so a later line wins.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from advisor.engine.graph_steps import merged, step_row
from advisor.engine.log_lines import plain_log
from advisor.records import Active, GraphSteps

# Where a line was logged, e.g. "[cuda.py:422]": the same words mean other things in other files ("Using X backend.").
_PLACE = re.compile(r"\[?(?P<file>[\w/]+\.py):\d+\]")

SWITCH = {"True": True, "False": False}  # how Python writes a switch; "None" is in neither
MODES = ("NONE", "STOCK_TORCH_COMPILE", "DYNAMO_TRACE_ONCE", "VLLM_COMPILE")
GRAPH_MODES = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
# JSON form of the graph mode, 0.10.2 to 0.11.0.
_GRAPH_MODE_VALUES = {"0": "NONE", "1": "PIECEWISE", "2": "FULL", "[2,0]": "FULL_DECODE_ONLY", "[2,1]": GRAPH_MODES[4]}

# ---------------------------------------------------------------- the configuration line

_CONFIG = re.compile(r"Initializing a V1 LLM engine \(v(?P<version>[^)]+)\) with config: (?P<config>.*)")
_EAGER = re.compile(r"\benforce_eager=(True|False)")
_KV_DTYPE = re.compile(r"\bkv_cache_dtype=(\w+)")
_PREFIX_CACHING = re.compile(r"\benable_prefix_caching=(True|False)")
_DEVICE = re.compile(r"\bdevice_config=(\w+)")
_MODE = re.compile(r"""["'](?:mode|level)["']: ?(?:<CompilationMode\.(?P<name>\w+)|(?P<number>\d))""")
_GRAPH_MODE = re.compile(r"""["']cudagraph_mode["']: ?(?:<CUDAGraphMode\.(?P<name>\w+)|(?P<value>\d|\[\d, ?\d\]))""")
_SIZES = re.compile(r"""["']cudagraph_capture_sizes["']: ?(\[[\d, ]*\])""")
# 0.9 and 0.10.0 know only switches.
_USE_GRAPHS = re.compile(r'"use_cudagraph": ?(true|false)')
_FULL_GRAPHS = re.compile(r'"full_cuda_graph": ?(true|false)')


def _read_config(active: Active, version: str, config: str) -> Active:
    """Take over what the configuration line says. "0.26.0+cu130" is version 0.26.0."""
    compilation = config.partition("compilation_config=")[2]
    eager, dtype, caching = (pattern.search(config) for pattern in (_EAGER, _KV_DTYPE, _PREFIX_CACHING))
    mode = _MODE.search(compilation)
    active = replace(
        active,
        vllm_version=version.partition("+")[0],
        enforce_eager=SWITCH[eager[1]] if eager else None,
        kv_cache_dtype=dtype[1] if dtype else None,
        prefix_caching=SWITCH[caching[1]] if caching else None,
        compilation_mode=(mode["name"] or MODES[int(mode["number"])]) if mode else None,
        cudagraph_mode=_graph_mode(compilation),
        capture_sizes=_sizes(_SIZES.search(compilation)),
    )
    return replace(active, cudagraph_mode="NONE") if active.enforce_eager else active


def _graph_mode(compilation: str) -> str | None:
    if found := _GRAPH_MODE.search(compilation):
        return found["name"] or _GRAPH_MODE_VALUES.get(found["value"].replace(" ", ""))
    switched, full = _USE_GRAPHS.search(compilation), _FULL_GRAPHS.search(compilation)
    if switched is None:
        return None
    if switched[1] == "false":
        return "NONE"
    return "FULL" if full and full[1] == "true" else "PIECEWISE"


def _sizes(found: re.Match[str] | None) -> tuple[int, ...] | None:
    return tuple(sorted(ast.literal_eval(found[1]))) if found else None


# ---------------------------------------------------------------- the attention backend

_AUTOMATIC = re.compile(r"Using (?P<name>\S+) attention backend out of potential backends")  # 0.12 on
_CHOSEN = re.compile(r"Using (?P<name>[\w ]+?|AttentionBackendEnum\.\w+) backend(?: on V1 engine)?\.?$")
_PLATFORM_FILES = ("cuda.py", "rocm.py", "xpu.py", "cpu.py", "tpu.py")
# Names up to 0.11.0 ("Using Flash Attention backend on V1 engine.").
_OLD_NAMES = {
    "Flash Attention": "FLASH_ATTN",
    "FlashInfer": "FLASHINFER",
    "Triton": "TRITON_ATTN",
    "Triton Attention": "TRITON_ATTN",
    "FlexAttention": "FLEX_ATTENTION",
    "XFormers": "XFORMERS",
    "Torch SDPA": "TORCH_SDPA",
    "Tree Attention": "TREE_ATTN",
    "Pallas": "PALLAS",
    "Triton MLA": "TRITON_MLA",
    "FlashMLA": "FLASHMLA",
    "Cutlass MLA": "CUTLASS_MLA",
    "FlashInfer MLA": "FLASHINFER_MLA",
    "FlashAttention MLA": "FLASH_ATTN_MLA",
    "Sparse MLA": "FLASHMLA_SPARSE",
    "Aiter Flash Attention": "ROCM_AITER_FA",
    "Rocm Attention": "ROCM_ATTN",
}


def _backend(text: str, file: str) -> str | None:
    found = _AUTOMATIC.search(text)
    if found is None and file in _PLATFORM_FILES:
        found = _CHOSEN.search(text)
    if found is None:
        return None
    name = found["name"].removeprefix("AttentionBackendEnum.")
    return _OLD_NAMES.get(name, name.removesuffix("_VLLM_V1"))


# ---------------------------------------------------------------- changes of mind

_TO_GRAPH_MODE = (
    re.compile(r"setting cudagraph_mode=(?P<mode>[A-Z_]+)"),
    re.compile(r"Overriding cudagraph_mode (?:from \w+ )?to (?P<mode>[A-Z_]+)"),
    re.compile(r"Overriding cudagraph_mode [A-Z_]+ to (?P<mode>[A-Z_]+)"),
    re.compile(r"Cudagraph mode .*Overriding to (?P<mode>[A-Z_]+)"),
    re.compile(r"Cudagraph is disabled under eager mode(?P<mode>)"),
)
_TO_SIZES = re.compile(
    r"cudagraph_capture_sizes specified in compilation_config .* is overridden by config (\[[\d, ]*\])"
)
_OTHER_CHANGES = re.compile(
    r"Enforce eager set|Truncating max_cudagraph_capture_size|Cannot use \S+ backend on |"
    r"precluded higher-priority backend|TORCH_COMPILE_DISABLE is set|Forcing \w+ backend|"
    r"VLLM_ATTENTION_BACKEND|[Cc]apping cudagraph|Cannot use FA version"
)


def _change(active: Active, text: str) -> Active:
    """Take over a change that the line tells of, and keep the line."""
    modes = [found["mode"] or "NONE" for pattern in _TO_GRAPH_MODE if (found := pattern.search(text))]
    sizes = _TO_SIZES.search(text)
    if not (modes or sizes or _OTHER_CHANGES.search(text)):
        return active
    if modes and modes[0] in GRAPH_MODES:
        active = replace(active, cudagraph_mode=modes[0])
    if sizes:
        active = replace(active, capture_sizes=_sizes(sizes))
    line = " ".join(text.split())
    return active if line in active.rewrites else replace(active, rewrites=(*active.rewrites, line))


# ---------------------------------------------------------------- what the worker chooses by itself

# Models with MLA: the backend's own format of the KV cache (layers/attention/mla_attention.py, 0.18 on).
_KV_FORMAT = re.compile(r"Using (?P<format>\w+) KV cache format for \S+ backend")
# V1 is the older one and says nothing of itself, except where it stands in for V2.
_RUNNER = re.compile(r"Using (?P<taken>V2) Model Runner|using the (?P<instead>V1) model runner instead")


def _choice(active: Active, text: str) -> Active:
    if found := _RUNNER.search(text):
        return replace(active, model_runner=found["taken"] or found["instead"])
    if found := _KV_FORMAT.search(text):
        return replace(active, kv_cache_dtype=found["format"])
    return active


# ---------------------------------------------------------------- figures

_FIGURES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("flash_attention_version", re.compile(r"Using FlashAttention version (?P<value>\d)")),
    ("kv_cache_tokens", re.compile(r"KV cache size: (?P<value>[\d,]+) tokens")),
    ("graph_memory_gib", re.compile(r"Graph capturing finished in \d+ secs, took (?P<value>-?[\d.]+) GiB")),
    ("capture_s", re.compile(r"Graph capturing finished in (?P<value>\d+) secs")),
    ("weights_gib", re.compile(r"Model loading took (?P<value>[\d.]+) GiB")),
    ("load_s", re.compile(r"Model loading took [\d.]+ GiB(?: memory)? and (?P<value>[\d.]+) seconds")),
    ("compile_s", re.compile(r"torch\.compile (?:took|takes) (?P<value>[\d.]+) s in total")),
    # The engine's own sum: with a draft model or an encoder there are several compilations.
    ("compile_s", re.compile(r"init engine .*\(compilation: (?P<value>[\d.]+) s")),
    ("engine_init_s", re.compile(r"init engine .* took (?P<value>[\d.]+) s")),
)
_WHOLE = ("flash_attention_version", "kv_cache_tokens")


def _figures(active: Active, text: str) -> Active:
    """The last line wins; worker processes write the same figures, one set a process."""
    for name, pattern in _FIGURES:
        if found := pattern.search(text):
            number = found["value"].replace(",", "")
            active = replace(active, **{name: int(number) if name in _WHOLE else float(number)})
    return active


# ---------------------------------------------------------------- all together


def parse_active(log_text: str) -> Active:
    """What the log of one server says that it runs; a field that no line tells of stays None."""
    active = Active()
    steps: list[GraphSteps] = []
    device = ""
    for raw in plain_log(log_text).splitlines():
        place = _PLACE.search(raw)
        text = raw[place.end() :] if place else raw
        if config := _CONFIG.search(text):
            active = _read_config(active, config["version"], config["config"])
            found = _DEVICE.search(config["config"])
            device = found[1] if found else ""
            continue
        file = place["file"].rpartition("/")[2] if place else ""
        if file == "cuda_graph.py" and (row := step_row(text)):
            steps.append(row)
            continue
        if backend := _backend(text.strip(), file):
            backends = dict.fromkeys((*active.attention_backends, backend))
            active = replace(active, attention_backends=tuple(backends))
        active = _figures(_choice(_change(active, text), text), text)
    return _settle(replace(active, graph_steps=merged(steps)), device)


def _settle(active: Active, device: str) -> Active:
    """What follows from the rest without a line of its own."""
    if active.cudagraph_mode == "NONE":
        active = replace(active, capture_sizes=())
    # platforms/cpu.py returns CPU_ATTN for every model without MLA and logs only that it refuses another choice.
    if device == "cpu" and not active.attention_backends:
        active = replace(active, attention_backends=("CPU_ATTN",))
    return active
