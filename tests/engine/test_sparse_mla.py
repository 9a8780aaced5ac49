"""Backends of models with sparse MLA (DeepSeek-V3.2): `_get_backend_priorities` of each release's platforms/cuda.py."""

from __future__ import annotations

import pytest

from advisor.engine.options import parse_options
from advisor.engine.rules.legality import Surroundings, objections, sparse_order
from advisor.engine.rules.resolution import resolve_by_rules
from advisor.inspection.model import facts_from_config

CONFIG = {
    "architectures": ["DeepseekV32ForCausalLM"], "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "vocab_size": 129280,
    "max_position_embeddings": 163840, "index_topk": 2048, "torch_dtype": "bfloat16", "n_routed_experts": 256,
}  # fmt: skip
V32 = facts_from_config("deepseek-ai/DeepSeek-V3.2", CONFIG)
V31 = facts_from_config(
    "deepseek-ai/DeepSeek-V3.1", {**CONFIG, "architectures": ["DeepseekV3ForCausalLM"], "index_topk": None}
)


def resolved(version, *words, capability=(9, 0), model=V32):
    return resolve_by_rules(
        parse_options(words), {}, version, compute_capability=capability, gpu_memory_gib=139.8, model=model
    )


def test_the_index_makes_it_sparse():
    assert (V32.mla, V32.sparse) == (True, True) and (V31.mla, V31.sparse) == (True, False)


@pytest.mark.parametrize(
    ("version", "words", "capability", "backend"),
    [
        ((0, 11, 2), (), (9, 0), "FLASHMLA_SPARSE"),
        ((0, 24, 0), (), (9, 0), "FLASHMLA_SPARSE"),
        ((0, 25, 1), (), (9, 0), "FLASH_ATTN_MLA_SPARSE"),
        ((0, 33, 0), (), (9, 0), "FLASH_ATTN_MLA_SPARSE"),
        ((0, 26, 0), ("--kv-cache-dtype", "bfloat16"), (9, 0), "FLASH_ATTN_MLA_SPARSE"),
        ((0, 26, 0), ("--kv-cache-dtype", "fp8"), (9, 0), "FLASHMLA_SPARSE"),  # FlashAttention's has no fp8
        ((0, 15, 1), ("--kv-cache-dtype", "fp8"), (9, 0), "FLASHMLA_SPARSE"),  # becomes fp8_ds_mla
        ((0, 24, 0), (), (12, 0), "FLASHINFER_MLA_SPARSE_SM120"),
        ((0, 23, 0), (), (12, 0), None),
        ((0, 26, 0), (), (8, 0), None),
    ],
)
def test_automatic_choice(version, words, capability, backend):
    assert resolved(version, *words, capability=capability).values["attention_backend"] == backend


def test_what_the_rules_do_not_know_is_left_open_and_said():
    for version, capability in (((0, 26, 0), (10, 0)), ((0, 11, 0), (9, 0))):
        found = resolved(version, capability=capability)
        assert found.values["attention_backend"] is None
        assert any("sparse MLA is not in the rules" in sentence for sentence in found.assumed)
        assert sparse_order(version, capability) == ()
    assert not any("sparse" in sentence for sentence in resolved((0, 26, 0)).assumed)


def test_a_model_with_dense_mla_keeps_its_own():
    assert resolved((0, 26, 0), model=V31).values["attention_backend"] == "FLASH_ATTN_MLA"


@pytest.mark.parametrize(
    ("backend", "model", "reason"),
    [
        ("FLASHMLA", V32, "it does not support sparse MLA"),
        ("FLASHMLA_SPARSE", V31, "it is for models with sparse MLA only"),
        ("FLASHMLA_SPARSE", V32, None),
        ("FLASHMLA", V31, None),
    ],
)
def test_a_backend_of_the_other_kind_is_refused(backend, model, reason):
    found = resolved((0, 26, 0), "--attention-backend", backend, model=model)
    messages = [finding.message for finding in found.findings if finding.code == "backend-invalid"]
    assert bool(messages) == bool(reason) and all(reason in message for message in messages)
    assert objections(backend, Surroundings((0, 26, 0), (9, 0), mla=True, sparse=None)) == ()
