"""Modes, batch sizes, lengths: what is run and what is told instead."""

from __future__ import annotations

import pytest

from advisor.anatomy import modes as planning
from advisor.errors import InputError


def resolved(compilation, graphs):
    return {"ok": True, "resolved": {"compilation_mode": compilation, "cudagraph_mode": graphs}}


CUDA = {
    "none": resolved("NONE", "NONE"),
    "compile": resolved("VLLM_COMPILE", "NONE"),
    "full": resolved("NONE", "FULL"),
    "piecewise": resolved("VLLM_COMPILE", "PIECEWISE"),
    "both": resolved("VLLM_COMPILE", "FULL_AND_PIECEWISE"),
}
# As the CPU build of 0.32 resolves them.
CPU = {
    "none": resolved("NONE", "NONE"),
    "compile": resolved("DYNAMO_TRACE_ONCE", "NONE"),
    "full": resolved("NONE", "NONE"),
    "piecewise": resolved("DYNAMO_TRACE_ONCE", "NONE"),
    "both": resolved("DYNAMO_TRACE_ONCE", "NONE"),
}


def test_all_five_are_run_where_they_differ():
    assert [item.reason for item in planning.plan(planning.MODES, CUDA)] == [None] * 5


def test_without_graphs_two_are_left_and_the_others_say_what_they_come_to():
    planned = {item.mode.name: item for item in planning.plan(planning.MODES, CPU)}
    assert [name for name, item in planned.items() if not item.reason] == ["none", "compile"]
    assert [planned[name].same_as for name in ("full", "piecewise", "both")] == ["none", "compile", "compile"]
    assert planned["full"].reason == "vLLM runs the same as for 'no optimisation' here: no compilation, no graphs"


def test_a_refused_mode_does_not_stop_the_others():
    answers = {**CUDA, "compile": {"ok": False, "error": "no such thing"}}
    planned = planning.plan(planning.MODES, answers)
    assert [item.mode.name for item in planned if item.reason] == ["compile"]
    assert planned[1].reason == "vLLM refuses it: no such thing"


def test_a_mode_that_is_not_run_is_not_what_others_are_the_same_as():
    answers = {**CPU, "none": {"ok": False, "error": "no"}}
    planned = {item.mode.name: item for item in planning.plan(planning.MODES, answers)}
    assert planned["full"].reason is None


def test_modes_by_name_keep_their_order():
    assert [mode.name for mode in planning.parse_modes("both, none")] == ["none", "both"]
    assert planning.parse_modes(None) == planning.MODES
    with pytest.raises(InputError, match="'eager'"):
        planning.parse_modes("none,eager")


@pytest.mark.parametrize(
    "words", [("--enforce-eager",), ("-cc.cudagraph_mode=FULL",), ("--compilation-config", '{"mode": 0}')]
)
def test_what_is_compared_may_not_be_fixed(words):
    with pytest.raises(InputError, match="which is what the modes differ in"):
        planning.check_not_fixed(words, {}, "0.26.0")
    planning.check_not_fixed(("--max-model-len", "4096", "--attention-backend", "FLASHINFER"), {}, "0.26.0")


def test_batch_sizes_go_up_to_the_limit():
    assert planning.batch_sizes(None, 8) == (1, 2, 4, 8)
    assert planning.batch_sizes(None, 12) == (1, 2, 4, 8, 12)
    assert planning.batch_sizes((3, 5), 8) == (3, 5)
    with pytest.raises(InputError, match="16 is more than the 8"):
        planning.batch_sizes((1, 16), 8)


def test_batch_sizes_as_words():
    assert planning.parse_batch_sizes("8, 1,8") == (1, 8)
    assert planning.parse_batch_sizes(None) is None
    for wrong in ("", "0", "1,x", "1;2", "-1"):
        with pytest.raises(InputError, match="--batch-sizes"):
            planning.parse_batch_sizes(wrong)


def test_prefills_fit_into_a_step_and_into_the_model():
    assert planning.prefill_lengths(8192, 131072) == (128, 512, 2048, 8192)
    assert planning.prefill_lengths(8192, 1024) == (128, 512)
    assert planning.prefill_lengths(64, 1024) == (64,)


def test_a_context_must_leave_room_for_the_steps():
    planning.check_context(512, 100, 4096)
    for context in (50, 4000):
        with pytest.raises(InputError, match=f"--context {context} does not fit") as refused:
            planning.check_context(context, 100, 4096)
        assert refused.value.hint == "between 51 and 3996"
