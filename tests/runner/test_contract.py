"""One contract for every runner: search and verdict must not be able to tell them apart."""

from __future__ import annotations

import json

import pytest

from advisor.errors import EnvironmentMismatch
from advisor.launch.failure import LaunchFailed
from advisor.measure.workload import load_workload
from advisor.records import Candidate, Command, Dropped, Outcome, Trial, from_json, to_json
from advisor.runner import real
from advisor.runner.base import Job
from advisor.runner.replay import Noise, ReplayRunner
from tests.runner.fakes import fake_runner
from tests.study_help import trial

WORKS = Candidate({"FAKE_X": "1"})
FAILS = Candidate({"FAKE_FAULT": "silent_exit"})


@pytest.fixture(params=["real", "replay", "replay drawn"])
def runner(request, tmp_path):
    if request.param == "real":
        return fake_runner(tmp_path)
    recorded = [
        trial(0, {}, 100.0, phase="baseline"),
        trial(1, WORKS.settings, 110.0),
        trial(2, WORKS.settings, 112.0),
        trial(3, FAILS.settings, outcome=Outcome.FAILED_TO_START, reason="exit code 3"),
    ]
    if request.param == "replay":
        return ReplayRunner(recorded)
    return ReplayRunner(recorded, seed=1, noise=Noise((-0.01, 0.01), 0.005), workload=load_workload("tiny"))


class LostAfterOne:
    """A race that a launch has lost when it has one whole sample."""

    def judge(self, start_s, slices, samples):
        return Dropped("it cannot win", {"output_tok_s": 1.0}) if samples else None


def test_a_job_becomes_a_trial_of_it(runner):
    done = runner.run(Job(7, "confirm", WORKS, (0, 1), round=2))
    assert (done.number, done.phase, done.candidate, done.round) == (7, "confirm", WORKS, 2)
    assert done.ok and [item.seed for item in done.samples] == [0, 1] and done.total_s > 0


def test_a_failed_launch_is_an_outcome_with_a_reason_and_no_samples(runner):
    done = runner.run(Job(8, "search", FAILS, (0, 1)))
    assert done.outcome is Outcome.FAILED_TO_START and done.reason and done.samples == ()


def test_a_launch_that_cannot_win_ends_early_and_is_no_failure(runner):
    runner.run(Job(0, "baseline", Candidate(), (0, 1)))
    done = runner.run(Job(8, "search", WORKS, (0, 1), race=LostAfterOne()))
    assert done.ok and done.dropped.reason == "it cannot win" and [item.seed for item in done.samples] == [0]
    whole = runner.run(Job(9, "search", WORKS, (0, 1)))
    assert whole.dropped is None and len(whole.samples) == 2


def test_the_baseline_is_an_ordinary_job(runner):
    assert runner.run(Job(0, "baseline", Candidate(), (0, 1))).ok


def test_replay_takes_recorded_launches_in_turn_and_knows_its_limits(tmp_path):
    runner = ReplayRunner([trial(1, {}, 100.0), trial(2, {}, 90.0), trial(3, {}, outcome=Outcome.INTERRUPTED)])
    figures = [runner.run(Job(number, "search", Candidate(), (0, 1))).samples[0].output_tok_s for number in range(3)]
    assert figures == [100.0, 90.0, 100.0]
    assert runner.run(Job(9, "search", WORKS, (0,))).outcome is Outcome.UNSUPPORTED


def test_a_launch_leaves_its_folder_with_log_and_command(tmp_path):
    runner = fake_runner(tmp_path)
    first = runner.run(Job(0, "baseline", Candidate(), (0,)))
    again = runner.run(Job(0, "baseline", Candidate(), (0,)))
    assert first.folder == "launches/0000-baseline" and again.folder == "launches/0000-baseline-2"
    for done in (first, again):
        assert {"server.log", "command.json"} <= {path.name for path in (tmp_path / done.folder).iterdir()}
    assert first.command != Command(()) and first.active.attention_backends == ("FLASH_ATTN",)
    assert first.start_s > 0 and None not in (first.stop_s, first.measure_s, first.warmup_s)


def test_a_bad_sample_is_an_invalid_measurement(tmp_path):
    done = fake_runner(tmp_path, problems=["3 of 4 requests failed"]).run(Job(0, "baseline", Candidate(), (0,)))
    assert done.outcome is Outcome.INVALID_MEASUREMENT and done.reason == "3 of 4 requests failed"


def test_an_invalid_sample_is_repeated_once_with_other_prompts(tmp_path):
    done = fake_runner(tmp_path, problems=["the client was starved"], only_seeds=[1]).run(
        Job(0, "baseline", Candidate(), (0, 1, 2))
    )
    assert done.ok and [item.seed for item in done.samples] == [0, 1_000_001, 2]
    assert done.notes == ("seed 1 was not valid: the client was starved",)


class Disturbed:
    """Judges the first `times` samples to be tainted, and remembers what it was given."""

    def __init__(self, times):
        self.left, self.seen, self.references = times, [], []

    def __call__(self, seen, reference):
        self.seen.append(seen)
        self.references.append(reference)
        self.left -= 1
        return ("the GPU was too hot",) if self.left >= 0 else ()


def test_a_tainted_sample_is_repeated_with_other_prompts(tmp_path):
    judge = Disturbed(times=2)
    # Long enough for some ticks of the kernel's clock, by which processor time is counted.
    done = fake_runner(tmp_path, judge_machine=judge, seconds=0.05).run(Job(0, "baseline", Candidate(), (0, 1)))
    assert done.ok and [item.seed for item in done.samples] == [2_000_000, 1]
    assert [item.taints for item in done.samples] == [(), ()]
    assert [note for note in done.notes if "tainted" in note] == [
        "seed 0 was tainted: the GPU was too hot",
        "seed 1000000 was tainted: the GPU was too hot",
    ]
    assert all(seen.polls >= 1 and seen.cores for seen in judge.seen)
    assert done.samples[0].telemetry == judge.seen[2]


def test_each_sample_says_how_busy_the_api_servers_thread_was(tmp_path):
    done = fake_runner(tmp_path, seconds=0.05).run(Job(0, "baseline", Candidate(), (0, 1)))
    shares = [item.telemetry.api_server_share for item in done.samples]
    assert len(shares) == 2 and all(0 <= share <= 1 for share in shares)  # None: the server's process was not looked at
    assert [item.telemetry.api_servers for item in done.samples] == [1, 1]


def test_a_sample_that_stays_tainted_counts_and_says_so(tmp_path):
    """A busy machine costs a launch three more samples, whatever the number of seeds, and every figure is marked."""
    judge = Disturbed(times=99)
    done = fake_runner(tmp_path, judge_machine=judge).run(Job(0, "baseline", Candidate(), (0, 1, 2, 3)))
    assert done.ok and len(judge.seen) == 4 + 3
    assert [item.taints for item in done.samples] == [("the GPU was too hot",)] * 4
    assert sum("counts although it is tainted: the GPU was too hot" in note for note in done.notes) == 4
    assert from_json(Trial, json.loads(json.dumps(to_json(done)))) == done


def test_later_launches_are_compared_with_the_clean_baseline(tmp_path):
    judge = Disturbed(times=1)
    runner = fake_runner(tmp_path, judge_machine=judge)
    baseline = runner.run(Job(0, "baseline", Candidate(), (0,)))
    runner.run(Job(1, "search", WORKS, (0,)))
    assert judge.references[:2] == [None, None]
    assert judge.references[2] == baseline.samples[0].telemetry is not None


def test_a_launch_that_the_surroundings_prevented_is_no_outcome(tmp_path, monkeypatch):
    """A stranger on every port: the study ends, and the sampler hears nothing of it."""

    def taken(self):
        raise LaunchFailed(Outcome.FAILED_TO_START, "port 1 is in use by pid 2 (x)", log_path=self.log_path, retryable=True)

    monkeypatch.setattr(real.Server, "__enter__", taken)
    with pytest.raises(EnvironmentMismatch, match="no server can be started here: port 1 is in use by pid 2"):
        fake_runner(tmp_path).run(Job(0, "search", WORKS, (0,)))


def test_another_backend_than_requested_is_not_credited(tmp_path):
    fallen_back = Candidate({"attention_backend": "FLASHINFER", "FAKE_ACTIVE_BACKEND": "TRITON_ATTN"})
    done = fake_runner(tmp_path).run(Job(0, "search", fallen_back, (0,)))
    assert done.outcome is Outcome.NOT_AS_REQUESTED
    assert done.reason == "attention backend FLASHINFER was asked for, TRITON_ATTN runs"
    assert done.credited_to.settings["attention_backend"] == "TRITON_ATTN"
