"""The search for the highest load that meets the SLO, on servers made of a formula."""

import dataclasses
import random

import pytest

from advisor.measure.load_search import (
    MOST_LOADS,
    RESOLUTION,
    find_load,
    judged,
    kept_up,
    next_load,
    seeds_after,
    told,
    with_load,
)
from advisor.measure.workload import load_workload
from advisor.records import Invalid, LoadPoint, Objective, SloLimit, Workload
from tests.study_help import sample

SLO = (SloLimit("ttft_ms", 500, 0.99),)
CHAT = Workload("chat", 1024, 128, 256, concurrency=64)
RATED = Workload("rated", 1024, 128, 40, rate=2.0)


def search(start, kind, capacity, full=1e9):
    """Points of a server that meets the SLO up to `capacity` and finishes no more than `full` requests a second."""
    points = []
    while (now := next_load(points, start, kind)) is not None:
        load = now.concurrency if now.rate is None else now.rate
        points.append(LoadPoint(float(load), load <= capacity, min(load, full), "" if load <= capacity else "late"))
    return points


def highest(points):
    return max((point.load for point in points if point.met), default=None)


@pytest.mark.parametrize("capacity", [1, 2, 3, 5, 7, 31, 33, 63, 64, 65, 100, 127, 200, 500, 1000, 2047, 4096])
def test_the_highest_concurrency_is_found_in_few_loads(capacity):
    points = search(CHAT, "concurrency", capacity)
    found = highest(points)
    assert found <= capacity < max(found * (1 + RESOLUTION), found + 1) and len(points) <= MOST_LOADS
    assert len({point.load for point in points}) == len(points)


@pytest.mark.parametrize("capacity", [0.05, 0.3, 1.0, 1.9, 2.0, 2.1, 6.4, 17, 64, 250])
def test_the_highest_rate_is_found_in_few_loads(capacity):
    points = search(RATED, "rate", capacity)
    found = highest(points)
    assert found <= capacity < found * (1 + RESOLUTION) and len(points) <= MOST_LOADS


def test_no_load_at_all_ends_at_one_in_flight():
    points = search(CHAT, "concurrency", 0)
    assert [point.load for point in points] == [64, 32, 8, 2, 1]
    assert told(points, "concurrency") == "no load met the SLO, down to 1 requests in flight: late"


def test_a_full_server_ends_the_search():
    points = search(CHAT, "concurrency", 1e9, full=100)
    assert [point.load for point in points] == [64, 128, 512, 1024]
    assert "more in flight finish no more requests" in told(points, "concurrency")


@pytest.mark.parametrize("limit", [150, 192, 250])
def test_a_server_that_is_full_from_the_start_still_has_a_highest_load_within_the_slo(limit):
    points = search(CHAT, "concurrency", limit, full=64)
    assert highest(points) <= limit < highest(points) * (1 + RESOLUTION) + 1


def test_one_rise_without_gain_is_noise_and_ends_nothing():
    held_up = [LoadPoint(64, True, 60), LoadPoint(128, True, 60.5)]
    assert next_load(held_up, CHAT, "concurrency").concurrency == 256
    assert next_load([*held_up, LoadPoint(256, True, 110)], CHAT, "concurrency").concurrency == 1024


def test_loads_stop_at_what_vllm_can_run():
    assert max(point.load for point in search(CHAT, "concurrency", 1e9)) == 4096


def test_a_pass_above_a_miss_is_noise_and_not_believed():
    points = [LoadPoint(64, True, 60), LoadPoint(128, False, 90, "late"), LoadPoint(91, True, 80)]
    assert 91 < next_load(points, CHAT, "concurrency").concurrency < 128
    lucky = [*points, LoadPoint(300, True, 90)]
    assert next_load(lucky, CHAT, "concurrency").concurrency < 128
    assert told(lucky, "concurrency") == "the SLO is met at 91 requests in flight, not at 128 (late), after 4 loads"


@pytest.mark.parametrize("seed", range(30))
def test_noise_never_makes_it_endless(seed):
    rng, points = random.Random(seed), []
    while (now := next_load(points, CHAT, "concurrency")) is not None:
        points.append(LoadPoint(float(now.concurrency), rng.random() < 0.5, now.concurrency))
    assert 1 <= len(points) <= MOST_LOADS


def test_a_load_keeps_the_waves_or_the_seconds_of_a_sample():
    assert with_load(CHAT, "concurrency", 128).num_prompts == 512
    assert with_load(CHAT, "concurrency", 2).num_prompts == 32
    assert with_load(RATED, "rate", 10.0) == dataclasses.replace(RATED, rate=10.0, num_prompts=200)
    from_concurrency = with_load(CHAT, "rate", 1.0)
    assert (from_concurrency.rate, from_concurrency.concurrency, from_concurrency.num_prompts) == (1.0, None, 32)


def test_the_presets_begin_with_their_own_load():
    assert next_load([], load_workload("chat"), "concurrency") == load_workload("chat")


# ---------------------------------------------------------------- measuring


class Server:
    """Takes samples: within the SLO up to `capacity` in flight; from `bad_from` on invalid ones."""

    def __init__(self, capacity, bad_from=1e9):
        self.capacity, self.bad_from, self.asked = capacity, bad_from, []

    def __call__(self, workload, seed):
        self.asked.append((workload.concurrency, seed))
        within = 1.0 if workload.concurrency <= self.capacity else 0.5
        problems = ("the client was starved",) if workload.concurrency >= self.bad_from else ()
        taken = sample(seed, 10.0 * workload.concurrency, problems=problems)
        return dataclasses.replace(
            taken, slo_within={SLO[0].label: within}, slo_share=within, requests_s=workload.concurrency / 10
        )


GOAL = Objective("max_concurrency", slo=SLO, find_load="concurrency")


def test_the_samples_are_those_of_the_highest_load_within_the_slo():
    server = Server(100)
    found = find_load(server, CHAT, GOAL, (3, 4))
    assert (
        {item.load for item in found.samples}
        == {max(point.load for point in found.loads if point.met)}
        <= {98.0, 99.0, 100.0}
    )
    assert [item.pair_seed for item in found.samples] == [3, 4]
    seeds = [seed for _, seed in server.asked]
    assert len(set(seeds)) == len(seeds) == 2 * len(found.loads) and max(seeds) < 1000
    assert "ttft_p99<500ms: 50.0% of the requests are within 500 ms" in found.note


def test_where_no_load_is_within_the_slo_the_lowest_tried_stands():
    found = find_load(Server(0), CHAT, GOAL, (0,))
    assert [item.load for item in found.samples] == [1.0] and not any(point.met for point in found.loads)


def test_an_invalid_sample_at_the_workloads_own_load_is_no_measurement():
    found = find_load(Server(1000, bad_from=64), CHAT, GOAL, (0,))
    assert [item.problems for item in found.samples] == [("the client was starved",)]
    assert found.loads == () and found.note == "at 64 in flight the measurement was not valid"


def test_an_invalid_sample_below_a_load_that_broke_the_slo_is_none_either():
    def measure(workload, seed):
        return Server(0, bad_from=1 if workload.concurrency == 1 else 1e9)(workload, seed)

    found = find_load(measure, dataclasses.replace(CHAT, concurrency=2, num_prompts=32), GOAL, (0,))
    assert found.samples[0].problems and [(point.load, point.met) for point in found.loads] == [(2.0, False)]


def test_a_rate_at_which_the_client_could_not_send_is_a_limit_wherever_it_comes():
    """A flooded server on the client's own processor: half of the rate may do."""

    def measure(workload, seed):
        late = (("sent late",), (Invalid.LOAD_NOT_REACHED,)) if workload.rate > 1.2 else ((), ())
        taken = dataclasses.replace(sample(seed, 10.0), slo_within={SLO[0].label: 1.0}, requests_s=workload.rate)
        return dataclasses.replace(taken, problems=late[0], classes=late[1])

    found = find_load(measure, RATED, Objective("max_rate", slo=SLO, find_load="rate"), (0,))
    assert found.loads[0].load == 2.0 and not found.loads[0].met and "not measured: sent late" in found.loads[0].reason
    assert not found.samples[0].problems and 1.1 < found.samples[0].load <= 1.2


def test_a_load_that_cannot_be_measured_is_a_limit_and_said():
    found = find_load(Server(1000, bad_from=101), CHAT, GOAL, (0, 1))
    assert {item.load for item in found.samples} <= {97.0, 98.0, 99.0, 100.0} and not found.samples[0].problems
    assert "not measured: the client was starved" in found.note
    assert all(point.met == (point.load <= 100) for point in found.loads)


def test_the_load_that_was_found_is_kept_up_with_prompts_of_its_own():
    found = find_load(Server(13), CHAT, GOAL, (3,))
    going_on = kept_up(found.samples[-1], CHAT, "concurrency")
    assert (going_on.concurrency, going_on.rate) == (13, None)
    assert going_on.num_prompts == found.samples[-1].requests + found.samples[-1].failed
    rated = kept_up(dataclasses.replace(found.samples[-1], load=2.5), RATED, "rate")
    assert (rated.concurrency, rated.rate) == (None, 2.5)
    assert next(seeds_after(3)) > max(one.seed for one in found.samples) and next(seeds_after(3)) >= 3 + 50 * MOST_LOADS


def test_a_growing_queue_is_not_a_load_that_the_server_bears():
    taken = dataclasses.replace(sample(0, 1.0), slo_within={SLO[0].label: 1.0}, in_flight=(3.0, 9.0, 15.0, 21.0))
    point = judged(4.0, [taken], SLO)
    assert not point.met and point.reason == "requests arrive faster than they are finished"


def test_a_sample_that_is_too_short_is_taken_again_with_more_prompts():
    asked = []

    def measure(workload, seed):
        asked.append((workload.num_prompts, seed))
        taken = Server(0)(workload, seed)
        if len(asked) > 1:
            return taken
        return dataclasses.replace(
            taken, problems=("too short",), classes=(Invalid.TOO_SHORT,), duration_s=0.1, requests=256
        )

    found = find_load(measure, CHAT, GOAL, (0,))
    assert found.loads[0].load == 64.0 and not found.samples[0].problems
    (few, first), (many, again) = asked[:2]
    assert few == 256 and many > 1000 and first != again
