"""No two trials resolve alike, and none contradicts itself: the shipped spaces under the rules of CUDA releases."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from advisor.engine.options import ServeOptions
from advisor.engine.render import changes, version_tuple
from advisor.engine.rules.resolution import resolve_by_rules
from advisor.engine.versions import RELEASES, version_text
from advisor.errors import InputError
from advisor.records import BackendFacts, EngineFacts, GpuFacts, ModelFacts, Workload
from advisor.resources import search_space_path
from advisor.space.candidates import AT_ONCE, Limits, build_space, concrete_settings
from advisor.space.design import combinations
from advisor.space.spec import load_space

H200 = GpuFacts("cuda", "NVIDIA H200", "h200", 1, 139.8, "9.0")
A100 = GpuFacts("cuda", "NVIDIA A100-SXM4-80GB", "a100", 1, 79.3, "8.0")
LLAMA = ModelFacts("m", "LlamaForCausalLM", "0", 32, 4096, 32, 8, 128, 128256, 131072, "bfloat16")
CHAT = Workload("chat", 1024, 128, 256, concurrency=48)


def engine(version="0.26.0"):
    valid = [BackendFacts(name) for name in ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION")]
    return EngineFacts("py", "3.12", version, "2.11.0", "cuda", backends=tuple(valid))


class Rules:
    """Answers as vLLM's configuration would, and keeps what would really run once the model is loaded."""

    def __init__(self, version, gpu=H200, model=LLAMA):
        self.version, self.gpu, self.model = version, gpu, model
        self.runs = {}
        self.asked = 0

    def __call__(self, candidates):
        return [self.answer(item) for item in candidates]

    def answer(self, candidate):
        self.asked += 1
        try:
            options, env = changes(candidate, self.version)
        except InputError as error:
            return {"ok": False, "error": error.problem}
        capability = tuple(map(int, self.gpu.compute_capability.split(".")))
        values = resolve_by_rules(
            ServeOptions(options), env, version_tuple(self.version),
            compute_capability=capability, gpu_memory_gib=self.gpu.memory_gib, model=self.model,
        ).values  # fmt: skip
        if values["refused"]:
            return {"ok": False, "error": values["refused"][0]}
        # What the rules do not hold is kept as it was asked for, under the value that vLLM takes by itself.
        rest = {
            "async": candidate.settings.get("async_scheduling", True),
            "block": candidate.settings.get("block_size"),
            "other": {k: v for k, v in sorted(candidate.settings.items()) if k.startswith(("flash_", "fuse_", "ind", "compile_s"))},
        }
        config = {
            "mode": values["compilation_mode"], "graphs": values["cudagraph_mode_in_config"],
            "sizes": values["cudagraph_capture_sizes_in_config"], "eager": values["enforce_eager"],
            "backend": candidate.settings.get("attention_backend"), "kv": values["kv_cache_dtype"],
            "seqs": values["max_num_seqs"], "tokens": values["max_num_batched_tokens"], **rest,
        }  # fmt: skip
        runs = {**config, "graphs": values["cudagraph_mode"], "sizes": values["cudagraph_capture_sizes"],
                "backend": values["attention_backend"]}  # fmt: skip
        self.runs[candidate.key] = json.dumps(runs, sort_keys=True)
        known = {"max_num_seqs": values["max_num_seqs"], "max_num_batched_tokens": values["max_num_batched_tokens"],
                 "cudagraph_capture_sizes": values["cudagraph_capture_sizes_in_config"], "block_size": 16,
                 "tensor_parallel_size": 1}  # fmt: skip
        return {"ok": True, "resolved": {**known, "fingerprint": json.dumps(config, sort_keys=True)}}


def built(name, version="0.26.0", gpu=H200, workload=CHAT, model=LLAMA):
    rules = Rules(version, gpu, model)
    limits = Limits(1024, 8192, 16, (1, 2, 4, *range(8, 257, 8), *range(272, 513, 16)))
    facts = engine(version)
    settings = concrete_settings(load_space(name), facts, gpu, workload, limits, set())
    return build_space(settings, facts, rules, gpu=gpu, model=model), rules


def contradictions(settings):
    """What no trial may hold together."""
    if settings.get("enforce_eager"):
        yield from {"compilation_mode", "cudagraph_mode", "cudagraph_capture_sizes", "compile_sizes"} & set(settings)
    if settings.get("compilation_mode") == "NONE":
        yield from {"compile_sizes", "inductor_graph_partition", "fuse_qk_norm_rope"} & set(settings)
    if settings.get("attention_backend") not in (None, "FLASH_ATTN"):
        yield from {"flash_attention_version", "flash_attention_splits"} & set(settings)
    if settings.get("performance_mode") == "throughput":
        yield from {"max_num_seqs", "max_num_batched_tokens"} & set(settings)


@pytest.mark.parametrize("gpu", [H200, A100], ids=["h200", "a100"])
@pytest.mark.parametrize("name", ["default", "scheduler", "full"])
def test_no_two_trials_run_alike_and_none_contradicts_itself(name, gpu):
    space, rules = built(name, gpu=gpu)
    tree = list(combinations(space.settings)) if space.total < 50_000 else None
    chance = random.Random(3)
    more = chance.sample(tree, min(len(tree), 1500)) if tree else [_random(space, chance) for _ in range(1500)]
    space.admit(more)
    runs = Counter(rules.runs[item.key] for item in space.candidates)
    assert max(runs.values()) == 1, [key for key, seen in runs.items() if seen > 1][:1]
    assert not any(set(contradictions(item.settings)) for item in space.candidates)
    assert "" not in {item.key for item in space.candidates}


@pytest.mark.parametrize("gpu", [H200, A100], ids=["h200", "a100"])
@pytest.mark.parametrize("version", [version_text(release) for release in RELEASES])
def test_no_two_trials_run_alike_in_any_release(version, gpu):
    space, rules = built("default", version, gpu)
    assert space.complete
    alike = Counter(rules.runs[item.key] for item in space.candidates)
    assert max(alike.values()) == 1, [item.label for item in space.candidates if alike[rules.runs[item.key]] > 1]


def test_a_backend_without_full_graphs_keeps_its_default_and_no_graphs():
    space, _ = built("default", "0.17.1")
    modes = {(item.settings.get("compilation_mode"), item.settings.get("cudagraph_mode"))
             for item in space.candidates if item.settings.get("attention_backend") == "FLEX_ATTENTION"}  # fmt: skip
    assert {(None, None), (None, "NONE")} <= modes
    assert not modes & {(None, "FULL_DECODE_ONLY"), (None, "PIECEWISE"), ("NONE", "FULL_DECODE_ONLY")}
    assert "without compilation leaves none, which is eager mode" in " ".join(item.reason for item in space.rejections)


def _random(space, chance):
    chosen = {}
    for choice in space.settings:
        chosen[choice.name] = chance.choice(choice.values) if choice.exists(chosen) else None
    return next(combinations((), chosen))


def test_a_space_of_any_size_is_begun_with_few_resolutions():
    sizes = {name: built(name) for name in ("default", "scheduler", "full")}
    totals = {name: space.total for name, (space, _) in sizes.items()}
    assert sizes["default"][0].complete and totals["default"] <= AT_ONCE
    assert totals["scheduler"] > 10_000 and totals["full"] > 1_000_000
    for name in ("scheduler", "full"):
        space, rules = sizes[name]
        assert not space.complete and rules.asked < 1000 < space.total
        assert "is resolved when it is proposed" in space.told
        assert all(item.overrides <= 5 for item in space.candidates)


def test_values_that_a_release_has_no_words_for_are_refused_by_name():
    space, _ = built("full", "0.11.2")
    refused = {item.candidate.label: item.reason for item in space.rejections}
    assert "0.17.1" in refused["performance_mode=interactivity"]
    assert "0.17.1" in refused["flash_attention_version=4"]
    assert "0.12.0" in refused["fuse_norm_quant"]
    names = {name for item in space.candidates for name in item.settings}
    assert "performance_mode" not in names and {"inductor_graph_partition", "flash_attention_splits"} <= names


def test_what_only_other_models_or_gpus_could_use_is_dropped_with_the_reason():
    reasons = " | ".join(item.reason for item in built("full")[0].rejections)
    for words in (
        "fuse_norm_quant is inert: the model is not quantised",
        "fuse_allreduce_rms is inert: one GPU",
        "vLLM runs FlashAttention 3 with and without flash_attention_version=3",
        "FlashAttention 2 does not take a KV cache of fp8",
        "flash_attention_splits is inert",
    ):
        assert words in reasons
    on_a100 = " | ".join(item.reason for item in built("full", gpu=A100)[0].rejections)
    assert "FlashAttention 4 does not run on compute capability 8.0" in on_a100
    assert "FLASH_ATTN cannot put mixed batches into full graphs" in on_a100


def test_full_graphs_without_compilation_are_a_trial_only_where_the_backend_can():
    space, _ = built("default", gpu=A100)
    uncompiled = {(item.settings.get("attention_backend"), item.settings["cudagraph_mode"])
                  for item in space.candidates if item.settings.get("compilation_mode") == "NONE"}  # fmt: skip
    assert (None, "FULL_DECODE_ONLY") in uncompiled and (None, "FULL") not in uncompiled
    assert ("TRITON_ATTN", "FULL") in uncompiled


def test_a_backend_that_another_setting_brings_about_is_not_tried_twice():
    """On an A100 an fp8 cache rules FlashAttention 2 out, and vLLM takes FlashInfer by itself."""
    space, _ = built("full", gpu=A100)
    space.admit(_pairs(space, {"kv_cache_dtype": "fp8"}, {"kv_cache_dtype": "fp8", "attention_backend": "FLASHINFER"}))
    labels = [item.label for item in space.candidates]
    assert "kv_cache_dtype=fp8" in labels
    reasons = {item.candidate.label: item.reason for item in space.rejections}
    assert "by itself" in reasons["attention_backend=FLASHINFER kv_cache_dtype=fp8"]


def _pairs(space, *wanted):
    order = [choice.name for choice in space.settings]
    return [next(combinations((), dict(sorted(item.items(), key=lambda pair: order.index(pair[0]))))) for item in wanted]


def test_the_number_of_combinations_is_the_number_that_there_are():
    for name, version in (("default", "0.26.0"), ("scheduler", "0.26.0"), ("scheduler", "0.11.2"), ("cpu", "0.26.0")):
        space, _ = built(name, version)
        assert space.total == sum(1 for _ in combinations(space.settings))


@pytest.mark.parametrize("name", ["default", "scheduler"])
def test_the_docs_say_how_many_combinations_and_distinct_trials_there_are(name):
    space, _ = built(name)
    space.admit(combinations(space.settings))
    counted = [f"{space.total:,}", f"{len(space.candidates):,}"]
    rows = (Path(__file__).parents[2] / "docs" / "search-space.md").read_text().splitlines()
    row = next(line for line in rows if line.startswith(f"| [{name}]"))
    assert [cell.strip() for cell in row.split("|")[-3:-1]] == counted
    if name == "scheduler":
        assert f"{counted[0]} combinations, of which {counted[1]} are distinct" in search_space_path(name).read_text()


def test_words_of_max_num_seqs_follow_the_load():
    labels = {item.label for item in built("scheduler")[0].candidates if item.overrides == 1}
    assert {"max_num_seqs=48", "max_num_seqs=24", "max_num_seqs=2048"} <= labels
    rate = {item.label for item in built("scheduler", workload=Workload("r", 64, 64, 64, rate=3.0))[0].candidates}
    assert not {"max_num_seqs=48", "max_num_seqs=24"} & rate and "max_num_seqs=2048" in rate
