"""benchmarks/model_folders.py: folders without weights that vLLM takes as the architectures they stand for."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from advisor.inspection.model import facts_from_config
from advisor.inspection.resolution import Resolution
from benchmarks.model_folders import ARCHITECTURES, COMMON

ROOT = Path(__file__).resolve().parents[2]
# What vllm/model_executor/models/deepseek_v2.py of 0.26.0 reads of a config without a value of its own. hidden_act and
# rope_parameters are in COMMON, and made by transformers from rope_theta and rope_scaling.
READ_BY_DEEPSEEK_V2 = {
    "first_k_dense_replace", "hidden_size", "intermediate_size", "kv_lora_rank", "max_position_embeddings",
    "moe_intermediate_size", "n_routed_experts", "n_shared_experts", "norm_topk_prob", "num_attention_heads",
    "num_experts_per_tok", "num_hidden_layers", "num_key_value_heads", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
    "rms_norm_eps", "rope_scaling", "rope_theta", "v_head_dim", "vocab_size",
}  # fmt: skip


def parameters(name: str) -> float:
    """Weights of the architecture, counted from its config.json alone: embeddings, attention, MLPs; no norms and routers' bias."""
    c = ARCHITECTURES[name]
    hidden, layers, heads = c["hidden_size"], c["num_hidden_layers"], c["num_attention_heads"]
    embedding = c["vocab_size"] * hidden * (1 if c["tie_word_embeddings"] else 2)
    if "kv_lora_rank" in c:
        q_head = c["qk_nope_head_dim"] + c["qk_rope_head_dim"]
        attention = hidden * heads * q_head + hidden * (c["kv_lora_rank"] + c["qk_rope_head_dim"])
        attention += c["kv_lora_rank"] * heads * (c["qk_nope_head_dim"] + c["v_head_dim"]) + heads * c["v_head_dim"] * hidden
    else:
        attention = hidden * c["head_dim"] * (2 * heads + 2 * c["num_key_value_heads"])
    experts = c.get("num_experts", c.get("n_routed_experts", 0))
    if not experts:
        return embedding + layers * (attention + 3 * hidden * c["intermediate_size"])
    dense = c.get("first_k_dense_replace", 0)
    each = 3 * hidden * c["moe_intermediate_size"]
    sparse = (experts + c.get("n_shared_experts", 0)) * each + hidden * experts
    return embedding + layers * attention + dense * 3 * hidden * c["intermediate_size"] + (layers - dense) * sparse


@pytest.mark.parametrize(
    ("name", "billions"),  # as their model cards state
    [("Llama-3.1-8B", 8.03), ("Qwen3-0.6B", 0.6), ("Qwen3-30B-A3B", 30.5), ("DeepSeek-V2-Lite", 15.7)],
)
def test_a_shape_has_as_many_weights_as_the_model(name, billions):
    assert parameters(name) / 1e9 == pytest.approx(billions, rel=0.02)


def test_the_mla_model_says_all_that_vllm_reads():
    config = ARCHITECTURES["DeepSeek-V2-Lite"]
    assert set(config) >= READ_BY_DEEPSEEK_V2
    facts = facts_from_config("m", {**COMMON, **config}, weights=False)
    assert facts.mla and not facts.sparse and facts.experts == 64
    assert (facts.kv_heads, facts.head_size) == (1, 576)  # the latent vector and the rotary part


@pytest.fixture(scope="module")
def folders(engine_python, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    script = ROOT / "benchmarks" / "model_folders.py"
    done = subprocess.run([engine_python, str(script), str(root)], check=True, capture_output=True, text=True)
    assert done.stdout.split() == [str(root / name) for name in ARCHITECTURES]
    return root


@pytest.mark.engine
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_installed_vllm_accepts_the_config(engine_python, folders, name):
    """It resolves; nothing is launched. GPTQ has no kernels on a processor, which vLLM says while it resolves."""
    with Resolution(engine_python, str(folders / name), {"VLLM_CPU_KVCACHE_SPACE": "1"}) as resolution:
        answer = resolution.resolve(["--load-format", "dummy", "--max-model-len", "4096"], {})
    assert answer["ok"], answer
    assert answer["resolved"]["max_model_len"] == 4096


@pytest.mark.engine
def test_transformers_reads_the_mla_model_as_it_is_meant(engine_python, folders):
    code = (
        "import json, sys\n"
        "from transformers import AutoConfig, AutoTokenizer\n"
        "c = AutoConfig.from_pretrained(sys.argv[1])\n"
        "t = AutoTokenizer.from_pretrained(sys.argv[1])\n"
        "print(json.dumps([type(c).__name__, c.rope_parameters, c.q_lora_rank, c.n_routed_experts, len(t)]))"
    )
    command = [engine_python, "-c", code, str(folders / "DeepSeek-V2-Lite")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    kind, rope, q_rank, experts, vocabulary = json.loads(done.stdout.splitlines()[-1])
    assert kind == "DeepseekV2Config" and q_rank is None and experts == 64 and vocabulary == 102400
    assert rope["rope_type"] == "yarn" and rope["factor"] == 40 and rope["rope_theta"] == 10000.0
    assert rope["mscale_all_dim"] == 0.707
