"""The parts of a profile that say why its verdict can be trusted."""

from __future__ import annotations

from dataclasses import replace

import yaml

from advisor.records import (
    Compared,
    Decision,
    Finalist,
    GateResult,
    Interval,
    QualityScore,
    SamplingPlan,
    StartUp,
    Tradeoff,
)
from advisor.serving_profile.build import build_profile
from advisor.serving_profile.schema import Profile
from advisor.serving_profile.text import profile_text
from tests.profile.study_fixture import (
    DEFAULT,
    DEFAULT_ACTIVE,
    PYTHON,
    RESULT,
    TUNED,
    TUNED_ACTIVE,
    keep_defaults,
    trial,
)

GATE = GateResult(True, distance={"decode": 0.02}, limit={"decode": 0.15}, noise={"decode": 0.0}, agreement=0.98)
PLAN = SamplingPlan(512, client_processes=2, why="the default was too quick")


def launch(number, phase, candidate, cache, start_s, **more):
    made = trial(
        number, phase, candidate, (5100.0, 5080.0), TUNED_ACTIVE if candidate is TUNED else DEFAULT_ACTIVE, start_s
    )
    return replace(made, start_up=StartUp(cache=cache, imports_s=40.0, compile_s=20.0, rest_s=1.0), gate=GATE, **more)


PROVEN = replace(
    RESULT,
    trials=(
        *RESULT.trials,
        launch(20, "baseline", DEFAULT, "cold", 99.0, plan=PLAN),
        launch(21, "search", TUNED, "cold", 90.0),
        launch(22, "confirm", TUNED, "warm", 50.0, round=4),
        launch(25, "quality", DEFAULT, "warm", 52.0, quality=QualityScore(0.71)),
        launch(23, "soak", TUNED, "cold", 120.0, memory_free=0.08, quality=QualityScore(0.72)),
        launch(24, "restart", TUNED, "warm", 55.0),
    ),
    verdict=replace(
        RESULT.verdict,
        smallest_gain=0.019,
        tradeoffs=(Tradeoff("tpot_ms.p50", Interval(1.27, 1.2, 1.3)),),
        finalists=(Finalist(TUNED, Decision.IMPROVED, "gave +6.1%", 3, RESULT.verdict.ratio),),
    ),
)


def written(result):
    profile = build_profile(result)
    text = profile_text(profile)
    data = yaml.safe_load(text)
    assert Profile.model_validate(data) == profile
    return data


def test_what_a_winner_stood():
    assert written(PROVEN)["proof"] == {
        "soak_s": 60, "soak_samples": 2, "output_tok_s_first": 5100, "output_tok_s_last": 5080, "memory_free_percent": 8,
        "cold_start_s": 120, "second_start_s": 55, "quality": 0.72, "quality_default": 0.71,
    }  # fmt: skip


def test_cold_and_warm_starts_with_their_parts():
    measured = written(PROVEN)["measured"]
    assert measured["tuned"]["start_cold"] == {
        "launches": 2, "total_s": 105, "imports_s": 40, "compile_s": 20, "rest_s": 1,
    }  # fmt: skip
    assert measured["default"]["start_warm"]["total_s"] == 52


def test_the_output_of_each_side():
    assert written(PROVEN)["output"]["tuned"] == {
        "passed": True, "distance": {"decode": 0.02}, "limit": {"decode": 0.15}, "noise": {"decode": 0}, "equal_text": 0.98,
    }  # fmt: skip


def test_costs_finalists_and_the_smallest_gain():
    decision = written(PROVEN)["decision"]
    assert decision["smallest_gain_percent"] == 1.9
    assert decision["costs"] == [{"metric": "tpot_ms.p50", "ratio": {"value": 1.27, "low": 1.2, "high": 1.3}}]
    assert decision["finalists"][0]["outcome"] == "improved"


def test_a_finalist_that_cannot_win_says_why():
    fallen = Finalist(DEFAULT, Decision.KEEP_DEFAULTS, "x gave +8% but died", 3, None, f"died in {PYTHON}")
    verdict = replace(PROVEN.verdict, finalists=(*PROVEN.verdict.finalists, fallen))
    winner, other = written(replace(PROVEN, verdict=verdict))["decision"]["finalists"]
    assert "failed" not in winner and other["failed"].startswith("died in ") and PYTHON not in other["failed"]


def test_further_objectives_have_their_intervals():
    others = (Compared("ttft_ms.p99", "better", Interval(1.2, 1.1, 1.3)), Compared("start_s", "unclear"))
    decision = written(replace(PROVEN, verdict=replace(PROVEN.verdict, others=others)))["decision"]
    assert decision["others"] == [
        {"metric": "ttft_ms.p99", "standing": "better", "ratio": {"value": 1.2, "low": 1.1, "high": 1.3}},
        {"metric": "start_s", "standing": "unclear"},
    ]
    assert "others" not in written(PROVEN)["decision"]


def test_processes_left_behind_are_counted_over_all_stops():
    left = {21: ("pid 4711 (VLLM::EngineCor, 29.3 GiB)",), 24: ("pid 4712 (python)",)}
    trials = tuple(replace(t, stop_s=1.0, leftovers=left.get(t.number, ())) for t in PROVEN.trials)
    measured = written(replace(PROVEN, trials=trials))["measured"]
    tuned = sum(t.candidate is TUNED for t in trials)
    assert measured["tuned"]["left_behind"] == {"stops": 2, "of": tuned, "example": "pid 4712 (python)"}
    assert "left_behind" not in measured["default"]


def test_both_sides_are_of_the_same_rounds():
    """Launches of the default on another day, beside another candidate, are not what this one is compared with."""
    slow = replace(trial(30, "confirm", DEFAULT, (1000.0, 1010.0), DEFAULT_ACTIVE, 80.0), round=7)
    measured = written(replace(PROVEN, trials=(*PROVEN.trials, slow)))["measured"]
    assert (measured["default"]["launches"], measured["tuned"]["launches"]) == (3, 3)
    assert measured["default"]["output_tok_s"]["mean"] > 4700
    only = tuple(t for t in PROVEN.trials if t.phase != "confirm" or t.candidate is DEFAULT or t.round == 0)
    assert written(replace(PROVEN, trials=only))["measured"]["default"]["launches"] == 3  # one pair would be no interval


def test_the_workload_is_what_was_sent():
    workload = written(PROVEN)["workload"]
    assert (workload["num_prompts"], workload["client_processes"]) == (512, 2)


def test_nothing_is_said_of_a_proof_where_the_default_stays():
    data = written(keep_defaults())
    assert "proof" not in data and "output" not in data


def test_an_output_that_nobody_could_judge():
    blind = replace(GATE, passed=None, reason="the server did not answer", distance={}, limit={}, noise={})
    result = replace(PROVEN, trials=tuple(replace(t, gate=blind) if t.gate else t for t in PROVEN.trials))
    assert written(result)["output"]["tuned"]["reason"] == "the server did not answer"
    assert build_profile(result).output.tuned.passed is None
