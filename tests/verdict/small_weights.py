"""Writes a small Llama with random weights that depend on their context as a trained model's do: `small_weights.py FOLDER [FAULT]`.

Runs in the target interpreter (torch, safetensors) beside a folder that demo_model.py has written, whose tokenizer and
configuration it copies. vLLM's own random weights will not do: they are so small that no layer changes anything.
FAULT: layer_skipped, heads_swapped (of one layer), scale (of attention, a quarter too large), positions (another rotary base).
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, SIZE, VOCABULARY = 4, 256, 512, 4, 2, 64, 10_240
BROKEN_LAYER = 2


def weights() -> dict[str, torch.Tensor]:
    source = torch.Generator().manual_seed(0)

    def normal(rows: int, columns: int, deviation: float) -> torch.Tensor:
        return (torch.randn(rows, columns, generator=source) * deviation).to(torch.bfloat16)

    ones, made = torch.ones(HIDDEN, dtype=torch.bfloat16), {}
    made["model.embed_tokens.weight"] = normal(VOCABULARY, HIDDEN, 0.05)
    made["model.norm.weight"] = ones.clone()
    for layer in range(LAYERS):
        name, fan = f"model.layers.{layer}.", HIDDEN**-0.5
        made[name + "input_layernorm.weight"] = ones.clone()
        made[name + "post_attention_layernorm.weight"] = ones.clone()
        # 1.6: attention weights then differ clearly between positions, as they do in trained models
        made[name + "self_attn.q_proj.weight"] = normal(HEADS * SIZE, HIDDEN, 1.6 * fan)
        made[name + "self_attn.k_proj.weight"] = normal(KV_HEADS * SIZE, HIDDEN, 1.6 * fan)
        made[name + "self_attn.v_proj.weight"] = normal(KV_HEADS * SIZE, HIDDEN, fan)
        made[name + "self_attn.o_proj.weight"] = normal(HIDDEN, HEADS * SIZE, 0.1 * fan)
        made[name + "mlp.gate_proj.weight"] = normal(INNER, HIDDEN, fan)
        made[name + "mlp.up_proj.weight"] = normal(INNER, HIDDEN, fan)
        made[name + "mlp.down_proj.weight"] = normal(HIDDEN, INNER, 0.06 * INNER**-0.5)
    return made


def broken(made: dict[str, torch.Tensor], fault: str) -> None:
    name = f"model.layers.{BROKEN_LAYER}."
    if fault == "layer_skipped":
        made[name + "self_attn.o_proj.weight"].zero_()
        made[name + "mlp.down_proj.weight"].zero_()
    elif fault == "heads_swapped":
        key = name + "self_attn.o_proj.weight"
        heads = made[key].view(HIDDEN, HEADS, SIZE)[:, [1, 0, 3, 2]]
        made[key] = heads.reshape(HIDDEN, HEADS * SIZE).contiguous()
    elif fault == "scale":
        for layer in range(LAYERS):
            made[f"model.layers.{layer}.self_attn.q_proj.weight"] *= 1.25


def main(source: Path, folder: Path, fault: str) -> None:
    folder.mkdir(parents=True)
    for path in source.glob("*.json"):
        shutil.copy(path, folder)
    config = json.loads((source / "config.json").read_text())
    config |= {
        "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "head_dim": SIZE, "rope_theta": 50_000.0 if fault == "positions" else 10_000.0,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    made = weights()
    broken(made, fault)
    save_file(made, folder / "model.safetensors", {"format": "pt"})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "")
