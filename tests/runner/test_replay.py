"""What a replay may change of a recorded launch, and what not."""

from __future__ import annotations

import dataclasses
import random
import statistics

import pytest

from advisor.records import Candidate, Dropped, Outcome
from advisor.runner.base import Job
from advisor.runner.replay import Noise, ReplayRunner
from tests.recording import synthetic

DEFAULT = Candidate()
NOISE = Noise((-0.02, 0.0, 0.02), 0.01)


def recorded(count=1, seeds=(0.0, 0.01)):
    rng = random.Random(5)
    return [synthetic.launch(number, DEFAULT, list(seeds), rng) for number in range(count)]


def job(seeds=(0, 1), **more):
    return Job(3, "search", DEFAULT, seeds, **more)


class Hopeless:
    """Drops at the given look: 0 after the start, 1 after the slice, 2 after the first sample."""

    def __init__(self, at):
        self.at, self.looks = at, []

    def judge(self, start_s, slices, samples):
        self.looks.append((start_s, len(slices), len(samples)))
        return Dropped("lost", {"output_tok_s": 1.0}) if len(self.looks) > self.at else None


def test_without_a_seed_a_launch_is_as_it_was_recorded():
    (known,) = recorded()
    answer = ReplayRunner([known], noise=NOISE).run(job())
    assert [item.output_tok_s for item in answer.samples] == [item.output_tok_s for item in known.samples]
    assert (answer.total_s, answer.start_s, answer.measure_s) == (known.total_s, known.start_s, known.measure_s)
    assert (answer.number, answer.phase) == (3, "search")


def test_of_several_launches_each_answers_once_before_any_answers_again():
    known = recorded(4)
    runner = ReplayRunner(known, seed=1, noise=NOISE)
    figures = [runner.run(job()).samples[0].output_tok_s for _ in range(8)]
    every = sorted(item.samples[0].output_tok_s for item in known)
    assert sorted(figures[:4]) == sorted(figures[4:]) == every
    orders = {tuple(ReplayRunner(known, seed=s).run(job()).samples[0].output_tok_s for _ in range(1)) for s in range(12)}
    assert len(orders) > 1  # which one is first is drawn


def test_a_single_launch_is_moved_by_recorded_deviations_and_nothing_else():
    (known,) = recorded()
    ratios = set()
    for seed in range(40):
        answer = ReplayRunner([known], seed, NOISE).run(job())
        ratio = {round(a.output_tok_s / b.output_tok_s, 6) for a, b in zip(answer.samples, known.samples, strict=True)}
        assert len(ratio) == 1  # a launch's own part is common to its samples
        ratios |= ratio
        assert answer.samples[0].ttft_ms["p50"] == pytest.approx(known.samples[0].ttft_ms["p50"] / ratio.pop(), rel=1e-5)
        assert answer.total_s == pytest.approx(known.total_s)
    assert ratios == {round(2.718281828**item, 6) for item in NOISE.launches}


def test_a_seed_that_was_not_recorded_is_answered_by_one_that_was_with_its_noise():
    (known,) = recorded()
    runner = ReplayRunner([known] * 2, seed=0, noise=NOISE)
    answers = [runner.run(job((1000,))).samples[0] for _ in range(200)]
    assert {item.seed for item in answers} == {1000} and {item.pair_seed for item in answers} == {1000}
    spread = statistics.pstdev(item.output_tok_s / known.samples[0].output_tok_s for item in answers)
    assert spread == pytest.approx(NOISE.within, rel=0.25)


def test_a_launch_costs_what_was_measured_of_it():
    (known,) = recorded()
    each = known.measure_s / 2
    one, both, three = (ReplayRunner([known]).run(job(seeds)) for seeds in ((0,), (0, 1), (0, 1, 2)))
    assert both.total_s == pytest.approx(known.total_s)
    assert both.total_s - one.total_s == pytest.approx(each) == pytest.approx(three.total_s - both.total_s)


def test_a_launch_that_is_dropped_costs_what_came_before():
    (known,) = recorded()
    slices = {"slice_seeds": (500_000,), "slice_waves": 1}
    runner = ReplayRunner([known], workload=synthetic.WORKLOAD)
    whole = runner.run(job(**slices))
    assert [item.requests for item in whole.slices] == [64] and whole.plan.slice_prompts == 64
    assert whole.total_s == pytest.approx(known.total_s + 1.1 * whole.slices[0].duration_s)
    race = Hopeless(at=1)
    early = runner.run(job(**slices, race=race))
    assert race.looks == [(known.start_s, 0, 0), (known.start_s, 1, 0)]
    assert early.ok and early.dropped.reason == "lost" and early.samples == ()
    assert early.total_s == pytest.approx(known.total_s - known.measure_s + 1.1 * early.slices[0].duration_s)
    late = runner.run(job(**slices, race=Hopeless(at=2)))
    assert len(late.samples) == 1 and late.total_s == pytest.approx(whole.total_s - known.measure_s / 2)
    start = runner.run(job(**slices, race=Hopeless(at=0)))
    assert start.total_s == pytest.approx(known.total_s - known.measure_s - known.warmup_s) and start.slices == ()


def test_no_slices_where_none_were_recorded_or_none_are_asked_for():
    (known,) = recorded()
    bare = dataclasses.replace(
        known, samples=tuple(dataclasses.replace(item, slices=()) for item in known.samples)
    )
    slices = {"slice_seeds": (500_000,), "slice_waves": 1}
    assert ReplayRunner([bare], workload=synthetic.WORKLOAD).run(job(**slices)).slices == ()
    assert ReplayRunner([known]).run(job(**slices)).slices == ()
    assert ReplayRunner([known], workload=synthetic.WORKLOAD).run(job()).slices == ()


def test_a_failure_is_replayed_as_it_ended():
    failed = dataclasses.replace(recorded()[0], outcome=Outcome.OUT_OF_MEMORY, reason="no room", samples=(), total_s=33.0)
    answer = ReplayRunner([failed], seed=1, noise=NOISE).run(job(race=Hopeless(0)))
    assert (answer.outcome, answer.reason, answer.total_s, answer.dropped) == (Outcome.OUT_OF_MEMORY, "no room", 33.0, None)
