"""Requested, resolved, active: differences are named."""

import dataclasses

import pytest

from advisor.engine.agreement import as_active, disagreement, rewritten_at_start
from advisor.records import Active, Candidate

RUNNING = Active(
    attention_backends=("FLASHINFER",), compilation_mode="VLLM_COMPILE", cudagraph_mode="FULL_AND_PIECEWISE",
    capture_sizes=(1, 2, 4), enforce_eager=False,
)  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, None),
        ({"attention_backend": "FLASHINFER", "cudagraph_capture_sizes": [1, 2, 4]}, None),
        ({"attention_backend": "FLASH_ATTN"}, "attention backend FLASH_ATTN was asked for, FLASHINFER runs"),
        ({"cudagraph_mode": "FULL"}, "cudagraph_mode=FULL was asked for, FULL_AND_PIECEWISE runs"),
        ({"enforce_eager": True}, "enforce_eager=True was asked for, False runs"),
        ({"cudagraph_capture_sizes": [1, 2]}, "2 capture sizes were asked for, the server captured 3 others"),
    ],
)
def test_requested_against_active(settings, told):
    assert disagreement(Candidate(settings), RUNNING) == told
    assert disagreement(Candidate(settings), Active()) is None


def test_resolved_against_active():
    resolved = {"cudagraph_mode": "FULL", "attention_backend": None, "cudagraph_capture_sizes": [1, 2]}
    assert rewritten_at_start(resolved, RUNNING) == (
        "cudagraph_mode: resolved FULL, active FULL_AND_PIECEWISE",
        "cudagraph_capture_sizes: resolved 2, active 3",
    )
    assert rewritten_at_start({}, RUNNING) == () == rewritten_at_start(resolved, Active())


def test_what_ran_is_described_by_active_values_without_those_of_the_default():
    default = Active(attention_backends=("FLASH_ATTN",), cudagraph_mode="FULL_AND_PIECEWISE", enforce_eager=False)
    asked = Candidate({"attention_backend": "FLASHINFER", "cudagraph_mode": "FULL", "--max-num-seqs": 8})
    assert as_active(asked, RUNNING, default).settings == {"attention_backend": "FLASHINFER", "--max-num-seqs": 8}
    fallen_back = dataclasses.replace(RUNNING, attention_backends=("TRITON_ATTN",), cudagraph_mode="FULL")
    assert as_active(asked, fallen_back, default).settings["attention_backend"] == "TRITON_ATTN"
    assert as_active(asked, Active(), default) == asked
