"""Model folders of real architectures without weights: `python benchmarks/model_folders.py FOLDER [NAME ...]`.

Run it with an interpreter that has `tokenizers`; serve the folders with `--load-format dummy`. Shapes are those of the models'
published config.json. Speed of dense kernels does not depend on the weights; what routing, speculation or stop tokens decide
does, so a figure measured this way has to say that its weights were random.

The tokenizer is one learned from invented words, filled up to the size of the model's vocabulary so that vLLM's random prompts
keep their lengths and differ from each other: see tokenizer_json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "advisor" / "target"))

import demo_model

COMMON = {"hidden_act": "silu", "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2, "attention_bias": False}
ARCHITECTURES = {
    "Llama-3.1-8B": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": False,
    },
    "Qwen3-0.6B": {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
        "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "tie_word_embeddings": True,
    },
    # In a folder without weights GPTQ's list of modules has to stand here: otherwise vLLM reads it from the weights' types, finds
    # none, and leaves every layer as it is (AutoGPTQConfig.maybe_update_config of 0.26).
    "Qwen3-1.7B-GPTQ-Int4": {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 2048, "intermediate_size": 6144,
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
        "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "tie_word_embeddings": True,
        "quantization_config": {
            "quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True, "lm_head": False,
            "modules_in_block_to_quantize": [
                ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], ["self_attn.o_proj"],
                ["mlp.gate_proj", "mlp.up_proj"], ["mlp.down_proj"],
            ],
        },
    },
    "Qwen3-30B-A3B": {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144,
        "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "num_hidden_layers": 48, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "tie_word_embeddings": False,
    },
    # MLA: keys and values of all heads are read from one latent vector of 512 and a rotary part of 64, in the cache too.
    "DeepSeek-V2-Lite": {
        "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944,
        "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
        "first_k_dense_replace": 1, "moe_layer_freq": 1, "n_group": 1, "topk_group": 1, "topk_method": "greedy",
        "scoring_func": "softmax", "norm_topk_prob": False, "routed_scaling_factor": 1.0, "num_hidden_layers": 27,
        "num_attention_heads": 16, "num_key_value_heads": 16, "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 102400, "max_position_embeddings": 163840,
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False,
        "rope_scaling": {
            "type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1,
            "mscale": 0.707, "mscale_all_dim": 0.707,
        },
    },
}  # fmt: skip
# Latin, Greek and Cyrillic letters, CJK ideographs, the private-use planes: no white space, nothing that ends a line.
FILLERS = ((0x00A1, 0x024F), (0x0370, 0x04FF), (0x4E00, 0x9FFF), (0xF0000, 0xFFFFD), (0x100000, 0x10FFFD))
BLANKS = {0x100 + byte: byte for byte in range(0x21)}  # GPT-2's characters for the bytes up to the blank
WORD = r" ?\S+|\s"  # learned tokens have a blank only in front


def fillers() -> Iterator[str]:
    """152,891 single characters that no learned token contains: those of scripts in use first, then private ones."""
    for first, last in FILLERS:
        yield from map(chr, range(first, last + 1))


def plain(token: str) -> str | None:
    """The text of a byte-level token. None for control characters, and for bytes that are no text of their own."""
    text = token.translate(BLANKS)
    return text if all(" " <= character <= "~" or character in "\t\n\r" for character in text) else None


def tokenizer_json(learned: str, vocab_size: int) -> str:
    """The small learned tokenizer with `vocab_size` entries, whose random ids survive being decoded and encoded.

    `learned`: byte-level, as demo_model makes it. vLLM's random data set decodes runs of consecutive ids, encodes the
    text again and cuts it to the length asked for. Entries that come back as several tokens leave less and less of what
    tells prompts apart, and then the prefix cache answers them. So the entries that were not learned are single
    characters, which no merge touches, and they lie between the learned ones, of which two in a row could merge. In a run
    none do. In the random prefix two may; vLLM then draws a token more.

    Entries are text, not bytes: half of a character decodes to nothing that leads back to it. A character without an
    entry is encoded as `<unk>`. Raises ValueError where `vocab_size` leaves no room between the learned entries.
    """
    tokenizer = json.loads(learned)
    places = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    texts = [plain(token) for token in tokenizer["model"]["vocab"] if token not in places.values()]
    texts = [text for text in texts if text is not None]
    first, step = len(places), (vocab_size - len(places)) // len(texts)
    if step < 2:
        raise ValueError(f"{vocab_size} entries are too few: {len(texts)} learned ones need others between them")
    places |= {first + index * step: text for index, text in enumerate(texts)}
    others = fillers()
    vocabulary = {places[index] if index in places else next(others): index for index in range(vocab_size)}
    pairs = ([plain(part) for part in pair] for pair in tokenizer["model"]["merges"])
    merges = [pair for pair in pairs if None not in pair]
    tokenizer["model"] |= {"vocab": vocabulary, "merges": merges, "unk_token": "<unk>"}
    tokenizer["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": WORD}, "behavior": "Isolated", "invert": False}
    tokenizer["decoder"] = {"type": "Fuse"}
    return json.dumps(tokenizer)


def write(root: Path, name: str, learned: str) -> Path:
    """One model folder below `root`."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    config = {**COMMON, **ARCHITECTURES[name]}
    (folder / "tokenizer.json").write_text(tokenizer_json(learned, config["vocab_size"]))
    (folder / "tokenizer_config.json").write_text(json.dumps(demo_model.tokenizer_config(), indent=1) + "\n")
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    return folder


def main() -> None:
    root, names = Path(sys.argv[1]), sys.argv[2:] or list(ARCHITECTURES)
    learned = demo_model.tokenizer_json()
    for name in names:
        print(write(root, name, learned))


if __name__ == "__main__":
    main()
