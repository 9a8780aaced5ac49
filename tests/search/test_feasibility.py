"""Failures as information: skipped candidates, constraints of the sampler, earlier studies, spaces that grow."""

from __future__ import annotations

import itertools

import pytest

from advisor.records import Candidate, EngineFacts, Invalid, Objective, Outcome
from advisor.search.budget import Budget
from advisor.search.feasibility import Feasibility, features, seen
from advisor.search.loop import search
from advisor.search.sampler import Sampler
from advisor.space.candidates import SettingChoices, build_space
from tests.study_help import trial

THROUGHPUT = Objective()
ENGINE = EngineFacts("py", "3.12", "0.26.0", "2.11", "cuda")
SETTINGS = tuple(SettingChoices(f"--{name}", (None, 1, 2, 3)) for name in "abcdef")
BASE = trial(0, {}, 100.0, phase="baseline")


def resolve(items):
    """The last setting changes nothing."""
    return [
        {"ok": True, "resolved": {"fingerprint": Candidate({k: v for k, v in i.settings.items() if k != "--f"}).key}} for i in items
    ]


def space(at_once=600, settings=SETTINGS):
    return build_space(settings, ENGINE, resolve, at_once=at_once)


class Launches:
    def __init__(self, fails):
        self.done, self.notes, self.fails = [BASE], [], fails

    def __call__(self, candidate):
        failure = self.fails(candidate.settings)
        speed = None if failure else 100.0 + candidate.settings.get("--a", 0) * 5 + candidate.settings.get("--b", 0)
        outcome, reason = failure or (Outcome.OK, "")
        self.done.append(trial(len(self.done), candidate.settings, speed, outcome=outcome, reason=reason))
        return self.done[-1]


def run(launches, sampler, trials=30, **more):
    """As long as there are trials, whatever is expected."""
    budget = Budget(1e9, trials)
    return search(launches, sampler, budget, THROUGHPUT, lambda: launches.done, launches.notes.append, exhaust=True, **more)


OOM = (Outcome.OUT_OF_MEMORY, "out of memory while capturing CUDA graphs: tried to allocate 17 GiB")


def test_two_failures_of_one_cause_spare_the_others_and_a_person_is_told():
    launches = Launches(lambda settings: OOM if settings.get("--c", 0) >= 2 else None)
    sampler = Sampler(space(at_once=10**6, settings=SETTINGS[:3]), THROUGHPUT)
    run(launches, sampler, 200)
    failed = [item for item in launches.done if not item.ok]
    assert 2 <= len(failed) <= 4 and len(launches.done) > 25
    assert any(note.startswith("learned: with --c >= 2 candidates end as out_of_memory (2 so far)") for note in launches.notes)
    assert any(note.startswith("not launched: ") and "with --c >= 2 ended as out_of_memory" in note for note in launches.notes)
    assert all(item.candidate.settings["--c"] >= 2 for item in sampler.skipped)
    assert {item.candidate.key for item in sampler.skipped} <= {item.candidate.key for item in sampler._space.rejections}


def test_a_skipped_candidate_is_infeasible_for_the_sampler_and_no_bad_score():
    launches = Launches(lambda settings: OOM if settings.get("--c", 0) >= 2 else None)
    sampler = Sampler(space(at_once=10**6, settings=SETTINGS[:3]), THROUGHPUT)
    run(launches, sampler, 200)
    told = [item for item in sampler._study.trials if item.params.get("--c") in ("2", "3")]
    told = [item for item in told if item.state.name != "FAIL"]  # proposals that were weighed and taken back
    assert told and all(item.constraints["launched"] > 0 for item in told)
    assert all(item.values[0] >= 100.0 for item in told)  # the worst that was measured, never zero


def test_what_worked_is_never_ruled_out():
    """Every third candidate fails for one cause that has nothing to do with its settings."""
    turn = itertools.count()
    launches = Launches(lambda settings: (Outcome.CRASHED, "died") if next(turn) % 3 == 2 else None)
    sampler = Sampler(space(at_once=10**6, settings=SETTINGS[:3]), THROUGHPUT)
    run(launches, sampler, 40)
    worked = [features(item.candidate, item.resolved) for item in launches.done if item.ok]
    assert not any(region.holds(one) for region in sampler._feasibility.regions for one in worked)


@pytest.mark.slow
def test_a_large_space_grows_by_what_is_proposed_without_doubles():
    whole = space(at_once=100)
    begun = len(whole.candidates)
    assert not whole.complete and whole.total == 4**6 and begun < 200
    launches = Launches(lambda settings: None)
    run(launches, Sampler(whole, THROUGHPUT), 90)
    keys = [item.candidate.key for item in launches.done]
    assert len(keys) == len(set(keys)) == 91
    assert len(whole.candidates) > begun
    assert any(item.candidate.overrides > 2 for item in launches.done)  # beyond values and pairs
    assert not any("--f" in item.candidate.settings for item in launches.done)  # resolves to the same without it


def test_earlier_studies_teach_and_an_exact_failure_is_not_repeated():
    past = [trial(n, {"--c": c}, outcome=OOM[0], reason=OOM[1]) for n, c in ((1, 2), (2, 3))]
    earlier = [seen(BASE), *(seen(item, where="monday") for item in past)]
    launches = Launches(lambda settings: OOM if settings.get("--c", 0) >= 2 else None)
    run(launches, Sampler(space(at_once=10**6, settings=SETTINGS[:3]), THROUGHPUT, feasibility=Feasibility(earlier)), 200)
    assert all(item.ok for item in launches.done) and len(launches.done) > 20
    told = "\n".join(launches.notes)
    assert "not launched: --c=2; --c=3: ended as out_of_memory in study monday" in told
    assert "2 candidates with --c >= 2 ended as out_of_memory" in told


def test_what_works_now_is_launched_though_it_failed_once():
    failed = seen(trial(1, {"--a": 1}, outcome=OOM[0], reason=OOM[1]), where="monday")
    fine = seen(trial(2, {"--a": 1}, 100.0))
    assert Feasibility([failed]).objection(Candidate({"--a": 1}))
    assert Feasibility([failed, fine]).objection(Candidate({"--a": 1})) is None


def test_failures_of_the_last_session_are_retried_once_when_asked_for():
    failed = [trial(n, {"--c": c}, outcome=OOM[0], reason=OOM[1]) for n, c in ((1, 2), (2, 3))]
    again = Launches(lambda settings: None)
    again.done += failed
    run(again, Sampler(space(at_once=10**6, settings=SETTINGS[:3]), THROUGHPUT), 6)
    assert not any("--c" in item.candidate.settings and item.candidate.settings["--c"] > 1 for item in again.done[3:])
    forced = Launches(lambda settings: None)
    forced.done += failed
    run(forced, Sampler(space(at_once=10**6, settings=SETTINGS[:3]), THROUGHPUT), 12, retry_failed=True)
    assert {2, 3} <= {item.candidate.settings.get("--c") for item in forced.done[3:]}


@pytest.mark.parametrize("outcome", [Outcome.INTERRUPTED, Outcome.INVALID_MEASUREMENT])
def test_what_says_nothing_about_settings_teaches_nothing(outcome):
    assert seen(trial(1, {"--a": 1}, outcome=outcome, reason=Invalid.TOO_SHORT.value)) is None


def test_limits_that_vllm_resolves_count_as_features():
    found = features(Candidate({"cudagraph_capture_sizes": (1, 2, 528)}), {"max_num_seqs": 1024, "max_num_batched_tokens": 8192})
    assert found == {"max_num_seqs": 1024, "max_num_batched_tokens": 8192, "captured sizes": 3, "largest captured size": 528}
    assert features(Candidate({"max_num_seqs": 48, "x": {"a": 1}}), {"max_num_seqs": 48}) == {"max_num_seqs": 48, "x": '{"a": 1}'}
