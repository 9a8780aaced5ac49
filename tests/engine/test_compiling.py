"""Lines that say that something was compiled, as vLLM, torch, Triton and FlashInfer write them; and a start that says more."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.engine.compiling import compiled, compilers

STAMP = "(EngineCore pid=7) WARNING 11-30 00:02:58 [jit_monitor.py:137] "
LAUNCHES = Path(__file__).parents[1] / "data" / "launches"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (  # 0.21 to 0.24: triton_utils/jit_monitor.py
            "Triton kernel JIT compilation during inference: _fwd_kernel. This causes a latency spike; consider extending",
            "Triton kernel _fwd_kernel",
        ),
        (  # 0.24 with --jit-monitor-verbose
            "Triton autotune/warmup candidate JIT compilation during inference: matmul_kernel (key=abc).",
            "Triton kernel matmul_kernel",
        ),
        (
            "CuTeDSL JIT compilation during inference: FlashAttentionForwardSm100. This",
            "CuTeDSL kernel FlashAttentionForwardSm100",
        ),
        ("TileLang JIT compilation during inference: main_kernel. This causes", "TileLang kernel main_kernel"),
        ("Triton kernel JIT compilation during inference: <unknown>. This causes", "Triton kernel <unknown>"),
        ("Triton autotuning for function chunk_fwd_kernel,", "Triton autotuning of chunk_fwd_kernel"),
        ("Compiling a graph for compile range (1, 8192) takes 12.31 s", "a graph for compile range (1, 8192)"),
        ("Compiling a graph for dynamic shape takes 2.31 s", "a graph for dynamic shape"),
        ("Dynamo bytecode transform time: 3.21 s", "torch.compile (Dynamo)"),
        ("torch._dynamo hit config.recompile_limit (8)", "torch.compile again and again (recompile_limit)"),
        ("torch._dynamo hit config.cache_size_limit (8)", "torch.compile again and again (cache_size_limit)"),
        ("Recompiling function forward in /site/model.py:88", "torch.compile of forward again"),
        ("autotuner.py:651 - flashinfer.jit: [Autotuner]: Autotuning process starts ...", "FlashInfer's autotuner"),
        ("flashinfer.jit: Loading JIT ops: batch_prefill_with_kv_cache", "FlashInfer's batch_prefill_with_kv_cache"),
        ("DeepGEMM warmup:  10%|#         | 12/120", "DeepGEMM's warm-up"),
    ],
)
def test_each_line_is_told_in_short_words(line: str, told: str):
    assert compiled(f"INFO: something\n{STAMP}{line}\nINFO: else\n") == (told,)


def test_equal_lines_count_once_and_order_is_kept():
    text = "\n".join(
        STAMP + f"Triton kernel JIT compilation during inference: {name}. This" for name in ("b", "a", "b")
    )
    assert compiled(text) == ("Triton kernel b", "Triton kernel a")


def test_ordinary_lines_of_serving_are_no_compilation():
    text = """\
(APIServer pid=1) INFO:     127.0.0.1:5000 - "POST /v1/completions HTTP/1.1" 200 OK
(APIServer pid=1) INFO 11-30 00:02:58 [loggers.py:257] Engine 000: Avg prompt throughput: 61.2 tokens/s, Running: 4 reqs
(EngineCore pid=7) INFO 11-30 00:02:58 [jit_monitor.py:79] Kernel JIT monitor activated; monitored JIT compilations during inference
(EngineCore pid=7) WARNING 11-29 23:17:12 [vllm.py:1703] Enforce eager set, disabling torch.compile, CUDAGraphs, and JIT
(EngineCore pid=7) INFO 11-30 [decorators.py:312] Directly load AOT compilation from path /cache/x
"""
    assert compiled(text) == ()


def test_after_the_start_of_recorded_h200_launches_nothing_was_compiled():
    """What follows vLLM's own word that it serves: fixed prompts were answered, no line may look like a compilation."""
    logs = sorted(LAUNCHES.rglob("*.log"))
    assert logs
    for log in logs:
        _, _, after = log.read_text(errors="replace").partition("Application startup complete")
        assert compiled(after) == (), log.name


def test_compilers_are_found_among_processes():
    assert compilers(["python", "VLLM::EngineCor", "nvcc", "cicc", "ninja"]) == ("cicc", "ninja", "nvcc")
    assert compilers(["python", "gcc-like", "cc1"]) == ()
