"""The rules against vLLM itself: 320 generated candidates on the installed CPU build, and recorded answers of CUDA releases.

Recording for release V (CUDA_PYTHON has it and a GPU of 70 GiB or more with compute capability 9.0, or a stand-in for NVML and
the compiled extensions that says so; MODEL is a folder with the config.json of Llama-3.1-8B):
    export PYTHONPATH=.
    python tests/engine/test_resolution_agreement.py requests MODEL > requests.jsonl
    CUDA_PYTHON advisor/target/resolve.py < requests.jsonl > answers.jsonl
    python tests/engine/test_resolution_agreement.py record V < answers.jsonl
0.26.0 was recorded with the CUDA build on a real H200 (2026-11-30) and, before, with a stand-in: the answers were equal to the
byte. The other releases were recorded with a stand-in and their Python files.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.engine.options import parse_options
from advisor.engine.render import version_tuple
from advisor.engine.rules.resolution import resolve_by_rules
from advisor.records import ModelFacts
from advisor.target_process import TargetProcess, scrubbed_environment

RECORDED = sorted((Path(__file__).parents[1] / "data" / "resolution").glob("cuda-*.json"))
COUNT = 320
# Flags that earlier releases do not have: their parsers refuse them, which is not for these rules to say.
LATER_FLAGS = {"--performance-mode": (0, 17, 1), "--attention-backend": (0, 13, 0)}
SEED = 26

# What a candidate may set; None leaves it out. The first value of each is taken most of the time, so that few things meet.
CHOICES: dict[str, list[Any]] = {
    "--optimization-level": [None, "0", "1", "2", "3"],
    "mode": [None, "NONE", "STOCK_TORCH_COMPILE", "DYNAMO_TRACE_ONCE", "VLLM_COMPILE", 0, 3],
    "cudagraph_mode": [None, "NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE", "SOMETIMES"],
    "sizes": [
        None,
        {"max_cudagraph_capture_size": 100},
        {"max_cudagraph_capture_size": 257},
        {"max_cudagraph_capture_size": 2000},
        {"cudagraph_capture_sizes": [1, 2, 4, 8]},
        {"cudagraph_capture_sizes": [8, 1, 4096, 8]},
        {"cudagraph_capture_sizes": [1, 2, 4, 8], "max_cudagraph_capture_size": 8},
        {"cudagraph_capture_sizes": [1, 2, 4, 8], "max_cudagraph_capture_size": 16},
        {"cudagraph_capture_sizes": [4, 32, 64, 640]},
    ],
    "--enforce-eager": [None, None, None, True],
    "--max-num-seqs": [None, "1", "12", "64", "300", "2048"],
    "--max-num-batched-tokens": [None, "100", "512", "2048", "16384"],
    "--performance-mode": [None, "balanced", "interactivity", "throughput"],
    "speculative": [None, None, 1, 3],
    "--block-size": [None, "16", "32", "64", "128"],
    "--dtype": [None, "bfloat16", "float16", "float32"],
    "--attention-backend": [None, "FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "FLASH_ATTENTION_3"],
    "--max-model-len": [None, "16", "1024", "8192"],
}


def candidates(count: int = COUNT, seed: int = SEED) -> list[list[str]]:
    """`count` different argument lists, the same in every run; the first is empty."""
    chance = random.Random(seed)
    found: list[list[str]] = [[]]
    while len(found) < count:
        drawn = {name: chance.choice(values) if chance.random() < 0.35 else None for name, values in CHOICES.items()}
        argv = arguments(drawn)
        if argv not in found:
            found.append(argv)
    return found


def arguments(drawn: dict[str, Any]) -> list[str]:
    """Words after the model for one draw: plain flags, then one JSON for the compilation config and one for speculation."""
    words: list[str] = []
    for name, value in drawn.items():
        if name.startswith("--") and value is not None:
            words += [name] if value is True else [name, value]
    compilation = {name: drawn[name] for name in ("mode", "cudagraph_mode") if drawn[name] is not None}
    compilation.update(drawn["sizes"] or {})
    if compilation:
        words += ["--compilation-config", json.dumps(compilation)]
    if drawn["speculative"]:
        ngram = {"method": "ngram", "num_speculative_tokens": drawn["speculative"], "prompt_lookup_max": 3}
        words += ["--speculative-config", json.dumps(ngram)]
    return words


# ---------------------------------------------------------------- comparison

COMPARED = (
    "optimization_level",
    "compilation_mode",
    "cudagraph_mode",
    "cudagraph_capture_sizes",
    "max_cudagraph_capture_size",
    "attention_backend",
    "enforce_eager",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
)


def by_rules(argv: list[str], version: tuple[int, ...], **around: Any) -> dict[str, Any] | None:
    """The rules' answer in the terms of vLLM's configuration, or None where they say that vLLM refuses."""
    options = parse_options(argv)
    found = resolve_by_rules(options, {}, version, **around)
    if found.values["refused"]:
        return None
    values = dict(found.values)
    values["cudagraph_mode"] = values["cudagraph_mode_in_config"]
    values["cudagraph_capture_sizes"] = values["cudagraph_capture_sizes_in_config"]
    values["max_cudagraph_capture_size"] = values["max_cudagraph_capture_size_in_config"]
    asked = options.values.get("--attention-backend")  # vLLM's configuration holds what was asked, not what it becomes
    return {name: asked if name == "attention_backend" else values[name] for name in COMPARED}


def by_vllm(answer: dict[str, Any]) -> dict[str, Any] | None:
    if not answer["ok"]:
        return None
    values = {name: answer["resolved"][name] for name in COMPARED}
    return {**values, "optimization_level": int(values["optimization_level"].removeprefix("O"))}


def differences(pairs: Iterator[tuple[list[str], Any, Any]]) -> list[str]:
    return [
        f"{' '.join(argv)}: vLLM {told}, rules {ours}"
        if told is None or ours is None
        else f"{' '.join(argv)}: "
        + ", ".join(f"{k}: vLLM {told[k]}, rules {ours[k]}" for k in COMPARED if told[k] != ours[k])
        for argv, told, ours in pairs
        if told != ours
    ]


def model(length: int, head_size: int) -> ModelFacts:
    return ModelFacts(
        "some/llama", "LlamaForCausalLM", "0" * 16, 32, 4096, 32, 8, head_size, 128256, length, dtype="bfloat16"
    )


def test_candidates_are_many_and_the_same_in_every_run():
    drawn = candidates()
    assert len({json.dumps(argv) for argv in drawn}) == COUNT
    assert drawn == candidates()


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_the_rules_agree_with_recorded_releases(path):
    recorded = json.loads(path.read_text())
    version = version_tuple(recorded["vllm"])
    told = [expand(entry, recorded["lists"]) for entry in recorded["answers"]]
    assert len(told) == COUNT and sum(answer is not None for answer in told) > 140
    llama = model(recorded["max_position_embeddings"], 128)
    pairs = (
        (argv, answer, by_rules(argv, version, compute_capability=(9, 0), gpu_memory_gib=140.4, model=llama))
        for argv, answer in zip(candidates(), told, strict=True)
        if not any(flag in argv and version < first for flag, first in LATER_FLAGS.items())
    )
    assert differences(pairs) == []


def test_releases_were_recorded():
    assert any(path.stem == "cuda-0.26" for path in RECORDED)


@pytest.mark.engine
def test_the_rules_agree_with_the_installed_cpu_build(engine_python, tiny_model):
    with TargetProcess(
        engine_python, "resolve", scrubbed_environment(os.environ, {"VLLM_CPU_KVCACHE_SPACE": "1"})
    ) as process:
        told = [by_vllm(process.request({"argv": [str(tiny_model), *argv]}, timeout_s=180)) for argv in candidates()]
    length = json.loads((tiny_model / "config.json").read_text())["max_position_embeddings"]
    pairs = (
        (argv, answer, by_rules(argv, (0, 32, 0), platform="cpu", model=model(length, 32)))
        for argv, answer in zip(candidates(), told, strict=True)
    )
    assert differences(pairs) == []


# ---------------------------------------------------------------- recording


def expand(entry: Any, lists: list[list[int]]) -> dict[str, Any] | None:
    """One recorded answer; capture lists are kept once and named by their number."""
    if isinstance(entry, str):
        return None
    values = dict(zip(COMPARED, entry, strict=True))
    return {**values, "cudagraph_capture_sizes": lists[values["cudagraph_capture_sizes"]]}


def record(version: str, answers: list[dict[str, Any]]) -> str:
    lists: list[list[int]] = []
    entries: list[Any] = []
    for answer in answers:
        values = by_vllm(answer)
        if values is None:
            entries.append(f"{answer['error_type']}: {answer['error']}"[:160])
            continue
        if values["cudagraph_capture_sizes"] not in lists:
            lists.append(values["cudagraph_capture_sizes"])
        entries.append(
            [*({**values, "cudagraph_capture_sizes": lists.index(values["cudagraph_capture_sizes"])}).values()]
        )
    head = {
        "vllm": version,
        "gpu": "NVIDIA H200 as NVML would report it: compute capability 9.0, 140.4 GiB",
        "model": "config.json of Llama-3.1-8B",
        "max_position_embeddings": 131072,
        "how": "see tests/engine/test_resolution_agreement.py; its candidates() gives the argument lists in this order",
        "fields": COMPARED,
    }
    lines = [f' "{name}": {json.dumps(value)},' for name, value in head.items()]
    lines += [' "lists": [', ",\n".join("  " + json.dumps(item) for item in lists), " ],", ' "answers": [']
    return "\n".join(["{", *lines, ",\n".join("  " + json.dumps(item) for item in entries), " ]", "}", ""])


def main() -> None:
    if sys.argv[1] == "requests":
        for argv in candidates():
            print(json.dumps({"argv": [sys.argv[2], *argv]}))
    else:
        path = Path(__file__).parents[1] / "data" / "resolution" / f"cuda-{sys.argv[2].rpartition('.')[0]}.json"
        path.write_text(record(sys.argv[2], [json.loads(line) for line in sys.stdin]))


if __name__ == "__main__":
    main()
