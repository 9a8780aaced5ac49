"""Which backend names make 0.9.0 to 0.10.2 leave V1: the lists of `_is_v1_supported_oracle`, and what follows."""

import pytest

from advisor.engine.options import ServeOptions
from advisor.engine.rules.old_engine import falls_back
from advisor.engine.rules.resolution import resolve_by_rules

ENV = "VLLM_ATTENTION_BACKEND"


@pytest.mark.parametrize(
    ("version", "name", "old"),
    [
        ((0, 9, 0), "XFORMERS", True),
        ((0, 9, 0), "FLASHINFER", False),
        ((0, 9, 0), "FLEX_ATTENTION", True),
        ((0, 9, 2), "FLEX_ATTENTION", False),
        ((0, 10, 0), "FLASHATTN", True),
        ((0, 10, 2), "TREE_ATTN", False),
        ((0, 10, 2), "FLASHATTN", True),
        ((0, 11, 0), "XFORMERS", False),
    ],
)
def test_names(version, name, old):
    assert (falls_back({ENV: name}, version) is not None) is old


def test_no_variable():
    assert falls_back({}, (0, 9, 0)) is None


def test_defaults_of_the_old_engine():
    found = resolve_by_rules(
        ServeOptions({}), {ENV: "XFORMERS"}, (0, 9, 0), compute_capability=(9, 0), gpu_memory_gib=140
    )
    assert found.values["max_num_seqs"] == 256
    assert found.values["compilation_mode"] == "NONE"
    assert found.origins["compilation_mode"] == "rewrite:old-engine"
    assert "old-engine" in [finding.code for finding in found.findings]
