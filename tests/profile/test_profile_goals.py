"""SLO, several objectives and a found load in the profile: written, read back, measured again with the same words."""

from __future__ import annotations

from dataclasses import replace

from advisor.records import FrontPoint, Objective, SloLimit
from advisor.serving_profile.build import build_profile
from advisor.serving_profile.schema import Profile
from advisor.serving_profile.text import profile_text
from advisor.yaml_files import read_model

SLO = (SloLimit("ttft_ms", 500, 0.99), SloLimit("tpot_ms", 30.5, 0.9))


def with_goal(study, objective, **samples):
    """The synthetic study with that goal; 240 of 256 requests of each sample comply."""
    figures = {"goodput_requests_s": 30.0, "slo_share": 240 / 256, "load": 48.0, **samples}
    trials = tuple(replace(t, samples=tuple(replace(s, **figures) for s in t.samples)) for t in study.TRIALS)
    front = (
        FrontPoint(study.DEFAULT, {"goodput": 30.0, "ttft_ms.p99": 90.0}),
        FrontPoint(study.TUNED, {"goodput": 31.0, "ttft_ms.p99": 80.0}, True, "the best of those that lose nothing"),
    )
    verdict = replace(study.RESULT.verdict, front=front, objective=objective.metric)
    return replace(study.RESULT, trials=trials, objective=objective, verdict=verdict)


def test_the_goal_is_written_and_read_back(study, tmp_path):
    goal = Objective("goodput", ("ttft_ms.p99",), SLO)
    profile = build_profile(with_goal(study, goal))
    path = tmp_path / "p.yaml"
    path.write_text(profile_text(profile))
    again = read_model(path, "profile", Profile)
    assert profile_text(again) == path.read_text()
    assert again.objective.slo == ["ttft_p99<500ms", "tpot_p90<30.5ms"] and again.objective.secondary == ["ttft_ms.p99"]
    assert [point.recommended for point in again.objective.front] == [False, True]
    assert again.objective.front[1].why == "the best of those that lose nothing"
    side = again.measured.default
    assert side.goodput_requests_s.mean == 30 and side.load.mean == 48 and round(side.slo_percent.mean, 1) == 93.8
    assert any(entry.score for entry in again.study.candidates)


def test_a_single_launch_has_its_share_within_the_slo(study):
    """Nothing was confirmed: the baseline's figures stand alone, without an interval."""
    result = with_goal(study, Objective("output_tok_s", (), SLO))
    profile = build_profile(replace(result, trials=tuple(trial for trial in result.trials if trial.phase == "baseline")))
    share = profile.measured.default.slo_percent
    assert (profile.measured.default.launches, share.high) == (1, None) and round(share.mean, 1) == 93.8


def test_the_command_to_measure_again_has_the_goal(study):
    def again(goal):
        return profile_text(build_profile(with_goal(study, goal))).replace("\n#", "").replace("\\", "")

    text = " ".join(again(Objective("max_concurrency", (), SLO, "concurrency")).split())
    assert "--objective max_concurrency --slo 'ttft_p99<500ms,tpot_p90<30.5ms' --find-load concurrency" in text
    constrained = " ".join(again(Objective("output_tok_s", (), SLO)).split())
    assert "--objective output_tok_s --slo" in constrained  # without the word it would be goodput


def test_a_plain_goal_adds_nothing(study):
    text = profile_text(build_profile(study.RESULT))
    assert "slo" not in text.split("objective:")[1].split("decision:")[0] and "front" not in text


def test_a_start_objective_has_scores(study):
    result = with_goal(study, Objective("start_s"))
    trials = tuple(replace(trial, start_s=80.0) for trial in result.trials)
    profile = build_profile(replace(result, trials=trials))
    assert profile.objective.better == "less" and profile.study.candidates[0].score == 80.0
