"""Requested, resolved, active: differences are named."""

import dataclasses

import pytest

from advisor.engine.agreement import as_active, disagreement, judge, rewritten_at_start
from advisor.records import Active, Candidate, Command, EngineFacts, Facts, GpuFacts, ModelFacts

RUNNING = Active(
    attention_backends=("FLASHINFER",), compilation_mode="VLLM_COMPILE", cudagraph_mode="FULL_AND_PIECEWISE",
    capture_sizes=(1, 2, 4), enforce_eager=False,
)  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, None),
        ({"attention_backend": "FLASHINFER", "cudagraph_capture_sizes": [1, 2, 4]}, None),
        ({"attention_backend": "FLASH_ATTN"}, "attention backend FLASH_ATTN was asked for, FLASHINFER runs"),
        ({"cudagraph_mode": "FULL"}, "cudagraph_mode=FULL was asked for, FULL_AND_PIECEWISE runs"),
        ({"enforce_eager": True}, "enforce_eager=True was asked for, False runs"),
        ({"cudagraph_capture_sizes": [1, 2]}, "2 capture sizes were asked for, the server captured 3 others"),
    ],
)
def test_requested_against_active(settings, told):
    assert disagreement(Candidate(settings), RUNNING) == told
    assert disagreement(Candidate(settings), Active()) is None


def test_resolved_against_active():
    resolved = {"cudagraph_mode": "FULL", "attention_backend": None, "cudagraph_capture_sizes": [1, 2]}
    assert rewritten_at_start(resolved, RUNNING) == (
        "cudagraph_mode: resolved FULL, active FULL_AND_PIECEWISE",
        "cudagraph_capture_sizes: resolved 2, active 3",
    )
    assert rewritten_at_start({}, RUNNING) == () == rewritten_at_start(resolved, Active())


def test_what_ran_is_described_by_active_values_without_those_of_the_default():
    default = Active(attention_backends=("FLASH_ATTN",), cudagraph_mode="FULL_AND_PIECEWISE", enforce_eager=False)
    asked = Candidate({"attention_backend": "FLASHINFER", "cudagraph_mode": "FULL", "--max-num-seqs": 8})
    assert as_active(asked, RUNNING, default).settings == {"attention_backend": "FLASHINFER", "--max-num-seqs": 8}
    fallen_back = dataclasses.replace(RUNNING, attention_backends=("TRITON_ATTN",), cudagraph_mode="FULL")
    assert as_active(asked, fallen_back, default).settings["attention_backend"] == "TRITON_ATTN"
    assert as_active(asked, Active(), default) == asked


# ---------------------------------------------------------------- the KV cache, which the /metrics page tells

CACHE = Active(block_size=64, kv_cache_dtype="fp8", prefix_caching=False, gpu_memory_utilization=0.92)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"--block-size": "64", "--kv-cache-dtype": "fp8", "--enable-prefix-caching": False}, None),
        ({"--block-size": 64, "--kv-cache-dtype": "fp8_e4m3", "--gpu-memory-utilization": "0.92"}, None),
        ({"--kv-cache-dtype": "auto"}, None),
        ({"--kv-cache-dtype": "bfloat16"}, "--kv-cache-dtype bfloat16 was asked for, fp8 runs"),
        ({"--block-size": "32"}, "--block-size 32 was asked for, 64 runs"),
        ({"--kv-cache-dtype": "fp8_e5m2"}, "--kv-cache-dtype fp8_e5m2 was asked for, fp8 runs"),
        ({"--enable-prefix-caching": True}, "--enable-prefix-caching True was asked for, False runs"),
        ({"--gpu-memory-utilization": "0.8"}, "--gpu-memory-utilization 0.8 was asked for, 0.92 runs"),
    ],
)
def test_flags_of_the_cache_against_active(settings, told):
    assert disagreement(Candidate(settings), CACHE) == told
    assert disagreement(Candidate(settings), Active()) is None


@pytest.mark.parametrize(
    ("wanted", "now", "same"),
    [("fp8", "fp8_ds_mla", True), ("bfloat16", "auto", True), ("fp8", "auto", False), ("fp8_e5m2", "fp8_e4m3", False)],
)
def test_formats_of_the_cache(wanted, now, same):
    found = disagreement(Candidate({"--kv-cache-dtype": wanted}), Active(kv_cache_dtype=now))
    assert (found is None) == same


def test_a_flag_that_is_not_active_is_credited_to_what_runs():
    asked = Candidate({"--block-size": 32, "--kv-cache-dtype": "fp8_e4m3", "--max-num-seqs": 8})
    assert as_active(asked, CACHE, CACHE).settings == {"--kv-cache-dtype": "fp8_e4m3", "--max-num-seqs": 8}
    assert as_active(asked, CACHE, Active(block_size=16)).settings["--block-size"] == 64


def test_the_cache_s_resolved_values_against_active():
    resolved = {"block_size": 16, "kv_cache_dtype": "auto", "enable_prefix_caching": True}
    assert rewritten_at_start(resolved, CACHE) == (
        "block_size: resolved 16, active 64",
        "kv_cache_dtype: resolved auto, active fp8",
        "enable_prefix_caching: resolved True, active False",
    )


# ---------------------------------------------------------------- the person's own arguments

FACTS = Facts(
    GpuFacts("cuda", "NVIDIA H200", "h200", 1, 139.8, "9.0"),
    EngineFacts("python", "3.11", "0.26.0", "2.11.0", "cuda"),
    ModelFacts("m", "LlamaForCausalLM", "0" * 16, 2, 128, 2, 2, 64, 10000, 2048),
)


def judged(options, settings=None, active=RUNNING):
    command = Command(("python", "-m", "vllm.entrypoints.cli.main", "serve", "m", *options))
    return judge(Candidate(settings or {}), command, {}, active, active, FACTS)


def test_own_arguments_that_are_not_active_are_a_note_and_no_fault_of_the_candidate():
    options = ("--attention-backend", "TRITON_ATTN", "-cc.cudagraph_mode=FULL", "--block-size", "32")
    found = judged(options, active=dataclasses.replace(RUNNING, block_size=64))
    assert (found.wrong, found.credited_to) == (None, None)
    assert found.notes == (
        "attention backend TRITON_ATTN was asked for, FLASHINFER runs",
        "cudagraph_mode=FULL was asked for, FULL_AND_PIECEWISE runs",
        "--block-size 32 was asked for, 64 runs",
    )


def test_the_candidate_s_own_setting_is_told_once():
    found = judged(("-cc.cudagraph_mode=FULL",), {"cudagraph_mode": "FULL"})
    assert found.wrong == "cudagraph_mode=FULL was asked for, FULL_AND_PIECEWISE runs"
    assert found.notes == () and found.credited_to == Candidate()


def test_arguments_that_are_active_say_nothing():
    options = ("--attention-backend", "FLASHINFER", "--cudagraph-capture-sizes", "4", "1", "2", "--max-num-seqs", "8")
    assert judged(options) == judge(Candidate(), Command(()), {}, RUNNING, RUNNING, FACTS)
