"""The comparison of searches, on a grid whose truth is known."""

from __future__ import annotations

import importlib.util
import json
import math
import random
import statistics

import pytest

from advisor.errors import InputError
from advisor.records import Candidate, Objective
from benchmarks import search as benchmark
from benchmarks.grids import load, recorded_files
from benchmarks.player import Player, Step, reached, share_at
from benchmarks.strategies import STRATEGIES
from tests.recording import synthetic

BEST = Candidate({"--backend": "B1", "--graphs": "G1", "--sizes": "S1"})


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return synthetic.write_grid(tmp_path_factory.mktemp("grids") / "synthetic.jsonl", launches=3)


@pytest.fixture(scope="module")
def case(path):
    return load(path)


def played(case, name, seed=0):
    player = Player(case, seed)
    STRATEGIES[name](player)
    return player


def test_truth_is_what_the_samples_say_and_failures_have_none(case):
    assert max(case.truth, key=case.truth.get) == BEST.key and case.share(BEST.key) == 1
    for key, value in case.truth.items():
        assert value == pytest.approx(synthetic.truth(Candidate(json.loads(key))), rel=0.02)
    failed = case.keys - case.truth.keys()
    assert failed and all("B2" in key and "G2" in key for key in failed)
    assert case.noise_source == "repeated launches in the grid"
    assert case.launch_noise == pytest.approx(synthetic.LAUNCH, rel=0.35)
    assert case.noise.within == pytest.approx(synthetic.REST, rel=0.35)


@pytest.mark.parametrize("name", ["random", "tpe", "grid"])
def test_a_strategy_without_an_end_launches_everything_once(case, name):
    player = played(case, name)
    keys = [trial.candidate.key for trial in player.trials]
    assert keys[0] == Candidate().key and len(keys) == len(set(keys)) == len(case.keys)
    assert player.steps[-1].spent_s == pytest.approx(sum(trial.total_s for trial in player.trials))


def test_one_factor_at_a_time_climbs_and_ends(case):
    player = played(case, "one-factor")
    assert player.steps[-1].share > 0.97 and len(player.trials) < 0.8 * len(case.keys)
    changed = [trial.candidate.overrides for trial in player.trials]
    assert changed[0] == 0 and changed[1] == 1


def test_ours_needs_less_than_a_drawn_order(case, tmp_path):
    """Wherever the file has the settings that matter: how soon each is tried is its order, and that is luck."""
    other = load(synthetic.write_grid(tmp_path / "other.jsonl", launches=3, settings=synthetic.BACKEND_LAST))
    minutes = {
        name: statistics.fmean(
            statistics.median(reached(played(one, name, seed).steps, 0.98).spent_s / 60 for seed in range(12))
            for one in (case, other)
        )
        for name in ("ours", "random")
    }
    assert minutes["ours"] < 0.7 * minutes["random"]


def test_the_same_seed_gives_the_same_run_and_another_one_other_noise(case):
    one, again, other = (played(case, "grid", seed) for seed in (1, 1, 2))
    figures = [[item.output_tok_s for trial in run.trials for item in trial.samples] for run in (one, again, other)]
    assert figures[0] == figures[1] != figures[2]
    assert one.trials[0].candidate == other.trials[0].candidate


def test_the_best_so_far_is_by_measured_score_and_its_worth_by_the_truth(case):
    player = Player(case, 0)
    slow = Candidate({"--backend": "B3"})
    for candidate in (Candidate(), slow, BEST, slow):
        player.launch(candidate)
    shares = [step.share for step in player.steps]
    assert shares == [case.share("{}"), case.share("{}"), 1.0, 1.0]
    assert reached(player.steps, 0.98).launches == 3 and reached(player.steps[:2], 0.98) is None
    assert share_at(player.steps, 0.0) == 0.0 and share_at(player.steps, 1e9) == 1.0


def test_a_run_ends_early_only_when_nothing_can_change(case):
    shares, at_s = list(benchmark.targets(case).values()), benchmark.compared_at_s(case)
    whole = benchmark.judged(played(case, "random", 3).steps, shares, at_s, case.whole_s)
    short = benchmark.play(case, "random", 3)
    assert (short.minutes, short.launches, short.regret) == (whole.minutes, whole.launches, whole.regret)


def test_a_target_that_is_never_reached_is_infinite_and_says_so():
    run = benchmark.judged([Step(60.0, 1, 0.5), Step(120.0, 2, 0.99)], [0.98, 0.995], 90.0, 240.0)
    assert run.minutes == (2.0, math.inf) and run.launches == (2.0, math.inf) and run.regret == 0.5
    assert run.curve[0] == 0.0 and run.curve[-1] == 0.99 and len(run.curve) == benchmark.POINTS
    told = benchmark._quartiles([1.0, math.inf, math.inf])
    assert (told["median"], told["high"]) == (None, None) and told["reached"] == pytest.approx(1 / 3)


def test_a_curve_has_no_value_between_a_run_without_a_launch_and_one_with():
    runs = [benchmark.Run((1.0,), (1.0,), 0.0, curve=(first, *[1.0] * (benchmark.POINTS - 1))) for first in (0.0, 0.96)]
    told = benchmark._of_strategy(runs, ["98%"])["curve"]
    assert told[0] == 0.0 and told[1:] == [1.0] * (benchmark.POINTS - 1)


def test_who_knows_the_answer_needs_the_default_and_the_quickest_launch_that_is_good_enough(case):
    good = [key for key in case.truth if case.share(key) >= 0.98]
    costs = {key: statistics.fmean(item.total_s for item in case.trials if item.candidate.key == key) for key in case.keys}
    assert "{}" not in good and len(good) > 1
    assert benchmark.least_s(case, 0.98) == pytest.approx(costs["{}"] + min(costs[key] for key in good))
    assert benchmark.least_s(case, case.share("{}")) == pytest.approx(costs["{}"])
    assert case.whole_s == pytest.approx(sum(costs.values()))
    for name in STRATEGIES:
        if name != "gp":
            found = reached(played(case, name).steps, 0.98)
            assert found is None or found.spent_s > 0.97 * benchmark.least_s(case, 0.98)


def test_the_report_has_the_promised_shape_and_is_plain_json(path):
    result = benchmark.report([path], 3, ["ours", "random", "one-factor"], workers=1)
    told = json.loads(json.dumps(result, allow_nan=False))["grids"]["synthetic"]
    assert set(told["strategies"]) == {"ours", "random", "one-factor"}
    for item in told["strategies"].values():
        assert item["gpu_minutes_to_98_percent_median"] > 0 and 0 <= item["final_regret_median"] < 1
        assert item["runs"] == 3
    assert told["strategies"]["random"]["ratio_to_random"] == 1
    text = "\n".join(benchmark.lines(result))
    assert "| ours |" in text and "never" not in text.split("regret")[0] and "▁" in text


def test_another_objective_has_another_best(path):
    case = load(path, Objective("start_s"))
    assert "enforce_eager" in min(case.truth, key=case.truth.get)
    assert case.share(Candidate({"enforce_eager": True}).key) > case.share("{}")


def test_a_grid_of_the_default_alone_is_refused(path, tmp_path):
    short = tmp_path / "short.jsonl"
    short.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    with pytest.raises(InputError, match="holds too little"):
        load(short)


def test_parts_of_a_grid_are_not_taken_for_grids(monkeypatch, tmp_path):
    from benchmarks import grids

    for name in ("a.jsonl", "a.0of2.jsonl", "b-0.6B-of.jsonl"):
        (tmp_path / name).write_text("")
    monkeypatch.setattr(grids, "RECORDED", tmp_path)
    assert [item.name for item in recorded_files()] == ["a.jsonl", "b-0.6B-of.jsonl"]


@pytest.mark.parametrize("grid", recorded_files(), ids=lambda grid: grid.stem)
def test_a_recorded_grid_is_large_enough_and_our_search_is_not_behind_chance_on_it(grid):
    """Where the default itself is among the best, or no worse than launches differ by, everybody is there at once, and our
    baseline's slices cost a little."""
    recorded = load(grid)
    assert len(recorded.truth) >= 24 and len({trial.candidate.key for trial in recorded.trials}) >= 24
    assert all(trial.samples[0].prompts and trial.total_s > 0 for trial in recorded.trials if trial.ok)
    if recorded.share(Candidate().key) >= min(benchmark.targets(recorded).values()):
        return
    ours, drawn = (
        statistics.median(benchmark.play(recorded, name, seed).minutes[0] for seed in range(9)) for name in ("ours", "random")
    )
    assert ours < drawn


def test_a_noise_file_is_believed_unless_the_grids_own_repeats_contradict_it(tmp_path, monkeypatch):
    from benchmarks import grids

    monkeypatch.setattr(grids, "_noise_files", lambda head: [grids.EVIDENCE / "noise-h200.json"])
    alone = synthetic.write_grid(tmp_path / "alone.jsonl")
    assert load(alone).noise_source == "noise-h200.json"
    lines = alone.read_text().splitlines()
    for factor, source in ((1.004, "noise-h200.json"), (1.2, "few repeated launches in the grid, more apart than noise-h200.json")):
        again = json.loads(lines[2])
        for sample in again["trial"]["samples"]:
            sample["output_tok_s"] *= factor
        twice = tmp_path / f"{factor}.jsonl"
        twice.write_text("\n".join([*lines, json.dumps(again)]) + "\n")
        found = load(twice)
        assert found.noise_source.startswith(source)
    assert found.launch_noise == pytest.approx(math.log(1.2) / math.sqrt(2), rel=0.01)


def test_few_launches_of_a_noise_file_tell_their_spread_roughly():
    from benchmarks.grids import _explains
    from benchmarks.verdict import fit_noise

    rng, refused = random.Random(0), 0
    for _ in range(2000):  # the same spread in the file and in the grid
        file = fit_noise("three", [[math.exp(rng.gauss(0, 0.01))] for _ in range(3)])
        refused += not _explains(file, 0.0, 1, [[rng.gauss(0, 0.01), rng.gauss(0, 0.01)]])
    assert refused < 0.02 * 2000
    still = fit_noise("still", [[100.0, 100.0]] * 3)
    pair = [[0.0, 0.01]]
    assert _explains(still, 0.0, 2, []) and _explains(still, 0.0, 2, [[1.0, 1.0]]) and not _explains(still, 0.0, 2, pair)
    assert _explains(still, 0.01, 2, pair)  # the seeds alone differ as much


def test_an_invalid_measurement_that_was_made_again_is_left_aside(tmp_path):
    """Or half of the searches would be told that it cannot be measured, and the other half see its figure without noise."""
    path = synthetic.write_grid(tmp_path / "grid.jsonl")
    before, lines = load(path), path.read_text().splitlines()
    good = next(json.loads(line) for line in lines if '"event":"trial"' in line and '"outcome":"ok"' in line and '"S1"' in line)
    died = next(json.loads(line) for line in lines if '"event":"trial"' in line and '"outcome":"crashed"' in line)
    for of in (good, died):
        of["trial"] |= {"outcome": "invalid_measurement", "reason": "cached-prompts: 3.0%"}
    path.write_text("\n".join([*lines, json.dumps(good)]) + "\n")
    after = load(path)
    assert after.trials == before.trials and after.noise == before.noise and after.whole_s == before.whole_s
    path.write_text("\n".join([*lines, json.dumps(died)]) + "\n")
    assert len(load(path).trials) == len(before.trials) + 1  # nothing took its place


def test_a_drawn_order_is_drawn(case):
    first = [trial.candidate.key for trial in played(case, "random", 0).trials]
    second = [trial.candidate.key for trial in played(case, "random", 1).trials]
    assert first != second and sorted(first) == sorted(second)


def test_grid_may_be_repeated_and_may_have_several_files(monkeypatch, capsys):
    """docs/evidence/grids.md repeats it, a shell's FOLDER/*.jsonl gives several at once."""
    asked = []
    monkeypatch.setattr(benchmark, "report", lambda grids, *_: asked.extend(grids) or {"grids": {}})
    benchmark.main(["--grid", "a.jsonl", "--grid", "b.jsonl", "c.jsonl"])
    assert [str(item) for item in asked] == ["a.jsonl", "b.jsonl", "c.jsonl"]


def test_without_a_grid_it_says_so(monkeypatch):
    monkeypatch.setattr(benchmark, "recorded_files", list)
    with pytest.raises(SystemExit, match="no grid is recorded"):
        benchmark.main(["--seeds", "1"])


@pytest.mark.parametrize("seeds", ["0", "-3", "x"])
def test_less_than_one_seed_is_refused(seeds, capsys):
    with pytest.raises(SystemExit) as ended:
        benchmark.main(["--seeds", seeds])
    assert ended.value.code == 2 and "--seeds" in capsys.readouterr().err


def test_a_strategy_whose_packages_are_missing_is_left_out_by_name(monkeypatch, capsys):
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "scipy" else name == "torch" or there(name))
    with pytest.raises(SystemExit) as ended:
        benchmark.main(["--strategies", "gp"])
    assert ended.value.code == "benchmarks.search: no strategy is left"
    assert "gp is left out: it needs torch and scipy, of which scipy is missing" in capsys.readouterr().err


def test_fewer_runs_than_asked_for_are_said(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(benchmark, "report", lambda paths, seeds, names: {"grids": {}})
    benchmark.main(["--strategies", "gp", "--seeds", "21", "--grid", "a.jsonl"])
    assert "gp runs with 20 seeds, not 21" in capsys.readouterr().err
    benchmark.main(["--strategies", "gp", "--seeds", "20", "--grid", "a.jsonl"])
    assert not capsys.readouterr().err
