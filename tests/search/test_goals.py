"""SLOs as constraints, several objectives, and the recommended point of the Pareto front."""

import dataclasses

import pytest

from advisor.records import Candidate, EngineFacts, LoadPoint, Objective, Outcome, SloLimit
from advisor.search.budget import Budget
from advisor.search.loop import search
from advisor.search.pareto import pareto_front
from advisor.search.sampler import Sampler, StorageMirror
from advisor.search.scores import eligible, ranked, score, scores, slo_breaches, slo_violation
from advisor.space.candidates import SettingChoices, build_space
from tests.study_help import trial

SLO = (SloLimit("ttft_ms", 500, 0.99),)
TWO = Objective("output_tok_s", ("ttft_ms.p99",))
LIMITED = Objective(slo=SLO)
ENGINE = EngineFacts("py", "3.12", "0.26.0", "2.11", "cuda")
SETTINGS = (SettingChoices("--a", (None, 1, 2, 3)), SettingChoices("--b", (None, "x", "y", "z")))


def space():
    return build_space(
        SETTINGS, ENGINE, lambda items: [{"ok": True, "resolved": {"fingerprint": i.key}} for i in items]
    )


def measured(number, settings, tok_s, ttft_ms=100.0, within=1.0, phase="search", **changes):
    """A trial with that throughput, TTFT p99 and share of requests within the SLO."""
    made = trial(number, settings, tok_s, phase=phase)
    samples = [
        dataclasses.replace(
            item, ttft_ms={"p50": ttft_ms / 2, "p99": ttft_ms}, slo_within={SLO[0].label: within}, slo_share=within,
            goodput_requests_s=within * 6.4, **changes,
        )
        for item in made.samples
    ]  # fmt: skip
    return dataclasses.replace(made, samples=tuple(samples))


def default(**changes):
    return measured(0, {}, 100.0, phase="baseline", **changes)


def labels(trials):
    return [item.candidate.label for item in trials]


# ---------------------------------------------------------------- metrics


def test_goodput_start_and_load_are_scores():
    one = dataclasses.replace(measured(1, {"--a": 1}, 100.0, within=0.5, load=24.0), start_s=42.0)
    assert score(one, Objective("goodput", slo=SLO)) == 3.2
    assert score(one, Objective("start_s")) == 42.0 and not Objective("start_s").maximise
    assert score(one, Objective("max_concurrency")) == 24.0 and Objective("max_rate").maximise
    assert scores(one, TWO) == (100.0, 100.0)


def test_goodput_of_nothing_counts_as_half_a_request_so_that_ratios_exist():
    nothing = measured(1, {"--a": 1}, 100.0, within=0.0)
    assert score(nothing, Objective("goodput", slo=SLO)) == 0.05  # ten seconds


def test_a_trial_without_the_figure_is_an_error_not_a_zero():
    with pytest.raises(ValueError, match="has no goodput"):
        score(trial(1, {"--a": 1}, 100.0), Objective("goodput", slo=SLO))
    assert scores(trial(1, {"--a": 1}, 100.0), Objective("start_s")) is None


# ---------------------------------------------------------------- the SLO as a constraint


def test_the_fastest_candidate_cannot_win_when_it_breaks_the_slo():
    trials = [default(), measured(1, {"--a": 1}, 200.0, within=0.90), measured(2, {"--a": 2}, 120.0)]
    assert labels(ranked(trials, LIMITED)) == ["--a=2"]
    assert labels(ranked(trials, Objective())) == ["--a=1", "--a=2"]
    assert slo_breaches(trials[1], LIMITED) == ["ttft_p99<500ms: 90.0% of the requests are within 500 ms"]
    assert slo_violation(trials[1], LIMITED) == pytest.approx(0.09)
    assert score(trials[1], LIMITED) == 200.0  # its figure stays what was measured


def test_goodput_counts_breaches_itself_and_rules_nobody_out():
    goodput = Objective("goodput", slo=SLO)
    assert labels(eligible([measured(1, {"--a": 1}, 200.0, within=0.90)], goodput)) == ["--a=1"]
    assert not goodput.constrained and Objective("goodput", slo=SLO, find_load="rate").constrained


def test_the_sampler_is_told_a_constraint_and_the_true_score():
    sampler = Sampler(space(), LIMITED)
    first = sampler.propose()
    sampler.tell(first, (200.0,), 0.09)
    (told,) = sampler._study.trials
    assert told.values == [200.0] and told.constraints == {"launched": 0.0, "slo": 0.09}
    sampler.tell(sampler.propose(), None)
    assert sampler._study.trials[1].constraints == {"launched": 1.0, "slo": 0.0}


def test_the_search_turns_away_from_what_breaks_the_slo():
    """--a 3 is fastest by far and always breaks the SLO: the candidates after the first few should avoid it."""
    done = [default()]

    def launch(candidate):
        a = candidate.settings.get("--a")
        tok_s = 100.0 + 100 * (a == 3) + 10 * (candidate.settings.get("--b") == "y")
        done.append(measured(len(done), candidate.settings, tok_s, within=0.5 if a == 3 else 1.0))
        return done[-1]

    search(launch, Sampler(space(), LIMITED), Budget(1e9, trials=11), LIMITED, lambda: done)
    assert ranked(done, LIMITED)[0].candidate.settings == {"--b": "y"}
    assert sum(item.candidate.settings.get("--a") == 3 for item in done) <= 3


def test_what_is_within_the_slo_is_made_simpler_not_what_breaks_it():
    sampler = Sampler(space(), LIMITED)
    sampler.tell(Candidate({"--a": 1, "--b": "x"}), (200.0,), 0.5)
    sampler.tell(Candidate({"--a": 2, "--b": "y"}), (110.0,), 0.0)
    assert [item.settings for item in sampler.simpler_than_best()] == [{"--b": "y"}, {"--a": 2}]


# ---------------------------------------------------------------- several objectives


def front_of(*rest):
    front = pareto_front([default(), *rest], TWO)
    return {point.candidate.label: point.recommended for point in front.points}, front


def test_the_front_and_the_recommended_point():
    points, front = front_of(
        measured(1, {"--a": 1}, 150.0, ttft_ms=300.0),  # a trade
        measured(2, {"--a": 2}, 120.0, ttft_ms=100.0),  # the best throughput without a loss
        measured(3, {"--a": 3}, 110.0, ttft_ms=60.0),
        measured(4, {"--b": "x"}, 105.0, ttft_ms=90.0),  # beaten by --a 3
    )
    assert points == {"--a=1": False, "--a=2": True, "--a=3": False}
    assert front.recommended.settings == {"--a": 2}
    assert front.reason == (
        "the best output_tok_s of those that lose nothing beyond 2% against the default "
        "(output_tok_s +20.0%, ttft_ms.p99 +0.0%)"
    )
    assert front.points[0].values == {"output_tok_s": 150.0, "ttft_ms.p99": 300.0}


def test_only_trades_leave_the_default_recommended_and_the_best_compromise_for_confirmation():
    trades = measured(1, {"--a": 1}, 150.0, ttft_ms=300.0), measured(2, {"--a": 2}, 130.0, ttft_ms=110.0)
    points, front = front_of(*trades)
    assert points == {"--a=1": False, "--a=2": False, "default": True}
    assert "whatever gains in one objective loses in another" in front.reason and "--a=2" in front.reason
    assert labels(ranked([default(), *trades], TWO)) == ["--a=2", "--a=1"]


def test_without_a_gain_in_the_first_objective_the_others_decide():
    trials = [default(), measured(1, {"--a": 1}, 101.0, ttft_ms=100.0), measured(2, {"--a": 2}, 100.0, ttft_ms=50.0)]
    assert labels(ranked(trials, TWO)) == ["--a=2", "--a=1"]


def test_no_gain_anywhere_recommends_the_default():
    points, front = front_of(measured(1, {"--a": 1}, 101.0, ttft_ms=99.0))
    assert points["default"] and "no candidate gains more than 2%" in front.reason
    _, worse = front_of(measured(1, {"--a": 1}, 80.0, ttft_ms=120.0))
    assert worse.reason == "no candidate gains more than 2% in any objective"


def test_ties_go_to_the_fewest_overrides_and_the_recommended_point_is_shown():
    points, _ = front_of(
        measured(1, {"--a": 1, "--b": "x"}, 121.0, ttft_ms=99.0), measured(2, {"--a": 2}, 120.0, ttft_ms=100.0)
    )
    assert points["--a=2"] is True and points["--a=1 --b=x"] is False


def test_the_slo_holds_for_every_point_of_the_front():
    two = dataclasses.replace(TWO, slo=SLO)
    trials = [default(within=0.5), measured(1, {"--a": 1}, 150.0, within=0.5), measured(2, {"--a": 2}, 90.0)]
    front = pareto_front(trials, two)
    assert [point.candidate.label for point in front.points] == ["--a=2"]
    assert "the default breaks the SLO" in front.reason


def test_one_objective_has_no_front():
    assert pareto_front([default(), measured(1, {"--a": 1}, 150.0)], Objective()).points == ()


@pytest.mark.parametrize("seed", range(3))
def test_a_search_with_two_objectives_finds_both_ends_and_the_middle(seed):
    """--a raises throughput and costs TTFT, --b y helps both; failures and resumed trials on the way."""
    done = [default()]

    def launch(candidate):
        a, b = candidate.settings.get("--a") or 0, candidate.settings.get("--b")
        if b == "z":
            done.append(trial(len(done), candidate.settings, outcome=Outcome.CRASHED, reason="died"))
        else:
            better = 1.1 if b == "y" else 1.0
            done.append(measured(len(done), candidate.settings, (100 + 20 * a) * better, (100 + 30 * a) / better))
        return done[-1]

    for trials in (4, 12):
        search(launch, Sampler(space(), TWO, seed), Budget(1e9, trials=trials), TWO, lambda: done)
    front = pareto_front(done, TWO)
    assert front.recommended.settings == {"--b": "y"}
    assert {"--b=y", "--a=3 --b=y"} <= {point.candidate.label for point in front.points}


def test_the_storage_has_one_value_an_objective_and_the_constraint(tmp_path):
    import optuna

    url = f"sqlite:///{tmp_path}/o.db"
    mirror = StorageMirror(url, "s", dataclasses.replace(TWO, slo=SLO))
    mirror.add(SETTINGS, 0, Candidate(), (100.0, 50.0), {"phase": "baseline"})
    mirror.add(SETTINGS, 1, Candidate({"--a": 1}), (200.0, 20.0), {"phase": "search"}, violation=0.2)
    mirror.add(SETTINGS, 2, Candidate({"--a": 2}), None, {"phase": "search"})
    study = optuna.load_study(study_name="s", storage=url)
    assert [item.state.name for item in study.trials] == ["COMPLETE", "COMPLETE", "FAIL"]
    assert study.trials[1].values == [200.0, 20.0] and study.trials[1].constraints["slo"] == 0.2
    assert [item.name for item in study.directions] == ["MAXIMIZE", "MINIMIZE"]
    assert study.metric_names == ["output_tok_s", "ttft_ms.p99"]


def test_a_launch_that_bears_no_load_breaks_the_slo_even_if_its_requests_were_in_time():
    goal = Objective("max_rate", slo=SLO, find_load="rate")
    point = LoadPoint(0.5, False, 0.3, "requests arrive faster than they are finished")
    nowhere = dataclasses.replace(measured(1, {"--a": 1}, 100.0, load=0.5), loads=(point,))
    assert slo_breaches(nowhere, goal) == [
        "no load met the SLO, down to 0.5: requests arrive faster than they are finished"
    ]
    assert slo_violation(nowhere, goal) > 0 and eligible([nowhere], goal) == []
    somewhere = dataclasses.replace(nowhere, loads=(dataclasses.replace(point, met=True),))
    assert slo_breaches(somewhere, goal) == [] and slo_violation(somewhere, goal) == 0


def test_opening_a_storage_says_nothing(tmp_path, recwarn, capfd):
    StorageMirror(f"sqlite:///{tmp_path}/o.db", "s", TWO)
    assert not recwarn.list and capfd.readouterr() == ("", "")
