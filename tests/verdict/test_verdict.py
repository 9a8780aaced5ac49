"""The decision, the finalists, and the order and end of the fresh launches."""

import dataclasses
import random

import pytest

from advisor.errors import LaunchesFailed
from advisor.records import Candidate, Decision, Dropped, Invalid, Objective, Outcome, SloLimit, Trial
from advisor.search.budget import Budget
from advisor.verdict.confirm import confirm, next_launch, order, seeds
from advisor.verdict.decide import decide, with_search_end
from advisor.verdict.disturbed import with_disturbances
from advisor.verdict.finalists import choose
from advisor.verdict.words import told_costs
from tests.study_help import sample, trial

THROUGHPUT = Objective()
CHALLENGER = Candidate({"--a": 1})
OTHER = Candidate({"--c": 1})
LONGER = Candidate({"--a": 1, "--b": 1})
PLENTY = Budget(1e9)


def confirmed(baseline, *arms, candidates=(CHALLENGER, OTHER, LONGER)):
    trials = []
    for number, values in enumerate(zip(baseline, *arms, strict=True)):
        for candidate, value in zip((Candidate(), *candidates), values, strict=False):
            trials.append(trial(10 + len(trials), candidate.settings, value, phase="confirm", round=number))
    return trials


@pytest.mark.parametrize(
    ("baseline", "tuned", "decision", "part"),
    [
        ([100, 101, 99], [120, 121, 119], Decision.IMPROVED, "+20"),
        ([100, 101, 99], [101, 101.5, 100], Decision.KEEP_DEFAULTS, "not worth an override"),
        ([100, 101, 99], [80, 81, 79], Decision.KEEP_DEFAULTS, "-20"),
        ([100] * 12, [101.5, 101.6, 101.4] * 4, Decision.KEEP_DEFAULTS, "not worth an override"),
        ([100] * 12, [100.5, 100.6, 100.4] * 4, Decision.KEEP_DEFAULTS, "a gain of 2% is ruled out"),
        ([100, 130, 90], [130, 120, 125], Decision.INCONCLUSIVE, "includes zero gain"),
        ([100, 120, 100] * 4, [112, 107, 110] * 4, Decision.KEEP_DEFAULTS, "less than launches of the same settings differ by"),
        ([100, 101], [120, 121], Decision.INCONCLUSIVE, "has 2 of 3 pairs"),
        ([100], [120], Decision.INCONCLUSIVE, "has 1 of 3 pairs"),
    ],
)  # fmt: skip
def test_decisions(baseline, tuned, decision, part):
    verdict = decide(confirmed(baseline, tuned), THROUGHPUT)
    assert verdict.decision is decision and part in verdict.reason
    assert verdict.winner == (CHALLENGER if decision is Decision.IMPROVED else Candidate())


@pytest.mark.parametrize(
    ("objective", "part"),
    [
        (Objective(), "gave +20.0% (95% interval "),
        (Objective("ttft_ms.p50"), "gave ttft_ms.p50 +20.0% (95% interval "),  # which is no gain of 20%
        (Objective("requests_s"), "gave requests_s +0.0% (95% interval "),
        (Objective("output_tok_s", ("start_s",)), "gave output_tok_s +20.0% (95% interval "),
    ],
)
def test_a_change_says_what_it_is_of_unless_more_of_it_is_a_gain(objective, part):
    """A reason that says `gave +20%: a gain of 2% is ruled out` contradicts itself for who does not know the figure."""
    slower = [
        dataclasses.replace(t, start_s=30.0, samples=tuple(
            dataclasses.replace(s, output_tok_s=ratio * s.output_tok_s, ttft_ms={"p50": 100 * ratio}) for s in t.samples
        ))
        for t in confirmed([100, 101, 99], [100, 101, 99])
        for ratio in [1.0 if t.candidate.is_baseline else 1.2]
    ]  # fmt: skip
    assert part in decide(slower, objective).reason


def test_the_noise_and_the_smallest_gain_are_always_told():
    for tuned in ([120, 121, 119], [101, 101.5, 100], [80, 81, 79]):
        verdict = decide(confirmed([100, 101, 99], tuned), THROUGHPUT)
        assert verdict.noise == pytest.approx(0.01)
        assert verdict.ratio.high / verdict.ratio.value - 1 == pytest.approx(verdict.smallest_gain)


def test_a_proven_gain_below_the_threshold_is_not_worth_an_override():
    verdict = decide(confirmed([100] * 12, [101.5, 101.6, 101.4] * 4), THROUGHPUT)
    assert verdict.ratio.low > 1 and verdict.decision is Decision.KEEP_DEFAULTS


def test_more_launches_than_the_noise_allows_are_named():
    verdict = decide(confirmed([100, 104, 97], [106, 109, 112]), THROUGHPUT)
    needed = int(verdict.reason.split("about ")[1].split()[0])
    assert verdict.decision is Decision.INCONCLUSIVE and 3 < needed < 12


def test_nothing_to_confirm_keeps_the_defaults():
    tried = trial(1, {"--a": 1}, outcome=Outcome.CRASHED)
    assert decide([tried], THROUGHPUT).decision is Decision.KEEP_DEFAULTS


def unmeasured(number, settings, kind):
    made = trial(number, settings, 400.0, outcome=Outcome.INVALID_MEASUREMENT, reason=f"{kind.value}: its words")
    return dataclasses.replace(
        made, samples=tuple(dataclasses.replace(s, problems=("its words",), classes=(kind,)) for s in made.samples)
    )


@pytest.mark.parametrize(
    ("kind", "decision", "may"),
    [
        (Invalid.CLIENT_BOUND, Decision.INCONCLUSIVE, True),
        (Invalid.TOO_SHORT, Decision.INCONCLUSIVE, True),
        (Invalid.WRONG_LENGTH, Decision.KEEP_DEFAULTS, False),
    ],
)
def test_a_candidate_too_fast_for_the_client_is_no_reason_to_keep_the_defaults(kind, decision, may):
    """The client set the pace: nobody knows what the server could have done."""
    told = f"--fast=1 could not be measured and may be faster ({kind.value}: its words)"
    fast = unmeasured(1, {"--fast": 1}, kind)
    verdict = decide([trial(0, {}, 100.0, phase="baseline"), fast], THROUGHPUT)
    assert verdict.decision is decision and (told in verdict.reason) is may
    beside = decide([fast, *confirmed([100, 101, 99], [101, 101.5, 100])], THROUGHPUT)
    assert beside.decision is Decision.KEEP_DEFAULTS and (told in beside.reason) is may


def test_a_candidate_that_is_quick_since_its_answers_are_cut_short_is_none_that_may_be_faster():
    made = unmeasured(1, {"--fast": 1}, Invalid.WRONG_LENGTH)
    both = tuple(dataclasses.replace(s, classes=(Invalid.WRONG_LENGTH, Invalid.TOO_SHORT)) for s in made.samples)
    verdict = decide([trial(0, {}, 100.0, phase="baseline"), dataclasses.replace(made, samples=both)], THROUGHPUT)
    assert verdict.decision is Decision.KEEP_DEFAULTS and "may be faster" not in verdict.reason


def test_nothing_tried_is_no_reason_to_keep_the_defaults():
    for done in ([], [trial(0, {}, 100.0, phase="baseline")], [trial(1, {"--a": 1}, outcome=Outcome.INTERRUPTED)]):
        verdict = decide(done, THROUGHPUT)
        assert verdict.decision is Decision.INCONCLUSIVE and "no other setting was tried" in verdict.reason


OUT_OF_TIME = "budget: 3m00s of 3m00s used, 1m00s kept for the confirmation"
FAILED, CUT_OFF = (trial(1, {"--a": 1}, outcome=outcome) for outcome in (Outcome.TIMED_OUT, Outcome.INTERRUPTED))


@pytest.mark.parametrize(
    ("searched", "why", "decision", "reason"),
    [
        ([FAILED], OUT_OF_TIME, Decision.INCONCLUSIVE,
         f"no other setting started and measured well, and not all were tried: {OUT_OF_TIME}"),
        ([FAILED, CUT_OFF], OUT_OF_TIME, Decision.INCONCLUSIVE,
         f"no other setting started and measured well, and not all were tried: {OUT_OF_TIME}"),
        ([CUT_OFF], OUT_OF_TIME, Decision.INCONCLUSIVE, f"no other setting was tried to the end: {OUT_OF_TIME}"),
        ([FAILED], "every distinct candidate was tried", Decision.KEEP_DEFAULTS, "no other setting started and measured well"),
        ([FAILED], "1 trial was asked for", Decision.KEEP_DEFAULTS, "no other setting started and measured well"),
        ([FAILED], "", Decision.KEEP_DEFAULTS, "no other setting started and measured well"),
        ([], OUT_OF_TIME, Decision.INCONCLUSIVE, f"no other setting was tried: {OUT_OF_TIME}"),
    ],
)  # fmt: skip
def test_where_time_was_up_before_all_were_tried_failures_keep_no_defaults(searched, why, decision, reason):
    verdict = with_search_end(decide([trial(0, {}, 100.0, phase="baseline"), *searched], THROUGHPUT), why)
    assert (verdict.decision, verdict.reason) == (decision, reason)


def test_a_challenger_that_fails_afresh_cannot_win():
    trials = confirmed([100, 100, 100], [150, 150, 150])
    trials[-1] = trial(
        15, CHALLENGER.settings, phase="confirm", round=2, outcome=Outcome.CRASHED, reason="illegal access"
    )
    verdict = decide(trials, THROUGHPUT)
    assert verdict.decision is Decision.KEEP_DEFAULTS and "illegal access" in verdict.reason


def test_a_figure_of_zero_is_no_ratio_and_no_crash():
    verdict = decide(confirmed([100, 100, 100], [0, 0, 0]), THROUGHPUT)
    assert verdict.decision is Decision.KEEP_DEFAULTS and "gave no output_tok_s that counts" in verdict.reason
    assert decide(confirmed([0, 0, 0], [100, 100, 100]), THROUGHPUT).decision is Decision.INCONCLUSIVE


def test_a_latency_is_better_when_it_is_less():
    tpot = Objective("tpot_ms.p50")
    trials = [
        dataclasses.replace(item, samples=(sample(0, 100.0, tpot_ms=10.0 if item.candidate.is_baseline else 8.0),))
        for item in confirmed([1, 1, 1], [1, 1, 1])
    ]
    verdict = decide(trials, tpot)
    assert verdict.decision is Decision.IMPROVED and verdict.ratio.value == pytest.approx(1.25)
    assert verdict.ratios["tpot_ms.p50"].value == pytest.approx(0.8)


def test_finalists_within_the_noise_go_to_the_fewest_overrides():
    trials = confirmed([100, 101, 99], [120, 121.5, 119], [119.5, 120.5, 118.5], [121, 122, 120])
    assert decide(trials, THROUGHPUT).winner == CHALLENGER  # LONGER measured best, by less than 2%
    assert [item.decision for item in decide(trials, THROUGHPUT).finalists] == [Decision.IMPROVED] * 3
    clear = confirmed([100, 101, 99], [120, 121, 119], [110, 111, 109], [130, 131, 129])
    assert decide(clear, THROUGHPUT).winner == LONGER


def test_what_got_worse_is_told_with_its_size():
    slower = {"p50": 12.7, "p99": 19.0}
    trials = []
    for item in confirmed([100, 101, 99], [130, 131, 129]):
        if item.candidate.is_baseline:
            trials.append(item)
        else:
            samples = tuple(dataclasses.replace(one, tpot_ms=slower) for one in item.samples)
            trials.append(dataclasses.replace(item, samples=samples))
    verdict = decide(trials, THROUGHPUT)
    assert verdict.decision is Decision.IMPROVED
    assert [(item.metric, round(item.ratio.value, 2)) for item in verdict.tradeoffs] == [
        ("tpot_ms.p50", 1.27), ("tpot_ms.p99", 1.27),
    ]  # fmt: skip
    assert verdict.baseline["tpot_ms.p50"].value == 10.0 and verdict.tuned["tpot_ms.p50"].value == pytest.approx(12.7)
    assert {"requests_s", "ttft_ms.p99", "itl_ms.p50", "e2el_ms.p99"} <= verdict.ratios.keys()


def at_two_loads(*ratios, values=(100, 101, 99)):
    """Fresh launches at 1 and 64 requests in flight; the challenger's figures there are the default's times `ratios`."""
    trials = []
    for item in confirmed(values, values):
        factors = (1.0, 1.0) if item.candidate.is_baseline else ratios
        samples = [
            dataclasses.replace(s, load=load, output_tok_s=s.output_tok_s * factor)
            for s in item.samples
            for load, factor in zip((1.0, 64.0), factors, strict=True)
        ]
        trials.append(dataclasses.replace(item, samples=tuple(samples)))
    return trials


def test_a_loss_at_one_load_is_told_beside_the_gain_over_all_of_them():
    """+50% and -25% are +6% on average, which is `improved`: who serves one request at a time must read of his loss."""
    verdict = decide(at_two_loads(0.75, 1.5), THROUGHPUT)
    assert verdict.decision is Decision.IMPROVED
    (cost,) = verdict.tradeoffs
    assert (cost.metric, cost.load, cost.proven) == ("output_tok_s", 1.0, True)
    assert told_costs(verdict.tradeoffs) == ", but output tok/s -25.0% at load 1"
    assert decide(at_two_loads(1.1, 1.5), THROUGHPUT).tradeoffs == ()


def test_loads_that_launches_find_for_themselves_are_no_loads_of_the_workload():
    found = [
        dataclasses.replace(item, samples=tuple(
            dataclasses.replace(s, load=60.0 + 4 * item.round + (8 if item.candidate.is_baseline else 0)) for s in item.samples
        ))
        for item in confirmed([100, 101, 99], [80, 81, 79])
    ]  # fmt: skip
    highest = Objective("max_concurrency", find_load="concurrency", slo=(SloLimit("ttft_ms", 500, 0.99),))
    assert all(cost.load is None for cost in decide(found, highest).tradeoffs)


def test_what_launches_differ_by_is_no_tradeoff():
    rng = random.Random(1)
    trials = []
    for item in confirmed([100, 101, 99], [130, 131, 129]):
        times = {"p50": 10 * rng.uniform(0.7, 1.4), "p99": 20.0}
        samples = tuple(dataclasses.replace(one, tpot_ms=times) for one in item.samples)
        trials.append(dataclasses.replace(item, samples=samples))
    assert decide(trials, THROUGHPUT).tradeoffs == ()


def test_start_up_seconds_are_compared_where_they_are_known():
    trials = [
        dataclasses.replace(item, start_s=60.0 if item.candidate.is_baseline else 80.0 + item.round)
        for item in confirmed([100, 101, 99], [130, 131, 129])
    ]
    assert [item.metric for item in decide(trials, THROUGHPUT).tradeoffs] == ["start_s"]


def test_further_objectives_are_judged_on_the_same_launches():
    objective = Objective(secondary=("tpot_ms.p50", "requests_s"))
    trials = []
    for item in confirmed([1, 1, 1], [1, 1, 1]):
        tok_s, tpot_ms = (100.0, 10.0) if item.candidate.is_baseline else (130.0, 8.0)
        trials.append(dataclasses.replace(item, samples=(sample(0, tok_s, tpot_ms),)))
    others = decide(trials, objective).others
    assert [(item.metric, item.standing) for item in others] == [("tpot_ms.p50", "better"), ("requests_s", "same")]
    assert others[0].ratio.value == pytest.approx(1.25)


# ---------------------------------------------------------------- finalists


def test_finalists_are_what_the_search_cannot_tell_from_the_best():
    searched = [trial(n, {"--a": n}, value) for n, value in enumerate([130.0, 129.0, 90.0, 131.0, 128.9], start=1)]
    assert [item.settings["--a"] for item in choose(searched, THROUGHPUT)] == [4, 1, 2]
    assert [item.settings["--a"] for item in choose(searched[:3], THROUGHPUT)] == [1, 2]


def test_what_was_dropped_behind_the_best_is_looked_at_again_when_that_one_falls():
    def dropped(number, estimate):
        why = Dropped("after its start", {"output_tok_s": estimate})
        return dataclasses.replace(trial(number, {"--a": number}, None), dropped=why)

    searched = [
        trial(0, {}, 100.0, phase="baseline"), trial(1, {"--a": 1}, 150.0), dropped(2, 120.0), dropped(3, 90.0),
        trial(4, {"--a": 4}, 80.0),
    ]  # fmt: skip
    assert [item.settings["--a"] for item in choose(searched, THROUGHPUT)] == [1]
    broken = trial(9, {"--a": 1}, phase="confirm", round=0, outcome=Outcome.CRASHED, reason="boom")
    assert [item.settings["--a"] for item in choose([*searched, broken], THROUGHPUT)] == [2]
    again = trial(10, {"--a": 2}, phase="confirm", round=0, outcome=Outcome.CRASHED, reason="boom")
    assert choose([*searched, broken, again], THROUGHPUT) == []  # the others are behind the default


def test_scattered_seeds_make_more_finalists():
    def noisy(number, first, second):
        found = trial(number, {"--a": number}, 1.0)
        return dataclasses.replace(found, samples=(sample(0, first), sample(1, second)))

    quiet = [noisy(1, 130, 130), noisy(2, 124, 124), noisy(3, 90, 90)]
    loud = [noisy(1, 145, 115), noisy(2, 110, 138), noisy(3, 80, 100)]
    assert len(choose(quiet, THROUGHPUT)) == 1 and len(choose(loud, THROUGHPUT)) == 2


# ---------------------------------------------------------------- launches


def test_arms_rotate_and_share_new_seeds():
    firsts = [order(number, [CHALLENGER, OTHER])[0] for number in range(4)]
    assert firsts == [Candidate(), CHALLENGER, OTHER, Candidate()]
    assert all(len(order(number, [CHALLENGER, OTHER])) == 3 for number in range(4))
    used = [seeds("confirm", 2, number) for number in range(3)]
    assert len({seed for group in used for seed in group} | set(seeds("search", 2))) == 8
    assert seeds("baseline", 2) == seeds("search", 2)


class Launches:
    """Confirmation launches from a function of candidate and round; candidates in `broken` crash."""

    def __init__(self, searched, broken=(), value=None):
        self.done = [trial(0, {}, 100.0, phase="baseline"), *searched]
        self.broken = broken
        self.value = value or (lambda candidate, number: (100.0 if candidate.is_baseline else 130.0) + number)

    def __call__(self, candidate, number):
        crashed = candidate.label in self.broken
        value = None if crashed else self.value(candidate, number)
        outcome = Outcome.CRASHED if crashed else Outcome.OK
        self.done.append(
            trial(len(self.done), candidate.settings, value, "confirm", outcome, "boom" if crashed else "", number)
        )
        return self.done[-1]

    def confirm(self, budget=PLENTY):
        return confirm(self, lambda: self.done, THROUGHPUT, budget)

    def made(self):
        return [(item.candidate.label, item.round) for item in self.done if item.phase == "confirm"]


def test_confirmation_launches_both_arms_in_every_round():
    launches = Launches([trial(1, {"--a": 1}, 130.0), trial(2, {"--a": 2}, 90.0)])
    verdict = launches.confirm()
    assert verdict.decision is Decision.IMPROVED and verdict.launches == 3
    assert len(launches.done) == 3 + 6


def test_what_was_launched_before_is_not_launched_again():
    launches = Launches([trial(1, {"--a": 1}, 130.0)])
    launches(Candidate(), 0)
    launches(CHALLENGER, 0)
    launches.confirm()
    assert len(launches.done) == 2 + 6


def test_a_study_stopped_anywhere_goes_on_to_the_same_launches():
    searched = [trial(1, {"--a": 1}, 130.0), trial(2, {"--c": 1}, 129.0)]

    def value(candidate, number):
        return random.Random(f"{candidate.key} {number}").gauss(100 if candidate.is_baseline else 104, 3)

    whole = Launches(searched, value=value)
    verdict = whole.confirm(Budget(60.0 * 30))
    assert len(whole.made()) > 9
    for stop in range(len(whole.made())):
        part = Launches(searched, value=value)
        for _ in range(stop):
            part(*next_launch(part.done, THROUGHPUT, Budget(60.0 * 30)))
        part.done.append(trial(len(part.done), {}, phase="confirm", outcome=Outcome.INTERRUPTED, round=0, total_s=0.0))
        assert part.confirm(Budget(60.0 * 30)) == verdict
        assert part.made() == [*whole.made()[:stop], ("default", 0), *whole.made()[stop:]]


# ---------------------------------------------------------------- pairs are of one sitting


def rounds(launches):
    """round -> labels, in the order of the launches"""
    found = {}
    for label, number in launches.made():
        found.setdefault(number, []).append(label)
    return found


def test_a_challenger_of_another_day_is_compared_with_baselines_of_its_own_day():
    launches = Launches([trial(1, {"--a": 1}, 130.0)])
    launches.confirm()
    yesterday = len(launches.made())
    launches.done.append(trial(len(launches.done), {"--c": 1}, 150.0))
    since = len(launches.done)
    confirm(launches, lambda: launches.done, THROUGHPUT, PLENTY, since)
    assert launches.made()[yesterday:] == [
        ("--c=1", 3), ("default", 3), ("default", 4), ("--c=1", 4), ("--c=1", 5), ("default", 5),
    ]  # fmt: skip


def test_so_is_one_that_a_longer_search_finds_in_the_same_sitting():
    gains = {"default": 100.0, "--a=1": 130.0, "--c=1": 150.0}
    launches = Launches([trial(1, {"--a": 1}, 130.0)], value=lambda candidate, _: gains[candidate.label])
    launches.confirm()
    launches.done.append(trial(len(launches.done), {"--c": 1}, 150.0))
    verdict = launches.confirm()
    assert verdict.challenger == OTHER and verdict.launches == 3
    assert set(rounds(launches)) == set(range(6))
    assert all(sorted(rounds(launches)[number]) == ["--c=1", "default"] for number in (3, 4, 5))


def test_the_noise_is_that_of_the_challengers_own_rounds():
    """On the second day everything is 20% slower: neither the ratio nor the noise sees it."""
    gains = {"default": 1.0, "--a=1": 1.3, "--c=1": 1.5}
    launches = Launches(
        [trial(1, {"--a": 1}, 130.0)],
        value=lambda candidate, number: gains[candidate.label] * (100.0 if number < 3 else 80.0) + number / 10,
    )
    launches.confirm()
    launches.done.append(trial(len(launches.done), {"--c": 1}, 150.0))
    verdict = confirm(launches, lambda: launches.done, THROUGHPUT, PLENTY, len(launches.done))
    assert verdict.challenger == OTHER and verdict.noise < 0.01
    assert verdict.ratio.value == pytest.approx(1.5, abs=0.01) and verdict.decision is Decision.IMPROVED


@pytest.mark.parametrize("stop", range(1, 6))
def test_a_round_that_a_night_divides_is_launched_anew(stop):
    launches = Launches([trial(1, {"--a": 1}, 130.0)])
    for _ in range(stop):
        launches(*next_launch(launches.done, THROUGHPUT, PLENTY))
    since = len(launches.done)
    verdict = confirm(launches, lambda: launches.done, THROUGHPUT, PLENTY, since)
    assert verdict.launches == 3
    whole = [number for number, labels in rounds(launches).items() if len(labels) == 2]
    assert len(whole) == 3 and len(launches.made()) == 6 + stop % 2
    for number in whole:
        made = [item.number for item in launches.done if item.round == number]
        assert made[1] - made[0] == 1 and (made[0] >= since) == (made[1] >= since)


def test_a_finished_study_launches_nothing_on_another_day():
    launches = Launches([trial(1, {"--a": 1}, 130.0), trial(2, {"--c": 1}, 129.0)])
    verdict = launches.confirm()
    assert next_launch(launches.done, THROUGHPUT, PLENTY, since=len(launches.done)) is None
    assert confirm(launches, lambda: launches.done, THROUGHPUT, PLENTY, len(launches.done)) == verdict


def test_who_takes_the_place_of_a_winner_that_lost_its_proof_has_to_fit_into_the_budget():
    def after_the_proof(budget):
        launches = Launches([trial(1, {"--a": 1}, 130.0), trial(2, {"--a": 2}, 120.0)])
        launches.confirm()
        soaked = trial(len(launches.done), {"--a": 1}, None, "soak", Outcome.CRASHED, "died")
        launches.done.append(soaked)
        verdict = launches.confirm(budget)
        return verdict, launches.made()[6:]

    verdict, made = after_the_proof(PLENTY)
    assert verdict.winner.settings == {"--a": 2} and len(made) == 6 and {number for _, number in made} == {3, 4, 5}
    verdict, made = after_the_proof(Budget(60.0 * (10 + 5)))  # six launches do not fit
    assert verdict.decision is Decision.KEEP_DEFAULTS and made == []
    assert "the budget left no time to launch --a=2 afresh" in verdict.reason


def test_the_next_best_gets_its_turn_when_the_best_fails_afresh():
    launches = Launches([trial(1, {"--a": 1}, 150.0), trial(2, {"--a": 2}, 120.0)], broken=["--a=1"])
    verdict = launches.confirm()
    assert verdict.decision is Decision.IMPROVED and verdict.winner.settings == {"--a": 2}


def test_finalists_that_fail_do_not_hold_up_the_others():
    searched = [trial(n, {"--a": n}, 130.0 + n / 10) for n in (1, 2, 3)]
    launches = Launches(searched, broken=["--a=2"])
    verdict = launches.confirm()
    assert verdict.decision is Decision.IMPROVED
    assert [item.candidate.settings["--a"] for item in verdict.finalists][-1] == 2
    assert launches.made().count(("--a=2", 0)) == 1 and ("--a=2", 1) not in launches.made()


def test_when_all_fail_no_more_than_three_are_tried():
    searched = [trial(n, {"--a": n}, 100.0 + 10 * n) for n in range(1, 7)]
    launches = Launches(searched, broken=[f"--a={n}" for n in range(1, 7)])
    verdict = launches.confirm()
    assert verdict.decision is Decision.KEEP_DEFAULTS and "failed when launched afresh: crashed: boom" in verdict.reason
    assert len(verdict.finalists) == 3


def test_the_simplest_of_equals_wins():
    launches = Launches([trial(1, {"--a": 1, "--b": 1}, 131.0), trial(2, {"--a": 3}, 130.0)])
    assert launches.confirm().winner.settings == {"--a": 3}


def test_a_challenger_like_the_baseline_ends_after_the_first_rounds():
    short = 0
    for seed in range(100):
        rng = random.Random(seed)
        launches = Launches([trial(1, {"--a": 1}, 103.0)], value=lambda *_, rng=rng: rng.gauss(100, 1))
        verdict = launches.confirm()
        short += len(launches.made()) == 6
        assert verdict.decision is not Decision.IMPROVED
    assert short >= 75


def test_an_open_question_gets_more_rounds_until_the_interval_decides():
    figures = [100, 104, 97, 101, 99, 103, 98, 100, 102, 99, 101, 100]

    def value(candidate, number):
        return figures[number] if candidate.is_baseline else 106 + figures[-number] / 100

    launches = Launches([trial(1, {"--a": 1}, 110.0)], value=value)
    verdict = launches.confirm()
    assert verdict.decision is Decision.IMPROVED and 3 < verdict.launches < 12


@pytest.mark.parametrize(("busy_until", "rounds"), [(0, 3), (1, 3), (3, 6), (99, 12)])
def test_a_gain_on_disturbed_launches_gets_more_of_them(busy_until, rounds):
    """The interval is clear, but not whose doing it is: while the budget lasts, quiet launches may still tell."""

    class Busy(Launches):
        def __call__(self, candidate, number):
            made = super().__call__(candidate, number)
            taints = ("steal 9%",) if number < busy_until else ()
            self.done[-1] = dataclasses.replace(made, samples=tuple(dataclasses.replace(s, taints=taints) for s in made.samples))
            return self.done[-1]

    launches = Busy([trial(1, {"--a": 1}, 130.0)])
    verdict = with_disturbances(launches.confirm(), launches.done)
    assert verdict.launches == rounds
    assert verdict.decision is (Decision.INCONCLUSIVE if busy_until == 99 else Decision.IMPROVED)


def test_the_budget_ends_the_rounds_and_the_maximum_too():
    def value(candidate, number):
        return 100 + 6 * (-1) ** number if candidate.is_baseline else 108 - (number % 3)

    small = Launches([trial(1, {"--a": 1}, 110.0)], value=value)
    verdict = small.confirm(Budget(60.0 * (2 + 6 + 3)))  # one more round of two fits, half of another does not
    assert len(small.made()) == 8 and verdict.decision is Decision.INCONCLUSIVE
    large = Launches([trial(1, {"--a": 1}, 110.0)], value=value)
    large.confirm(Budget(1e9, confirm_most=5))
    assert len(large.made()) <= 10


def test_finalists_that_the_budget_cannot_pay_for_are_left_out():
    searched = [trial(n, {"--a": n}, 130.0 + n / 10) for n in (1, 2, 3)]
    for rounds_paid, finalists in ((0, 1), (6, 1), (9, 2), (12, 3)):
        launches = Launches(searched)
        launches.confirm(Budget(60.0 * (4 + rounds_paid)))
        assert len({label for label, _ in launches.made()} - {"default"}) == finalists
        assert launches.made().count(("--a=3", 2)) == 1


def test_a_default_that_fails_for_one_cause_ends_the_study_with_it():
    launches = Launches([trial(1, {"--a": 1}, 130.0)], broken=["default"])
    with pytest.raises(LaunchesFailed, match="the default failed in 3 fresh launches in a row: crashed: boom"):
        launches.confirm()
    assert launches.made().count(("default", 2)) == 1 and ("default", 3) not in launches.made()
    launches.broken = ()  # the cause is mended: the same command goes on
    assert launches.confirm().decision is Decision.IMPROVED


def test_a_baseline_launch_that_fails_costs_a_round_not_the_verdict():
    launches = Launches([trial(1, {"--a": 1}, 130.0)])
    launches.done.append(trial(9, {}, phase="confirm", outcome=Outcome.INVALID_MEASUREMENT, reason="starved", round=0))
    verdict = launches.confirm()
    assert verdict.decision is Decision.IMPROVED and verdict.launches == 3


def costing(default: list[float], challenger: list[float]) -> list[Trial]:
    """Fresh launches with a proven gain in throughput, and these median TPOTs, ms."""
    times = {True: iter(default), False: iter(challenger)}
    trials = []
    for item in confirmed([100, 101, 99], [130, 131, 129]):
        tpot = {"p50": next(times[item.candidate.is_baseline]), "p99": 20.0}
        samples = tuple(dataclasses.replace(one, tpot_ms=tpot) for one in item.samples)
        trials.append(dataclasses.replace(item, samples=samples))
    return trials


def test_a_loss_that_three_launches_cannot_prove_is_told_all_the_same():
    """Launches that differ by 5%, and a fifth more time: the paired interval with two degrees of freedom holds zero."""
    (cost,) = decide(costing([10.0, 9.4, 10.6], [12.4, 12.9, 11.3]), THROUGHPUT).tradeoffs
    assert cost.metric == "tpot_ms.p50" and not cost.proven
    assert cost.ratio.low < 1 < 1.2 < cost.ratio.value < 1.25


@pytest.mark.parametrize(
    "challenger", [[10.6, 9.4, 10.9], [13.0, 9.0, 11.2]], ids=["under 5%", "under twice what launches differ by"]
)
def test_a_small_or_scattered_loss_is_not_told(challenger):
    assert decide(costing([10.0, 9.4, 10.6], challenger), THROUGHPUT).tradeoffs == ()
