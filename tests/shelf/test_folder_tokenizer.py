"""The tokenizer of benchmarks/model_folders.py: vLLM's random prompts keep their length and differ; ordinary text works."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path

import pytest

from advisor.measure.client import MARKER_TOKENS, prompt_lengths
from advisor.records import Workload
from benchmarks.model_folders import ARCHITECTURES, COMMON, demo_model, plain, tokenizer_json

ROOT = Path(__file__).resolve().parents[2]
SIZES = sorted({architecture["vocab_size"] for architecture in ARCHITECTURES.values()})
PROMPTS, TOKENS, SEEDS = 2_000, 128, 4
BLOCK = 16  # tokens of a block of vLLM's prefix cache
NAMES = ["Llama-3.1-8B", "Qwen3-0.6B", "DeepSeek-V2-Lite"]  # one for each size of a vocabulary
# What advisor/target/bench.py lets vLLM do, with vLLM's own loading of the tokenizer. Printed for each folder: its seeds'
# lengths and first blocks.
DRAW = """
import json, sys
from vllm.benchmarks.datasets import RandomDataset
from vllm.tokenizers import get_tokenizer
prompts, prefix, rest, seeds, block = map(int, sys.argv[1:6])
for folder in sys.argv[6:]:
    tokenizer, seen = get_tokenizer(folder), []
    for seed in range(seeds):
        drawn = RandomDataset(random_seed=seed).sample(
            tokenizer, prompts, prefix_len=prefix, input_len=rest, output_len=1
        )
        sent = [tokenizer.encode(request.prompt, add_special_tokens=False) for request in drawn]
        seen.append([[len(ids) for ids in sent], [ids[:block] for ids in sent]])
    print("SENT", json.dumps(seen))
"""


@pytest.fixture(scope="module")
def tokenizers():
    return pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def learned(tokenizers):
    return demo_model.tokenizer_json()


@pytest.fixture(scope="module", params=SIZES)
def made(request, tokenizers, learned):
    return tokenizers.Tokenizer.from_str(tokenizer_json(learned, request.param)), request.param


def encoded(tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


def test_every_id_exists_and_special_ones_stay(made):
    tokenizer, size = made
    assert tokenizer.get_vocab_size() == size
    assert sorted(tokenizer.get_vocab().values()) == list(range(size))
    assert [tokenizer.id_to_token(index) for index in range(3)] == ["<unk>", "<s>", "</s>"]
    assert tokenizer.id_to_token(COMMON["bos_token_id"]) == "<s>"
    assert tokenizer.id_to_token(COMMON["eos_token_id"]) == "</s>"


def test_every_id_survives_alone_and_in_every_run(made):
    """Runs are parts of one circle: behind the last id they go on with the first. So one text of all ids holds each."""
    tokenizer, size = made
    first = len(demo_model.SPECIAL)
    assert [index for index in range(first, size) if encoded(tokenizer, tokenizer.decode([index])) != [index]] == []
    run = [*range(first, size), *range(first, first + TOKENS)]
    assert encoded(tokenizer, tokenizer.decode(run)) == run


def test_an_answer_can_be_streamed(tokenizers, made):
    """Each id gives its text at once: one that is held back comes together with the next, and the gaps would be wrong."""
    tokenizer, size = made
    stream = tokenizers.decoders.DecodeStream(skip_special_tokens=True)
    ids = range(len(demo_model.SPECIAL), size, 7)
    pieces = [stream.step(tokenizer, index) for index in ids]
    assert None not in pieces and "".join(pieces) == tokenizer.decode(list(ids))


@pytest.mark.parametrize(
    "text",
    ["Name three rivers.\n\n1. ", "\tif a<b:\r\n    return  {'x': 10.5}  ", "stone ba  kastroun, plain", ""],
)
def test_ordinary_text_has_the_tokens_that_were_learned(tokenizers, learned, made, text):
    before = tokenizers.Tokenizer.from_str(learned).encode(text).tokens
    ids = encoded(made[0], text)
    assert [made[0].id_to_token(index) for index in ids] == [plain(token) for token in before]
    assert made[0].decode(ids) == text


def test_other_scripts_have_a_token_for_each_character(made):
    text = "Größe Ελλάδα Жизнь 漢字"
    ids = encoded(made[0], text)
    assert made[0].decode(ids) == text and len(ids) <= len(text) and 0 not in ids
    assert encoded(made[0], "\U0001f600") == [0]  # no entry: <unk>, and not nothing


def test_a_vocabulary_without_room_is_refused(learned):
    with pytest.raises(ValueError, match="12000 entries are too few"):
        tokenizer_json(learned, 12_000)


@pytest.fixture(scope="module")
def drawn(engine_python, tmp_path_factory):
    """Name of the folder -> for each seed the lengths and the first blocks of its prompts."""
    root = tmp_path_factory.mktemp("models")
    make = [engine_python, str(ROOT / "benchmarks" / "model_folders.py"), str(root), *NAMES]
    folders = subprocess.run(make, check=True, capture_output=True, text=True).stdout.split()
    workload = Workload("w", input_tokens=TOKENS, output_tokens=1, num_prompts=PROMPTS, concurrency=1)
    numbers = map(str, (PROMPTS, *prompt_lengths(workload), SEEDS, BLOCK))
    done = subprocess.run([engine_python, "-c", DRAW, *numbers, *folders], check=True, capture_output=True, text=True)
    lines = [line.removeprefix("SENT ") for line in done.stdout.splitlines() if line.startswith("SENT ")]
    return dict(zip(NAMES, map(json.loads, lines), strict=True))


@pytest.mark.engine
@pytest.mark.parametrize("name", NAMES)
def test_vllms_random_prompts_have_the_lengths_asked_for(drawn, name):
    for lengths, _ in drawn[name]:
        assert len(lengths) == PROMPTS and sum(lengths) == pytest.approx(PROMPTS * TOKENS, rel=0.005)
        assert sum(length != TOKENS for length in lengths) <= PROMPTS * 0.005


@pytest.mark.engine
@pytest.mark.parametrize("name", NAMES)
def test_vllms_random_prompts_are_equal_only_by_chance(drawn, name):
    """Two of one seed begin alike where their runs start at one id; those of two seeds never do, by their markers."""
    begins = [[tuple(ids) for ids in first] for _, first in drawn[name]]
    assert len({first[0][:MARKER_TOKENS] for first in begins}) == SEEDS
    pairs = SEEDS * PROMPTS**2 / (2 * ARCHITECTURES[name]["vocab_size"])
    equal = SEEDS * PROMPTS - len({begin for first in begins for begin in first})
    assert pairs / 2 <= equal <= pairs + 4 * math.sqrt(pairs)
