"""What a launch will cost, from what launches cost: a made-up study, and the journal of the H200's 8B."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from advisor.journal import read_events
from advisor.launch.readiness import LaunchLimits
from advisor.records import Active, Candidate, Objective, Outcome, StartUp
from advisor.search.budget import Budget, typical_cost_s
from advisor.search.costs import Costs
from tests.study_help import trial

JOURNAL = Path(__file__).parents[2] / "docs/evidence/studies/Llama-3.1-8B-h200-chat/trials.jsonl"
SIZES = "cudagraph_capture_sizes"


def launched(number, settings, start_s, load_s=20.0, cache="cold", compile_s=20.0, capture_s=5.0, sizes=50, phase="search"):
    made = trial(number, settings, 100.0, phase=phase, total_s=start_s + load_s)
    active = Active(capture_sizes=tuple(range(1, sizes + 1)))
    return dataclasses.replace(
        made, start_s=start_s, active=active, start_up=StartUp(cache=cache, compile_s=compile_s, capture_s=capture_s)
    )


BASE = launched(0, {}, 85.0, phase="baseline")
EAGER, LIST = Candidate({"enforce_eager": True}), Candidate({SIZES: tuple(range(1, 11))})


def cost(trials, candidate, resolved=None):
    return float(Costs(trials, resolved).of([candidate])[0])


def test_the_baseline_alone_tells_eager_from_compiled_and_few_graphs_from_many():
    assert cost([BASE], EAGER) == pytest.approx(80, abs=1)  # 60 of base, 20 of load
    assert cost([BASE], Candidate({"attention_backend": "X"})) == pytest.approx(105, abs=1)
    assert cost([BASE], LIST) == pytest.approx(101, abs=1)  # 10 graphs instead of 50 save 4 s
    assert cost([BASE], Candidate({"compilation_mode": "NONE"})) == pytest.approx(85, abs=1)
    assert cost([BASE], Candidate({"cudagraph_mode": "NONE"})) == pytest.approx(100, abs=1)


def test_what_was_compiled_before_starts_warm():
    again = cost([BASE], Candidate())
    assert again == pytest.approx(105 - 20 * 0.82, abs=1)
    warm = launched(1, {}, 70.0, cache="warm", compile_s=5.0, phase="confirm")
    assert cost([BASE, warm], Candidate()) == pytest.approx(90, abs=2)  # as it was seen
    assert cost([BASE], Candidate({"max_num_seqs": 8})) == pytest.approx(again, abs=0.1)  # not in the key of vLLM's cache


def test_other_capture_sizes_of_the_same_setting_are_another_key():
    resolved = {Candidate().key: {SIZES: [1, 2]}, Candidate({"max_num_seqs": 8}).key: {SIZES: [1]}}
    assert cost([BASE], Candidate({"max_num_seqs": 8}), resolved) > cost([BASE], Candidate(), resolved) + 10


def test_a_slow_candidate_is_expected_to_be_slow_beside_others_too():
    slow = launched(1, {"attention_backend": "FLEX"}, 85.0, load_s=80.0)
    both = Candidate({"attention_backend": "FLEX", "block_size": 64})
    assert cost([BASE, slow], both) > cost([BASE, slow], Candidate({"block_size": 64})) + 30


def test_kernels_that_a_backend_builds_are_its_own():
    built = launched(1, {"attention_backend": "FLASHINFER"}, 185.0)
    built = dataclasses.replace(built, start_up=dataclasses.replace(built.start_up, kernels_s=100.0))
    with_it = cost([BASE, built], Candidate({"attention_backend": "FLASHINFER", "block_size": 64}))
    assert with_it > cost([BASE, built], Candidate({"block_size": 64})) + 90


def test_a_log_that_does_not_tell_the_compilers_seconds_is_taken_by_the_share_that_is_known():
    silent = dataclasses.replace(BASE, start_up=StartUp(cache="cold"))
    assert cost([silent], EAGER) < cost([silent], Candidate({"block_size": 64})) - 20


def test_without_times_of_starts_a_launch_costs_what_launches_cost():
    plain = [trial(0, {}, 100.0, phase="baseline"), trial(1, {"a": 1}, 100.0)]
    assert cost(plain, Candidate({"b": 1})) == pytest.approx(60, rel=0.05)
    assert cost([], Candidate({"b": 1})) == 0


def test_failed_trials_and_dropped_ones_do_not_count_as_loads():
    died = trial(1, {"a": 1}, outcome=Outcome.CRASHED, total_s=1.0)
    assert cost([BASE, died], Candidate({"b": 1})) == pytest.approx(105, abs=1)


def test_a_baseline_that_failed_first_tells_nothing():
    died = trial(0, {}, outcome=Outcome.CRASHED, total_s=9.0, phase="baseline")
    assert cost([died], EAGER) == 0 and cost([died, BASE], EAGER) == cost([BASE], EAGER)


def test_forked_and_executed_servers_are_kept_apart():
    forked = dataclasses.replace(BASE, launcher="warm", launcher_s=40.0, start_s=35.0, total_s=95.0)
    executed = launched(5, {}, 85.0, phase="confirm")
    assert cost([forked, executed], Candidate({"b": 1})) == pytest.approx(55, abs=2)  # without the launcher's own imports


def test_fresh_launches_are_executed_and_their_room_is_kept():
    """Forked in 35 s and measured in 20; executed it imports most of it twice."""
    forked = dataclasses.replace(BASE, launcher="warm", launcher_s=25.0, start_s=35.0, total_s=80.0, start_up=None)
    assert typical_cost_s([forked]) == pytest.approx(90)
    later = dataclasses.replace(forked, number=1, phase="search", launcher_s=None, total_s=55.0)
    assert typical_cost_s([forked, later]) == pytest.approx(90)
    assert Budget(2000.0).reserve_s([forked, later], Objective()) == pytest.approx(6 * 90)
    ahead = dataclasses.replace(forked, launcher_s=2.0, launcher_import_s=25.0, total_s=57.0)  # most of it beside the inspection
    assert typical_cost_s([ahead]) == pytest.approx(90)
    shared = dataclasses.replace(ahead, launcher_s=40.0, total_s=95.0)  # they waited for the disk: no executed launch will
    assert typical_cost_s([shared]) == pytest.approx(90)
    fresh = [trial(number, {}, 100.0, phase="confirm", total_s=80.0) for number in (2, 3)]
    assert typical_cost_s([forked, later, *fresh]) == 80


def test_slices_are_no_part_of_a_fresh_launch():
    """The baseline measured 40 s: three slices of 2 s and two samples of 7 s. Fresh launches take the samples only."""
    samples = [dataclasses.replace(BASE.samples[0], duration_s=seconds) for seconds in (2.0, 2.0, 2.0, 7.0, 7.0)]
    alone = dataclasses.replace(BASE, measure_s=40.0, samples=tuple(samples[3:]))
    sliced = dataclasses.replace(alone, slices=tuple(samples[:3]))
    assert typical_cost_s([alone]) - typical_cost_s([sliced]) == pytest.approx(40 * 6 / 20)


def test_the_cheapest_launch_decides_whether_one_more_fits():
    done = [trial(0, {}, 100.0, phase="baseline"), trial(1, {"a": 1}, 99.0)]
    budget = Budget(120 + 360 + 30.0)
    assert "kept for the confirmation" in budget.stop_reason(done, Objective())
    assert budget.stop_reason(done, Objective(), least_s=25.0) is None
    assert budget.search_s(done, Objective()) == pytest.approx(30.0)


def test_a_launch_of_the_search_may_take_what_the_search_has_left():
    """Each costs 60 s: of 1000 s one was used, and six are kept for the confirmation; the last may overrun by half of one."""
    done = [trial(0, {}, 100.0, phase="baseline")]
    limits = Budget(1000.0).search_limits(done, Objective(), LaunchLimits())
    assert limits.whole_s == pytest.approx(1000 - 60 - 360 + 30)
    assert Budget(1000.0).search_limits([*done, trial(1, {"a": 1}, outcome=Outcome.CRASHED)], Objective(), limits).whole_s == (
        pytest.approx(limits.whole_s - 60)
    )
    assert Budget(100.0).search_limits(done, Objective(), LaunchLimits()).whole_s == pytest.approx(30)
    assert (limits.hard_s, limits.first_token_s) == (LaunchLimits().hard_s, LaunchLimits().first_token_s)


@pytest.mark.parametrize(
    ("start_s", "imports_s", "stall_s", "quiet_cpu_s"),
    [
        (20.0, 0.0, 300.0, 1350.0),  # longer than FlashInfer's kernels take, however quick the default is
        (140.0, 0.0, 420.0, 1890.0),
        (100.0, 28.57, 420.0, 1890.0),  # forked: executed it would have taken 40 s more
        (900.0, 0.0, 600.0, 2700.0),  # never more than any launch may
    ],
)
def test_how_long_a_candidate_may_be_silent_is_told_by_the_defaults_start(start_s, imports_s, stall_s, quiet_cpu_s):
    launcher = {"launcher": "warm", "launcher_import_s": imports_s} if imports_s else {}
    done = [dataclasses.replace(trial(0, {}, 100.0, phase="baseline"), start_s=start_s, **launcher)]
    limits = Budget(1e4).search_limits(done, Objective(), LaunchLimits())
    assert (limits.stall_s, limits.quiet_cpu_s) == (pytest.approx(stall_s, abs=0.1), pytest.approx(quiet_cpu_s, abs=0.5))
    shorter = LaunchLimits(stall_s=5.0, quiet_cpu_s=9.0)
    assert Budget(1e4).search_limits(done, Objective(), shorter).stall_s == 5.0


def test_the_journal_of_the_8b_is_foretold():
    """Each search trial from those before it: within a fifth on average, and eager ones cheaper than compiled ones."""
    trials = [event["trial"] for event in read_events(JOURNAL) if event["event"] == "trial"]
    searched = [item for item in trials if item.phase in ("baseline", "search")]
    errors = []
    for number in range(1, len(searched)):
        estimate = cost(searched[:number], searched[number].candidate)
        errors.append(abs(np.log(estimate / searched[number].total_s)))
    assert np.mean(errors) < 0.2
    assert cost(searched[:1], EAGER) < cost(searched[:1], Candidate({"attention_backend": "FLASHINFER"})) - 20


def test_the_journal_is_what_it_is_taken_for():
    first = json.loads(JOURNAL.read_text().splitlines()[0])["trial"]
    assert first["phase"] == "baseline" and first["start_s"] > 90
