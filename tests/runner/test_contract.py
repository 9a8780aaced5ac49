"""One contract for every runner: search and verdict must not be able to tell them apart."""

from __future__ import annotations

import pytest

from advisor.records import Candidate, Command, Outcome
from advisor.runner.base import Job
from advisor.runner.replay import ReplayRunner
from tests.runner.fakes import fake_runner
from tests.study_help import trial

WORKS = Candidate({"FAKE_X": "1"})
FAILS = Candidate({"FAKE_FAULT": "silent_exit"})


@pytest.fixture(params=["real", "replay"])
def runner(request, tmp_path):
    if request.param == "real":
        return fake_runner(tmp_path)
    recorded = [
        trial(0, {}, 100.0, phase="baseline"),
        trial(1, WORKS.settings, 110.0),
        trial(2, WORKS.settings, 112.0),
        trial(3, FAILS.settings, outcome=Outcome.FAILED_TO_START, reason="exit code 3"),
    ]
    return ReplayRunner(recorded)


def test_a_job_becomes_a_trial_of_it(runner):
    done = runner.run(Job(7, "confirm", WORKS, (0, 1), round=2))
    assert (done.number, done.phase, done.candidate, done.round) == (7, "confirm", WORKS, 2)
    assert done.ok and [item.seed for item in done.samples] == [0, 1] and done.total_s > 0


def test_a_failed_launch_is_an_outcome_with_a_reason_and_no_samples(runner):
    done = runner.run(Job(8, "search", FAILS, (0, 1)))
    assert done.outcome is Outcome.FAILED_TO_START and done.reason and done.samples == ()


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


def test_another_backend_than_requested_is_not_credited(tmp_path):
    fallen_back = Candidate({"attention_backend": "FLASHINFER", "FAKE_ACTIVE_BACKEND": "TRITON_ATTN"})
    done = fake_runner(tmp_path).run(Job(0, "search", fallen_back, (0,)))
    assert done.outcome is Outcome.NOT_AS_REQUESTED
    assert done.reason == "attention backend FLASHINFER was asked for, TRITON_ATTN runs"
    assert done.credited_to.settings["attention_backend"] == "TRITON_ATTN"
