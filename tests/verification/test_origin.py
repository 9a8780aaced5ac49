"""The request that a profile is launched again with: the same default, load, plan and seeds a launch."""

from __future__ import annotations

import dataclasses

import pytest

from advisor.errors import InputError
from advisor.records import Decision, Objective, SamplingPlan, SloLimit
from advisor.serving_profile.build import build_profile
from advisor.serving_profile.store import read_profile
from advisor.verification.origin import Wish, model_here, plan_of, request_of, workload_of
from advisor.verification.run import first_round, study_name
from tests.verification.profiles import LLAMA, SERVE_ARGS, WORKLOAD, alone, improved, kept, result


def request(profile, environment=None, **wish):
    found = Wish(LLAMA, **{"model": "/here/Small", **wish})
    return request_of(profile, found, environment or {}, "name")


def test_a_built_profile_is_asked_for_again():
    found = request(improved({"enforce_eager": True}), engine_python="/other/python", launches=4)
    assert found.serve_args == SERVE_ARGS and found.serve_env == {"VLLM_CPU_KVCACHE_SPACE": "1"}
    assert found.workload == WORKLOAD and found.objective == Objective()
    assert (found.samples, found.launcher, found.measure_all) == (1, "cold", True)
    assert found.budget.confirm_rounds == found.budget.confirm_most == 4
    assert (found.model, found.engine_python, found.gpu) == ("/here/Small", "/other/python", "auto")


def test_the_committed_profile_of_an_older_advisor():
    profile = read_profile(LLAMA)
    found = request(profile)
    assert found.serve_args == ("--load-format", "dummy", "--max-model-len", "4096")
    load = found.workload
    assert (load.num_prompts, load.concurrency, load.input_tokens, load.output_tokens) == (256, 64, 1024, 128)
    assert load.length_spread == 0.2 and found.samples == 1
    assert plan_of(profile) == SamplingPlan(256, 1, "as in the profile")


def test_the_plan_of_the_study_goes_with_it():
    plan = SamplingPlan(96, 3)
    base = result({"enforce_eager": True}, Decision.IMPROVED)
    trials = tuple(dataclasses.replace(trial, plan=plan) for trial in base.trials)
    profile = build_profile(dataclasses.replace(base, trials=trials))
    assert plan_of(profile) == SamplingPlan(96, 3, "as in the profile")
    assert workload_of(profile).num_prompts == 96
    assert plan_of(profile, client_processes=5).client_processes == 5


def test_several_loads_are_measured_again_and_planned_anew():
    """The profile does not hold how many requests the lower loads had."""
    load = dataclasses.replace(WORKLOAD, loads=(2.0, 8.0))
    base = result({"enforce_eager": True}, Decision.IMPROVED)
    twice = tuple(
        dataclasses.replace(
            trial,
            plan=SamplingPlan(96, 1, load_prompts=(32,)),
            samples=tuple(dataclasses.replace(one, load=at) for one in trial.samples for at in load.loads),
        )
        for trial in base.trials
    )
    profile = build_profile(dataclasses.replace(base, workload=load, trials=twice))
    found = request(profile)
    assert found.workload.loads == (2.0, 8.0) and found.workload.num_prompts == 96
    assert found.samples == 1 and plan_of(profile) is None
    # Its client processes are known: one that is not enough would hold the load down.
    more = profile.model_copy(update={"workload": profile.workload.model_copy(update={"client_processes": 3})})
    assert request(more).client_processes == 3 and request(more, client_processes=2).client_processes == 2


def test_objective_and_slo_come_back():
    goal = Objective("goodput", ("output_tok_s",), (SloLimit("ttft_ms", 500.0), SloLimit("tpot_ms", 30.0, 0.9)))
    base = result({"enforce_eager": True}, Decision.IMPROVED)
    assert request(build_profile(dataclasses.replace(base, objective=goal))).objective == goal


def test_preemptions_that_are_meant_are_meant_again():
    load = dataclasses.replace(WORKLOAD, preemptions="allowed")
    base = result({"enforce_eager": True}, Decision.IMPROVED)
    assert workload_of(build_profile(dataclasses.replace(base, workload=load))) == load


def test_a_secret_comes_from_the_environment_and_its_lack_is_told():
    profile = kept({"enforce_eager": True}, serve_env={"HF_TOKEN": "hf_secret"})
    assert request(profile, {"HF_TOKEN": "another"}).serve_env == {"HF_TOKEN": "another"}
    with pytest.raises(InputError, match=r"\$\{HF_TOKEN\}") as caught:
        request(profile, {})
    assert caught.value.hint == "set HF_TOKEN"


def test_an_option_that_names_the_model_folder_moves_with_it():
    profile = kept({"enforce_eager": True}, serve_args=("--tokenizer", "/models/Small", "--load-format", "dummy"))
    assert request(profile).serve_args == ("--tokenizer", "/here/Small", "--load-format", "dummy")


def test_a_model_folder_is_found_or_asked_for(tmp_path, monkeypatch):
    profile = improved({"enforce_eager": True})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="'Small' was a folder") as caught:
        model_here(profile, None)
    assert "--model" in caught.value.hint
    (tmp_path / "models" / "Small").mkdir(parents=True)
    assert model_here(profile, None) == "./models/Small"
    hub = profile.model_copy(update={"model": profile.model.model_copy(update={"local_folder": False, "id": "org/M"})})
    assert model_here(hub, None) == "org/M"


def test_a_profile_without_figures_cannot_be_verified():
    profile = alone()
    empty = profile.model_copy(update={"measured": profile.measured.model_copy(update={"default": None})})
    with pytest.raises(InputError, match="no figures of the default"):
        request(empty)


def test_each_day_has_rounds_and_prompts_of_its_own():
    days = [f"2026-12-{day:02}T10:00:00+00:00" for day in range(1, 32)]
    firsts = [first_round(day) for day in days]
    assert len(set(firsts)) == len(days) and all(number % 2 == 0 for number in firsts)
    # A round's seeds are its number times a thousand. No study has such ones, nor do repeats (a million more) meet another day's.
    assert min(firsts) * 1000 > 1_000_000 + 300_000 and max(first_round(f"20{year}-01-01") for year in range(26, 90)) * 1000 < 2e9
    apart = sorted(b - a for a, b in zip(sorted(firsts), sorted(firsts)[1:], strict=False))
    assert apart[0] * 1000 > 1_000_000 * 5


def test_one_study_a_profile_and_day():
    assert study_name(Wish(LLAMA), "2026-12-01T08:00:00+00:00") == "verify-Llama-3.1-8B-chat-2026-12-01"
    assert study_name(Wish(LLAMA, challenger=True), "2026-12-01T08").endswith("-challenger")
