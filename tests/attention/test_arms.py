"""Which backends are compared, and whether what ran is what was asked for."""

from __future__ import annotations

import pytest

from advisor.attention.arms import Arm, active, arms, check_not_fixed, chosen, label, not_as_asked, parse_backends
from advisor.errors import InputError
from tests.attention import scripted


def arm(name, **words):
    backend, _, version = name.partition(":")
    return Arm(name, backend, int(version) if version else None, **words)


def found(**words):
    return {one.name: one for one in arms(scripted.facts(**words), scripted.RESOLVED)}


def test_hopper_has_three_versions_of_flash_attention_its_own_first_and_the_newest_last():
    there = found()
    assert list(there) == [
        "FLASH_ATTN:3", "FLASH_ATTN:2", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "FLASH_ATTN:4", "TURBOQUANT", "CPU_ATTN"
    ]  # fmt: skip
    assert (there["FLASH_ATTN:3"].default, there["FLASH_ATTN:3"].settings) == (True, {})
    assert there["FLASH_ATTN:2"].settings == {"attention_backend": "FLASH_ATTN", "flash_attention_version": 2}
    assert there["TRITON_ATTN"].settings == {"attention_backend": "TRITON_ATTN"}
    assert there["TURBOQUANT"].refused == "kv_cache_dtype not supported"


def test_ampere_has_one_and_says_why():
    there = found(capability="8.0")
    assert [name for name, one in there.items() if name.startswith("FLASH_ATTN") and not one.refused] == [
        "FLASH_ATTN:2",
        "FLASH_ATTN:3",
    ]
    assert "does not run on compute capability 8.0" in there["FLASH_ATTN:4"].refused


def test_a_version_that_vllm_cannot_run_is_refused_without_a_start():
    there = found(refusals={"4": "FA4 needs the Python package cutlass, which is not installed"})
    assert there["FLASH_ATTN:4"].refused == "FA4 needs the Python package cutlass, which is not installed"
    assert not there["FLASH_ATTN:2"].refused


def test_where_flash_attention_is_not_vllms_choice_its_own_version_is_compared_too():
    order = (scripted.CUDA[1], scripted.CUDA[0])
    there = found(backends=order, capability="10.0")
    assert there["FLASHINFER"].default
    assert there["FLASH_ATTN:4"].settings == {"attention_backend": "FLASH_ATTN"}
    assert there["FLASH_ATTN:2"].settings["flash_attention_version"] == 2
    assert there["FLASH_ATTN:3"].refused == "vLLM runs FlashAttention 4 with and without flash_attention_version=3"


def test_mla_and_a_processor_have_no_versions():
    assert list(found(backends=scripted.MLA)) == ["FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA"]
    assert list(found(backends=scripted.CPU, capability=None)) == ["CPU_ATTN", "FLASH_ATTN"]


def test_some_are_chosen_and_the_default_is_always_in():
    every = list(found().values())
    assert [one.name for one in chosen(every, ("FLASHINFER",))] == ["FLASH_ATTN:3", "FLASHINFER"]
    assert [one.name for one in chosen(every, ("FLASH_ATTN",))] == ["FLASH_ATTN:3", "FLASH_ATTN:2", "FLASH_ATTN:4"]
    assert [one.name for one in chosen(every, ("FLASH_ATTN:2", "TURBOQUANT"))] == [
        "FLASH_ATTN:3",
        "FLASH_ATTN:2",
        "TURBOQUANT",
    ]
    with pytest.raises(InputError, match="--backends XFORMERS") as refused:
        chosen(every, ("XFORMERS",))
    assert (
        refused.value.hint
        == "it takes FLASH_ATTN:3, FLASH_ATTN:2, FLASHINFER, TRITON_ATTN, FLEX_ATTENTION, FLASH_ATTN:4 here"
    )


def test_names_on_the_command_line():
    assert parse_backends(" flashinfer,FLASH_ATTN:2,flashinfer") == ("FLASHINFER", "FLASH_ATTN:2")
    assert parse_backends(None) is None
    assert parse_backends("") is None


@pytest.mark.parametrize(
    "words",
    [
        ("--attention-backend", "FLASHINFER"),
        ("-ac.flash_attn_version=2",),
        ("--attention-config", '{"backend": "FLASHINFER"}'),
    ],
)
def test_what_is_compared_may_not_be_fixed(words):
    with pytest.raises(InputError, match="which is what is compared"):
        check_not_fixed(words, {}, "0.26.0")
    check_not_fixed(("--max-model-len", "4096", "--enforce-eager"), {}, "0.26.0")


def layer(backend, version=None, prefill=None, layers=4):
    return {"backend": backend, "flash_attention_version": version, "prefill_backend": prefill, "layers": layers}


def test_the_engine_is_believed_before_its_log():
    ran = active([layer("TRITON_ATTN"), layer("FLASH_ATTN", 3, layers=2)], ["FLASHINFER"], None)
    assert ran == {"backends": {"TRITON_ATTN": 4, "FLASH_ATTN": 2}, "flash_attention_version": 3, "source": "engine"}
    assert active([], ["FLASHINFER"], None) == {
        "backends": {"FLASHINFER": 0},
        "flash_attention_version": None,
        "source": "log",
    }
    assert active([layer("FLASHMLA", prefill="FLASH_ATTN")], [], None)["mla_prefill_backend"] == "FLASH_ATTN"
    assert active([], [], None)["source"] is None


def test_what_ran_is_held_against_what_was_asked_for():
    three = active([layer("FLASH_ATTN", 3)], [], None)
    assert not_as_asked(arm("FLASH_ATTN:3"), three) is None
    assert not_as_asked(arm("FLASHINFER", default=True), three) is None
    assert not_as_asked(arm("FLASH_ATTN:2"), three) == "vLLM ran FlashAttention 3 instead, without a word of refusal"
    assert not_as_asked(arm("FLASHINFER"), three) == "vLLM ran FLASH_ATTN:3 instead, without a word of refusal"
    assert "neither the engine nor its log" in not_as_asked(arm("FLASHINFER"), active([], [], None))


def test_labels():
    assert label({"FLASH_ATTN": 4}, 3) == "FLASH_ATTN:3"
    assert label({"TRITON_ATTN": 4}, 3) == "TRITON_ATTN"
    assert label({"TRITON_ATTN": 4, "FLASH_ATTN": 2}, 3) == "TRITON_ATTN+FLASH_ATTN:3"
    assert label({}, None) == "DEFAULT"
