"""What the fake engine writes to its log: the lines of vLLM 0.26.0 on CUDA that the advisor reads, and its failures."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import fake_settings

VERSION = "0.26.0"
BACKENDS = ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION")
_MODES = {"NONE": 0, "STOCK_TORCH_COMPILE": 1, "DYNAMO_TRACE_ONCE": 2, "VLLM_COMPILE": 3}
_GRAPHS = {"NONE": "0", "PIECEWISE": "1", "FULL": "2", "FULL_DECODE_ONLY": "(2, 0)", "FULL_AND_PIECEWISE": "(2, 1)"}


def say(place: str, text: str, level: str = "INFO", process: str = "EngineCore") -> None:
    """One line as vLLM's logger formats it, in one write: lines of several threads and processes do not mix."""
    stamp = time.strftime("%m-%d %H:%M:%S")
    os.write(1, f"({process} pid={os.getpid()}) {level} {stamp} [{place}] {text}\n".encode())


def starting(model: str, served_name: str, settings: dict) -> None:
    """The lines of a start up to the moment before the API server listens."""
    say("api_utils.py:286", f"non-default args: {{'model_tag': {model!r}}}", process="APIServer")
    if settings["enforce_eager"]:
        say("vllm.py:1163", "Enforce eager set, disabling torch.compile and CUDAGraphs. ", "WARNING", "APIServer")
    say("core.py:116", f"Initializing a V1 LLM engine (v{VERSION}) with config: {config(model, served_name, settings)}")
    say("gpu_model_runner.py:5320", f"Starting to load model {model}...")
    if settings["attention_backend"]:
        say("cuda.py:422", f"Using AttentionBackendEnum.{settings['attention_backend']} backend.")
    else:
        say("cuda.py:482", f"Using FLASH_ATTN attention backend out of potential backends: {list(BACKENDS)}.")
    if settings["backend"] == "FLASH_ATTN":
        say("flash_attn.py:776", "Using FlashAttention version 3")
    say("gpu_model_runner.py:5347", "Model loading took 1.12 GiB memory and 0.501000 seconds")
    if settings["mode"] == "VLLM_COMPILE":
        compiled_code()
        say("monitor.py:53", "torch.compile took 2.50 s in total")
    say("gpu_worker.py:560", "Available KV cache memory: 100.0 GiB")
    say("kv_cache_utils.py:2177", "GPU KV cache size: 919,824 tokens")
    if settings["cudagraph_mode"] != "NONE":
        count = len(settings["sizes"])
        say("gpu_model_runner.py:6844", f"Graph capturing finished in {count // 8} secs, took {count / 50:.2f} GiB")
    compiled = " (compilation: 2.50 s)" if settings["mode"] == "VLLM_COMPILE" else ""
    say("core.py:348", f"init engine (profile, create kv cache, warmup model) took 3.20 s{compiled}")


def compiled_code() -> None:
    """With FAKE_COMPILES: whether compiled code was found in vLLM's cache; from then on it is."""
    if not os.environ.get("FAKE_COMPILES"):
        return
    marker = Path(os.environ["VLLM_CACHE_ROOT"]) / "fake_compiled"
    if marker.exists():
        say("decorators.py:724", f"Directly load AOT compilation from path {marker}")
        return
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()
    say("backends.py:391", "Cache the graph of compile range (1, 8192) for later use")


def compiling(kernel: str) -> None:
    """The JIT monitor's warning after the start (vllm/utils/jit_monitor.py of 0.26.0)."""
    say(
        "jit_monitor.py:137",
        f"Triton kernel JIT compilation during inference: {kernel}. This causes a latency spike; consider extending warmup "
        "to cover this shape/config.",
        "WARNING",
    )


def config(model: str, served_name: str, settings: dict) -> str:
    """The resolved configuration, in vLLM's own notation, as far as somebody reads it."""
    mode, graphs = settings["mode"], settings["cudagraph_mode"]
    return (
        f"model={model!r}, speculative_config=None, dtype=torch.bfloat16, enforce_eager={settings['enforce_eager']}, "
        f"device_config=cuda, served_model_name={served_name}, compilation_config={{'mode': <CompilationMode.{mode}: "
        f"{_MODES[mode]}>, 'backend': 'inductor', 'cudagraph_mode': <CUDAGraphMode.{graphs}: {_GRAPHS[graphs]}>, "
        f"'cudagraph_capture_sizes': {settings['sizes']}, 'max_cudagraph_capture_size': "
        f"{max(settings['sizes'], default=0)}}}, kernel_config=KernelConfig(moe_backend='auto')"
    )


def graph_table(settings: dict, running: int, steps: int) -> None:
    """The table of --cudagraph-metrics for so many decode steps of `running` requests."""
    padded, mode = fake_settings.step_mode(settings, running)
    say(
        "cuda_graph.py:123",
        "| Unpadded Tokens | Padded Tokens | Num Paddings | Runtime Mode | Count |",
        process="APIServer",
    )
    row = f"| {running:<15} | {padded:<13} | {padded - running:<12} | {mode:<12} | {steps:<5} |"
    say("cuda_graph.py:123", row, process="APIServer")


_FAILURES = {
    "exit_at_start": ("load_model", "RuntimeError: the fake engine was told to fail"),
    "oom_at_load": (
        "load_model",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 GiB"
        " of which 1.21 GiB is free.",
    ),
    "oom_at_capture": (
        "capture_model",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 139.80 "
        "GiB of which 41.00 MiB is free.",
    ),
    "kv_too_small": (
        "initialize_kv_caches",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing "
        "the engine.",
    ),
    "gpu_in_use": (
        "init_device",
        "ValueError: Free memory on device cuda:0 (127.1/139.8 GiB) on startup is less than desired GPU memory utilization "
        "(0.92, 128.62 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
    ),
    "memory_profiling": (
        "determine_available_memory",
        "AssertionError: Error in memory profiling. Initial free memory 100.00 GiB, current free memory 120.00 GiB.",
    ),
    "unsupported": (
        "load_model",
        "ValueError: Selected backend AttentionBackendEnum.FLASHMLA is not valid for this configuration. Reason: "
        "['non-MLA not supported']",
    ),
    "illegal_memory": ("capture_model", "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
    "stale_cache": ("load", "AssertionError: failed to get the hash of the compiled graph"),
}
FAILURES = tuple(_FAILURES)


def failing(fault: str, fatal: str = "EngineCore failed to start.") -> None:
    """A failed start as vLLM logs it: the engine process's traceback, then the API server's, which only refers to it."""
    function, exception = _FAILURES[fault]
    say("core.py:1330", fatal, "ERROR")
    for line in (
        "Traceback (most recent call last):",
        '  File "/site-packages/vllm/v1/engine/core.py", line 1300, in run_engine_core',
        "    engine_core = EngineCoreProc(*args, engine_index=dp_rank, **kwargs)",
        f'  File "/site-packages/vllm/v1/worker/gpu_worker.py", line 780, in {function}',
        f"    self.model_runner.{function}()",
        exception,
    ):
        say("core.py:1330", line, "ERROR")
    print("Traceback (most recent call last):", file=sys.stderr)
    print('  File "/site-packages/vllm/v1/engine/utils.py", line 1431, in wait_for_engine_startup', file=sys.stderr)
    print("    raise RuntimeError(", file=sys.stderr)
    print(
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        file=sys.stderr,
        flush=True,
    )
