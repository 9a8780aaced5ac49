"""Which engine 0.9.0 to 0.10.2 takes, by `_is_v1_supported_oracle` of those releases, and what V0 makes of a command."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from advisor.engine.explain import Gpu, explain
from advisor.engine.reading.command_line import read_command
from advisor.inspection.model import facts_from_config

ENV = "VLLM_ATTENTION_BACKEND"
HOPPER, ADA, TURING, BLACKWELL = (9, 0), (8, 9), (7, 5), (10, 0)
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip


# [compute capability, variables, words behind the model, engine or "refused"] by release: `_is_v1_supported_oracle` and
# `is_kv_cache_dtype_supported` of the release, executed with stubs for a Llama on a simulated CUDA GPU.
ORACLE = json.loads((Path(__file__).parents[1] / "data/engines/oracle.json").read_text())


def answer(text: str, version: tuple[int, ...], capability=HOPPER, **config: Any) -> dict[str, Any]:
    model = facts_from_config("M", {**LLAMA, **config}) if config else None
    return explain(read_command(shlex.split(text), version), version, Gpu("G", capability, 80.0), model)


def engine(text: str, version: tuple[int, ...], capability=HOPPER, **config: Any) -> str:
    return answer(text, version, capability, **config)["resolved"]["engine"]


@pytest.mark.parametrize("release", ORACLE)
def test_agrees_with_the_releases_own_choice(release):
    version = tuple(map(int, release.split(".")))
    wrong = []
    for capability, env, words, theirs in ORACLE[release]:
        text = shlex.join([*(f"{name}={value}" for name, value in env.items()), "vllm", "serve", "M", *words])
        found = answer(text, version, tuple(capability))
        refused = any(f["code"] == "old-engine" and f["severity"] == "error" for f in found["findings"])
        if ("refused" if refused else found["resolved"]["engine"]) != theirs:
            wrong.append((text, capability, theirs))
    assert wrong == []
    assert len(ORACLE[release]) == 150 and {entry[3] for entry in ORACLE[release]} == {"V0", "V1", "refused"}


@pytest.mark.parametrize(
    ("version", "name", "old"),
    [
        ((0, 9, 0), "XFORMERS", True),
        ((0, 9, 0), "FLASHINFER", False),
        ((0, 9, 0), "FLEX_ATTENTION", True),
        ((0, 9, 2), "XFORMERS", True),
        ((0, 9, 2), "FLEX_ATTENTION", False),
        ((0, 10, 0), "FLASHATTN", True),
        ((0, 10, 2), "TREE_ATTN", False),
        ((0, 10, 2), "FLASHATTN", True),
        ((0, 11, 0), "XFORMERS", False),
    ],
)
def test_backends(version, name, old):
    assert (engine(f"{ENV}={name} vllm serve M", version) == "V0") is old


@pytest.mark.parametrize(
    ("version", "words", "capability", "old"),
    [
        ((0, 9, 0), "", HOPPER, False),
        ((0, 9, 0), "--num-scheduler-steps 8", HOPPER, True),
        ((0, 9, 0), "--num-scheduler-steps 1", HOPPER, False),
        ((0, 10, 0), "--num-scheduler-steps 8", HOPPER, True),
        ((0, 9, 2), "--scheduler-delay-factor 0.5", HOPPER, True),
        ((0, 9, 2), "--scheduler-delay-factor 0.0", HOPPER, False),
        ((0, 10, 2), "--scheduler-delay-factor 0.5", HOPPER, True),
        ((0, 9, 0), "--scheduling-policy priority", HOPPER, True),
        ((0, 9, 2), "--scheduling-policy priority", HOPPER, False),
        ((0, 9, 2), "--load-format sharded_state", HOPPER, True),
        ((0, 9, 2), "--guided-decoding-backend outlines", HOPPER, True),
        ((0, 10, 0), "--guided-decoding-backend outlines", HOPPER, False),
        ((0, 9, 2), "--enable-prompt-embeds", HOPPER, True),
        ((0, 9, 2), "--no-enable-prompt-embeds", HOPPER, False),
        ((0, 10, 0), "--otlp-traces-endpoint http://x", HOPPER, True),
        ((0, 10, 2), "--otlp-traces-endpoint http://x", HOPPER, False),
        ((0, 9, 0), "--dtype float32", HOPPER, True),
        ((0, 9, 2), "--dtype float32", HOPPER, False),
        ((0, 9, 0), "--pipeline-parallel-size 2", HOPPER, True),
        ((0, 9, 0), "--pipeline-parallel-size 2 --distributed-executor-backend mp", HOPPER, False),
        ((0, 9, 2), "--pipeline-parallel-size 2", HOPPER, False),
        ((0, 9, 0), "--kv-cache-dtype fp8", ADA, True),
        ((0, 9, 0), "--kv-cache-dtype fp8", HOPPER, False),
        ((0, 10, 0), "--kv-cache-dtype fp8", ADA, True),
        ((0, 9, 2), "--kv-cache-dtype fp8", BLACKWELL, True),
        ((0, 10, 0), "--kv-cache-dtype fp8", BLACKWELL, False),
        ((0, 10, 2), "--kv-cache-dtype fp8", ADA, True),
        ((0, 10, 0), "", TURING, True),
        ((0, 10, 2), "", TURING, False),
        ((0, 9, 2), '--speculative-config \'{"model": "draft", "num_speculative_tokens": 3}\'', HOPPER, True),
        ((0, 9, 2), '--speculative-config \'{"method": "eagle", "model": "e"}\'', HOPPER, False),
        ((0, 9, 2), '--speculative-config \'{"method": "ngram", "num_speculative_tokens": 3}\'', HOPPER, False),
    ],
)
def test_what_leads_there(version, words, capability, old):
    assert (engine(f"vllm serve M {words}", version, capability) == "V0") is old


def test_fp8_cache_by_a_backend_that_takes_it():
    text = "vllm serve M --kv-cache-dtype fp8"
    assert engine(f"{ENV}=FLASHINFER {text}", (0, 10, 2), ADA) == "V1"
    assert engine(f"{ENV}=TRITON_ATTN_VLLM_V1 {text}", (0, 10, 2), ADA) == "V1"
    assert engine(f"{ENV}=FLASHINFER {text}", (0, 10, 0), ADA) == "V0"


@pytest.mark.parametrize(
    ("architecture", "version", "old"),
    [
        ("BloomForCausalLM", (0, 10, 0), True),
        ("BloomForCausalLM", (0, 10, 2), False),
        ("Phi4FlashForCausalLM", (0, 10, 2), True),
        ("LlamaForCausalLM", (0, 9, 0), False),
        ("BertModel", (0, 9, 2), True),
    ],
)
def test_models(architecture, version, old):
    assert (engine("vllm serve M", version, architectures=[architecture]) == "V0") is old


def test_the_variable():
    assert engine("VLLM_USE_V1=0 vllm serve M", (0, 9, 2)) == "V0"
    refused = answer("VLLM_USE_V1=1 vllm serve M --num-scheduler-steps 8", (0, 9, 2))
    assert [(f["severity"], f["code"]) for f in refused["findings"]] == [("error", "old-engine")]
    assert "--num-scheduler-steps 8" in refused["findings"][0]["message"]
    wrong = answer("VLLM_USE_V1=no vllm serve M", (0, 9, 2))
    assert wrong["findings"][0]["severity"] == "error"


def test_a_draft_model_is_refused_where_v0_does_not_take_it():
    text = "vllm serve M --speculative-config '{\"method\": \"draft_model\", \"model\": \"d\", \"num_speculative_tokens\": 3}'"
    assert any(f["severity"] == "error" and f["code"] == "old-engine" for f in answer(text, (0, 10, 0))["findings"])
    assert engine(text, (0, 9, 2)) == "V0"


def test_defaults():
    found = answer(f"{ENV}=XFORMERS vllm serve M", (0, 9, 0))
    assert found["resolved"]["max_num_seqs"] == 256
    assert found["resolved"]["compilation_mode"] == "NONE"
    assert found["origins"]["compilation_mode"] == "rewrite:old-engine"
    assert "old-engine" in [finding["code"] for finding in found["findings"]]


@pytest.mark.parametrize(
    ("words", "tokens"),
    [("", 8192), ("--enable-chunked-prefill", 2048), ("--max-model-len 1024", 2048), ("--max-num-batched-tokens 9000", 9000)],
)
def test_batched_tokens(words, tokens):
    found = answer(f"VLLM_USE_V1=0 vllm serve M {words}", (0, 9, 2), max_position_embeddings=8192)
    assert found["resolved"]["max_num_batched_tokens"] == tokens


def test_batched_tokens_of_a_long_context():
    found = answer("VLLM_USE_V1=0 vllm serve M", (0, 9, 2), max_position_embeddings=131072)
    assert found["resolved"]["max_num_batched_tokens"] == 2048


def test_prompts_that_fit_no_batch_are_refused():
    found = answer("VLLM_USE_V1=0 vllm serve M --max-num-batched-tokens 4096", (0, 9, 2), max_position_embeddings=8192)
    assert "batched-tokens-below-length" in [finding["code"] for finding in found["findings"]]


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        ("--max-num-seqs 3", [1, 2, 4]),
        ("--max-num-seqs 16", [1, 2, 4, 8, 16]),
        ("--max-num-seqs 20", [1, 2, 4, 8, 16, 24]),
        ("--max-num-seqs 20 --cuda-graph-sizes 64", [1, 2, 4, 8, 16, 24]),
        ("--max-num-seqs 20 --compilation-config.cudagraph_capture_sizes=[8,4,8]", [4, 8]),
        ("--max-num-seqs 20 --enforce-eager", []),
    ],
)
def test_capture_list(words, sizes):
    found = answer(f"VLLM_USE_V1=0 vllm serve M {words}", (0, 10, 0))
    assert found["resolved"]["cudagraph_capture_sizes"] == sizes
    uncovered = found["coverage"]["uncovered_decode_batches"]
    assert uncovered == ([] if sizes[-1:] and sizes[-1] >= found["resolved"]["max_num_seqs"] else [[(sizes or [0])[-1] + 1, 20]])


def test_what_is_not_known_is_said():
    found = answer("VLLM_USE_V1=0 vllm serve M -O3", (0, 9, 2))
    assert found["resolved"]["compilation_mode"] == "VLLM_COMPILE"
    assert any("inside compiled code" in sentence for sentence in found["assumed"])
    lora = answer("VLLM_USE_V1=0 vllm serve M -O3 --enable-lora", (0, 9, 2))
    assert (lora["resolved"]["compilation_mode"], lora["origins"]["compilation_mode"]) == ("NONE", "rewrite:old-engine")
    ngram = "--speculative-config '{\"method\": \"ngram\", \"num_speculative_tokens\": 3}'"
    drafts = answer(f"VLLM_USE_V1=0 vllm serve M {ngram}", (0, 9, 2))
    assert drafts["coverage"]["operating_point"] is None
