"""Several loads of a workload: how a file says them, what each launch measures, and what they come to."""

from __future__ import annotations

import dataclasses

import pytest

from advisor.errors import InputError
from advisor.measure.loads import MOST, base_seed, by_load, main_load, stations
from advisor.measure.saturation import load_note
from advisor.measure.workload import load_workload
from advisor.records import Objective, SamplingPlan, SloLimit, Workload, from_json, to_json
from advisor.report.terminal import trial_line
from advisor.search.goal import check_load
from advisor.search.racing import race_for, slice_seeds
from advisor.search.scores import score, slo_breaches, slo_violation
from advisor.serving_profile.figures import at_loads, launch_mean, side
from advisor.verdict.confirm import seeds
from tests.study_help import sample, trial

FILE = "input_tokens: 100\noutput_tokens: 20\nnum_prompts: 256\n"
GOAL = Objective()


def read(tmp_path, load, **changes):
    path = tmp_path / "mine.yaml"
    path.write_text(FILE + load + "\n")
    return load_workload(str(path), **changes)


def test_a_list_of_loads_is_the_highest_and_all_of_them(tmp_path):
    workload = read(tmp_path, "concurrency: [16, 64, 1]")
    assert (workload.concurrency, workload.rate, workload.loads) == (64, None, (1.0, 16.0, 64.0))
    assert read(tmp_path, "rate: [2, 0.5]").loads == (0.5, 2.0) and read(tmp_path, "rate: [2, 0.5]").rate == 2
    assert from_json(Workload, to_json(workload)) == workload
    one = read(tmp_path, "concurrency: 64")
    assert one.loads is None and "loads" not in to_json(one)  # a study that was begun before there were lists goes on


def test_one_load_on_the_command_line_takes_the_place_of_the_list(tmp_path):
    assert read(tmp_path, "concurrency: [1, 64]", concurrency=8).loads is None
    assert read(tmp_path, "concurrency: [1, 64]", output_tokens=8).loads == (1.0, 64.0)


@pytest.mark.parametrize(
    ("load", "told"),
    [
        ("concurrency: [4]", "lists 1 different loads: 2 to 5"),
        ("concurrency: [1, 2, 3, 4, 5, 6]", "lists 6 different loads"),
        ("concurrency: [1, 0]", "concurrency"),
        ("concurrency: [1, x]", "concurrency"),
        ("concurrency: [1, 2.5]", "concurrency"),
        ("concurrency: [1, 2]\nrate: 3", "not both"),
        ("concurrency: 4\nloads: [1, 4]", "loads is not a key"),
    ],
)
def test_mistakes_in_a_list_are_told(tmp_path, load, told):
    with pytest.raises(InputError) as caught:
        read(tmp_path, load)
    assert told in str(caught.value)


def test_a_load_is_not_looked_for_among_several(tmp_path):
    goal = Objective("max_concurrency", find_load="concurrency", slo=(SloLimit("ttft_ms", 500),))
    with pytest.raises(InputError, match="lists several loads"):
        check_load(goal, read(tmp_path, "concurrency: [1, 64]"))


def test_each_launch_measures_the_highest_load_first_with_as_many_waves_at_the_others(tmp_path):
    workload = read(tmp_path, "concurrency: [1, 16, 64]")
    found = stations(workload, SamplingPlan(512))
    assert [(item.load, item.workload.concurrency, item.workload.num_prompts) for item in found] == [
        (64, 64, 512), (1, 1, 16), (16, 16, 128),
    ]  # fmt: skip
    planned = stations(workload, SamplingPlan(512, load_prompts=(40, 200)))
    assert [item.workload.num_prompts for item in planned] == [512, 40, 200]
    rates = stations(read(tmp_path, "rate: [0.5, 2]"), SamplingPlan(200))
    assert [(item.workload.rate, item.workload.num_prompts) for item in rates] == [(2, 200), (0.5, 50)]
    (alone,) = stations(read(tmp_path, "concurrency: 4"), SamplingPlan(20))
    assert alone.load is None and alone.workload.num_prompts == 20 and main_load(alone.workload) == 4


def test_no_two_samples_of_a_study_have_a_seed_in_common():
    loads = (*(float(2**n) for n in range(MOST - 1)), 64.0)
    places = stations(Workload("w", 1, 1, 100, 64, loads=loads), SamplingPlan(100))
    assert len(places) == MOST
    used: list[int] = []
    for phase, number in [("search", 0), *(("confirm", n) for n in range(12)), ("restart", 0), ("quality", 0)]:
        used += [place.seed(seed) for place in places for seed in seeds(phase, 8, number)]
    used += [place.seed(seed) for place in places for seed in slice_seeds("baseline", [], GOAL)]
    assert len(set(used)) == len(used) and max(used) < 1_000_000
    assert {base_seed(place.seed(3)) for place in places} == {3}
    assert {base_seed(place.seed(500_001)) for place in places} == {500_001}


# ---------------------------------------------------------------- what they come to


def loaded(number, values, phase="search", settings=None, slices=(), **samples):
    """A trial with these figures at loads 64, 1 and so on, for two seeds."""
    made = trial(number, settings if settings is not None else {"--a": number}, phase=phase)
    taken = [
        dataclasses.replace(sample(seed + 20_000 * index, value), load=load, **samples)
        for seed in (0, 1)
        for index, (load, value) in enumerate(values.items())
    ]
    short = [
        dataclasses.replace(sample(base + 20_000 * index, value), load=load)
        for base in slices
        for index, (load, value) in enumerate(values.items())
    ]
    return dataclasses.replace(made, samples=tuple(taken), slices=tuple(short))


def baseline(values=None, slices=(500_000, 500_001, 500_002)):
    return loaded(0, values or {64: 4000.0, 1: 200.0}, "baseline", {}, slices)


def test_the_score_is_the_geometric_mean_over_the_loads():
    assert score(baseline(), GOAL) == pytest.approx((4000 * 200) ** 0.5)
    better = loaded(1, {64: 4000.0, 1: 220.0}), loaded(2, {64: 4400.0, 1: 200.0})
    assert score(better[0], GOAL) == pytest.approx(score(better[1], GOAL))
    assert launch_mean(baseline(), "output_tok_s") == pytest.approx(score(baseline(), GOAL))


def test_an_slo_has_to_be_met_at_each_load():
    limit = SloLimit("ttft_ms", 500)
    met = loaded(1, {64: 4000.0, 1: 200.0}, slo_within={limit.label: 1.0})
    late = dataclasses.replace(met.samples[0], slo_within={limit.label: 0.5})
    missed = dataclasses.replace(met, samples=(late, *met.samples[1:]))
    goal = Objective(slo=(limit,))
    assert slo_breaches(met, goal) == [] and slo_violation(met, goal) == 0
    (told,) = slo_breaches(missed, goal)
    assert told.startswith("at 64: ttft_p99<500ms") and slo_violation(missed, goal) > 0.2


def test_a_launch_is_dropped_by_all_loads_together_and_not_by_one():
    race = race_for([baseline()], GOAL, 2)
    worse_at_one = loaded(1, {64: 1600.0, 1: 800.0}, slices=(500_000,))  # 40% and 400%: 26% better on the whole
    assert race.judge(None, worse_at_one.slices, []) is None
    worse = loaded(2, {64: 1600.0, 1: 80.0}, slices=(500_000,))
    found = race.judge(None, worse.slices, [])
    assert found.reason.startswith("after a slice at each of 2 loads: output_tok_s -60.0%")
    assert found.estimate["output_tok_s"] == pytest.approx(0.4 * score(baseline(), GOAL))
    assert race.judge(None, [], worse.samples[:2]).reason.startswith("after 1 of 2 samples")


def test_a_slice_in_doubt_at_one_load_is_none_at_all():
    race = race_for([baseline()], GOAL, 2)
    worse = loaded(2, {64: 1600.0, 1: 80.0}, slices=(500_000,))
    doubtful = dataclasses.replace(worse.slices[1], taints=("hot",))
    assert race.judge(None, [worse.slices[0], doubtful], []) is None
    first = baseline()
    hot = dataclasses.replace(first.slices[1], taints=("hot",))
    spoilt = dataclasses.replace(first, slices=(first.slices[0], hot, *first.slices[2:]))
    assert slice_seeds("search", [first], GOAL) == (500_000,) and slice_seeds("search", [spoilt], GOAL) == (500_001,)


def test_figures_of_each_load_reach_lines_and_profile():
    line = trial_line(loaded(1, {64: 4400.0, 1: 220.0}), 983.9, score(baseline(), GOAL), GOAL)
    assert "983.9 output tok/s +10.0%, at 1: 220.0, 64: 4,400" in line
    found = at_loads([baseline(), baseline({64: 4200.0, 1: 210.0})])
    assert [(item.load, round(item.output_tok_s.mean)) for item in found] == [(1, 205), (64, 4100)]
    assert side([baseline()]).loads is not None and side([baseline()]).load is None
    assert at_loads([trial(1, {}, 100.0)]) is None and side([trial(1, {}, 100.0)]).loads is None


def test_samples_by_load():
    assert {load: len(found) for load, found in by_load(baseline().samples).items()} == {64: 2, 1: 2}
    assert list(by_load(trial(1, {}, 100.0).samples)) == [None]
    assert load_note(baseline().samples, Workload("w", 1, 1, 100, 64, loads=(1.0, 64.0)), GOAL) is None
