"""What is said of the machine before the first launch."""

import dataclasses

import pytest

from advisor.progress import Silent
from advisor.study import setup
from tests.test_tune import FACTS, fakes, request_for  # noqa: F401

ON_GPU = dataclasses.replace(FACTS, gpu=dataclasses.replace(FACTS.gpu, kind="cuda", slug="h200"))


class Notes(Silent):
    def __init__(self):
        self.told = []

    def note(self, text):
        self.told.append(text)


@pytest.mark.parametrize(
    ("facts", "env", "said"),
    [(FACTS, {}, True), (FACTS, {"VLLM_CPU_KVCACHE_SPACE": "1"}, False), (ON_GPU, {}, False)],
    ids=["cpu", "cpu with a limit", "gpu"],
)
def test_a_processor_without_a_limit_for_the_cache_is_told_of_it(request_for, monkeypatch, facts, env, said):  # noqa: F811
    monkeypatch.setattr(setup, "inspect_all", lambda *_, **__: facts)
    notes = Notes()
    setup.inspect(dataclasses.replace(request_for(), serve_env=env), notes)
    assert any("--env VLLM_CPU_KVCACHE_SPACE=4" in text for text in notes.told) is said
