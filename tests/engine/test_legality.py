"""Backends per version: names, objections, automatic choice and graph support, against facts read or recorded from releases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.engine.rules.backend_table import BACKENDS
from advisor.engine.rules.legality import (
    Surroundings,
    automatic_backend,
    automatic_order,
    backend_names,
    flash_attention_version,
    graph_support,
    is_backend,
    objections,
    plain_name,
)
from advisor.engine.versions import RELEASES

H100, A100, B200, T4 = (9, 0), (8, 0), (10, 0), (7, 5)
RECORDED = Path(__file__).parents[1] / "data" / "resolution" / "backends-cuda-0.26.json"


@pytest.mark.parametrize(
    ("version", "name", "there"),
    [
        ((0, 9, 0), "FLASH_ATTN_VLLM_V1", True),
        ((0, 9, 0), "FLEX_ATTENTION", False),
        ((0, 9, 0), "TRITON_ATTN", False),
        ((0, 10, 0), "CUTLASS_MLA_VLLM_V1", True),
        ((0, 10, 0), "CUTLASS_MLA", False),
        ((0, 10, 2), "FLASHINFER_MLA", True),
        ((0, 11, 0), "TRITON_ATTN", True),
        ((0, 11, 0), "FLASHINFER_VLLM_V1", False),  # envs.py refuses the old suffix
        ((0, 12, 0), "FLASHINFER_VLLM_V1", False),
        ((0, 11, 2), "XFORMERS", True),
        ((0, 12, 0), "XFORMERS", False),
        ((0, 20, 2), "TREE_ATTN", True),
        ((0, 21, 0), "TREE_ATTN", False),
        ((0, 25, 1), "HPC_ATTN", True),
        ((0, 33, 0), "STEP5_DSA", True),
        ((0, 33, 0), "flash_attn", True),
    ],
)
def test_names(version, name, there):
    assert is_backend(name, version) is there


def test_the_names_of_0_26_are_the_enumeration():
    names = (
        "FLASH_ATTN FLASH_ATTN_DIFFKV TRITON_ATTN TRITON_ATTN_DIFFKV ROCM_ATTN ROCM_AITER_MLA ROCM_AITER_TRITON_MLA "
        "ROCM_AITER_FA ROCM_AITER_MLA_SPARSE XPU_MLA_SPARSE TORCH_SDPA FLASHINFER FLASHINFER_MLA TOKENSPEED_MLA "
        "FLASHINFER_MLA_SPARSE FLASHINFER_MLA_SPARSE_SM120 TRITON_MLA CUTLASS_MLA FLASHMLA FLASHMLA_SPARSE "
        "FLASHMLA_SPARSE_DSV4 FLASHINFER_MLA_SPARSE_DSV4 ROCM_FLASHMLA_SPARSE_DSV4 FLASH_ATTN_MLA FLASH_ATTN_MLA_SPARSE "
        "MINIMAX_M3_SPARSE NO_ATTENTION FLEX_ATTENTION HPC_ATTN ROCM_AITER_UNIFIED_ATTN CPU_ATTN TURBOQUANT CUSTOM"
    )
    assert set(backend_names((0, 26, 0))) == set(names.split())


def test_the_old_suffix_names_no_other_backend():
    assert plain_name("flashinfer_vllm_v1") == "FLASHINFER"
    assert plain_name("TRITON_MLA") == "TRITON_MLA"


def test_objections_agree_with_what_vllm_0_26_said():
    cases = json.loads(RECORDED.read_text())["cases"]
    assert len(cases) > 400
    wrong = []
    for backend, *around, said in cases:
        ours = objections(backend, Surroundings((0, 26, 0), H100, *around))
        if bool(ours) != bool(said):
            wrong.append((backend, around, said, ours))
    assert wrong == []


@pytest.mark.parametrize(
    ("backend", "version", "gpu", "around", "word"),
    [
        ("FLASH_ATTN", (0, 26, 0), T4, {}, "compute capability 7.5"),
        ("FLASHINFER", (0, 22, 1), T4, {}, None),
        ("FLASHINFER", (0, 24, 0), T4, {}, "compute capability"),
        ("FLASH_ATTN", (0, 26, 0), H100, {"dtype": "float"}, "dtype float32"),
        ("FLASH_ATTN", (0, 26, 0), A100, {"kv_cache_dtype": "fp8"}, "9.x only"),
        ("FLASH_ATTN", (0, 26, 0), B200, {"kv_cache_dtype": "fp8"}, "9.x only"),
        ("FLASH_ATTN", (0, 27, 1), B200, {"kv_cache_dtype": "fp8"}, None),
        ("FLASH_ATTN", (0, 22, 1), H100, {"kv_cache_dtype": "fp8_e5m2"}, "KV-cache dtype"),
        ("FLASH_ATTN", (0, 11, 2), H100, {"head_size": 80}, "head size 80"),
        ("FLASH_ATTN", (0, 12, 0), H100, {"head_size": 80}, None),
        ("FLASH_ATTN", (0, 11, 2), H100, {"block_size": 128}, "block size 128"),
        ("FLASHINFER", (0, 26, 0), H100, {"block_size": 128}, None),
        ("FLASHINFER", (0, 26, 0), H100, {"block_size": 24}, "multiple of 16 or 32 or 64"),
        ("TRITON_ATTN", (0, 17, 1), H100, {"block_size": 48}, "none of 1, 8, 16"),
        ("TRITON_ATTN", (0, 18, 1), H100, {"block_size": 48}, None),
        ("FLASHMLA", (0, 26, 0), H100, {"mla": True, "block_size": 16}, "multiple of 64"),
        ("FLASHMLA", (0, 26, 0), H100, {}, "MLA models only"),
        ("TRITON_ATTN", (0, 26, 0), H100, {"mla": True}, "does not support MLA"),
        ("TOKENSPEED_MLA", (0, 26, 0), B200, {"mla": True, "kv_cache_dtype": "auto"}, "only fp8"),
        ("FLASHINFER", (0, 26, 0), H100, {"sinks": True}, "sinks"),
        ("FLASHINFER", (0, 26, 0), B200, {"sinks": True}, None),
        ("TRITON_ATTN", (0, 26, 0), A100, {"sinks": True}, None),
        ("TREE_ATTN", (0, 26, 0), H100, {}, "has no backend TREE_ATTN"),
        ("CPU_ATTN", (0, 26, 0), H100, {}, "it is for cpu"),
        ("MINIMAX_M3_SPARSE", (0, 26, 0), H100, {}, None),  # named, but nothing is known of it
    ],
)
def test_objections(backend, version, gpu, around, word):
    found = objections(backend, Surroundings(version, gpu, **around))
    assert (word is None and not found) or (word is not None and word in "; ".join(found))


@pytest.mark.parametrize(
    ("version", "gpu", "around", "chosen"),
    [
        ((0, 26, 0), H100, {}, "FLASH_ATTN"),
        ((0, 26, 0), B200, {}, "FLASHINFER"),
        ((0, 26, 0), T4, {}, "TRITON_ATTN"),
        ((0, 11, 0), T4, {}, "FLEX_ATTENTION"),
        ((0, 11, 0), A100, {"kv_cache_dtype": "fp8"}, "TRITON_ATTN"),
        ((0, 11, 0), H100, {"kv_cache_dtype": "fp8"}, "FLASH_ATTN"),
        ((0, 11, 0), H100, {"sinks": True}, "FLASH_ATTN"),
        ((0, 26, 0), A100, {"kv_cache_dtype": "fp8"}, "FLASHINFER"),
        ((0, 26, 0), A100, {"sinks": True}, "TRITON_ATTN"),
        ((0, 26, 0), H100, {"dtype": "float32"}, "TRITON_ATTN"),
        ((0, 26, 0), H100, {"mla": True}, "FLASH_ATTN_MLA"),
        ((0, 26, 0), H100, {"mla": True, "kv_cache_dtype": "fp8"}, "FLASHMLA"),
        ((0, 13, 0), B200, {"mla": True}, "CUTLASS_MLA"),
        ((0, 16, 0), B200, {"mla": True}, "FLASHINFER_MLA"),
        ((0, 26, 0), (12, 0), {"mla": True}, "TRITON_MLA"),
    ],
)
def test_automatic_choice(version, gpu, around, chosen):
    assert automatic_backend(Surroundings(version, gpu, **around)) == chosen


def test_every_automatic_order_names_backends_of_its_version():
    for version in RELEASES:
        for gpu in (T4, A100, H100, B200, (12, 0)):
            for mla in (False, True):
                for name in automatic_order(version, gpu, mla):
                    assert (name in BACKENDS and is_backend(name, version)) or is_backend(f"{name}_VLLM_V1", version)


@pytest.mark.parametrize(
    ("version", "gpu", "asked", "head_size", "used"),
    [
        ((0, 10, 0), H100, None, None, 3),
        ((0, 26, 0), A100, None, None, 2),
        ((0, 26, 0), H100, 2, None, 2),
        ((0, 16, 0), B200, None, None, 2),
        ((0, 16, 0), B200, 3, None, 2),
        ((0, 17, 1), B200, None, None, 4),
        ((0, 26, 0), B200, 3, None, 4),
        ((0, 26, 0), B200, None, 256, 2),
    ],
)
def test_flash_attention_version(version, gpu, asked, head_size, used):
    assert flash_attention_version(version, gpu, asked, head_size) == used


@pytest.mark.parametrize(
    ("backend", "version", "flash", "gpu", "support"),
    [
        ("FLASH_ATTN", (0, 10, 0), 2, A100, "NEVER"),
        ("FLASH_ATTN", (0, 26, 0), 3, H100, "ALWAYS"),
        ("FLASH_ATTN", (0, 26, 0), 2, A100, "UNIFORM_BATCH"),
        ("FLASH_ATTN", (0, 32, 0), 4, B200, "UNIFORM_BATCH"),
        ("FLASH_ATTN", (0, 33, 0), 4, B200, "ALWAYS"),
        ("FLASH_ATTN", (0, 33, 0), None, B200, "UNKNOWN"),
        ("FLASHINFER", (0, 11, 0), None, H100, "UNIFORM_SINGLE_TOKEN_DECODE"),
        ("FLASHINFER", (0, 26, 0), None, H100, "UNIFORM_SINGLE_TOKEN_DECODE"),
        ("FLASHINFER", (0, 30, 0), None, H100, "UNIFORM_BATCH"),
        ("FLASHINFER", (0, 26, 0), None, B200, "UNIFORM_BATCH"),
        ("FLEX_ATTENTION", (0, 19, 1), None, H100, "NEVER"),
        ("FLEX_ATTENTION", (0, 20, 2), None, H100, "ALWAYS"),
        ("TRITON_MLA", (0, 21, 0), None, H100, "NEVER"),
        ("TRITON_MLA", (0, 24, 0), None, H100, "UNIFORM_BATCH"),
        ("TRITON_MLA", (0, 28, 0), None, H100, "UNIFORM_SINGLE_TOKEN_DECODE"),
        ("FLASHINFER_MLA", (0, 31, 0), None, B200, "ALWAYS"),
        ("FLASHMLA", (0, 10, 0), None, H100, "ALWAYS"),
        ("TRITON_ATTN_VLLM_V1", (0, 10, 0), None, H100, "ALWAYS"),
        ("STEP5_DSA", (0, 33, 0), None, H100, "UNKNOWN"),
    ],
)
def test_graph_support(backend, version, flash, gpu, support):
    assert graph_support(backend, version, flash, gpu) == support
