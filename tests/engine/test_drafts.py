"""What a server accepted of its drafts: lines of a real page (vLLM 0.32.0 on a processor, n-gram drafts of up to four tokens)."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.engine.agreement import Agreement
from advisor.engine.drafts import RANDOM, told_drafts
from advisor.records import Active, Candidate, Command
from advisor.runner.base import Job
from advisor.runner.launch import Launch

PAGES = Path(__file__).parents[1] / "data" / "metrics"
PAGE = """\
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 1085.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7960463002848816e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 3716.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 3716.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 1085.0
"""


def test_the_share_and_the_length_are_told():
    said = "speculative decoding: 100% of the drafted tokens were accepted, 4.4 tokens came of a step with a draft"
    assert told_drafts(PAGE) == said
    assert told_drafts(PAGE, ("vllm", "serve", "m", "--load-format", "dummy")) == f"{said}; {RANDOM}"


def test_engines_are_counted_together():
    other = PAGE.replace('engine="0"', 'engine="1"').replace("num_accepted_tokens_total{engine=\"1\",model_name=\"m\"} 3716.0", (
        "num_accepted_tokens_total{engine=\"1\",model_name=\"m\"} 0.0"
    ))  # fmt: skip
    assert "50% of the drafted tokens were accepted, 2.7 tokens" in told_drafts(PAGE + other)


@pytest.mark.parametrize("page", ["", "no page", (PAGES / "cpu-0.32-default.prom").read_text(), PAGE.replace(" 1085.0", " 0.0")])
def test_without_drafts_nothing_is_told(page):
    assert told_drafts(page) is None


def test_a_launch_notes_it(tmp_path):
    (tmp_path / "metrics.prom").write_text(PAGE)
    launch = Launch(Job(0, "baseline", Candidate(), (0,)), Command(("vllm",), {}), tmp_path)
    launch.check(Agreement(Active(vllm_version="0.32.0"), None, None, ()))
    assert launch.notes == [told_drafts(PAGE)]
