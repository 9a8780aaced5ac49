"""The winner's proof: what it still lacks, and what a winner loses by."""

from __future__ import annotations

import dataclasses

import pytest

from advisor.records import (
    Candidate,
    Decision,
    GateResult,
    Interval,
    Objective,
    Outcome,
    QualityScore,
    Verdict,
    fingerprint,
)
from advisor.study.launches import same_evaluation
from advisor.verdict.decide import decide
from advisor.verdict.finalists import choose
from advisor.verdict.proof import proof_trial, proven, remarks, steps, unproven
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


def paced_soak(*latencies_ms, in_flight=(1.0, 1.0, 1.0, 1.0)):
    """At a rate: as many tokens a second come out as requests come in, whatever each of them takes."""
    made = soak(*[100.0] * len(latencies_ms))
    timed = [
        dataclasses.replace(item, e2el_ms={"mean": ms, "p50": ms, "p90": ms, "p99": ms}, in_flight=in_flight)
        for item, ms in zip(made.samples, latencies_ms, strict=True)
    ]
    return dataclasses.replace(made, samples=tuple(timed))


def test_a_winner_is_launched_cold_and_warm_and_a_default_is_not():
    assert steps(IMPROVED, [], evaluates=False) == [("soak", WINNER), ("restart", WINNER)]
    assert steps(IMPROVED, [STEADY], evaluates=False) == [("restart", WINNER)]
    assert steps(IMPROVED, [STEADY, RESTART], evaluates=False) == []
    kept = dataclasses.replace(IMPROVED, decision=Decision.KEEP_DEFAULTS, winner=Candidate())
    assert steps(kept, [], evaluates=True) == []


def test_the_quality_command_needs_a_launch_of_the_default():
    assert steps(IMPROVED, [], evaluates=True)[0] == ("quality", Candidate())


def test_a_score_within_the_tolerance_does_not_save_the_second_start():
    evaluated = dataclasses.replace(trial(8, {}, 90.0, phase="quality"), quality=QualityScore(0.8))
    trials = [evaluated, soak(100.0, quality=QualityScore(0.795))]
    assert steps(IMPROVED, trials, evaluates=True, tolerance=0.01) == [("restart", WINNER)]
    assert steps(IMPROVED, trials, evaluates=True, tolerance=0.001) == []
    assert proven(IMPROVED, trials, 0.001).decision is Decision.KEEP_DEFAULTS


def test_an_interrupted_step_is_made_again():
    stopped = dataclasses.replace(STEADY, outcome=Outcome.INTERRUPTED)
    assert steps(IMPROVED, [stopped], evaluates=False)[0] == ("soak", WINNER)
    assert proof_trial([stopped], "soak", WINNER) is None


def test_no_second_start_after_a_failed_soak():
    died = soak(outcome=Outcome.CRASHED, reason="SIGKILL")
    assert steps(IMPROVED, [died], evaluates=False) == []


@pytest.mark.parametrize(
    "lasting", [STEADY, paced_soak(900, 1000, 1100, 1100), paced_soak(900, 1000, 1300, 1800, in_flight=())]
)
def test_a_proven_winner_stays(lasting):
    """With a number in flight the tokens a second tell; a request's time changes with the lengths that were drawn."""
    assert proven(IMPROVED, [lasting, RESTART], 0.01) is IMPROVED


@pytest.mark.parametrize(
    ("trials", "words"),
    [
        ([soak(outcome=Outcome.CRASHED, reason="the engine died")], "did not stand the soak: crashed"),
        ([soak(outcome=Outcome.WRONG_OUTPUT, reason="garbage")], "wrong_output: garbage"),
        ([STEADY, dataclasses.replace(RESTART, outcome=Outcome.FAILED_TO_START, reason="hash")], "second start"),
        ([soak(100.0, 100.0, 60.0, 50.0)], "faded during the soak: -50.0%"),
        ([paced_soak(900, 1000, 1300, 1800)], "faded during the soak: +100.0% E2EL p50 from its first to its last"),
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
    told = "the quality command fails on the baseline itself: exit code 2"
    verdict = proven(IMPROVED, trials, 0.01)
    assert verdict.decision is Decision.IMPROVED and verdict.reason == f"{IMPROVED.reason}; {told}"  # an answer without a word of
    assert remarks(WINNER, trials) == [told]  # it would read as if the evaluation had been passed
    died = dataclasses.replace(evaluated, quality=None, outcome=Outcome.CRASHED, reason="died")
    told = "the quality command judged nothing, since the default's launch for it ended as crashed: died"
    assert proven(IMPROVED, [died, *trials[1:]], 0.01).reason.endswith(f"; {told}")


def test_scores_of_another_quality_command_are_none_and_are_made_anew():
    own = fingerprint(["./evaluate.py", "--limit", "200"])
    older = dataclasses.replace(trial(8, {}, 90.0, phase="quality"), quality=QualityScore(0.8, command="another"))
    unnamed = dataclasses.replace(older, quality=QualityScore(0.8))
    today = dataclasses.replace(older, quality=QualityScore(0.8, command=own))
    judged = dataclasses.replace(STEADY, quality=QualityScore(0.8, command=own))
    for default, missing in ((older, [("quality", Candidate())]), (unnamed, []), (today, [])):
        seen = same_evaluation([default, judged, RESTART], ["./evaluate.py", "--limit", "200"])
        assert steps(IMPROVED, seen, evaluates=True) == missing
    assert same_evaluation([older], []) == [older]


def test_a_quality_command_that_comes_later_is_run_on_the_winner_too():
    """The study had its verdict and its soak; the same command with an evaluation must not end without one."""
    assert steps(IMPROVED, [STEADY, RESTART], evaluates=True) == [("quality", Candidate()), ("soak", WINNER)]
    evaluated = dataclasses.replace(trial(8, {}, 90.0, phase="quality"), quality=QualityScore(0.8))
    judged = dataclasses.replace(STEADY, quality=QualityScore(0.8))
    assert steps(IMPROVED, [STEADY, RESTART, evaluated, judged], evaluates=True) == []
    assert steps(IMPROVED, [STEADY, RESTART], evaluates=False) == []


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


# ---------------------------------------------------------------- who comes next

NEXT = {"FAKE_SPEED": "290"}
THROUGHPUT = Objective()


def confirmed(fast=110.0, next_best=109.0):
    """A search of two candidates and three rounds of fresh launches of both beside the default's 100 tok/s."""
    made = [trial(0, {}, 100.0, "baseline"), trial(1, FAST, fast), trial(2, NEXT, next_best)]
    for number in range(3):
        for settings, value in (({}, 100.0), (FAST, fast), (NEXT, next_best)):
            made.append(trial(len(made), settings, value + number / 10, "confirm", round=number))
    return made


DIED = soak(outcome=Outcome.CRASHED, reason="the engine died")


def test_the_next_finalist_wins_where_the_first_lost_its_proof_and_both_are_told():
    assert decide(confirmed(), THROUGHPUT).winner == WINNER
    verdict = decide([*confirmed(), DIED], THROUGHPUT)
    assert (verdict.decision, verdict.winner.settings) == (Decision.IMPROVED, NEXT)
    assert verdict.reason.startswith("FAKE_SPEED=290 gave +9.0%")
    assert verdict.reason.endswith(
        "; FAKE_SPEED=300 gave +10.0% but did not stand the soak: crashed: the engine died"
    )
    assert [(item.candidate.settings, item.decision, bool(item.failed)) for item in verdict.finalists] == [
        (NEXT, Decision.IMPROVED, False), (FAST, Decision.KEEP_DEFAULTS, True),
    ]  # fmt: skip


def test_the_next_finalist_has_a_proof_of_its_own():
    trials = [*confirmed(), DIED]
    verdict = decide(trials, THROUGHPUT)
    assert steps(verdict, trials, evaluates=False) == [("soak", Candidate(NEXT)), ("restart", Candidate(NEXT))]
    assert "no time for the proof of FAKE_SPEED=290" in unproven(verdict).reason
    assert (unproven(verdict).decision, unproven(verdict).winner) == (Decision.INCONCLUSIVE, Candidate())


def test_the_default_stays_where_nothing_else_is_better():
    verdict = decide([*confirmed(next_best=100.0), DIED], THROUGHPUT)
    assert (verdict.decision, verdict.winner) == (Decision.KEEP_DEFAULTS, Candidate())
    assert "the best candidate, FAKE_SPEED=290, gave" in verdict.reason and "FAKE_SPEED=300 gave +10.0% but" in verdict.reason


def test_a_candidate_that_lost_its_proof_is_no_finalist_any_more():
    assert [item.settings for item in choose(confirmed(), THROUGHPUT)] == [FAST, NEXT]
    assert [item.settings for item in choose([*confirmed(), DIED], THROUGHPUT)] == [NEXT]


def test_output_that_nobody_could_judge_leaves_the_verdict_open():
    blind = soak(100.0, gate=GateResult(passed=None))
    verdict = decide([*confirmed(next_best=100.0), blind], THROUGHPUT)
    assert verdict.decision is Decision.INCONCLUSIVE and "its output could not be judged" in verdict.reason
    assert decide([*confirmed(), blind], THROUGHPUT).winner.settings == NEXT


def test_the_tolerance_of_the_quality_command_decides_who_lost():
    evaluated = dataclasses.replace(trial(20, {}, 90.0, phase="quality"), quality=QualityScore(0.8))
    trials = [*confirmed(), evaluated, soak(100.0, quality=QualityScore(0.7))]
    assert decide(trials, THROUGHPUT, tolerance=0.01).winner.settings == NEXT
    assert decide(trials, THROUGHPUT, tolerance=0.2).winner.settings == FAST


def test_a_better_candidate_that_the_budget_left_no_launches_for_is_named():
    only_first = [item for item in confirmed() if item.phase != "confirm" or item.candidate.settings != NEXT]
    verdict = decide([*only_first, DIED], THROUGHPUT)
    assert verdict.decision is Decision.KEEP_DEFAULTS
    assert verdict.reason.endswith("; the budget left no time to launch FAKE_SPEED=290 afresh")
    assert "no time" not in decide(only_first, THROUGHPUT).reason
