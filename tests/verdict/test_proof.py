"""The winner's proof: what it still lacks, and what a winner loses by."""

from __future__ import annotations

import dataclasses

import pytest

from advisor.records import Candidate, Decision, GateResult, Interval, Outcome, QualityScore, Verdict
from advisor.verdict.proof import proof_trial, proven, remarks, steps
from tests.study_help import sample, trial

FAST = {"FAKE_SPEED": "300"}
WINNER = Candidate(FAST)
IMPROVED = Verdict(
    Decision.IMPROVED, "FAKE_SPEED=300 gave +8%", "output_tok_s", WINNER, WINNER, Interval(1.08, 1.06, 1.1)
)


def soak(*rates, **changes):
    made = dataclasses.replace(trial(9, FAST, 100.0, phase="soak"), gate=GateResult(passed=True))
    return dataclasses.replace(made, samples=tuple(sample(i, rate) for i, rate in enumerate(rates)), **changes)


RESTART = trial(10, FAST, 100.0, phase="restart")
STEADY = soak(100.0, 101.0, 99.0, 100.0)


def test_a_winner_is_launched_cold_and_warm_and_a_default_is_not():
    assert steps(IMPROVED, [], evaluates=False) == [("soak", WINNER), ("restart", WINNER)]
    assert steps(IMPROVED, [STEADY], evaluates=False) == [("restart", WINNER)]
    assert steps(IMPROVED, [STEADY, RESTART], evaluates=False) == []
    kept = dataclasses.replace(IMPROVED, decision=Decision.KEEP_DEFAULTS, winner=Candidate())
    assert steps(kept, [], evaluates=True) == []


def test_the_quality_command_needs_a_launch_of_the_default():
    assert steps(IMPROVED, [], evaluates=True)[0] == ("quality", Candidate())


def test_an_interrupted_step_is_made_again():
    stopped = dataclasses.replace(STEADY, outcome=Outcome.INTERRUPTED)
    assert steps(IMPROVED, [stopped], evaluates=False)[0] == ("soak", WINNER)
    assert proof_trial([stopped], "soak", WINNER) is None


def test_no_second_start_after_a_failed_soak():
    died = soak(outcome=Outcome.CRASHED, reason="SIGKILL")
    assert steps(IMPROVED, [died], evaluates=False) == []


def test_a_proven_winner_stays():
    assert proven(IMPROVED, [STEADY, RESTART], 0.01) is IMPROVED


@pytest.mark.parametrize(
    ("trials", "words"),
    [
        ([soak(outcome=Outcome.CRASHED, reason="the engine died")], "did not stand the load that went on: crashed"),
        ([soak(outcome=Outcome.WRONG_OUTPUT, reason="garbage")], "wrong_output: garbage"),
        ([STEADY, dataclasses.replace(RESTART, outcome=Outcome.FAILED_TO_START, reason="hash")], "second start"),
        ([soak(100.0, 100.0, 60.0, 50.0)], "faded under the load that went on: -50.0%"),
        ([soak(100.0, memory_free=0.001)], "left only 0.1% of the memory free"),
        (
            [
                dataclasses.replace(trial(8, {}, 90.0, phase="quality"), quality=QualityScore(0.8)),
                soak(100.0, quality=QualityScore(0.6)),
            ],
            "the quality command scores 0.6, the baseline 0.8",
        ),
    ],
)
def test_a_winner_that_does_not_stand_its_proof_never_wins(trials, words):
    verdict = proven(IMPROVED, trials, 0.01)
    assert (verdict.decision, verdict.winner) == (Decision.KEEP_DEFAULTS, Candidate())
    assert words in verdict.reason and "gave +8.0% but" in verdict.reason


def test_memory_that_the_default_lacks_as_well_is_not_the_winners_fault():
    baseline = dataclasses.replace(trial(0, {}, 90.0, phase="baseline"), memory_free=0.002)
    assert proven(IMPROVED, [baseline, soak(100.0, memory_free=0.001), RESTART], 0.01) is IMPROVED


def test_a_quality_command_that_fails_on_the_default_judges_nobody_and_is_told():
    evaluated = dataclasses.replace(trial(8, {}, 90.0, phase="quality"), quality=QualityScore(problem="exit code 2"))
    trials = [evaluated, soak(100.0, quality=QualityScore(problem="exit code 2"), memory_free=0.3), RESTART]
    assert proven(IMPROVED, trials, 0.01) is IMPROVED
    assert remarks(WINNER, trials) == ["the quality command fails on the baseline itself: exit code 2"]


def test_output_that_nobody_could_judge_does_not_win():
    own = "the baseline's own output is not stable"
    baseline = dataclasses.replace(trial(0, {}, 90.0, phase="baseline"), gate=GateResult(passed=False, reason=own))
    verdict = proven(IMPROVED, [baseline, soak(100.0, gate=GateResult(passed=None)), RESTART], 0.01)
    assert (verdict.decision, verdict.winner) == (Decision.INCONCLUSIVE, Candidate())
    assert own in verdict.reason


@pytest.mark.parametrize(
    ("theirs", "own", "loses"),
    [(0, 0, False), (1, 0, False), (2, 0, False), (3, 0, True), (5, 0, True), (5, 1, False)],
    ids=["never", "once", "seldom", "often", "always", "as the default does"],
)
def test_processes_that_a_server_leaves_behind_count_where_the_default_leaves_none(theirs, own, loses):
    left = ("pid 4711 (VLLM::EngineCor, 29.3 GiB)",)
    launches = [trial(n, FAST, 100.0, phase="confirm", round=n) for n in range(3)] + [STEADY, RESTART]
    launches = [dataclasses.replace(item, leftovers=left if n < theirs else ()) for n, item in enumerate(launches)]
    launches += [dataclasses.replace(trial(20, {}, 90.0, phase="baseline"), leftovers=left * own)]
    verdict = proven(IMPROVED, launches, 0.01)
    assert (verdict.decision is Decision.KEEP_DEFAULTS) == loses
    assert not loses or f"left processes behind at {theirs} of 5 stops, which had to be killed: {left[0]}" in verdict.reason
