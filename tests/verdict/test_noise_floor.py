"""The noise floor where no candidate came as far as fresh launches: the default alone is launched, as far as the budget lasts."""

from __future__ import annotations

import dataclasses

import pytest

from advisor.errors import LaunchesFailed
from advisor.records import Candidate, Decision, Dropped, LoadPoint, Objective, Outcome, SloLimit
from advisor.report.summary import figures
from advisor.search.budget import Budget
from advisor.verdict.confirm import confirm, next_for_noise, next_launch, seeds
from tests.study_help import trial

THROUGHPUT = Objective()
PLENTY = Budget(1e9)
DROPPED = dataclasses.replace(
    trial(1, {"--slow": 1}, 50.0), dropped=Dropped("-50% in its first slice", {"output_tok_s": 50.0})
)
SEARCHES = {
    "every candidate was dropped": (DROPPED,),
    "every candidate failed": (trial(1, {"--bad": 1}, outcome=Outcome.CRASHED, reason="boom"),),
    "nothing was launched": (),
}


class Launches:
    """60 s each. `values`: of the default's fresh launches, None for one that crashes."""

    def __init__(self, *searched, values=(100.0, 101.0, 99.0), broken=()):
        self.done, self.values, self.broken = [trial(0, {}, 100.0, phase="baseline"), *searched], values, broken

    def __call__(self, candidate, number):
        value = 130.0 if not candidate.is_baseline else self.values[number % len(self.values)]
        if value is None or candidate.label in self.broken:
            made = trial(len(self.done), candidate.settings, None, "confirm", Outcome.CRASHED, "boom", number)
        else:
            made = trial(len(self.done), candidate.settings, value, "confirm", round=number, seeds=seeds("confirm", 1, number))
        self.done.append(made)

    def confirm(self, budget=PLENTY, objective=THROUGHPUT, told=None):
        return confirm(self, lambda: self.done, objective, budget, note=(told if told is not None else []).append)

    def made(self):
        return [(item.candidate.label, item.round) for item in self.done if item.phase == "confirm"]


def line(verdict):
    return figures(verdict)


@pytest.mark.parametrize("searched", SEARCHES.values(), ids=SEARCHES)
def test_the_default_alone_tells_what_launches_differ_by(searched):
    launches, told = Launches(*searched), []
    verdict = launches.confirm(told=told)
    assert launches.made() == [("default", 0), ("default", 1), ("default", 2)]
    assert verdict.noise == pytest.approx(0.01) and not verdict.no_noise and verdict.challenger is None
    assert line(verdict) == "output tok/s: default 100.0 ± 2.48; launches of the default differ by 1.0%"
    assert len(told) == 1 and "the default alone is launched afresh" in told[0]
    used = [sample.seed for item in launches.done if item.phase == "confirm" for sample in item.samples]
    assert len(set(used)) == 3 and min(used) >= 1000  # prompts that the search never had


def test_it_changes_no_verdict():
    for searched in SEARCHES.values():
        without = Launches(*searched).confirm(Budget(0.0))
        verdict = Launches(*searched).confirm()
        assert (without.noise, without.decision, without.reason) == (None, verdict.decision, verdict.reason)


def test_a_study_stopped_anywhere_goes_on_and_repeats_nothing():
    whole = Launches(DROPPED)
    verdict = whole.confirm()
    for stop in range(4):
        part = Launches(DROPPED)
        for number in range(stop):
            part(Candidate(), number)
        part.done.append(trial(len(part.done), {}, phase="confirm", outcome=Outcome.INTERRUPTED, round=stop, total_s=0.0))
        assert part.confirm() == verdict
        assert sorted(part.made()) == sorted([*whole.made(), ("default", stop)])
        count = len(part.done)
        part.confirm()
        assert len(part.done) == count


@pytest.mark.parametrize(
    ("total_s", "fresh", "told"),
    [
        (120.0 + 2 * 60.0 - 1, 0, "was not measured: it takes about 2m00s, the budget leaves 1m59s"),
        (120.0 + 2 * 60.0, 2, "launches of the default differ by 0.7%"),
        (120.0 + 3 * 60.0 - 1, 2, "launches of the default differ by 0.7%"),
        (120.0 + 3 * 60.0, 3, "launches of the default differ by 1.0%"),
        (1.0, 0, "was not measured: it takes about 2m00s, the budget leaves 0.0s"),
    ],
)
def test_as_far_as_the_budget_lasts(total_s, fresh, told):
    launches = Launches(DROPPED)
    verdict = launches.confirm(Budget(total_s))
    assert len(launches.made()) == fresh and line(verdict).endswith(told)


def test_where_a_finalist_is_launched_the_default_has_its_rounds_and_no_more():
    for rounds in (3, 5):
        launches = Launches(trial(1, {"--a": 1}, 130.0))
        verdict = launches.confirm(Budget(1e9, confirm_rounds=rounds))
        assert verdict.decision is Decision.IMPROVED and len(launches.made()) == 2 * rounds


def test_a_finalist_that_falls_at_once_leaves_the_noise_to_be_measured():
    launches = Launches(trial(1, {"--a": 1}, 130.0), broken=("--a=1",))
    verdict = launches.confirm()
    assert [label for label, _ in launches.made()].count("default") == 3
    assert verdict.decision is Decision.KEEP_DEFAULTS and "failed when launched afresh" in verdict.reason
    assert line(verdict) == "output tok/s: default 100.0 ± 2.48; launches of the default differ by 1.0%"


def test_one_launch_that_fails_is_told_and_not_tried_for_ever():
    launches = Launches(DROPPED, values=(None, 100.0, 102.0))
    assert launches.confirm().noise == pytest.approx(0.014, abs=0.001) and len(launches.made()) == 3
    twice = Launches(DROPPED, values=(100.0, None, None))
    verdict = twice.confirm()
    assert line(verdict).endswith("was not measured: a fresh launch of it ended as crashed: boom")
    assert len(twice.made()) == 3


def test_a_default_that_fails_again_and_again_ends_the_study():
    with pytest.raises(LaunchesFailed, match="the default failed in 3 fresh launches in a row: crashed: boom"):
        Launches(DROPPED, values=(None,)).confirm()


def by_load(number, met, phase="baseline"):
    made = trial(number, {}, 100.0, phase=phase)
    samples = tuple(dataclasses.replace(item, load=1.0, slo_within={"ttft_p99<9ms": float(met)}) for item in made.samples)
    return dataclasses.replace(made, samples=samples, loads=(LoadPoint(1.0, met, 1.0, "" if met else "too slow"),))


def test_where_no_launch_of_the_default_has_a_figure_none_is_made():
    """No load meets the SLO: launches would agree on the lowest that was tried, which says nothing of them."""
    limit = SloLimit("ttft_ms", 9.0)
    found = Objective("max_concurrency", slo=(limit,), find_load="concurrency")
    launches = Launches()
    launches.done = [by_load(0, met=False)]
    verdict = launches.confirm(objective=found)
    assert launches.made() == [] and line(verdict).endswith("not measured: no load meets the SLO on the default")
    launches.done = [by_load(0, met=True)]
    assert next_for_noise(launches.done, found, PLENTY) == (Candidate(), 0)


def test_a_goodput_of_nothing_has_no_noise():
    launches, goodput = Launches(DROPPED), Objective("goodput", slo=(SloLimit("ttft_ms", 9.0),))
    none = [dataclasses.replace(item, goodput_requests_s=0.0) for item in launches.done[0].samples]
    launches.done[0] = dataclasses.replace(launches.done[0], samples=tuple(none))
    launches.done[1:] = []
    verdict = launches.confirm(objective=goodput)
    assert launches.made() == []
    assert line(verdict).endswith("not measured: not one request of the default is within the SLO")


def test_a_search_that_goes_on_later_has_rounds_of_its_own():
    launches = Launches(DROPPED)
    launches.confirm()
    launches.done.append(trial(len(launches.done), {"--a": 1}, 130.0))
    assert next_launch(launches.done, THROUGHPUT, PLENTY)[1] == 3
    verdict = launches.confirm()
    assert verdict.decision is Decision.IMPROVED and verdict.launches == 3
    assert {number for label, number in launches.made() if label != "default"} == {3, 4, 5}
