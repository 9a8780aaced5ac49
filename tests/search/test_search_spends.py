"""Whole searches on made-up servers: what they launch first, when they stop, and what they say of the rest."""

import statistics

import pytest

from advisor.records import Candidate, Outcome
from advisor.search.budget import Budget
from advisor.search.choice import Outlook
from advisor.search.effects import Point
from advisor.search.loop import recall, search
from advisor.search.sampler import Sampler
from advisor.search.untried import ENOUGH, NO_TIME, NOT_EXPECTED, untried
from advisor.space.candidates import SettingChoices, first_candidates
from tests.search.landscape import FLAT, LISTS, STEEP, THROUGHPUT, Server, run, space
from tests.study_help import trial

ALL = len(space().candidates)


def best_worth(server):
    return max(server.worth(item.candidate) for item in server.done if item.ok)


def values_seen(server):
    return {(name, str(value)) for item in server.done for name, value in item.candidate.settings.items()}


EVERY_VALUE = {(name, str(value)) for item in space().candidates for name, value in item.settings.items()}


@pytest.mark.parametrize("seed", range(3))
def test_where_nothing_gains_it_stops_when_every_value_was_seen(seed):
    server = Server(FLAT, seed)
    reason, _ = run(server, seed=seed)
    assert "no untried candidate is expected to gain more than launches differ by" in reason
    assert values_seen(server) == EVERY_VALUE
    assert len(server.done) < len(first_candidates(space())) + 9 < ALL / 2
    assert server.notes[-1].startswith(f"not launched: {ALL + 1 - len(server.done)} candidates: {NOT_EXPECTED}; most promising: ")


def test_what_is_left_is_kept_with_its_reason_most_promising_first():
    server = Server(FLAT)
    _, sampler = run(server)
    left = [item for item in sampler._space.rejections if item.reason == NOT_EXPECTED]
    assert len(left) == ALL + 1 - len(server.done)
    assert left[0].candidate.label in server.notes[-1]
    launched = {item.candidate.key for item in server.done}
    assert launched.isdisjoint(item.candidate.key for item in left)


@pytest.mark.parametrize("seed", range(5))
def test_a_gain_that_two_values_make_together_is_found_before_half_of_the_space(seed):
    server = Server(STEEP, seed)
    run(server, seed=seed)
    assert best_worth(server) > 0.98 * 1.26
    assert len(server.done) < ALL / 2


def test_the_first_launches_are_single_values_and_cheap_ones_come_early():
    server = Server(FLAT)
    run(server, Budget(1e9, trials=5))
    asked = [item.candidate for item in server.done[1:]]
    assert all(item.overrides <= 2 for item in asked)
    assert len({name for item in asked for name in item.settings}) >= 4  # settings take turns
    costs = [item.total_s for item in server.done[1:]]
    assert costs[0] <= statistics.median(item.total_s for item in Server(FLAT).done) + 5


def test_figures_from_elsewhere_order_the_first_launches_and_losers_go_last():
    known = [
        Point(Candidate({"cudagraph_capture_sizes": LISTS[2]}), 0.15, 0.1),
        Point(Candidate({"enforce_eager": True}), -0.6, 0.2),
        Point(Candidate({"attention_backend": "FLEX_ATTENTION"}), -1.2, 0.4),
    ]
    server = Server(STEEP)
    run(server, known=known)
    order = [item.candidate.settings for item in server.done]
    assert order[1] == {"cudagraph_capture_sizes": LISTS[2]}
    launched = [name for settings in order for name in settings]
    assert "enforce_eager" not in launched  # known to lose half, and everything else was worth more


def test_after_an_amount_below_vllms_own_lost_the_one_above_it_is_next():
    settings = (SettingChoices("flag", (None, True)), SettingChoices("max_num_batched_tokens", (None, 2048, 4096, 16384)))
    effects = {"flag": {True: 1.0}, "max_num_batched_tokens": {2048: 0.8, 4096: 0.9, 16384: 1.1}}
    asked = [item for item in space(settings).candidates if item.overrides == 1]
    server = Server(effects)
    server("search", Candidate({"max_num_batched_tokens": 2048}))
    left = [item for item in asked if item.settings != {"max_num_batched_tokens": 2048}]
    outlook = Outlook(server.done, THROUGHPUT, {Candidate().key: {"max_num_batched_tokens": 8192}})
    assert outlook.best(left, left, 1e9).settings == {"max_num_batched_tokens": 16384}
    assert outlook.ordered(left)[-1][0].settings == {"max_num_batched_tokens": 4096}


def test_a_budget_launches_what_fits_and_names_what_did_not():
    server = Server(STEEP)
    reason, _ = run(server, Budget(1300.0))
    assert reason.startswith("budget: ")
    assert server.spent_s + Budget(1300.0).reserve_s(server.done, THROUGHPUT) < 1300 + 30
    assert f"{NO_TIME}; most promising:" in server.notes[-1]


def test_the_last_line_counts_what_was_left_and_says_why():
    few, nothing = Server(FLAT), Server(FLAT)
    _, sampler = run(few, Budget(1e9, trials=2))
    assert untried(sampler._space.rejections) == f"{ALL - 2} candidates not launched: {ENOUGH}"
    _, sampler = run(nothing)
    assert untried(sampler._space.rejections) == f"{ALL + 1 - len(nothing.done)} candidates not launched: {NOT_EXPECTED}"
    assert untried(space().rejections) == ""  # what rules drop is another matter


def test_a_launch_that_does_not_fit_gives_way_to_one_that_does():
    server = Server(FLAT)
    outlook = Outlook(server.done, THROUGHPUT, {})
    untried = space().candidates
    designed = first_candidates(space())
    fits = outlook.best(untried, designed, 85.0)  # 58 of base, 22 of load: no compiler, few graphs
    assert fits is not None and (fits.settings.get("enforce_eager") or fits.settings["compilation_mode"] == "NONE")
    dear = [item for item in untried if outlook.least_s([item]) > 85.0]
    assert outlook.best(dear, designed, 85.0) is None and outlook.best(dear, designed, 200.0) in dear
    assert outlook.best(untried, designed, 10.0) is None


@pytest.mark.parametrize("seed", range(6))
def test_a_winner_is_found_though_its_first_measurement_was_not_valid(seed):
    server = Server({**FLAT, "cudagraph_mode": {**FLAT["cudagraph_mode"], "FULL_DECODE_ONLY": 1.05}}, seed)
    measured, wins = Server.__call__, {"cudagraph_mode": "FULL_DECODE_ONLY"}.items()

    def disturbed(candidate):
        made = measured(server, "search", candidate)
        if sum(wins <= item.candidate.settings.items() for item in server.done) == 1 and wins <= candidate.settings.items():
            made = trial(made.number, candidate.settings, outcome=Outcome.INVALID_MEASUREMENT, reason="failed", total_s=100.0)
            server.done[-1] = made
        return made

    search(disturbed, Sampler(space(), THROUGHPUT, seed), Budget(1e9), THROUGHPUT, lambda: server.done)
    assert best_worth(server) > 1.03


def test_what_is_as_promising_comes_in_the_order_of_the_design():
    server = Server(FLAT)
    outlook = Outlook(server.done, THROUGHPUT, {})
    alike = [Candidate({"attention_backend": "FLASHINFER"}), Candidate({"cudagraph_mode": "FULL_DECODE_ONLY"})]
    for order in (alike, alike[::-1]):
        assert outlook.best(alike, order, 1e9) == outlook.best(alike[::-1], order, 1e9) == order[0]


def test_a_search_that_ended_for_lack_of_gain_does_not_go_on_when_asked_again():
    server = Server(FLAT)
    first, _ = run(server)
    before, notes = len(server.done), list(server.notes)
    again, _ = run(server, seed=7)
    assert len(server.done) == before and again == first and server.notes[len(notes) :] == notes[-1:]


def test_a_finished_study_recalls_why_the_rest_was_not_launched():
    server = Server(FLAT)
    _, told = run(server)
    later = Sampler(space(), THROUGHPUT)
    recall(later, Budget(1e9), THROUGHPUT, server.done)
    assert later._space.rejections == told._space.rejections
    short = Server(STEEP)
    _, told = run(short, Budget(1300.0))
    later = Sampler(space(), THROUGHPUT)
    recall(later, Budget(1300.0), THROUGHPUT, short.done)
    assert later._space.rejections == told._space.rejections


def test_a_winner_of_several_overrides_is_tried_without_those_that_do_nothing():
    """The list gains; the backend beside it does nothing, and the two are known as a pair only."""
    effects = {**FLAT, "attention_backend": {"FLASHINFER": 1.0, "TRITON_ATTN": 0.9, "FLEX_ATTENTION": 0.3}}
    effects = {**effects, "cudagraph_capture_sizes": {LISTS[0]: 1.0, LISTS[1]: 1.0, LISTS[2]: 1.2}}
    server = Server(effects)
    server("search", Candidate({"attention_backend": "FLASHINFER", "cudagraph_capture_sizes": LISTS[2]}))
    run(server)
    assert {"cudagraph_capture_sizes": LISTS[2]} in [item.candidate.settings for item in server.done]


def test_in_a_space_too_large_to_be_known_optuna_proposes_and_the_search_still_stops():
    server = Server(FLAT)
    reason, sampler = run(server, at_once=10)
    assert not sampler.complete and "expected to gain" in reason
    assert "and all that Optuna would propose" in server.notes[-1]
    assert values_seen(server) == EVERY_VALUE


def test_optuna_is_asked_in_a_large_space_though_known_losers_of_the_design_are_left():
    known = [Point(Candidate({"enforce_eager": True}), -0.6, 0.1)]
    server = Server(STEEP)
    begun = len(space(at_once=10).candidates)
    _, sampler = run(server, at_once=10, known=known)
    assert any(item.settings.get("enforce_eager") for item in sampler.designed)
    assert len(sampler._legal) > begun and best_worth(server) > 0.97 * 1.26


def test_what_keeps_failing_is_left_alone():
    server = Server(STEEP, fails=lambda settings: settings.get("attention_backend") == "FLASHINFER")
    run(server)
    failed = [item for item in server.done if not item.ok]
    assert 1 <= len(failed) <= 2 and best_worth(server) > 1.19


def test_loud_launches_end_the_search_when_every_value_was_seen():
    """Launches differ by a fifth, and the two seeds of each say so: nothing can be found below that."""
    server = Server(FLAT, noise=0.2, seeds=2)
    run(server)
    assert values_seen(server) == EVERY_VALUE
    assert len(server.done) < len(first_candidates(space())) + 6
