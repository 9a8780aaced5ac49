"""Model facts from config.json files in the names of several families, and what a wrong folder is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.inspection.model import facts_from_config, has_weights, is_local, local_model

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192},
    "torch_dtype": "bfloat16",
}


def facts(**changes):
    return facts_from_config("m", {**LLAMA, **changes})


def test_llama():
    read = facts()
    assert (read.layers, read.heads, read.kv_heads, read.head_size) == (32, 32, 8, 128)
    assert (read.max_length, read.dtype, read.quantization, read.experts, read.mla) == (
        131072,
        "bfloat16",
        None,
        0,
        False,
    )


def test_head_size_may_differ_from_hidden_over_heads():
    assert facts(head_dim=256).head_size == 256
    assert facts(head_dim=None).head_size == 128


def test_no_key_value_heads_means_as_many_as_heads():
    assert facts(num_key_value_heads=None).kv_heads == 32
    assert facts(num_key_value_heads=None, multi_query=True).kv_heads == 1


def test_gpt2_names():
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "n_positions": 1024,
        "vocab_size": 50257,
    }
    read = facts_from_config("gpt2", config)
    assert (read.layers, read.hidden_size, read.kv_heads, read.head_size, read.max_length) == (12, 768, 12, 64, 1024)


def test_multimodal_models_are_read_from_their_text_part():
    inner = {key: LLAMA[key] for key in LLAMA if key not in ("architectures", "torch_dtype")}
    config = {
        "architectures": ["SomethingForConditionalGeneration"],
        "torch_dtype": "float16",
        "hidden_size": 1,
        "text_config": inner,
        "vision_config": {"hidden_size": 2},
        "quantization_config": {"quant_method": "fp8"},
    }
    read = facts_from_config("m", config)
    assert (read.architecture, read.hidden_size, read.layers) == ("SomethingForConditionalGeneration", 4096, 32)
    assert (read.dtype, read.quantization) == ("float16", "fp8")


def test_a_text_part_inside_a_part():
    config = {"architectures": ["Omni"], "thinker_config": {"text_config": LLAMA}}
    assert facts_from_config("m", config).layers == 32


@pytest.mark.parametrize("name", ["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"])
def test_experts_under_their_various_names(name):
    assert facts(**{name: 64}).experts == 64


def test_experts_of_dbrx_lie_deeper():
    assert facts(ffn_config={"moe_num_experts": 16}).experts == 16


def test_mla_has_one_compressed_head():
    read = facts(kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128)
    assert (read.mla, read.kv_heads, read.head_size) == (True, 1, 576)


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"quant_method": "AWQ"}, "awq"),
        ({"quant_method": "compressed-tensors", "format": "x"}, "compressed-tensors"),
        ({"quant_algo": "NVFP4"}, "nvfp4"),
        ({"bits": 4}, "unknown"),
    ],
)
def test_quantisation(section, expected):
    assert facts(quantization_config=section).quantization == expected


@pytest.mark.parametrize(
    ("rope", "length"),
    [
        (None, 131072),
        ({"type": "linear", "factor": 2.0}, 262144),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 131072),
        ({"rope_type": "dynamic", "factor": None}, 131072),
    ],
)
def test_rope_scaling(rope, length):
    assert facts(rope_scaling=rope).max_length == length


def test_new_dtype_name_and_torch_prefix():
    assert facts(torch_dtype=None, dtype="torch.float16").dtype == "float16"


def test_values_given_for_each_layer_count_by_the_largest():
    assert facts(num_key_value_heads=[8, 4, None]).kv_heads == 8


def test_hash_depends_on_content_and_not_on_order():
    assert facts().config_hash == facts_from_config("other", dict(reversed(LLAMA.items()))).config_hash
    assert facts().config_hash != facts(vocab_size=1).config_hash
    assert len(facts().config_hash) == 16


def test_a_config_that_is_no_models_is_refused():
    with pytest.raises(InputError, match="architectures"):
        facts_from_config("m", {"hello": 1})


# ---------------------------------------------------------------- folders


def test_a_folder_is_read(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert local_model(str(tmp_path)) == LLAMA
    assert not has_weights(tmp_path)
    (tmp_path / "model-00001.safetensors").touch()
    assert has_weights(tmp_path)


def test_wrong_folders_are_told_apart(tmp_path: Path):
    with pytest.raises(InputError, match="does not exist"):
        local_model(str(tmp_path / "nope"))
    with pytest.raises(InputError, match=r"no config\.json"):
        local_model(str(tmp_path))
    config = tmp_path / "config.json"
    config.write_text('{\n "a": 1,\n "b": ,\n}')
    with pytest.raises(InputError, match="line 3"):
        local_model(str(tmp_path))
    config.write_text("[1]")
    with pytest.raises(InputError, match="JSON object"):
        local_model(str(tmp_path))
    config.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="cannot be read"):
        local_model(str(tmp_path))
    with pytest.raises(InputError, match="is a file"):
        local_model(str(config))


@pytest.mark.parametrize("text", ["/models/llama", "./llama", "../llama", "~/llama", "org/name/", "a/b/c"])
def test_what_looks_like_a_path_is_one(text):
    assert is_local(text)


@pytest.mark.parametrize("text", ["meta-llama/Llama-3.1-8B", "gpt2", "Qwen/Qwen2.5-0.5B_x"])
def test_hub_ids(text):
    assert not is_local(text)


@pytest.mark.parametrize("text", ["", "a b", "s3://bucket/model", "-x"])
def test_neither_path_nor_hub_id(text):
    with pytest.raises(InputError, match="neither"):
        is_local(text)
