"""Scores, budget, sampler and the loop over them, on a landscape made of a formula."""

import dataclasses

import pytest

from advisor.errors import InputError, LaunchesFailed
from advisor.records import Candidate, EngineFacts, Objective, Outcome, StartUp
from advisor.search.budget import Budget, typical_cost_s
from advisor.search.loop import recall, search
from advisor.search.sampler import Sampler, StorageMirror
from advisor.search.scores import ranked, score
from advisor.search.untried import NO_TIME
from advisor.space.candidates import SettingChoices, build_space
from tests.study_help import trial

THROUGHPUT = Objective()
ENGINE = EngineFacts("py", "3.12", "0.26.0", "2.11", "cuda")
SETTINGS = (
    SettingChoices("--a", (None, 1, 2, 3)),
    SettingChoices("--b", (None, "x", "y", "z")),
    SettingChoices("--c", (None, (1, 2), (1, 2, 4)), {"--a": (None, 1, 2)}),
)


def space(settings=SETTINGS):
    return build_space(
        settings, ENGINE, lambda items: [{"ok": True, "resolved": {"fingerprint": i.key}} for i in items]
    )


def speed(candidate):
    """The best is --a 2 --b y; --b z never starts."""
    settings = candidate.settings
    if settings.get("--b") == "z":
        return None
    return (
        100.0 + {None: 0, 1: 5, 2: 20, 3: -10}[settings.get("--a")] + {None: 0, "x": -5, "y": 10}[settings.get("--b")]
    )


class Launches:
    def __init__(self):
        self.done = [trial(0, {}, 100.0, phase="baseline")]

    def __call__(self, candidate):
        value = speed(candidate)
        outcome = Outcome.OK if value else Outcome.CRASHED
        self.done.append(
            trial(len(self.done), candidate.settings, value, outcome=outcome, reason="" if value else "died")
        )
        return self.done[-1]


def run(budget, seed=0, launches=None):
    """As long as the budget lasts, whatever is expected."""
    launches = launches or Launches()
    sampler = Sampler(space(), THROUGHPUT, seed)
    reason = search(launches, sampler, budget, THROUGHPUT, lambda: launches.done, exhaust=True)
    return launches.done, reason


def test_no_candidate_is_launched_twice_and_the_space_ends():
    done, reason = run(Budget(1e9))
    keys = [item.candidate.key for item in done]
    assert len(keys) == len(set(keys))
    failed = [item for item in done if not item.ok]
    foretold = [item for item in space().candidates if item.settings.get("--b") == "z"]
    assert len(keys) == len(space().candidates) + 1 - len(foretold) + len(failed)
    assert len(failed) == 2 and len(foretold) == 10  # two failures with one cause rule the other eight out
    assert reason == "every distinct candidate was tried or is taken to fail"


@pytest.mark.parametrize("seed", range(3))
def test_the_best_is_found_within_few_launches(seed):
    done, _ = run(Budget(1e9, trials=22), seed)
    assert ranked(done, THROUGHPUT)[0].candidate.settings == {"--a": 2, "--b": "y"}


def test_trial_limit_and_budget_with_reserve():
    done, reason = run(Budget(1e9, trials=3))
    assert len(done) == 4 and reason == "3 trials were asked for"
    done, reason = run(Budget(600.0, confirm_rounds=3))  # each costs 60 s, the confirmation needs 6 of them
    assert len(done) == 4 and "6m00s kept for the confirmation" in reason


def test_resumed_search_goes_on_with_what_is_untried():
    launches = Launches()
    run(Budget(1e9, trials=5), launches=launches)
    before = [item.candidate.key for item in launches.done]
    run(Budget(1e9, trials=9), launches=launches)
    keys = [item.candidate.key for item in launches.done]
    assert keys[: len(before)] == before and len(set(keys)) == len(keys) == 10


def test_an_interrupted_trial_is_tried_again():
    first = run(Budget(1e9, trials=1))[0][-1].candidate
    launches = Launches()
    launches.done.append(trial(1, first.settings, outcome=Outcome.INTERRUPTED))
    run(Budget(1e9, trials=1), launches=launches)
    assert launches.done[-1].candidate == first


def test_a_launch_that_the_budget_cuts_off_ends_the_search_and_is_no_trial(monkeypatch):
    done, notes = [trial(0, {}, 100.0, phase="baseline")], []
    budget = Budget(600.0)

    def launch(candidate):
        done.append(trial(1, candidate.settings, outcome=Outcome.INTERRUPTED, total_s=budget.search_s(done, THROUGHPUT)))
        return done[-1]

    sampler = Sampler(space(), THROUGHPUT)
    told = []
    monkeypatch.setattr(sampler, "learn", lambda seen: told.append(seen.candidate) or [])
    monkeypatch.setattr(sampler, "tell", lambda candidate, *_: told.append(candidate))
    reason = search(launch, sampler, budget, THROUGHPUT, lambda: done, notes.append)
    assert reason == "budget: 4m00s of 10m00s used, 6m00s kept for the confirmation"
    assert {item.key for item in told} == {Candidate().key}  # of the other nothing is known
    assert len(done) == 2 and f"{len(space().candidates) - 1} candidates: {NO_TIME}; most promising: " in notes[-1]
    left = [item.candidate.key for item in sampler._space.rejections if item.reason == NO_TIME]
    assert len(left) == len(space().candidates) - 1 and done[1].candidate.key not in left
    later = Sampler(space(), THROUGHPUT)
    assert recall(later, budget, THROUGHPUT, done) == reason
    assert [item.candidate.key for item in later._space.rejections if item.reason == NO_TIME] == left
    assert recall(Sampler(space(), THROUGHPUT), Budget(6e3), THROUGHPUT, done) == ""  # and a larger budget goes on


def test_where_failures_foretell_all_that_is_left_no_budget_is_to_blame():
    launches, notes = Launches(), []
    settings = (SettingChoices("--a", (None, 1, 2, 3)), SettingChoices("--b", (None, "z")))
    budget = Budget(740.0)  # six launches of 60 s, and a half of it for the confirmation
    reason = search(
        launches, Sampler(space(settings), THROUGHPUT), budget, THROUGHPUT, lambda: launches.done, notes.append, exhaust=True
    )
    assert len(launches.done) == 6 and budget.search_s(launches.done, THROUGHPUT) == pytest.approx(10.0)
    assert reason == "every distinct candidate was tried or is taken to fail"
    assert "2 candidates with --b=z ended as crashed: died" in notes[-1]
    assert recall(Sampler(space(settings), THROUGHPUT), budget, THROUGHPUT, launches.done) == reason


def test_one_common_cause_ends_the_search_after_the_first_few():
    done = [trial(0, {}, 100.0, phase="baseline")]

    def launch(candidate):
        done.append(
            trial(len(done), candidate.settings, outcome=Outcome.FAILED_TO_START, reason=f"port {len(done)} refused")
        )
        return done[-1]

    with pytest.raises(LaunchesFailed, match="first 4 candidates all ended as failed_to_start: port 1 refused"):
        search(launch, Sampler(space(), THROUGHPUT), Budget(1e9), THROUGHPUT, lambda: done)
    assert len(done) == 5


def test_different_causes_do_not_end_the_search():
    done = [trial(0, {}, 100.0, phase="baseline")]

    def launch(candidate):
        done.append(trial(len(done), candidate.settings, outcome=Outcome.FAILED_TO_START, reason=candidate.label))
        return done[-1]

    sampler = Sampler(space(), THROUGHPUT)
    reason = search(launch, sampler, Budget(1e9, trials=9), THROUGHPUT, lambda: done, exhaust=True)
    assert reason == "9 trials were asked for"


def test_failures_are_never_a_number():
    failed = trial(1, {"--a": 1}, outcome=Outcome.CRASHED)
    assert score(failed, THROUGHPUT) is None
    assert ranked([failed], THROUGHPUT) == []


def test_scores_follow_the_objective():
    one = trial(1, {"--a": 1}, 100.0)
    assert score(one, Objective("tpot_ms.p99")) == 15.0
    assert not Objective("tpot_ms.p99").maximise and Objective("requests_s").maximise


def test_ties_go_to_the_fewest_overrides():
    trials = [trial(1, {"--a": 1, "--b": "x"}, 101.5), trial(2, {"--a": 1}, 100.0), trial(3, {"--b": "x"}, 90.0)]
    assert [item.number for item in ranked(trials, THROUGHPUT)] == [2, 1, 3]


def test_first_launch_does_not_set_the_cost():
    done = [trial(0, {}, 1.0, total_s=211), *(trial(n, {"--a": n}, 1.0, total_s=60) for n in (1, 2))]
    assert typical_cost_s(done) == 60


def test_mirror_holds_each_trial_once_and_failures_as_failures(tmp_path):
    import optuna

    url = f"sqlite:///{tmp_path}/o.db"
    for _ in range(2):  # opening again adds nothing
        mirror = StorageMirror(url, "s", THROUGHPUT)
        mirror.add(SETTINGS, 0, Candidate(), 100.0, {"phase": "baseline"})
        mirror.add(SETTINGS, 1, Candidate({"--a": 2}), None, {"phase": "search"})
    trials = optuna.load_study(study_name="s", storage=url).trials
    assert [(item.state.name, item.user_attrs["number"]) for item in trials] == [("COMPLETE", 0), ("FAIL", 1)]
    assert trials[1].params == {"--a": "2", "--b": "default", "--c": "default"}


def test_mirror_takes_a_trial_of_other_values_than_it_began_with(tmp_path):
    """As when capture lists are planned in a study that was mirrored before they were."""
    import optuna

    url = f"sqlite:///{tmp_path}/o.db"
    mirror = StorageMirror(url, "s", THROUGHPUT)
    mirror.add(SETTINGS, 0, Candidate(), 100.0, {"phase": "baseline"})
    other = (SettingChoices("--a", (None, 7)), *SETTINGS[1:2])
    mirror.add(other, 1, Candidate({"--a": 7}), 120.0, {"phase": "search"})
    found = optuna.load_study(study_name="s", storage=url).trials[1]
    assert found.value == 120.0 and {**found.params, **found.user_attrs}["--a"] == "7"


def test_a_trial_of_values_that_the_space_has_no_more_is_remembered_and_not_told_to_optuna():
    sampler = Sampler(space(), THROUGHPUT)
    old = Candidate({"--c": (9, 9)})
    sampler.tell(old, 500.0)
    assert not sampler.is_untried(old) and not sampler._study.trials
    assert sampler.propose() in space().candidates


def test_unreachable_storage_is_a_clear_error_without_the_password():
    with pytest.raises(InputError) as caught:
        StorageMirror("postgresql://me:secret@127.0.0.1:1/x", "s", THROUGHPUT)
    assert "secret" not in str(caught.value) and "***" in caught.value.problem


def test_a_figure_of_other_settings_counts_for_those_that_ran():
    ran = Candidate({"--a": 2})
    trials = [trial(0, {}, 100.0, phase="baseline")]

    def launch(candidate):
        asked = trial(len(trials), candidate.settings, 120.0, outcome=Outcome.NOT_AS_REQUESTED, reason="x")
        trials.append(dataclasses.replace(asked, credited_to=ran))
        return trials[-1]

    sampler = Sampler(space(), THROUGHPUT)
    search(launch, sampler, Budget(1e9, trials=2), THROUGHPUT, lambda: trials)
    assert not sampler.is_untried(ran) and ran.key not in [item.candidate.key for item in trials]
    assert score(trials[1], THROUGHPUT) is None
    assert [item.candidate for item in ranked(trials, THROUGHPUT)] == [ran, ran]
    as_default = dataclasses.replace(trials[1], credited_to=Candidate())
    assert ranked([as_default], THROUGHPUT) == []


def cold(number, settings, tok_s, total_s, start_s, phase="search"):
    made = trial(number, settings, tok_s, phase=phase, total_s=total_s)
    return dataclasses.replace(made, start_s=start_s, start_up=StartUp(cache="cold"))


def test_a_cold_start_is_not_what_fresh_launches_cost():
    assert typical_cost_s([cold(0, {}, 100.0, 76.0, 55.0)]) == pytest.approx(54.0)


def test_room_for_a_proof_is_kept_as_soon_as_a_candidate_leads():
    budget = Budget(1e5, soak_s=30.0)
    behind = [trial(0, {}, 100.0, phase="baseline"), trial(1, {"--a": 1}, 101.0)]
    ahead = [*behind, trial(2, {"--a": 2}, 110.0)]
    assert budget.proof_s(behind, THROUGHPUT) == 0
    assert budget.proof_s(ahead, THROUGHPUT) == 30 + 3 * 60
    assert budget.proof_s([*ahead, trial(3, {"--a": 2}, 110.0, phase="soak")], THROUGHPUT) == 0
    assert budget.reserve_s(ahead, THROUGHPUT) == 3 * 3 * 60 + 30 + 3 * 60


def test_a_budget_that_allows_nothing_says_what_would():
    done = [trial(0, {}, 100.0, phase="baseline", total_s=100.0)]
    reason = Budget(600.0).stop_reason(done, THROUGHPUT)
    assert reason == "budget: one try and its confirmation need about 13m20s here, --budget gives 10m00s"


def test_the_first_try_of_the_makefile_searches():
    """11 minutes on two cores, a cold start of 59 s as measured: some candidates are tried before the confirmation."""
    done = [cold(0, {}, 450.0, 76.0, 59.0, phase="baseline")]
    while Budget(660.0, soak_s=33.0).stop_reason(done, THROUGHPUT) is None:
        done.append(cold(len(done), {"--a": len(done)}, 440.0, 70.0, 52.0))
    assert len(done) >= 4
