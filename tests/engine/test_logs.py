"""What the parser finds in recorded and rebuilt server logs (tests/data/logs/README.md says which is which)."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.engine.logs import parse_active
from advisor.records import Active

LOGS = Path(__file__).resolve().parent.parent / "data" / "logs"
DEFAULT_SIZES = (1, 2, 4, *range(8, 257, 8), *range(272, 513, 16))


def parse(name: str) -> Active:
    return parse_active((LOGS / f"{name}.log").read_text())


def test_all_figures_of_a_cuda_start() -> None:
    assert parse("cuda-0.26-default") == Active(
        vllm_version="0.26.0",
        attention_backends=("FLASH_ATTN",),
        flash_attention_version=3,
        compilation_mode="VLLM_COMPILE",
        cudagraph_mode="FULL_AND_PIECEWISE",
        capture_sizes=DEFAULT_SIZES,
        enforce_eager=False,
        kv_cache_dtype="auto",
        prefix_caching=True,
        kv_cache_tokens=919824,
        graph_memory_gib=0.98,
        weights_gib=14.99,
        load_s=5.521904,
        compile_s=23.0,
        capture_s=6.0,
        engine_init_s=34.91,
    )


def test_a_worker_s_later_rewrite_wins_over_the_configuration_line() -> None:
    active = parse("cuda-0.26-flashinfer-full-rewritten")
    assert active.cudagraph_mode == "FULL_AND_PIECEWISE"  # the configuration line still says FULL
    assert active.capture_sizes == (1, 8, 64)
    assert active.attention_backends == ("FLASHINFER",)  # and not the MoE backend's line
    assert len(active.rewrites) == 2
    assert "65536" in active.rewrites[0]
    assert "setting cudagraph_mode=FULL_AND_PIECEWISE" in active.rewrites[1]


def test_eager_means_no_compilation_and_no_graphs() -> None:
    active = parse("cuda-0.26-eager")
    assert (active.enforce_eager, active.compilation_mode, active.cudagraph_mode) == (True, "NONE", "NONE")
    assert active.capture_sizes == ()
    assert active.compile_s is None
    assert any("disabled under eager mode" in line for line in active.rewrites)


def test_piecewise_graphs_without_compilation_are_gone() -> None:
    active = parse("cuda-0.26-graphs-without-compile")
    assert (active.enforce_eager, active.cudagraph_mode) == (False, "NONE")
    assert len(active.rewrites) == 1


def test_every_backend_of_a_model_with_several_is_listed_once() -> None:
    assert parse("cuda-0.26-two-backends").attention_backends == ("FLASH_ATTN", "TRITON_ATTN")


@pytest.mark.parametrize(
    ("name", "version", "graphs"),
    [("cuda-0.10.0-default", "0.10.0", "PIECEWISE"), ("cuda-0.11.0-default", "0.11.0", "FULL_AND_PIECEWISE")],
)
def test_older_notations(name: str, version: str, graphs: str) -> None:
    active = parse(name)
    assert (active.vllm_version, active.cudagraph_mode) == (version, graphs)
    assert active.compilation_mode == "VLLM_COMPILE"
    assert active.attention_backends == ("FLASH_ATTN",)
    assert active.capture_sizes == (1, 2, 4, *range(8, 513, 8))
    assert (active.compile_s, active.engine_init_s, active.load_s) == (24.5, 46.12, 5.231904)


def test_real_cpu_start() -> None:
    active = parse("cpu-0.32-default")
    assert active.vllm_version == "0.32.0"
    assert active.attention_backends == ("CPU_ATTN",)
    assert (active.compilation_mode, active.cudagraph_mode) == ("DYNAMO_TRACE_ONCE", "NONE")
    assert active.enforce_eager is False
    assert active.kv_cache_tokens == 4194304
    assert active.engine_init_s == 24.87


def test_a_backend_that_the_cpu_silently_replaces_shows() -> None:
    active = parse("cpu-0.32-eager-flash-asked")
    assert active.attention_backends == ("CPU_ATTN",)
    assert active.enforce_eager is True
    assert any("Cannot use AttentionBackendEnum.FLASH_ATTN backend on CPU" in line for line in active.rewrites)


@pytest.mark.parametrize(
    ("line", "backend"),
    [
        ("INFO 11-29 10:00:00 [cuda.py:446] Using AttentionBackendEnum.TRITON_ATTN backend.", "TRITON_ATTN"),
        ("INFO 11-29 10:00:00 [cuda.py:250] Using FLASHINFER backend.", "FLASHINFER"),  # 0.11.2
        ("INFO 11-29 10:00:00 [cuda.py:250] Using FlashInfer backend on V1 engine.", "FLASHINFER"),
        ("INFO 11-29 10:00:00 [cpu.py:163] Using AMX_MLA backend.", "AMX_MLA"),
        ("[cuda.py:482] Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN'].", "FLASH_ATTN"),
    ],
)
def test_spellings_of_a_chosen_backend(line: str, backend: str) -> None:
    assert parse_active(line).attention_backends == (backend,)


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-29 10:00:00 [fp8.py:1] Using MARLIN backend.",
        "INFO 11-29 10:00:00 [cuda.py:523] Using backend AttentionBackendEnum.FLASH_ATTN for vit attention",
        "INFO 11-29 10:00:00 [selector.py:137] Using FLASH_ATTN MLA prefill backend.",
        "INFO 11-29 10:00:00 [ssu_dispatch.py:635] Using TRITON Mamba SSU backend.",
        "INFO 11-29 10:00:00 [topk_topp_sampler.py:55] Using FlashInfer for top-p & top-k sampling.",
    ],
)
def test_other_backends_are_not_taken_for_attention(line: str) -> None:
    assert parse_active(line).attention_backends == ()


def test_a_backend_s_own_format_of_the_kv_cache_wins() -> None:
    start = "Initializing a V1 LLM engine (v0.26.0) with config: kv_cache_dtype=fp8, enable_prefix_caching=False, x"
    line = "INFO 11-29 10:00:00 [mla_attention.py:441] Using fp8_ds_mla KV cache format for FLASHMLA_SPARSE backend."
    assert parse_active(start).kv_cache_dtype == "fp8"
    assert parse_active(f"{start}\n{line}\n").kv_cache_dtype == "fp8_ds_mla"


@pytest.mark.parametrize(
    ("name", "runner"), [("h200-0.26-default", "V2"), ("cpu-0.32-default", "V1"), ("cuda-0.26-default", None)]
)
def test_the_model_runner_is_read(name: str, runner: str | None) -> None:
    assert parse(name).model_runner == runner


def test_a_log_that_says_nothing_gives_nothing() -> None:
    assert parse_active("") == Active()
    assert parse_active("INFO:     Application startup complete.\n") == Active()


@pytest.mark.parametrize(
    ("name", "backend", "mode", "graphs", "sizes", "kv_tokens", "graph_gib", "compile_s", "init_s"),
    [
        ("default", "FLASH_ATTN", "VLLM_COMPILE", "FULL_AND_PIECEWISE", 51, 919_824, 0.98, 23.46, 43.95),
        ("eager", "FLASH_ATTN", "NONE", "NONE", 0, 921_696, None, None, 13.19),
        ("flashinfer", "FLASHINFER", "VLLM_COMPILE", "FULL_AND_PIECEWISE", 51, 919_824, 0.99, 30.32, 52.15),
        ("full-without-compile", "FLASH_ATTN", "NONE", "FULL", 51, 921_696, 0.68, None, 6.69),
        ("eight-sizes", "FLASH_ATTN", "VLLM_COMPILE", "FULL_AND_PIECEWISE", 8, 919_824, 0.17, 25.0, 40.24),
    ],
)
def test_real_h200_starts(name, backend, mode, graphs, sizes, kv_tokens, graph_gib, compile_s, init_s) -> None:
    active = parse(f"h200-0.26-{name}")
    assert active.attention_backends == (backend,) and active.compilation_mode == mode
    assert active.cudagraph_mode == graphs and len(active.capture_sizes) == sizes
    assert (active.kv_cache_tokens, active.graph_memory_gib) == (kv_tokens, graph_gib)
    assert (active.compile_s, active.engine_init_s) == (compile_s, init_s)
    assert active.flash_attention_version == (None if backend == "FLASHINFER" else 3)
    assert (active.vllm_version, active.weights_gib) == ("0.26.0", 15.0)
