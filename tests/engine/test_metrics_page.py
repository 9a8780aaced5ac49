"""What the /metrics page adds to the log: recorded pages of real vLLM (tests/data/metrics)."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.engine.metrics_page import cache_labels, with_page
from advisor.records import Active

PAGES = Path(__file__).parents[1] / "data" / "metrics"
NOTHING = Active(vllm_version="0.32.0")


def page(name: str) -> str:
    return (PAGES / f"{name}.prom").read_text()


def test_a_real_page_of_the_default():
    active = with_page(NOTHING, page("cpu-0.32-default"))
    assert (active.block_size, active.kv_cache_dtype, active.prefix_caching) == (128, "auto", True)
    assert (active.kv_cache_blocks, active.gpu_memory_utilization) == (16384, 0.92)
    assert active.kv_cache_tokens == 2097152 == active.block_size * active.kv_cache_blocks


def test_a_real_page_of_settings_that_were_asked_for():
    active = with_page(NOTHING, page("cpu-0.32-asked"))
    assert (active.block_size, active.kv_cache_dtype, active.prefix_caching) == (64, "fp8", False)


def test_the_log_wins_and_the_page_completes():
    log = Active(vllm_version="0.32.0", kv_cache_dtype="fp8", kv_cache_tokens=7, compilation_mode="NONE")
    active = with_page(log, page("cpu-0.32-default"))
    assert (active.kv_cache_dtype, active.kv_cache_tokens, active.compilation_mode) == ("fp8", 7, "NONE")
    assert active.block_size == 128


@pytest.mark.parametrize(("version", "known"), [("0.23.0", None), (None, None), ("0.24.0", 128), ("0.33.0", 128)])
def test_the_block_size_is_believed_from_the_release_on_that_hands_it_back(version, known):
    assert with_page(Active(vllm_version=version), page("cpu-0.32-default")).block_size == known


def test_the_first_of_several_engines_is_read():
    text = page("cpu-0.32-asked")
    second = text.replace('engine="0"', 'engine="1"').replace('block_size="64"', 'block_size="32"')
    assert cache_labels(text + second.splitlines()[-1])["block_size"] == "64"


@pytest.mark.parametrize(
    "text", ["", "<html>", "vllm:cache_config_info{", "vllm:cache_config_info{a=b} 1.0", "python_info 1.0"]
)
def test_a_page_that_says_nothing_changes_nothing(text):
    assert with_page(NOTHING, text) == NOTHING


def test_none_is_no_value():
    text = 'vllm:cache_config_info{block_size="None",enable_prefix_caching="None",num_gpu_blocks="None"} 1.0'
    assert with_page(NOTHING, text) == NOTHING
