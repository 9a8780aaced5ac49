"""Batches counted from when the client saw its tokens: against a server whose steps are known."""

import json
import random
from pathlib import Path

import pytest

from advisor.search.token_times import decode_histogram, step_histogram

BENCH = Path(__file__).parent.parent / "data" / "bench"


def served(load: int, lengths: list[int], prompt: int, seed: int = 0) -> tuple[dict, dict[int, int], dict[int, int]]:
    """(raw result, decode batches -> steps, tokens of the steps that also took in a prompt -> steps) of a closed loop.

    Each step first takes in at most one waiting prompt, whose first token it gives, and decodes for all that were running.
    """
    rng, now = random.Random(seed), 0.0
    waiting, sent, tokens = list(range(load)), dict.fromkeys(range(load), 0.0), {}
    running: dict[int, int] = {}
    decoded: dict[int, int] = {}
    joined: dict[int, int] = {}
    fresh = load
    while waiting or running:
        joins = waiting.pop(0) if waiting else None
        batch = len(running)
        now += 0.005 + 0.0001 * batch + (0.002 if joins is not None else 0) + rng.random() * 1e-4
        if batch and joins is None:
            decoded[batch] = decoded.get(batch, 0) + 1
        if joins is not None:
            joined[batch + prompt] = joined.get(batch + prompt, 0) + 1
        for request in list(running):
            tokens[request].append(now)
            running[request] -= 1
            if not running[request]:
                del running[request]
                if fresh < len(lengths):
                    waiting.append(fresh)
                    sent[fresh], fresh = now, fresh + 1
        if joins is not None:
            tokens[joins] = [now]
            running[joins] = lengths[joins] - 1
    order = range(len(lengths))
    raw = {
        "start_times": [sent[i] for i in order],
        "ttfts": [tokens[i][0] - sent[i] for i in order],
        "itls": [[b - a for a, b in zip(tokens[i], tokens[i][1:], strict=False)] for i in order],
        "input_lens": [prompt] * len(lengths),
    }
    return raw, decoded, joined


@pytest.mark.parametrize("load", [1, 3, 16])
def test_decode_and_joining_steps_of_a_known_server(load):
    rng = random.Random(load)
    raw, decoded, joined = served(load, [rng.randint(10, 60) for _ in range(load * 6)], prompt=128)
    found = step_histogram(raw)
    assert sum(found.values()) == pytest.approx(sum(decoded.values()) + sum(joined.values()), rel=0.02)
    for batch, steps in decoded.items():
        if steps > 20:
            assert found[batch] == pytest.approx(steps, rel=0.15, abs=3)
    assert {tokens for tokens in found if tokens > load} <= {tokens + d for tokens in joined for d in (-1, 0, 1)}
    assert sum(steps for tokens, steps in found.items() if tokens > load) == len(raw["itls"])


def test_one_request_alone():
    raw = {"start_times": [5.0], "ttfts": [0.1], "itls": [[0.01] * 9]}
    assert decode_histogram(raw) == {1: 9.0}
    assert decode_histogram(raw, tokens_a_request=4) == {4: 9.0}
    assert step_histogram(raw) == {1: 9.0}  # no length of a prompt: decode steps only


def test_prompts_that_no_graph_could_hold_are_left_out():
    raw = {"start_times": [0.0, 0.005], "ttfts": [0.1, 0.1], "itls": [[0.01] * 9] * 2, "input_lens": [100, 9000]}
    assert set(step_histogram(raw)) == {1, 2, 100}
    assert set(step_histogram(raw, most=50)) == {1, 2}
    assert set(step_histogram(raw, computed=0.1)) == {2, 10, 901}  # the only step of one request took the other in


def test_requests_without_tokens_count_for_nothing():
    raw = {"start_times": [0.0, 0.0], "ttfts": [0.0, 0.1], "itls": [[], [0.01, 0.01]]}
    assert decode_histogram(raw) == {1: 2.0}
    assert decode_histogram(json.loads((BENCH / "all_failed.json").read_text())) == {}


def test_a_real_result():
    """vLLM 0.32.0, four in flight, 24 requests of 32 tokens, a few of which came two at a time."""
    raw = json.loads((BENCH / "closed_loop.json").read_text())
    found = decode_histogram(raw)
    assert max(found) == 4 and max(found, key=found.get) == 4
    assert sum(batch * steps for batch, steps in found.items()) == sum(map(len, raw["itls"])) >= 740


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"ttfts": [], "itls": []}, "start_times"),
        ({"start_times": [1.0], "ttfts": [], "itls": []}, "differ in length"),
        ([], "no per-request list"),
    ],
)
def test_what_is_no_such_result(raw, said):
    with pytest.raises(ValueError, match=said):
        decode_histogram(raw)
