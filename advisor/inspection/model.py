"""What a model's config.json says, whatever names its family uses. Reads the local folder, starts nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from advisor.errors import InputError
from advisor.records import ModelFacts, fingerprint

# Inner configurations of multimodal models, whose language model is what attention settings act on.
_INNER = ("text_config", "llm_config", "language_config", "thinker_config")
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_HIDDEN = ("hidden_size", "n_embd", "d_model", "model_dim")
_HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads")
_KV_HEADS = ("num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num")
_HEAD_SIZE = ("head_dim", "attention_head_dim", "kv_channels")
_EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
_VOCABULARY = ("vocab_size", "padded_vocab_size")
_LENGTH = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_sequence_length",
)
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
# Rope scalings whose max_position_embeddings already is the stretched length, as vLLM reads them.
_STRETCHED = {"default", "su", "longrope", "llama3", "mrope", "yarn", "deepseek_yarn"}
# Kind of recurrent layers -> keys that say so: Jamba, Bamba, Zamba, Falcon-H1 and Granite 4; Mamba; Nemotron-H; Qwen3-Next and
# 3.5; Kimi-Linear, whose layers use the same kernels' metadata; LFM2.
_RECURRENT = {
    "mamba": ("mamba_d_state", "state_size", "ssm_state_size"),
    "gated-delta": ("linear_num_value_heads", "linear_attn_config"),
    "short-conv": ("conv_L_cache",),
}
_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)


# ---------------------------------------------------------------- folder


def is_local(model: str) -> bool:
    """Whether `model` is meant as a folder; otherwise it is a hub id. Raises InputError where it can be neither."""
    if model and Path(model).exists():
        return True
    if _HUB_ID.fullmatch(model):
        return False
    if "/" in model and "://" not in model:
        return True
    raise InputError(f"--model {model!r} is neither a folder nor a hub id", "give a folder, or a hub id like org/name")


def local_model(path: str) -> dict[str, Any]:
    """config.json of a model folder. Raises InputError for an unknown folder and a missing or unreadable config.json."""
    folder = Path(path)
    if not folder.exists():
        raise InputError(f"model folder {path} does not exist", "give an existing folder or a hub id such as org/name")
    if not folder.is_dir():
        raise InputError(f"--model {path} is a file", "give the folder that holds config.json and the tokenizer")
    file = folder / "config.json"
    if not file.is_file():
        raise InputError(f"model folder {path} holds no config.json", "give the folder with config.json, weights and tokenizer")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InputError(f"{file} line {error.lineno}: not valid JSON: {error.msg}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}") from None
    if not isinstance(config, dict):
        raise InputError(f"{file} holds no JSON object")
    return config


def has_weights(folder: str | Path) -> bool:
    """Whether the folder holds weights; without them only `--load-format dummy` can serve it."""
    return any(next(Path(folder).glob(pattern), None) for pattern in _WEIGHTS)


# ---------------------------------------------------------------- facts


def facts_from_config(
    model: str, config: Mapping[str, Any], *, weights: bool = True, revision: str | None = None
) -> ModelFacts:
    """ModelFacts of a config.json. What it does not say is 0 or None; raises InputError where it is no model's.

    For MLA models head size and KV heads are those of the compressed cache: one head of kv_lora_rank + rope dimensions.
    """
    architectures = config.get("architectures") or [config.get("model_type")]
    if not architectures[0]:
        raise InputError(f"config.json of {model} names neither architectures nor model_type")
    text = language_part(config)
    heads, hidden = _number(text, _HEADS), _number(text, _HIDDEN)
    mla = bool(text.get("kv_lora_rank"))
    return ModelFacts(
        model=model,
        architecture=str(architectures[0]),
        config_hash=fingerprint(config),
        layers=_number(text, _LAYERS),
        hidden_size=hidden,
        heads=heads,
        kv_heads=1 if mla else _kv_heads(text, heads),
        head_size=_mla_head_size(text) if mla else _number(text, _HEAD_SIZE) or (hidden // heads if heads else 0),
        vocab_size=_number(text, _VOCABULARY),
        max_length=_longest(text),
        dtype=_dtype(text),
        quantization=_quantization(text),
        experts=_experts(text),
        mla=mla,
        sparse=mla and text.get("index_topk") is not None,
        recurrent=_recurrent(text),
        encoder_decoder=bool(config.get("is_encoder_decoder")),
        has_weights=weights,
        revision=revision,
    )


def language_part(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of the language model: inner values over outer ones."""
    for name in _INNER:
        inner = config.get(name)
        if isinstance(inner, Mapping):
            outer = {key: value for key, value in config.items() if key != name}
            return language_part({**outer, **inner})
    return dict(config)


def _number(config: Mapping[str, Any], names: tuple[str, ...]) -> int:
    """First of `names` that is set; the largest where a model gives one for each layer; 0 where none is."""
    for name in names:
        value = config.get(name)
        if isinstance(value, list):
            value = max((item for item in value if isinstance(item, int)), default=None)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return 0


def _kv_heads(config: Mapping[str, Any], heads: int) -> int:
    if config.get("multi_query") and not config.get("new_decoder_architecture"):  # falcon's and starcoder's old switch
        return 1
    inner = config.get("attn_config")  # MPT and DBRX
    return _number(config, _KV_HEADS) or (_number(inner, ("kv_n_heads",)) if isinstance(inner, Mapping) else 0) or heads


def _mla_head_size(config: Mapping[str, Any]) -> int:
    return _number(config, ("kv_lora_rank",)) + _number(config, ("qk_rope_head_dim",))


def _experts(config: Mapping[str, Any]) -> int:
    inner = config.get("ffn_config")  # DBRX
    return _number(config, _EXPERTS) or (_number(inner, _EXPERTS) if isinstance(inner, Mapping) else 0)


def _recurrent(config: Mapping[str, Any]) -> str | None:
    """The kind of a model's layers that keep a state, by keys that the configs of such models have; None without."""
    kinds = config.get("layer_types") or config.get("layers_block_type")
    if isinstance(kinds, list) and all(str(kind).endswith("attention") and "linear" not in str(kind) for kind in kinds):
        return None  # Granite 4 has small models without any such layer, with all the keys
    if isinstance(each := config.get("attn_type_list"), list):  # MiniMax: 0 is linear attention
        return "linear" if 0 in each else None
    return next((kind for kind, keys in _RECURRENT.items() if any(config.get(key) for key in keys)), None)


def _longest(config: Mapping[str, Any]) -> int:
    """Tokens: the configured length, stretched where a rope scaling of the kind that stretches is configured."""
    length = _number(config, _LENGTH)
    rope = config.get("rope_scaling") or config.get("rope_parameters")
    if not isinstance(rope, Mapping):
        return length
    kind, factor = rope.get("rope_type", rope.get("type", "default")), rope.get("factor")
    stretches = kind not in _STRETCHED and isinstance(factor, int | float)
    return int(length * factor) if stretches else length


def _dtype(config: Mapping[str, Any]) -> str | None:
    value = config.get("dtype") or config.get("torch_dtype")
    return value.removeprefix("torch.") if isinstance(value, str) else None


def _quantization(config: Mapping[str, Any]) -> str | None:
    """`fp8`, `awq`, `compressed-tensors`, ...; modelopt writes what it did in quant_algo instead."""
    section = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(section, Mapping):
        return None
    method = section.get("quant_method") or section.get("quant_algo")
    return str(method).lower() if method else "unknown"
