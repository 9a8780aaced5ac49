"""What fresh launches make of a profile: figures, verdict, and both together; the lines that say so."""

from __future__ import annotations

import dataclasses

import pytest

from advisor.records import Candidate, Decision, GateResult, Objective, Outcome
from advisor.serving_profile.build import build_profile
from advisor.serving_profile.store import read_profile
from advisor.verification.checks import compared_metric
from advisor.verification.differences import differences
from advisor.verification.figure import Held
from advisor.verification.judgement import judge
from advisor.verification.origin import Wish, request_of
from advisor.verification.run import verdict_of
from advisor.verification.words import lines
from tests.study_help import sample, trial
from tests.verification.profiles import FACTS, LLAMA, alone, improved, kept, result

EAGER = {"enforce_eager": True}
PASSED = GateResult(passed=True)


def launched(default, other=None, gate=PASSED):
    arms = [({}, default), *([(EAGER, other)] if other else [])]
    made = []
    for number in range(len(default)):
        for settings, rates in arms:
            one = trial(len(made), settings, rates[number], "confirm", round=number, seeds=(9_000_000 + number,))
            made.append(dataclasses.replace(one, gate=gate))
    return made


def judgement(profile, trials, arm=None, tolerance=0.05):
    request = request_of(profile, Wish(LLAMA, model="m"), {}, "s")
    verdict = verdict_of(trials, request, arm) if arm else None
    return judge(profile, trials, request.objective, arm, verdict, tolerance)


def told(profile, trials, arm=None, facts=FACTS):
    found = judgement(profile, trials, arm)
    return lines(profile, differences(profile, facts), found, trials, 0.05)


SAME, GAIN = (100.2, 99.8, 100.0), (110.2, 109.8, 110.0)


def test_the_same_figures_and_the_same_gain_hold():
    profile = improved(EAGER)
    found = judgement(profile, launched(SAME, GAIN), Candidate(EAGER))
    assert found.held is Held.HOLDS and [check.held for check in found.figures] == [Held.HOLDS] * 2
    assert found.verdict.held is Held.HOLDS and found.verdict.verdict.decision is Decision.IMPROVED
    said = told(profile, launched(SAME, GAIN), Candidate(EAGER))
    assert said[0].startswith("as in the profile: NVIDIA H200")
    assert "default: 100.0 output tok/s in the profile, 100.0 here (3 launches): +0.0%" in said[1]
    assert "tuned: 110.0 output tok/s in the profile" in said[2] and said[2].endswith("agrees within 5%")
    assert said[3].startswith("verdict: improved, +10.0%") and said[3].endswith("still true")
    assert said[-1].startswith("holds (6 launches in")


def test_a_gain_that_is_gone_does_not_hold():
    found = judgement(improved(EAGER), launched(GAIN, GAIN), Candidate(EAGER))
    assert found.verdict.held is Held.FAILS and "keep-defaults" in found.verdict.why
    assert found.held is Held.FAILS


def test_the_gain_holds_but_both_figures_are_others():
    """Another machine: twice as fast on both sides."""
    twice = [[2 * rate for rate in rates] for rates in (SAME, GAIN)]
    found = judgement(improved(EAGER), launched(*twice), Candidate(EAGER))
    assert found.verdict.held is Held.HOLDS and found.held is Held.FAILS
    assert "differs by more than 5%" in "\n".join(told(improved(EAGER), launched(*twice), Candidate(EAGER)))


def test_noise_is_inconclusive_and_says_what_would_tell():
    noisy = (85.0, 100.0, 115.0)
    found = judgement(improved(EAGER), launched(noisy, (128.0, 94.0, 108.0)), Candidate(EAGER))
    assert found.held is Held.UNCLEAR and found.verdict.held is Held.UNCLEAR
    slight = (98.0, 100.0, 102.0)
    said = told(kept(EAGER), launched(slight))
    assert "is open; about" in said[1] and said[-1].startswith("inconclusive: these launches neither")


def test_two_scattered_launches_have_no_interval_worth_telling():
    said = told(kept(EAGER), launched((160.0, 90.0)))
    assert said[1].endswith("125.0 here (2 launches): too few and too scattered for an interval")
    assert judgement(kept(EAGER), launched((160.0, 90.0))).held is Held.UNCLEAR


def test_a_winner_that_fails_afresh_does_not_hold():
    trials = launched(SAME, GAIN)
    last = next(item for item in reversed(trials) if not item.candidate.is_baseline)
    trials[trials.index(last)] = dataclasses.replace(
        last, outcome=Outcome.WRONG_OUTPUT, reason="log-probabilities differ", gate=GateResult(False, "log-probabilities differ")
    )
    found = judgement(improved(EAGER), trials, Candidate(EAGER))
    assert found.held is Held.FAILS and "wrong_output" in found.notes[0]
    assert "output: random weights; wrong: log-probabilities differ" in told(improved(EAGER), trials, Candidate(EAGER))


@pytest.mark.parametrize(
    ("outcome", "held"),
    [(Outcome.CRASHED, Held.FAILS), (Outcome.OUT_OF_MEMORY, Held.FAILS), (Outcome.INVALID_MEASUREMENT, Held.UNCLEAR)],
)
def test_a_measurement_that_is_not_valid_refutes_nothing(outcome, held):
    trials = launched(SAME, GAIN)
    trials[1] = dataclasses.replace(trials[1], outcome=outcome, reason="the client set the pace")
    assert judgement(improved(EAGER), trials, Candidate(EAGER)).verdict.held is held


def test_a_gain_whose_output_nobody_could_judge_is_open():
    trials = launched(SAME, GAIN, GateResult(None, "not judged: the server did not answer"))
    found = judgement(improved(EAGER), trials, Candidate(EAGER))
    assert found.verdict.held is Held.UNCLEAR and "could not be judged" in found.verdict.why


def test_keep_defaults_is_held_to_the_default_s_figure_alone():
    found = judgement(kept(EAGER), launched(SAME))
    assert found.held is Held.HOLDS and found.verdict.held is None
    assert "--challenger" in found.verdict.why and len(found.figures) == 1
    assert judgement(kept(EAGER), launched((80.0, 80.1, 79.9))).held is Held.FAILS


def test_a_challenger_that_wins_now_refutes_keep_defaults():
    found = judgement(kept(EAGER), launched(SAME, GAIN), Candidate(EAGER))
    assert found.verdict.held is Held.FAILS and found.held is Held.FAILS
    assert [check.side for check in found.figures] == ["default", "challenger"]


def test_the_figure_of_a_challenger_is_told_and_judges_nothing():
    found = judgement(kept(EAGER), launched(SAME, (50.0, 50.1, 49.9)), Candidate(EAGER))
    assert found.figures[1].held is Held.FAILS
    assert found.verdict.held is Held.HOLDS and found.held is Held.HOLDS


def test_an_inconclusive_profile_claims_no_gain_that_could_be_refuted():
    profile = build_profile(result(EAGER, Decision.INCONCLUSIVE))
    found = judgement(profile, launched(SAME, GAIN), Candidate(EAGER))
    assert found.held is Held.HOLDS and "tune again" in found.verdict.why


def test_a_profile_that_compared_nothing():
    found = judgement(alone(), launched(SAME))
    assert found.verdict.why == "nothing was compared with the default"


def test_the_wrong_output_of_the_default_is_told():
    trials = launched(SAME, gate=GateResult(False, "the baseline's own output is wrong: it repeats itself"))
    assert "the baseline's own output is wrong: it repeats itself" in told(kept(EAGER), trials)


def test_a_launch_of_the_default_that_failed_is_told_and_the_others_count():
    trials = launched(SAME)
    trials[1] = dataclasses.replace(trials[1], outcome=Outcome.CRASHED, reason="died", samples=())
    found = judgement(kept(EAGER), trials)
    assert found.figures[0].now == (100.2, 100.0) and "crashed: died" in found.notes[0]


@pytest.mark.parametrize(("disturbed", "held"), [(3, Held.UNCLEAR), (2, Held.UNCLEAR), (1, Held.FAILS)])
def test_a_disturbed_machine_is_nothing_against_the_profile(disturbed, held):
    trials = launched((60.0, 60.1, 59.9))
    for number in range(disturbed):
        taints = tuple(dataclasses.replace(one, taints=("other programs",)) for one in trials[number].samples)
        trials[number] = dataclasses.replace(trials[number], samples=taints)
    assert judgement(kept(EAGER), trials).held is held
    said = "\n".join(told(kept(EAGER), trials))
    assert f"default: {disturbed} of 3 launches were disturbed: other programs" in said


def test_the_objective_of_the_profile_is_what_is_compared():
    goal = Objective("ttft_ms.p99")
    profile = build_profile(dataclasses.replace(result(EAGER, Decision.IMPROVED), objective=goal))
    assert compared_metric(profile, goal.metric) == "ttft_ms.p99"
    found = judgement(profile, launched(SAME, GAIN), Candidate(EAGER))
    assert found.figures[0].metric == "ttft_ms.p99" and found.figures[0].before.mean > 0
    # The profile holds no p90: then it is the throughput.
    assert compared_metric(profile, "ttft_ms.p90") == "output_tok_s"


def test_a_shorter_time_is_told_as_one():
    goal = Objective("e2el_ms.p50")
    profile = build_profile(dataclasses.replace(result(EAGER, Decision.IMPROVED), objective=goal))
    said = "\n".join(told(profile, launched(SAME, GAIN), Candidate(EAGER)))
    assert "verdict: improved, -9.1% (95% interval -13.0% to -4.8%) in the profile" in said


def test_the_first_line_names_what_differs():
    other = dataclasses.replace(
        FACTS,
        gpu=dataclasses.replace(FACTS.gpu, driver="590.2"),
        engine=dataclasses.replace(FACTS.engine, vllm_version="0.27.1"),
        model=dataclasses.replace(FACTS.model, config_hash="f" * 16),
    )
    first = told(kept(EAGER), launched(SAME), facts=other)[0]
    assert first.startswith("differs from the profile: model (hash of its config.json) 0000000000000000 -> ffffffffffffffff")
    assert "driver 580.1 -> 590.2" in first and "vLLM 0.26.0 -> 0.27.1" in first and "torch" not in first


def test_a_little_less_memory_is_the_same_gpu():
    profile = kept(EAGER)
    for gib, count in ((139.8, 0), (80.0, 1)):
        facts = dataclasses.replace(FACTS, gpu=dataclasses.replace(FACTS.gpu, memory_gib=gib))
        assert len(differences(profile, facts)) == count


@pytest.mark.parametrize(("factor", "held"), [(1.0, Held.HOLDS), (0.985, Held.HOLDS), (0.9, Held.FAILS)])
def test_the_committed_profile_against_made_up_launches(factor, held):
    """The real figures of 2026-11-30, moved."""
    profile = read_profile(LLAMA)
    trials = [
        dataclasses.replace(trial(n, {}, None, "confirm", round=n, seeds=()), samples=(sample(n, rate * factor),), gate=PASSED)
        for n, rate in enumerate((3301.0, 3272.0, 3269.0))
    ]
    found = judge(profile, trials, Objective(), None, None, 0.05)
    assert found.held is held
