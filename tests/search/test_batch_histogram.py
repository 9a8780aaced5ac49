"""Histograms from what people have: files of each kind, pages of a server; every mistake named with its place."""

import json
from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.search.batch_histogram import from_pages, read_histogram

DATA = Path(__file__).parent.parent / "data"


@pytest.mark.parametrize(
    "text",
    [
        '{"64": 2000, "1": 20}',
        '{"histogram": {"64": 2000, "1": 20}}',
        "[[64, 2000], [1, 20], [7, 0]]",
        "tokens,steps\n64,2000\n1,20\n",
        "# batches\n64 1500\n1\t20\n64;500\n",
    ],
)
def test_numbers_in_every_form(text):
    found = read_histogram(text, "batches")
    assert found.steps == {1: 20, 64: 2000} and found.total == 2020 and found.approximations == ()


def test_the_table_of_a_server():
    found = read_histogram((DATA / "graph_steps" / "0.26.0.log").read_text(), "server.log")
    assert found.steps[64] == 4000 and found.steps[33] == 300 and found.steps[2048] == 12
    assert "--cudagraph-metrics" in found.source and not found.approximations


def test_a_benchmark_result():
    found = read_histogram((DATA / "bench" / "closed_loop.json").read_text(), "bench.json")
    assert max(found.steps, key=found.steps.get) == 4 and max(found.steps) == 67  # a prompt of 64 tokens and 3 others
    assert found.raw is not None and found.approximations


def test_a_saved_page():
    found = read_histogram((DATA / "metrics" / "cpu-0.32-default.prom").read_text(), "metrics.prom")
    assert found.total == pytest.approx(8) and found.steps[1] == 7  # the first bucket is exact
    assert sum(steps for tokens, steps in found.steps.items() if 1 < tokens <= 8) == pytest.approx(1)
    assert "evenly" in found.approximations[0] and "--custom-histogram-buckets" in found.approximations[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1: not valid JSON"),
        ('{"a": 1}', "'a' is no number"),
        ("[1, 2]", "no pairs"),
        ("64 1\n65\n", "line 2: 1 columns"),
        ("64 x\n", "'x' is no number"),
        ("0 5\n", "impossible"),
        ('{"inf": 1}', "impossible"),
        ('{"nan": 1}', "impossible"),
        ('{"64": NaN}', "impossible"),
        ("64.5 5\n", "impossible"),
        ("64 -5\n", "impossible"),
        ("64 0\n", "holds no step"),
        ("", "holds no step"),
        ('{"itls": [[0.1]], "ttfts": [0.1]}', "start_times"),
    ],
)
def test_mistakes_are_named(text, said):
    with pytest.raises(InputError, match="batches.*" + said):
        read_histogram(text, "batches")


def page(counts: dict[str, float], engine: int = 0) -> str:
    lines = [
        f'vllm:iteration_tokens_total_bucket{{engine="{engine}",le="{bound}",model_name="m"}} {value}'
        for bound, value in counts.items()
    ]
    return "\n".join(lines) + "\n"


def test_what_was_counted_between_two_pages_spread_by_the_polls():
    before = page({"32.0": 10, "64.0": 100, "+Inf": 100})
    after = page({"32.0": 10, "64.0": 300, "+Inf": 310})
    found = from_pages(before, after, [60] * 30 + [64] * 10)
    assert found.steps[60] == 150 and found.steps[64] == 50 and 33 not in found.steps
    assert found.total == pytest.approx(210)
    assert "40 polls" in found.approximations[0]


def test_engines_are_added_up():
    found = from_pages(None, page({"1.0": 4, "+Inf": 4}) + page({"1.0": 5, "+Inf": 5}, engine=1), ())
    assert found.steps == {1: 9}


def test_own_buckets_of_one_token_are_exact():
    found = from_pages(None, page({f"{n}.0": 10 * n for n in range(1, 65)} | {"+Inf": 640}), ())
    assert found.steps == dict.fromkeys(range(1, 65), 10) and found.approximations == ()


def test_with_speculation_only_the_polls_tell_the_batch():
    after = page({"8.0": 5, "+Inf": 9})
    found = from_pages(page({"8.0": 0, "+Inf": 0}), after, [2, 2, 3, 0], tokens_a_request=4)
    assert found.steps == {8: 2, 12: 1}
    with pytest.raises(InputError, match="accepted tokens"):
        from_pages(None, after, (), tokens_a_request=4)


def test_pages_that_tell_nothing():
    with pytest.raises(InputError, match="no vllm:iteration_tokens_total"):
        from_pages(None, "up 1\n", ())
    same = page({"8.0": 5, "+Inf": 9})
    with pytest.raises(InputError, match="no step meanwhile"):
        from_pages(same, same, ())


def test_json_numbers_as_text_are_numbers():
    assert read_histogram(json.dumps({"8": "3"}), "batches").steps == {8: 3}
