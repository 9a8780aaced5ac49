"""--objective, --slo and --find-load: what fits together, and what a mistake is answered with."""

import pytest

from advisor.errors import InputError
from advisor.measure.workload import load_workload
from advisor.records import Objective, SloLimit
from advisor.search.goal import check_load, parse_goal

LIMIT = (SloLimit("ttft_ms", 500, 0.99),)


@pytest.mark.parametrize(
    ("words", "goal"),
    [
        ((None,), Objective()),
        (("goodput", "ttft_p99<500ms"), Objective("goodput", slo=LIMIT)),
        ((None, "ttft_p99<500ms"), Objective("goodput", slo=LIMIT)),
        (("output_tok_s", "ttft_p99<500ms"), Objective(slo=LIMIT)),
        (("output_tok_s, ttft_ms.p99",), Objective("output_tok_s", ("ttft_ms.p99",))),
        (("start_s",), Objective("start_s")),
        ((None, "ttft<500ms", "rate"), Objective("max_rate", slo=LIMIT, find_load="rate")),
        (("max_concurrency", "ttft<500ms"), Objective("max_concurrency", slo=LIMIT, find_load="concurrency")),
        (("goodput", "ttft<500ms", "rate"), Objective("goodput", slo=LIMIT, find_load="rate")),
    ],
)
def test_words(words, goal):
    assert parse_goal(*words) == goal


@pytest.mark.parametrize(
    ("words", "part", "hint"),
    [
        (("speed",), "--objective 'speed' is not known", "start_s"),
        (("output_tok_s,speed",), "'speed' is not known", "output_tok_s"),
        (("ttft_ms",), "a latency needs a percentile", "ttft_ms.p99"),
        (("ttft_ms.p95",), "'p95' is not measured", "ttft_ms.p90"),
        (("output_tok_s,output_tok_s",), "twice", ""),
        (("output_tok_s,ttft_ms.p99,tpot_ms.p50,start_s",), "4 metrics", "at most 3"),
        (("goodput",), "--objective goodput needs --slo", "ttft_p99<500ms"),
        ((None, None, "rate"), "--find-load rate needs --slo", "ttft_p99<500ms"),
        (("max_rate",), "--find-load rate needs --slo", "ttft_p99<500ms"),
        ((None, "ttft<1s", "load"), "--find-load 'load' is not known", "concurrency, rate"),
        (
            ("max_rate", "ttft<1s", "concurrency"),
            "one load is raised at a time",
            "max_rate to --find-load rate",
        ),
        (("max_rate,max_concurrency", "ttft<1s"), "one load is raised at a time", "max_concurrency"),
        ((None, ""), "is not METRIC<LIMIT", "ttft_p99"),
    ],
)
def test_mistakes(words, part, hint):
    with pytest.raises(InputError) as caught:
        parse_goal(*words)
    assert part in caught.value.problem and "\n" not in caught.value.problem and hint in (caught.value.hint or "")


def test_the_load_that_is_raised_is_the_workloads():
    goal = parse_goal(None, "ttft<1s", "concurrency")
    check_load(goal, load_workload("chat"))
    check_load(parse_goal(None, "ttft<1s", "rate"), load_workload("chat"))
    with pytest.raises(InputError, match="which has a rate"):
        check_load(goal, load_workload("chat", rate=2.0))
