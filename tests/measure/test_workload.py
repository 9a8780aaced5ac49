"""Presets, workload files with mistakes, what the command line changes, and the model's limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.measure.workload import (
    check_fits,
    load_workload,
    longest_request_tokens,
    preset_names,
)

GOOD = "input_tokens: 100\noutput_tokens: 20\nconcurrency: 4\nnum_prompts: 20\n"


def write(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text)
    return str(path)


def test_the_presets_are_these():
    assert preset_names() == ("batch", "chat", "code", "rag", "tiny")


@pytest.mark.parametrize("name", ["batch", "chat", "code", "rag", "tiny"])
def test_every_preset_names_its_source_and_fills_its_load(name: str):
    workload = load_workload(name)
    assert workload.name == name
    assert workload.source
    assert workload.concurrency and workload.num_prompts >= 3 * workload.concurrency


def test_batch_saturates_and_rag_shares_a_long_prefix():
    assert load_workload("batch").concurrency >= 256
    assert load_workload("rag").shared_prefix_tokens >= 1000


def test_chat_lengths_follow_the_trace():
    chat = load_workload("chat")
    assert (round(chat.input_tokens, -2), round(chat.output_tokens, -1)) == (1000, 130)


def test_an_unknown_preset_names_the_ones_there_are():
    with pytest.raises(InputError, match="'chatt'") as caught:
        load_workload("chatt")
    assert "batch, chat, code, rag, tiny" in caught.value.hint


def test_a_file_is_named_after_itself(tmp_path: Path):
    workload = load_workload(write(tmp_path, GOOD))
    assert (workload.name, workload.input_tokens, workload.concurrency, workload.rate) == ("mine", 100, 4, None)


def test_all_mistakes_of_a_file_are_told_with_their_lines(tmp_path: Path):
    text = "input_tokens: many\noutput_tokens: 0\nconcurency: 4\nnum_prompts: 20\nlength_spread: 1.5\n"
    with pytest.raises(InputError) as caught:
        load_workload(write(tmp_path, text))
    told = caught.value.problem + "\n" + (caught.value.hint or "")
    assert "mine.yaml" in told
    assert "line 1: input_tokens" in told and "'many'" in told
    assert "line 2: output_tokens" in told
    assert "line 3: unknown key 'concurency'" in told and "did you mean 'concurrency'?" in told
    assert "allowed: name, " in told and " loads," not in told  # which no file may have
    assert "line 5: length_spread" in told and "1.5" in told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD.replace("concurrency: 4\n", ""), "give concurrency"),
        (GOOD + "rate: 2.0\n", "not both"),
        (GOOD.replace("num_prompts: 20", "num_prompts: 3"), "num_prompts 3 is below concurrency 4"),
        (GOOD.replace("100", "true"), "input_tokens"),
        (GOOD + "rate: .nan\n", "rate"),
        ("- a\n", "mapping"),
    ],
)
def test_a_contradictory_file_is_refused(tmp_path: Path, text: str, said: str):
    with pytest.raises(InputError, match=said):
        load_workload(write(tmp_path, text))


def test_another_concurrency_keeps_the_number_of_waves_and_changes_the_name():
    base, changed = load_workload("chat"), load_workload("chat", concurrency=8)
    assert changed.num_prompts / changed.concurrency == base.num_prompts / base.concurrency
    assert changed.name == "chat-c8"
    assert load_workload("chat", concurrency=1).num_prompts == 16
    assert load_workload("chat", concurrency=8, num_prompts=100).num_prompts == 100


def test_a_rate_takes_the_place_of_the_concurrency():
    changed = load_workload("chat", rate=4.5)
    assert (changed.concurrency, changed.rate, changed.num_prompts, changed.name) == (None, 4.5, 45, "chat-r4.5")


def test_the_same_values_keep_the_name():
    assert load_workload("chat", concurrency=64, input_tokens=1024) == load_workload("chat")


def test_other_lengths_are_in_the_name():
    changed = load_workload("chat", input_tokens=512, output_tokens=64)
    assert (changed.input_tokens, changed.output_tokens, changed.name) == (512, 64, "chat-in512-out64")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"concurrency": 0}, "--concurrency 0"),
        ({"input_tokens": -5}, "--input-tokens -5"),
        ({"output_tokens": 0}, "--output-tokens 0"),
        ({"rate": 0.0}, "--rate 0"),
        ({"rate": float("inf")}, "--rate inf"),
        ({"rate": 1.0, "concurrency": 4}, "exclude each other"),
        ({"num_prompts": 10}, "below concurrency"),
    ],
)
def test_options_out_of_range_are_refused(options: dict, said: str):
    with pytest.raises(InputError, match=said):
        load_workload("chat", **options)


def test_a_workload_longer_than_the_model_takes_is_refused():
    tiny = load_workload("tiny")
    check_fits(tiny, 96)
    with pytest.raises(InputError, match="up to 96 tokens, the model takes 95"):
        check_fits(tiny, 95)


def test_the_longest_request_counts_spread_and_prefix():
    chat = load_workload("chat")
    assert longest_request_tokens(chat) == 1229 + 154  # 1.2 times each, rounded up
    assert longest_request_tokens(load_workload("rag")) == 3800 + 3800 + 182
