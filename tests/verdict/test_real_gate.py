"""The output gate on real vLLM: sound servers pass with other settings, and a model that is broken in one layer does not."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.launch.server import Server
from advisor.measure.answers import Answers, read_answers
from advisor.measure.probe import probe
from advisor.records import Command, GpuFacts, ModelFacts
from advisor.verdict.output_gate import compare, judge_baseline

WRITER = Path(__file__).with_name("small_weights.py")
FACTS = ("LlamaForCausalLM", "0" * 16, 4, 256, 4, 2, 64, 10_240, 4096)

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def served(engine_python: str, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Answers]:
    """served(fault, *options) -> the answers of a server of the small model with that fault."""
    root = tmp_path_factory.mktemp("gate")

    def serve(fault: str = "", *options: str) -> Answers:
        model = root / f"model-{fault or 'sound'}"
        if not model.exists():
            subprocess.run([engine_python, str(WRITER), str(tiny_model), str(model), fault], check=True)
        folder = root / f"launch-{len(list(root.iterdir()))}"
        argv = (engine_python, "-m", "vllm.entrypoints.cli.main", "serve", str(model), "--enforce-eager", *options)
        command = Command(argv, {"VLLM_CPU_KVCACHE_SPACE": "1"})
        with Server(command, "gated", folder, GpuFacts("cpu", "cpu", "cpu", 1, 16.0)) as server:
            return read_answers(probe(server.base_url, server.served_name, ModelFacts(str(model), *FACTS), folder))

    return serve


@pytest.fixture(scope="module")
def baseline(served: Callable[..., Answers]) -> Answers:
    return served()


def test_log_probabilities_are_the_models_own_before_a_token_is_forced(baseline: Answers):
    """vLLM's default --logprobs-mode raw_logprobs: the forced token has its real likelihood, and others are likelier."""
    forced = baseline.of("forced")
    assert forced and all(reply.ok and set(reply.tokens) == {reply.forced} for reply in forced)
    values = [value for reply in forced for value in reply.logprobs]
    assert max(values) < 0 and len(set(values)) > len(values) / 3
    assert all(len(item) >= 5 and max(item.values()) >= item[reply.forced] for reply in forced for item in reply.top)


def test_prompts_were_read_by_token_ids_and_everything_was_answered(baseline: Answers):
    assert baseline.notes == () and all(reply.ok for reply in baseline.replies), [
        reply.problem for reply in baseline.replies if not reply.ok
    ]
    assert {len(reply.logprobs) for reply in baseline.of("prompt")} == {1199}
    own = judge_baseline([baseline], random_weights=True)
    assert own.passed and own.noise["decode"] < 0.2 and not any("rounding hides" in note for note in own.notes), own


def test_small_batches_and_chunked_prompts_pass(baseline: Answers, served: Callable[..., Answers]):
    options = ("--max-num-seqs", "4", "--max-num-batched-tokens", "256", "--no-enable-prefix-caching")
    result = compare([baseline], served("", *options), random_weights=True)
    assert result.passed, json.dumps(vars(result))


@pytest.mark.parametrize("fault", ["layer_skipped", "heads_swapped"])
def test_one_broken_layer_fails(baseline: Answers, served: Callable[..., Answers], fault: str):
    result = compare([baseline], served(fault), random_weights=True)
    assert result.passed is False and result.reason.startswith("log-probabilities while decoding"), result
