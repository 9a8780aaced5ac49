"""Writes a small Llama model folder without weights: `demo_model.py FOLDER [--size demo|tiny]`.

Runs in the target interpreter, for its `tokenizers`. The folder is to be served with `--load-format dummy`: nothing is
downloaded, and the same size gives the same bytes everywhere. Prints one JSON line: folder, size, vocab_size,
parameters.

The vocabulary has 10,240 entries because vLLM's random data set draws from it and its latency benchmark asks for token
ids up to 10,000. The `demo` size is big enough that the model, and not Python around it, takes most of a step on a
processor; `tiny` is as small as attention kernels allow (head size 32) and starts as fast as vLLM itself can.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys

VOCAB_SIZE = 10_240
SPECIAL = ("<unk>", "<s>", "</s>")
SIZES = {
    "demo": {"layers": 8, "hidden": 768, "inner": 2048, "heads": 12, "kv_heads": 4},
    "tiny": {"layers": 2, "hidden": 128, "inner": 256, "heads": 4, "kv_heads": 2},
}
MAX_LENGTH = 4096


def config(size: str) -> dict:
    """The config.json of a size, in transformers' names."""
    shape = SIZES[size]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "head_dim": shape["hidden"] // shape["heads"],
        "hidden_act": "silu",
        "hidden_size": shape["hidden"],
        "initializer_range": 0.02,
        "intermediate_size": shape["inner"],
        "max_position_embeddings": MAX_LENGTH,
        "mlp_bias": False,
        "num_attention_heads": shape["heads"],
        "num_hidden_layers": shape["layers"],
        "num_key_value_heads": shape["kv_heads"],
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "vocab_size": VOCAB_SIZE,
    }


def parameters(size: str) -> int:
    """Number of weights: embeddings (tied), and per layer attention, gated MLP and two norms."""
    s = SIZES[size]
    kv = s["hidden"] // s["heads"] * s["kv_heads"]
    layer = 2 * s["hidden"] ** 2 + 2 * s["hidden"] * kv + 3 * s["hidden"] * s["inner"] + 2 * s["hidden"]
    return VOCAB_SIZE * s["hidden"] + s["layers"] * layer + s["hidden"]


def words(count: int) -> list[str]:
    """Invented words from syllables, seeded: enough different text to learn a vocabulary from."""
    draw = random.Random(0)
    onsets = ["b", "br", "c", "d", "dr", "f", "g", "k", "l", "m", "n", "p", "pl", "r", "s", "st", "t", "tr", "v", "z"]
    vowels = ["a", "e", "i", "o", "u", "ai", "ea", "ou"]
    codas = ["", "", "l", "n", "r", "s", "t", "nd", "st"]
    return [
        "".join(draw.choice(onsets) + draw.choice(vowels) + draw.choice(codas) for _ in range(draw.randint(1, 4)))
        for _ in range(count)
    ]


def tokenizer_json(size: int = VOCAB_SIZE) -> str:
    """A byte-level BPE tokenizer with exactly `size` entries, trained on the invented words."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    vocabulary = words(40_000)
    lines = (" ".join(vocabulary[start : start + 20]) for start in range(0, len(vocabulary), 20))
    tokenizer.train_from_iterator(lines, trainer)
    if tokenizer.get_vocab_size() != size:
        raise SystemExit(f"the tokenizer has {tokenizer.get_vocab_size()} entries, wanted {size}")
    return tokenizer.to_str(pretty=False)


def tokenizer_config() -> dict:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "model_max_length": MAX_LENGTH,
        "clean_up_tokenization_spaces": False,
    }


def files(size: str) -> dict[str, str]:
    """Everything in the model folder, name to text."""
    generation = {"bos_token_id": 1, "eos_token_id": 2}
    documents = {"generation_config.json": generation, "tokenizer_config.json": tokenizer_config()}
    texts = {name: json.dumps(content, indent=2, sort_keys=True) + "\n" for name, content in documents.items()}
    texts["tokenizer.json"] = tokenizer_json()
    # Last, because its presence says that the folder is complete.
    texts["config.json"] = json.dumps(config(size), indent=2, sort_keys=True) + "\n"
    return texts


def write(folder: str, size: str) -> None:
    texts = files(size)
    os.makedirs(folder, exist_ok=True)
    for name, text in texts.items():
        path = os.path.join(folder, name)
        with open(path + ".part", "w", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(path + ".part", path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--size", choices=sorted(SIZES), default="demo")
    given = parser.parse_args()
    try:
        write(given.folder, given.size)
    except ModuleNotFoundError as error:
        parser.error(f"{sys.executable} has no {error.name}: run this with the Python that holds vLLM")
    facts = {"folder": given.folder, "size": given.size, "vocab_size": VOCAB_SIZE, "parameters": parameters(given.size)}
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
