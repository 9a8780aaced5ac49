"""What of a study's result reaches the profile."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from advisor.records import Candidate, Command, Decision, Objective, Outcome
from advisor.serving_profile.build import build_profile
from advisor.serving_profile.figures import figure


def test_figures_are_means_over_fresh_launches_with_their_t_interval(profile):
    means = [
        4810.0,
        4822.0,
        4800.0,
    ]  # of the confirmation's launches; the baseline trial of the search is not among them
    side = profile.measured.default
    half = 4.302653 * statistics.stdev(means) / 3**0.5  # t quantile of 2 degrees of freedom
    assert (side.phase, side.launches, side.samples) == ("confirm", 3, 6)
    assert side.output_tok_s.mean == pytest.approx(statistics.fmean(means), abs=0.5)
    assert side.output_tok_s.low == pytest.approx(statistics.fmean(means) - half, abs=0.5)
    assert side.output_tok_s.high == pytest.approx(statistics.fmean(means) + half, abs=0.5)


def test_one_launch_has_no_interval_and_none_has_no_figure():
    assert figure([12.5]).model_dump() == {"mean": 12.5, "low": None, "high": None}
    assert figure([]) is None
    assert figure([float("nan")]) is None


def test_samples_with_problems_do_not_count(study):
    bad = study.sample(9, 1.0, problems=("3 requests failed",))
    trials = tuple(replace(t, samples=(*t.samples, bad)) if t.candidate.is_baseline else t for t in study.TRIALS)
    profile = build_profile(replace(study.RESULT, trials=trials))
    assert profile.measured.default.samples == 6
    assert profile.measured.default.output_tok_s.mean > 4000
    assert 9 not in profile.workload.seeds


def test_without_confirmation_the_search_speaks_and_says_so(study):
    trials = tuple(trial for trial in study.TRIALS if trial.phase != "confirm")
    side = build_profile(replace(study.keep_defaults(), trials=trials)).measured.challenger
    assert (side.phase, side.launches, side.output_tok_s.low) == ("search", 1, None)


def test_one_token_answers_have_no_time_per_output_token(study):
    empty = {"tpot_ms": {}, "itl_ms": {}}
    trials = tuple(replace(t, samples=tuple(replace(s, **empty) for s in t.samples)) for t in study.TRIALS)
    side = build_profile(replace(study.RESULT, trials=trials)).measured.tuned
    assert side.tpot_p50_ms is None
    assert side.ttft_p99_ms is not None


def test_improved_serves_the_tuned_settings(profile, study):
    assert profile.serve.args["attention-backend"] == "TRITON_ATTN"
    assert profile.serve.args["compilation-config"] == {"cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32, 64, 128, 256]}
    assert profile.measured.challenger is None
    assert profile.active.tuned.attention_backends == ["TRITON_ATTN"]


@pytest.mark.parametrize("decision", [Decision.KEEP_DEFAULTS, Decision.INCONCLUSIVE])
def test_not_improved_serves_the_default_and_never_says_tuned(study, decision):
    result = study.keep_defaults()
    # Even a caller that passes the challenger's command must not get it recommended.
    verdict = replace(result.verdict, decision=decision)
    profile = build_profile(replace(result, verdict=verdict, tuned_command=study.TUNED_COMMAND))
    assert "attention-backend" not in profile.serve.args
    assert "TRITON_ATTN" not in profile.serve.command
    assert profile.measured.tuned is None and profile.active.tuned is None
    assert profile.measured.challenger.launches == 3


def test_nothing_to_compare_with(study):
    trials = tuple(trial for trial in study.TRIALS if trial.candidate.is_baseline)
    verdict = replace(study.keep_defaults().verdict, challenger=None, ratio=None, noise=None, launches=0)
    profile = build_profile(replace(study.keep_defaults(), trials=trials, verdict=verdict))
    assert profile.measured.challenger is None
    assert profile.measured.default is not None


def test_command_is_the_persons_not_the_interpreters(profile):
    assert "vllm serve Synthetic-8B --load-format dummy" in profile.serve.command
    assert "python" not in profile.serve.command


def test_a_hub_model_keeps_its_id(study):
    facts = replace(
        study.RESULT.facts,
        model=replace(study.RESULT.facts.model, model="org/Model-8B", revision="abc", has_weights=True),
    )
    command = Command(("python", "-m", "vllm.entrypoints.cli.main", "serve", "org/Model-8B"))
    profile = build_profile(replace(study.RESULT, facts=facts, baseline_command=command, tuned_command=command))
    assert (profile.model.id, profile.model.local_folder) == ("org/Model-8B", False)
    assert profile.serve.command == "vllm serve org/Model-8B"


def test_failures_are_condensed_by_reason(profile):
    memory, crash, *rest = profile.study.rejected
    assert (memory.state, memory.count, len(memory.examples)) == ("out_of_memory", 4, 3)
    assert "2.50 GiB" in memory.reason
    assert crash.state == "crashed" and "\n" not in crash.reason
    assert [item.state for item in rest] == ["not_launched", "not_launched"]


def test_long_reasons_are_cut(study):
    trials = (*study.TRIALS, study.failure(99, study.EAGER, Outcome.CRASHED, "x " * 1000))
    assert max(len(item.reason) for item in build_profile(replace(study.RESULT, trials=trials)).study.rejected) <= 200


def test_counts(profile):
    assert profile.study.launches == 14
    assert profile.study.outcomes == {Outcome.OK: 9, Outcome.OUT_OF_MEMORY: 4, Outcome.CRASHED: 1}
    assert profile.study.launches_by_phase == {"baseline": 1, "search": 7, "confirm": 6}
    assert profile.study.elapsed_min == 21
    assert profile.study.gpu_min == pytest.approx((9 * 90 + 5 * 45) / 60)


def test_a_processor_has_no_gpu_minutes(study):
    facts = replace(study.RESULT.facts, gpu=replace(study.RESULT.facts.gpu, kind="cpu", slug="cpu"))
    assert build_profile(replace(study.RESULT, facts=facts)).study.gpu_min == 0


def test_candidates_come_best_first_whatever_better_means(study, profile):
    assert [entry.candidate for entry in profile.study.candidates[1:3]] == ["default", "enforce_eager"]
    latency = build_profile(replace(study.RESULT, objective=Objective("ttft_ms.p99")))
    scores = [entry.score for entry in latency.study.candidates if entry.score is not None]
    assert scores == sorted(scores) and len(scores) == 3
    assert latency.objective.better == "less"


def test_a_log_that_differs_between_launches_is_named(study):
    trials = list(study.TRIALS)
    trials[-1] = replace(trials[-1], active=replace(study.TUNED_ACTIVE, cudagraph_mode="PIECEWISE"))
    active = build_profile(replace(study.RESULT, trials=tuple(trials))).active
    assert active.tuned.varies == ["cudagraph_mode"]
    assert active.tuned.cudagraph_mode == "FULL_AND_PIECEWISE"
    assert active.default.varies is None


def test_a_figure_of_other_settings_is_theirs_and_the_request_is_named(study):
    asked, ran = Candidate({"attention_backend": "FLASHINFER"}), Candidate({"attention_backend": "FLEX_ATTENTION"})
    launch = study.trial(98, "search", asked, (4000.0, 4000.0), study.DEFAULT_ACTIVE, 1.0)
    reason = "attention backend FLASHINFER was asked for, FLEX_ATTENTION runs"
    launch = replace(launch, outcome=Outcome.NOT_AS_REQUESTED, reason=reason, credited_to=ran)
    found = build_profile(replace(study.RESULT, trials=(*study.TRIALS, launch))).study
    entries = {entry.candidate: entry for entry in found.candidates}
    theirs = entries["attention_backend=FLEX_ATTENTION"]
    assert (theirs.state, theirs.score, theirs.launches, theirs.ran_as) == (Outcome.OK, 4000, 1, None)
    ours = entries["attention_backend=FLASHINFER"]
    assert (ours.state, ours.score, ours.ran_as) == (Outcome.NOT_AS_REQUESTED, None, theirs.candidate)
    assert [item.state for item in found.rejected if item.reason == reason] == ["not_as_requested"]
    assert found.outcomes[Outcome.NOT_AS_REQUESTED] == 1


def test_what_the_server_says_of_cache_graphs_and_differences_is_kept(study):
    said = replace(
        study.DEFAULT_ACTIVE, block_size=64, kv_cache_dtype="fp8", prefix_caching=False, decode_modes={"FULL": 0.99}
    )
    trials = tuple(
        replace(t, active=said, notes=(f"block_size: resolved 16, active 64 in {study.MODEL}",))
        if t.candidate.is_baseline
        else t
        for t in study.TRIALS
    )
    active = build_profile(replace(study.RESULT, trials=trials)).active
    default = active.default
    assert (default.block_size, default.kv_cache_dtype, default.prefix_caching) == (64, "fp8", False)
    assert default.decode_modes == {"FULL": 0.99} and active.tuned.decode_modes is None
    assert default.notes == ["block_size: resolved 16, active 64 in Synthetic-8B"]


def test_random_weights_say_so(profile, study):
    assert profile.model.random_weights and "random weights" in profile.model.note
    real = build_profile(replace(study.RESULT, random_weights=False))
    assert not real.model.random_weights and real.model.note is None


def test_unknown_candidates_do_not_mix(study):
    other = Candidate({"enforce_eager": False})
    trials = (*study.TRIALS, study.trial(99, "confirm", other, (1.0,), study.DEFAULT_ACTIVE, 1.0))
    assert build_profile(replace(study.RESULT, trials=trials)).measured.default.launches == 3
