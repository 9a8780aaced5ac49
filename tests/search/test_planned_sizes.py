"""What is printed is what is captured: plans through each release's own rules, and what they are said to do."""

import random
from dataclasses import replace

import pytest

from advisor.engine.capture import CaptureRequest, capture_list
from advisor.engine.versions import RELEASES, version_text
from advisor.errors import InputError
from advisor.records import Active
from advisor.search.graph_costs import GraphCosts, Prices, available_kv_gib, costs_of
from advisor.search.planned_sizes import Planner, planned_lists
from advisor.search.step_times import assumed, measured
from advisor.search.written_sizes import as_written

LINEAR = measured({1: 1.0, 1001: 11.0}, 20.0, "made")  # 0.01 ms a token
FREE = Prices(kv_gib=1e9, pressure=0.0, lifetime_s=1e12)


def request(version=(0, 26, 0), seqs=256, tokens=8192, **settings) -> CaptureRequest:
    return CaptureRequest(version, seqs, tokens, **settings)


def planner(histogram, asked=None, **settings) -> Planner:
    return Planner(histogram, LINEAR, asked or request(), **settings)


@pytest.mark.parametrize("version", RELEASES, ids=version_text)
def test_the_list_is_captured_as_it_was_planned(version):
    """For every number of graphs: what the version makes of the written list is the list, and it takes the planned time."""
    rng = random.Random(str(version))
    checked = 0
    for _ in range(60):
        seqs = rng.choice((1, 5, 6, 12, 64, 100, 256, 1024))
        asked = request(
            version, seqs, max(seqs, rng.choice((64, 2048, 8192))),
            speculative_tokens=rng.choice((0, 0, 1, 3, 4)), tensor_parallel=rng.choice((1, 2, 4)),
            sequence_parallel=rng.random() < 0.3, runner_v2=version >= (0, 16, 0) and rng.random() < 0.4,
            cudagraph_mode=rng.choice(("FULL_AND_PIECEWISE", "FULL_AND_PIECEWISE", "FULL", "FULL_DECODE_ONLY", "PIECEWISE")),
        )  # fmt: skip
        top = rng.choice((8, 64, 300, 2000))
        histogram = {rng.randint(1, top): rng.choice((1, 10, 99.5)) for _ in range(rng.randint(1, 12))}
        try:
            made = Planner(histogram, assumed(), asked)
            made.curve  # noqa: B018
        except InputError:
            continue  # vLLM refuses the layout, or captures nothing for these batches
        for graphs in range(1, made.curve.most + 1):
            if sizes := made.curve.sizes(graphs):
                found = made.at(graphs)
                assert found.sizes == sizes and found.step_ms == pytest.approx(made.step_ms[graphs], rel=1e-9)
                checked += 1
    assert checked > 50


def test_multiples_of_the_tokens_that_a_request_decodes():
    made = planner({8: 10, 12: 10, 13: 10}, request(speculative_tokens=3))
    assert made.at(3).sizes == (8, 12, 16)  # 13 is no whole number of requests: it is padded to 16
    assert all(size % 4 == 0 for size in made.legal[0])


def test_multiples_of_the_tensor_parallel_size_with_sequence_parallelism():
    assert planner({5: 1, 9: 1}, request(tensor_parallel=4, sequence_parallel=True)).at(9).sizes == (8, 12)


def test_the_batch_of_all_sequences_keeps_its_full_graph():
    """Above max_num_seqs there are no FULL graphs for decode batches: 8 would hold a batch of 6 and run it piecewise."""
    made = planner({6: 10, 8: 1}, request(seqs=6))
    assert made.at(1).sizes == (6,)
    assert made.at(2).sizes == (6, 8) and made.at(2).not_full == 0
    assert made.of((8,)).not_full == pytest.approx(10 / 11)


def test_larger_batches_have_no_graph_in_decode_only_mode():
    made = planner({6: 10, 8: 1}, request(seqs=6, cudagraph_mode="FULL_DECODE_ONLY"))
    assert made.at(9).sizes == (6,)
    assert made.at(9).outside == pytest.approx(1 / 11)


def test_what_the_default_list_does():
    made = planner({33: 3, 600: 1}, request(seqs=1024))
    default = made.default
    assert default.sizes == capture_list(request(seqs=1024)).sizes and default.graphs == 51
    assert default.outside == 0.25  # above 512
    assert default.step_ms == pytest.approx((3 * 1.39 + 20) / 4)  # padded to 40; 20 ms without a graph
    assert default.padding == pytest.approx(7 / 33)
    assert made.ideal_ms == pytest.approx((3 * 1.32 + 6.99) / 4)
    assert made.at(2).step_ms == pytest.approx(made.ideal_ms)


def test_steps_beyond_any_graph_are_left_out_and_counted():
    made = planner({16: 3, 4000: 1})
    assert made.beyond == 0.25 and made.at(1).step_ms == pytest.approx(1.15)
    with pytest.raises(InputError, match="more than 512 tokens"):
        planner({4000: 1})


def test_dearer_graphs_mean_fewer_of_them():
    histogram = dict.fromkeys(range(1, 65), 1)
    free = planner(histogram, prices=FREE).best
    costs = GraphCosts(0.02, 0.1, "made")
    memory = planner(histogram, costs=costs, prices=Prices(kv_gib=4.0)).best
    starts = planner(histogram, costs=costs, prices=Prices(kv_gib=1e9, lifetime_s=60.0)).best
    assert free == 64 and 1 <= memory < 12 and 1 <= starts < 16
    idle = planner(histogram, costs=costs, prices=Prices(kv_gib=4.0, pressure=0.0, lifetime_s=1e9)).best
    assert idle == 64  # a cache that is never full costs nothing


def test_charged_time():
    plan = planner({64: 1}, costs=GraphCosts(0.5, 2.0, "made"), prices=Prices(10.0, 0.5, 100.0)).at(1)
    assert (plan.gib, plan.seconds) == (0.5, 2.0)
    assert plan.charged_ms == pytest.approx(plan.step_ms * (1 + 0.5 * 0.5 / 10 + 2 / 100))


def test_a_batch_that_must_be_covered():
    made = planner({16: 5}, request(seqs=128), cover=128)
    assert made.at(1).sizes == (128,) and made.at(2).sizes == (16, 128)
    assert made.at(2).step_ms == pytest.approx(1.15) and made.default.step_ms == pytest.approx(1.15)
    assert made.best == 2 or made.at(made.best).sizes[-1] == 128


def test_lists_for_the_search():
    histogram = {n: 1 + (n == 48) * 500 for n in range(1, 49)}
    lists = planned_lists(histogram, LINEAR, request())
    assert 2 <= len(lists) <= 3 and len(set(lists)) == len(lists)
    assert all(sizes == tuple(sorted(set(sizes))) and sizes[-1] == 48 for sizes in lists)
    made = planner(histogram)
    assert lists[0] == made.at(made.best).sizes
    times = [made.of(sizes).step_ms for sizes in lists]
    assert max(times) <= 1.02 * made.step_ms[-1] + 1e-9 and min(times) <= 1.001 * made.step_ms[-1] + 1e-9


def test_vllms_own_list_is_not_proposed_again():
    small = request(seqs=2)
    assert capture_list(small).sizes == (1, 2, 4)
    histogram = {1: 10, 2: 10, 4: 10}
    assert (1, 2, 4) not in planned_lists(histogram, LINEAR, small, prices=FREE)


@pytest.mark.parametrize("changed", [{"enforce_eager": True}, {"cudagraph_mode": "NONE"}])
def test_nothing_to_capture(changed):
    with pytest.raises(InputError, match="nothing to capture"):
        planner({1: 1}, replace(request(), **changed))


def test_a_refusal_of_vllm_is_told_in_its_words():
    with pytest.raises(InputError, match="sequence parallelism"):
        planner({8: 1}, request(speculative_tokens=2, tensor_parallel=2, sequence_parallel=True)).curve  # noqa: B018


def test_a_list_of_one_is_a_list_in_old_releases_too():
    """--cuda-graph-sizes 64 would mean: up to 64."""
    old = as_written(request((0, 10, 2)), (64,))
    assert capture_list(old).sizes == (64,)


def test_costs_from_a_log():
    active = Active(capture_sizes=tuple(range(1, 51)), graph_memory_gib=1.0, capture_s=5.0)
    found = costs_of(active, "server.log")
    assert (found.gib, found.seconds) == (0.02, 0.1) and "server.log" in found.source
    assert costs_of(replace(active, graph_memory_gib=-0.5), "x").gib == 0
    assert costs_of(Active(), "x") is None and costs_of(replace(active, capture_sizes=()), "x") is None
    assert available_kv_gib("INFO [gpu_worker.py:560] Available KV cache memory: 112.28 GiB") == 112.28
    assert available_kv_gib("nothing") is None
