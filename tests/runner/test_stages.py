"""A launch on the fake engine, with the real client code: slices first, and an end as soon as a race says so."""

from __future__ import annotations

import dataclasses

from advisor.measure import warmup
from advisor.records import Candidate, Dropped, Invalid, Objective, Outcome, from_json, to_json
from advisor.runner.base import Earlier, Job
from advisor.search.race_noise import Noise
from advisor.search.racing import SLICE_SEEDS_FROM, race_for, slice_seeds, slice_waves
from tests.fakes.fake_bench import FakeBench
from tests.runner.test_sampling import WORKLOAD, runner, short  # noqa: F401 - fixtures

GOAL = Objective()
LONG = dataclasses.replace(WORKLOAD, num_prompts=32)  # a slice is a quarter of it


class Told:
    """A race that drops at the look after so many samples, and remembers when it was asked. None: never."""

    def __init__(self, after=None):
        self.after, self.looks = after, []

    def judge(self, start_s, slices, samples):
        self.looks.append((start_s is not None, len(slices), len(samples)))
        if self.after == (len(slices), len(samples)):
            return Dropped("after being told so", {"output_tok_s": 1.0})
        return None


def first(made, seeds=(0, 1)):
    slices = slice_seeds("baseline", [], GOAL)
    return made.run(Job(0, "baseline", Candidate(), seeds, slice_seeds=slices, slice_waves=slice_waves(GOAL)))


def later(made, race, settings=None, seeds=(0, 1)):
    return made.run(
        Job(1, "search", Candidate(settings or {"FAKE_X": "1"}), seeds, slice_seeds=(SLICE_SEEDS_FROM,), slice_waves=1, race=race)
    )


def test_the_baseline_takes_its_slices_before_its_samples_and_is_never_dropped(runner):  # noqa: F811
    done = first(runner(LONG))
    assert done.ok and done.dropped is None, done.reason
    assert [item.pair_seed for item in done.slices] == [SLICE_SEEDS_FROM + n for n in range(3)]
    assert {item.requests for item in done.slices} == {done.plan.slice_prompts} and done.plan.slice_prompts <= 16
    assert [item.pair_seed for item in done.samples] == [0, 1] and all(not item.problems for item in done.samples)
    assert all(item.raw and item.prompts for item in done.slices)
    assert from_json(type(done), to_json(done)) == done


def test_later_launches_take_one_slice_of_the_same_prompts_and_are_asked_after_each_stage(runner):  # noqa: F811
    made = runner(LONG)
    baseline = first(made)
    race = Told()
    done = later(made, race)
    assert done.ok and done.dropped is None and len(done.samples) == 2
    assert race.looks == [(True, 0, 0), (True, 1, 0), (True, 1, 1)]  # not after the last sample: it is measured in full then
    assert done.slices[0].prompts == baseline.slices[0].prompts
    assert done.slices[0].requests == baseline.slices[0].requests


def test_a_launch_that_is_dropped_after_its_slice_measures_and_asks_nothing_more(runner, monkeypatch):  # noqa: F811
    asked = []
    monkeypatch.setattr("advisor.runner.real.probe", lambda *_, **__: asked.append(1))
    made = runner(LONG)
    first(made)
    asked.clear()
    done = later(made, Told(after=(1, 0)))
    assert (done.outcome, done.samples, len(done.slices), asked) == (Outcome.OK, (), 1, [])
    assert done.dropped == Dropped("after being told so", {"output_tok_s": 1.0}) and done.answers is None
    assert done.start_s > 0 and done.stop_s is not None and done.warm_up is not None
    assert from_json(type(done), to_json(done)) == done


def test_a_launch_can_be_dropped_between_its_samples(runner):  # noqa: F811
    made = runner(LONG)
    first(made)
    done = later(made, Told(after=(1, 1)))
    assert done.dropped and [item.pair_seed for item in done.samples] == [0]


def test_a_launch_that_is_dropped_by_its_start_is_not_even_warmed_up(runner):  # noqa: F811
    made = runner(LONG)
    first(made)
    done = later(made, Told(after=(0, 0)))
    assert done.ok and done.dropped and done.warm_up is None and done.slices == () == done.samples


def with_a_slice_that_counts(launch, attempts=4):
    """On a crowded machine a slice of milliseconds may have a client that was not woken in time: such a one decides nothing."""
    for _ in range(attempts):
        done = launch()
        if done.slices and not any(item.problems for item in done.slices):
            break
    return done


def test_a_real_race_drops_what_is_slow_and_keeps_what_is_not(runner):  # noqa: F811
    made = runner(LONG)
    baseline = first(made)
    # Noise as on a machine that others use: slices of a few milliseconds halve there, the slow one takes some twenty times as long.
    race = dataclasses.replace(race_for([baseline], GOAL, 2), noises=(Noise(0.4, 0.4, 20),))
    slow = with_a_slice_that_counts(lambda: later(made, race, {"FAKE_SPEED": "20"}, seeds=(0, 1)))
    assert slow.dropped is not None and slow.samples == (), slow.notes
    assert "after a slice of " in slow.dropped.reason and "against default" in slow.dropped.reason
    same = with_a_slice_that_counts(lambda: later(made, race))
    assert same.dropped is None and len(same.samples) == 2, (same.notes, same.reason)


def test_a_slice_that_is_not_valid_decides_nothing_and_does_not_spoil_the_trial(runner, monkeypatch):  # noqa: F811
    """A kernel is compiled in the slice: said, not repeated, and the samples count."""
    monkeypatch.setattr(warmup, "CLOSE", 1e9)  # two waves, however busy this machine is
    made = runner(LONG)
    baseline = first(made)
    race = race_for([baseline], GOAL, 2)
    at = 1 + 2 * 4 + 2  # of the completions: in the slice
    done = later(made, race, {"FAKE_FAULT": f"jit_at_n:{at}"})
    assert done.warm_up.waves == 2
    assert done.slices[0].classes == (Invalid.JIT_COMPILED,)
    assert [note for note in done.notes if "decides nothing: jit-compiled" in note]
    assert done.ok and len(done.samples) == 2 and done.dropped is None


def test_a_plan_without_slices_has_none(runner):  # noqa: F811
    """An older study goes on as it began; whole samples are still looked at."""
    made = runner(LONG)
    alone = made.run(Job(0, "baseline", Candidate(), (0, 1)))
    assert alone.slices == () and alone.plan.slice_prompts == 0
    race = Told()
    done = later(runner(LONG, earlier=Earlier(alone.plan)), race)
    assert done.slices == () and race.looks == [(True, 0, 0), (True, 0, 0), (True, 0, 1)]


def test_more_client_processes_take_the_slices_again(runner, monkeypatch):  # noqa: F811
    """The first sample shows that the client is the limit: its slices were measured with one process too few."""
    monkeypatch.setattr("advisor.runner.sampling.usable_cores", lambda: 32)
    monkeypatch.setattr("advisor.measure.client_load.MOST_PROCESSES", 3)
    monkeypatch.setattr(warmup, "CLOSE", 1e9)
    made = runner(LONG)
    shares = iter([0.1] * 5)  # two waves and three slices; then the sample
    monkeypatch.setattr(FakeBench, "cpu_share", property(lambda self: next(shares, 0.95) if len(FakeBench.made) == 1 else 0.4))
    done = first(made)
    assert done.warm_up.waves == 2 and done.plan.client_processes > 1
    assert [item.pair_seed for item in done.slices] == [SLICE_SEEDS_FROM + n for n in range(3)]
    assert all(item.asked_seed is not None and item.client.processes > 1 for item in done.slices)


# ---------------------------------------------------------------- several loads

LOADS = dataclasses.replace(LONG, loads=(1.0, 4.0))


def test_several_loads_share_a_launch(runner):  # noqa: F811
    made = runner(LOADS)
    done = first(made)
    assert done.ok, done.reason
    assert [(item.pair_seed, item.load) for item in done.samples] == [(0, 4), (20_000, 1), (1, 4), (20_001, 1)]
    assert [(item.pair_seed, item.load) for item in done.slices[:3]] == [
        (SLICE_SEEDS_FROM, 4), (SLICE_SEEDS_FROM + 20_000, 1), (SLICE_SEEDS_FROM + 1, 4),
    ]  # fmt: skip
    (count,) = done.plan.load_prompts
    assert count >= 16 and {item.requests for item in done.samples if item.load == 1} == {count}
    assert len({item.prompts for item in (*done.samples, *done.slices)}) == 4 + 6
    race = Told()
    later_one = later(made, race)
    assert race.looks == [(True, 0, 0), (True, 2, 0), (True, 2, 2)]
    assert [item.pair_seed for item in later_one.samples] == [item.pair_seed for item in done.samples]
    by_seed = {item.seed: item.prompts for item in later_one.samples}
    assert all(by_seed.get(item.seed, item.prompts) == item.prompts for item in done.samples)


def test_a_further_load_that_is_over_too_soon_gets_more_requests(runner, monkeypatch):  # noqa: F811
    """At one in flight 16 requests take some 0.4 s: a second is wanted."""
    monkeypatch.setattr("advisor.measure.length.WANTED_S", 1.0)
    done = first(runner(LOADS), seeds=(0,))
    assert done.ok, done.reason
    (count,) = done.plan.load_prompts
    assert count > 16 and done.samples[1].requests == count and done.samples[1].pair_seed == 20_000


def test_a_soak_keeps_up_the_main_load_alone(runner):  # noqa: F811
    made = runner(LOADS)
    first(made)
    done = made.run(Job(2, "soak", Candidate(), (100_000, 100_001), soak_s=0.1))
    assert done.ok and {item.load for item in done.samples} == {4}
