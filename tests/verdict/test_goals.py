"""The verdict with several objectives, an SLO, or a load below saturation."""

import dataclasses
import random

import pytest

from advisor.records import Candidate, Compared, Decision, Objective, Outcome, SloLimit, Telemetry, Workload
from advisor.search.budget import Budget
from advisor.verdict.confirm import confirm
from advisor.verdict.decide import decide
from advisor.verdict.goals import with_front, with_goals
from advisor.verdict.sequential import ERROR, Judgement, Looks
from advisor.verdict.several import Figures, weighed
from advisor.verdict.statistics import Comparison
from tests.study_help import trial

SLO = (SloLimit("ttft_ms", 500, 0.99),)
CHAT = Workload("chat", 100, 10, 64, concurrency=8)
RATE = Workload("rated", 100, 10, 64, rate=4.0)
TWO = Objective("output_tok_s", ("ttft_ms.p99",))
LIMITED = Objective(slo=SLO)
X = Candidate({"--a": 1})


def launch(number, settings, tok_s, ttft_ms=100.0, within=1.0, phase="search", round=None, in_flight=(), api=None):
    made = trial(number, settings, tok_s, phase=phase, round=round)
    samples = [
        dataclasses.replace(
            item, ttft_ms={"mean": ttft_ms, "p50": ttft_ms, "p90": ttft_ms, "p99": ttft_ms}, slo_within={SLO[0].label: within},
            slo_share=within, goodput_requests_s=within * 6.4, in_flight=in_flight, telemetry=Telemetry(api_server_share=api),
        )
        for item in made.samples
    ]  # fmt: skip
    return dataclasses.replace(made, samples=tuple(samples))


def study(tok_s, ttft_ms=100.0, within=1.0, default_within=1.0, rounds=3, jitter=0.002, seed=0, **default):
    """Search and fresh launches of the default (100 tok/s, 100 ms) and one candidate, with little noise."""
    rng = random.Random(seed)
    base = {"ttft_ms": 100.0, "within": default_within, **default}
    trials = [
        launch(0, {}, 100.0, phase="baseline", **base),
        launch(1, X.settings, tok_s, ttft_ms, within),
    ]
    for number in range(rounds):
        noisy = [rng.gauss(1, jitter) for _ in range(4)]
        trials.append(
            launch(
                10 + number, {}, 100 * noisy[0], phase="confirm", round=number, **{**base, "ttft_ms": 100 * noisy[1]}
            )
        )
        trials.append(launch(20 + number, X.settings, tok_s * noisy[2], ttft_ms * noisy[3], within, "confirm", number))
    return trials


def verdict_of(trials, objective, workload=CHAT):
    return with_goals(decide(trials, objective), trials, objective, workload)


# ---------------------------------------------------------------- several objectives


def test_a_gain_that_costs_another_objective_is_a_trade():
    verdict = verdict_of(study(130.0, ttft_ms=150.0), TWO)
    assert verdict.decision is Decision.KEEP_DEFAULTS and verdict.winner == Candidate()
    assert "+30" in verdict.reason and "ttft_ms.p99 +50.0%" in verdict.reason and "a trade" in verdict.reason
    assert {p.candidate.label: p.recommended for p in verdict.front} == {"--a=1": False, "default": True}
    assert "loses in another" in next(p.why for p in verdict.front if p.recommended)


def test_a_gain_without_a_loss_is_improved_and_both_are_told():
    verdict = verdict_of(study(130.0, ttft_ms=100.0), TWO)
    assert verdict.decision is Decision.IMPROVED and verdict.winner == X
    assert "ttft_ms.p99" in verdict.reason and "not beyond the noise" in verdict.reason
    assert [p.recommended for p in verdict.front if p.candidate == X] == [True]


def test_a_gain_in_the_second_objective_alone_is_improved():
    verdict = verdict_of(study(100.0, ttft_ms=60.0), TWO)
    assert verdict.decision is Decision.IMPROVED and verdict.winner == X
    assert "ttft_ms.p99 -40.0%" in verdict.reason and "without a measured loss in the first objective" in verdict.reason


def test_a_gain_in_the_second_that_costs_the_first_is_not():
    verdict = verdict_of(study(90.0, ttft_ms=60.0), TWO)
    assert verdict.decision is Decision.KEEP_DEFAULTS and "ttft_ms.p99 -40.0%" in verdict.reason


def test_no_gain_at_all_keeps_the_defaults():
    verdict = verdict_of(study(100.0), TWO)
    assert verdict.decision is Decision.KEEP_DEFAULTS
    assert [p.candidate.is_baseline for p in verdict.front if p.recommended] == [True]


def test_a_search_gain_that_fresh_launches_do_not_show_is_not_recommended():
    trials = study(100.0)
    trials[1] = launch(1, X.settings, 130.0)
    verdict = verdict_of(trials, TWO)
    assert verdict.decision is Decision.KEEP_DEFAULTS
    assert [p.why for p in verdict.front if p.recommended] == ["fresh launches did not show that --a=1 is better"]


def test_the_finalist_that_costs_nothing_wins_over_a_faster_one_that_does():
    """Y trades, X does not: the leader is chosen by all objectives."""
    y = {"--b": 1}
    trials = study(110.0)
    trials.append(launch(2, y, 130.0, 160.0))
    trials += [launch(30 + number, y, 130.0 + number / 10, 160.0, phase="confirm", round=number) for number in range(3)]
    verdict = verdict_of(trials, TWO)
    assert verdict.decision is Decision.IMPROVED and verdict.winner == X
    traded = next(item for item in verdict.finalists if item.candidate.settings == y)
    assert traded.decision is Decision.KEEP_DEFAULTS and "a trade" in traded.reason


def rounds_of(objective, tok_s, ttft_ms, jitter, seed=1):
    """Pairs that the confirmation makes of one candidate, with launches that scatter."""
    rng = random.Random(seed)
    trials = [launch(0, {}, 100.0, phase="baseline"), launch(1, X.settings, tok_s, ttft_ms)]

    def launched(candidate, number):
        base = (100.0, 100.0) if candidate.is_baseline else (tok_s, ttft_ms)
        values = [value * rng.gauss(1, jitter) for value in base]
        trials.append(launch(len(trials), candidate.settings, *values, phase="confirm", round=number))

    verdict = confirm(launched, lambda: trials, objective, Budget(1e9))
    return verdict.launches, verdict


@pytest.mark.parametrize("seed", range(5))
def test_rounds_go_on_while_a_further_objective_is_open(seed):
    """The first objective is settled after three rounds; the second one gains 8% with launches that differ by 3%."""
    alone, _ = rounds_of(Objective("output_tok_s"), 100.0, 92.0, 0.0001, seed)
    noisy = random.Random(seed)
    trials = [launch(0, {}, 100.0, phase="baseline"), launch(1, X.settings, 100.0, 92.0)]

    def launched(candidate, number):
        ttft = (100.0 if candidate.is_baseline else 92.0) * noisy.gauss(1, 0.03)
        trials.append(launch(len(trials), candidate.settings, 100.0, ttft, phase="confirm", round=number))

    verdict = confirm(launched, lambda: trials, TWO, Budget(1e9))
    assert alone == 3 and (verdict.launches > 3 or verdict.decision is Decision.IMPROVED)


@pytest.mark.parametrize(
    ("tok_s", "ttft_ms", "least", "most"),
    [(100.0, 100.0, 0.0, 0.05), (108.0, 108.0, 0.0, 0.05), (92.0, 92.0, 0.0, 0.05), (100.0, 90.0, 0.75, 1.0)],
    ids=["equal", "a trade", "the other trade", "a gain in the second"],
)
def test_rounds_for_two_objectives_find_gains_and_no_trades(tok_s, ttft_ms, least, most):
    """Both figures differ by 3% from launch to launch, and rounds go on as long as one of them is open."""
    runs = 80
    improved = sum(rounds_of(TWO, tok_s, ttft_ms, 0.03, seed)[1].decision is Decision.IMPROVED for seed in range(runs))
    assert least <= improved / runs <= most


def test_a_loss_that_is_not_clear_yet_gets_more_rounds_before_a_gain_wins():
    costs = [104.0, 118.0, 111.0, *[110.0, 111.0, 112.0] * 3]  # TTFT of the candidate, against 100
    trials = [launch(0, {}, 100.0, phase="baseline"), launch(1, X.settings, 130.0, 101.0)]

    def launched(candidate, number):
        values = (100.0, 100.0) if candidate.is_baseline else (130.0, costs[number])
        trials.append(launch(len(trials), candidate.settings, *values, phase="confirm", round=number))

    assert confirm(launched, lambda: trials, Objective("output_tok_s"), Budget(1e9)).launches == 3
    del trials[2:]
    verdict = confirm(launched, lambda: trials, TWO, Budget(1e9))
    assert verdict.launches > 3 and verdict.decision is Decision.KEEP_DEFAULTS and "a trade" in verdict.reason


def test_a_sure_loss_in_the_first_objective_ends_the_rounds():
    made, verdict = rounds_of(TWO, 80.0, 60.0, 0.002)
    assert made == 3 and verdict.decision is Decision.KEEP_DEFAULTS


def test_what_is_lost_in_the_first_objective_for_sure_needs_no_clearer_gain_in_another():
    ttft_ms = [70.0, 101.0, 88.0, *[90.0] * 9]
    trials = [launch(0, {}, 100.0, phase="baseline"), launch(1, X.settings, 80.0, 90.0)]

    def launched(candidate, number):
        values = (100.0, 100.0) if candidate.is_baseline else (80.0 + number / 10, ttft_ms[number])
        trials.append(launch(len(trials), candidate.settings, *values, phase="confirm", round=number))

    verdict = confirm(launched, lambda: trials, TWO, Budget(1e9))
    assert verdict.launches == 3 and verdict.decision is Decision.KEEP_DEFAULTS


@pytest.mark.parametrize(("further", "decision"), [(1, Decision.IMPROVED), (2, Decision.KEEP_DEFAULTS)])
def test_further_objectives_share_one_error(further, decision):
    """A gain of 3.6% that the error of one look shows, and half of that error does not."""
    looks, found = Looks(3, 3), Comparison(3, 0.036, 0.02, 4)
    assert found.half_width(ERROR) < 0.036 < found.half_width(ERROR / 2)
    even = Comparison(3, 0.0, 0.02, 4)
    seen = Figures(even, (found, even)[:further], tuple(Compared(f"m{n}", "unclear") for n in range(further)))
    first = Judgement(Decision.KEEP_DEFAULTS, "not worth an override")
    assert weighed(first, "gave +0.0%", seen, looks, ended=True).decision is decision


def test_the_front_recommends_what_the_verdict_leaves():
    trials = study(130.0)
    won = verdict_of(trials, TWO)
    assert [p.candidate for p in won.front if p.recommended] == [X]
    disturbed = dataclasses.replace(won, decision=Decision.INCONCLUSIVE, winner=Candidate())
    (point,) = [p for p in with_front(disturbed, trials, TWO).front if p.recommended]
    assert point.candidate.is_baseline and "not that it can be trusted" in point.why
    died = trial(99, X.settings, None, "soak", Outcome.CRASHED, "the engine died")
    (point,) = [p for p in verdict_of([*trials, died], TWO).front if p.recommended]
    assert point.candidate.is_baseline and "--a=1 cannot win: did not stand the soak" in point.why


def test_one_objective_is_left_alone():
    trials = study(130.0)
    assert verdict_of(trials, Objective()) == decide(trials, Objective())


@pytest.mark.slow
@pytest.mark.parametrize("metrics", [("ttft_ms.p99",), ("ttft_ms.p99", "tpot_ms.p50")])
def test_equal_arms_are_rarely_called_improved(metrics):
    objective, wrong, runs = Objective("output_tok_s", metrics), 0, 400
    for seed in range(runs):
        wrong += verdict_of(study(100.0, jitter=0.03, seed=seed), objective).decision is Decision.IMPROVED
    assert wrong / runs <= 0.05


# ---------------------------------------------------------------- the SLO


def test_the_default_that_breaks_the_slo_loses_to_what_meets_it():
    verdict = verdict_of(study(97.0, default_within=0.9), LIMITED)
    assert verdict.decision is Decision.IMPROVED and verdict.winner == X
    assert "meets the SLO in all of 3 fresh launches" in verdict.reason and "output_tok_s -2" in verdict.reason
    assert "the default breaks the SLO in 3 of 3" in verdict.reason and "90.0% of the requests" in verdict.reason


def test_a_faster_one_says_that_the_default_breaks_the_slo():
    verdict = verdict_of(study(130.0, default_within=0.9), LIMITED)
    assert verdict.decision is Decision.IMPROVED and "the default breaks the SLO in 3 of 3" in verdict.reason


def test_one_breach_of_the_default_is_said_and_decides_nothing():
    trials = study(97.0)
    trials[2] = launch(10, {}, 100.0, within=0.9, phase="confirm", round=0)
    verdict = verdict_of(trials, LIMITED)
    assert verdict.decision is Decision.KEEP_DEFAULTS and "the default breaks the SLO in 1 of 3" in verdict.reason


def test_a_challenger_that_breaks_the_slo_afresh_cannot_win():
    trials = study(130.0)
    trials[-1] = launch(22, X.settings, 130.0, within=0.9, phase="confirm", round=2)
    verdict = verdict_of(trials, LIMITED)
    assert verdict.decision is Decision.KEEP_DEFAULTS and "SLO" in verdict.reason


def test_no_candidate_within_the_slo_names_the_nearest():
    trials = [
        launch(0, {}, 100.0, within=0.5, phase="baseline"),
        launch(1, {"--a": 1}, 200.0, within=0.6),
        launch(2, {"--a": 2}, 150.0, within=0.9),
    ]
    verdict = verdict_of(trials, LIMITED)
    assert verdict.decision is Decision.KEEP_DEFAULTS
    assert (
        "2 candidates were measured and none meets the SLO; the nearest, --a=2: ttft_p99<500ms: 90.0%" in verdict.reason
    )
    assert "the default breaks the SLO (ttft_p99<500ms: 50.0%" in verdict.reason


def test_goodput_needs_no_constraint():
    goodput = Objective("goodput", slo=SLO)
    verdict = verdict_of(study(100.0, within=0.9, default_within=0.6), goodput)
    assert verdict.decision is Decision.IMPROVED and verdict.ratio.value == pytest.approx(1.5)


# ---------------------------------------------------------------- load


@pytest.mark.parametrize(
    ("default", "candidate", "decision", "who"),
    [
        (0.0, 0.5, Decision.IMPROVED, "the default was"),
        (0.5, 0.0, Decision.KEEP_DEFAULTS, "--a=1 was"),
        (0.0, 0.0, Decision.KEEP_DEFAULTS, "the default or --a=1 was"),
        (0.5, 0.5, Decision.KEEP_DEFAULTS, None),
    ],
)
def test_a_goodput_of_zero_is_said_where_half_a_request_stands_in_for_it(default, candidate, decision, who):
    """`default 0.05 requests/s within the SLO` would be a figure that nobody measured."""
    verdict = verdict_of(study(100.0, within=candidate, default_within=default), Objective("goodput", slo=SLO))
    assert verdict.decision is decision
    told = f"not one request of {who} within the SLO: goodput is counted as that of half a request"
    assert (told in verdict.reason) if who else ("not one request" not in verdict.reason)


def test_below_saturation_is_the_reason_for_no_gain():
    calm = (2.0, 2.1, 1.9, 2.0)
    verdict = verdict_of(study(100.0, in_flight=calm), Objective(), RATE)
    assert verdict.decision is Decision.KEEP_DEFAULTS and "below saturation" in verdict.reason
    growing = verdict_of(study(100.0, in_flight=(2.0, 8.0, 14.0, 20.0)), Objective(), RATE)
    assert "below saturation" not in growing.reason
    assert "below saturation" not in verdict_of(study(100.0), Objective()).reason


def test_an_api_server_that_is_the_limit_is_the_reason_for_no_gain():
    limited = verdict_of(study(100.0, api=0.98), Objective())
    assert limited.decision is Decision.KEEP_DEFAULTS and "the API server is the limit at this load" in limited.reason
    for other in (verdict_of(study(100.0, api=0.5), Objective()), verdict_of(study(130.0, api=0.98), Objective())):
        assert "API server" not in other.reason


def test_a_challenger_that_breaks_the_slo_once_is_no_better_than_a_default_that_always_does():
    trials = study(130.0, default_within=0.9)
    trials[-1] = launch(22, X.settings, 130.0, within=0.9, phase="confirm", round=2)
    verdict = verdict_of(trials, LIMITED)
    assert verdict.decision is Decision.KEEP_DEFAULTS and "the default breaks the SLO in 3 of 3" in verdict.reason
