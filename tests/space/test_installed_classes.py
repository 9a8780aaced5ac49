"""The shipped spaces as the installed vLLM itself resolves them, in one process."""

from __future__ import annotations

import pytest

from advisor.engine.render import changes, serve_arguments
from advisor.errors import InputError
from advisor.inspection.inspect_all import inspect_all
from advisor.inspection.resolution import Resolution
from advisor.records import Candidate, Workload
from advisor.space.candidates import Limits, build_space, concrete_settings
from advisor.space.spec import load_space

ARGS = ("--load-format", "dummy", "--max-model-len", "512")
ENV = {"VLLM_CPU_KVCACHE_SPACE": "1"}
LOAD = Workload("w", 64, 16, 32, concurrency=6)


@pytest.fixture(scope="module")
def installed(engine_python, tiny_model):
    """(facts, resolve) of the vLLM that is here; `resolve.asked` counts."""
    facts = inspect_all(str(tiny_model), "cpu", engine_python, ARGS, ENV)
    version = facts.engine.vllm_version

    with Resolution(engine_python, str(tiny_model), ENV) as resolution:

        def resolve(candidates):
            return [answer(item) for item in candidates]

        def answer(candidate):
            resolve.asked += 1
            try:
                return resolution.resolve(serve_arguments(ARGS, candidate, version), changes(candidate, version)[1])
            except InputError as error:
                return {"ok": False, "error": error.problem}

        resolve.asked, resolve.resolution = 0, resolution
        yield facts, resolve


@pytest.mark.engine
@pytest.mark.parametrize("name", ["default", "cpu", "scheduler", "full"])
def test_no_two_candidates_resolve_alike(installed, name):
    facts, resolve = installed
    resolve.asked = 0
    limits = Limits.of(resolve([Candidate()])[0]["resolved"])
    settings = concrete_settings(load_space(name), facts.engine, facts.gpu, LOAD, limits, set())
    space = build_space(settings, facts.engine, resolve, gpu=facts.gpu, model=facts.model)
    identities = [item["fingerprint"] for item in space.resolved.values()]
    assert len(identities) == len(set(identities)) == len(space.candidates) + 1 > 1
    assert resolve.asked < 400
    names = {setting for item in space.candidates for setting in item.settings}
    assert not {"attention_backend", "cudagraph_mode", "cudagraph_capture_sizes"} & names, "a processor has none"
    if name in ("scheduler", "full"):
        assert {"max_num_seqs", "max_num_batched_tokens", "async_scheduling", "block_size"} <= names
        labels = {item.label for item in space.candidates}
        assert "max_num_seqs=6" in labels and "max_num_seqs=3" in labels
    print(f"{name}: {space.total} combinations, {resolve.asked} resolutions, {len(space.candidates)} distinct")


@pytest.mark.engine
def test_a_closed_resolution_begins_anew(installed):
    _, resolve = installed
    before = resolve([Candidate({"max_num_seqs": 7})])[0]["resolved"]
    resolve.resolution.close()
    assert resolve([Candidate({"max_num_seqs": 7})])[0]["resolved"] == before
