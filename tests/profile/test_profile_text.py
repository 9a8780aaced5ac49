"""The file's text: the golden copy, the round trip, and what must never be in it."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from advisor.records import Command, Decision, Interval, Objective, Tradeoff, from_json, to_json
from advisor.serving_profile.build import build_profile
from advisor.serving_profile.schema import Profile
from advisor.serving_profile.text import profile_text
from advisor.units import changes

GOLDEN = Path(__file__).with_name("golden")


def results(study):
    return {"improved": study.RESULT, "keep-defaults": study.keep_defaults()}


@pytest.mark.parametrize("name", ["improved", "keep-defaults"])
def test_golden(study, name):
    """UPDATE_GOLDEN=1 writes the files anew: read their diff as a reviewer of profiles would."""
    path = GOLDEN / f"{name}.yaml"
    text = profile_text(build_profile(results(study)[name]))
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", ["improved", "keep-defaults"])
def test_reading_the_text_gives_the_profile(study, name):
    profile = build_profile(results(study)[name])
    text = profile_text(profile)
    again = Profile.model_validate(yaml.safe_load(text))
    assert again == profile
    assert profile_text(again) == text


def test_same_result_same_bytes(study):
    copy = from_json(type(study.RESULT), to_json(study.RESULT))
    assert profile_text(build_profile(copy)) == profile_text(build_profile(study.RESULT))


def test_form(profile):
    text = profile_text(profile)
    assert text.endswith("\n") and not text.endswith("\n\n")
    assert not re.search(r"^\s*\S+: [&*]\w", text, re.MULTILINE)  # neither anchors nor aliases
    assert "seeds: [0, 1]" in text
    assert re.search(r"output_tok_s: \{mean: \d+, low: \d+, high: \d+\}", text)
    assert not any(line != line.rstrip() for line in text.splitlines())


def test_head_says_what_a_gain_costs(study):
    """Who reviews the file reads its head: a recommendation must not be silent there about its price."""
    more = "; 2 of 6 fresh launches were disturbed (steal)"
    worse = (Tradeoff("tpot_ms.p50", Interval(1.27, 1.2, 1.3)), Tradeoff("start_s", Interval(1.4, 0.9, 1.9), proven=False))
    told = "but TPOT p50 +27.0%, perhaps start-up time +40.0%"
    for made, is_told in ((study.RESULT, True), (study.keep_defaults(), False)):
        verdict = replace(made.verdict, tradeoffs=worse, reason=made.verdict.reason + more)
        head = profile_text(build_profile(replace(made, verdict=verdict))).split("\nschema:")[0].replace("\n# ", " ")
        assert (f"fresh launches each), {told}{more}" in head) is is_told and more in head


@pytest.mark.parametrize(
    ("more", "good"),
    [
        ("", True),
        ("; the default breaks the SLO in 3 of 3 fresh launches (ttft_p99<500ms: 50.0% ...)", False),
        ("; not one request of the default was within the SLO: goodput is counted as that of half a request", False),
    ],
)
def test_a_default_that_breaks_the_slo_is_no_good_result(study, more, good):
    made = study.keep_defaults()
    verdict = replace(made.verdict, reason=made.verdict.reason + more)
    head = profile_text(build_profile(replace(made, verdict=verdict))).split("\nschema:")[0]
    assert ("that is a good result" in head) is good and ("does not keep the SLO either" in head) is not good


@pytest.mark.parametrize("compared", [True, False])
def test_a_head_names_a_challenger_only_where_there_was_one(study, compared):
    """A budget that ended before a second launch settled nothing of anybody."""
    made = study.keep_defaults()
    verdict = replace(made.verdict, decision=Decision.INCONCLUSIVE, challenger=made.verdict.challenger if compared else None)
    head = profile_text(build_profile(replace(made, verdict=verdict))).split("\nschema:")[0]
    assert ("whether the challenger is better" in head) is compared
    assert ("Decision: inconclusive. Serve with the default: nothing was compared with it." in head) is not compared


def test_head_says_what_was_decided(study, profile):
    head = profile_text(profile).split("\nschema:")[0]
    assert all(line.startswith("#") for line in head.strip().splitlines())
    for part in (
        "Decision: improved",
        "+6.1%",
        "+5.4% to +6.8%",
        "4,811",
        "5,105",
        "RANDOM WEIGHTS",
        "advisor tune --model",
    ):
        assert part in head
    kept = profile_text(build_profile(study.keep_defaults())).split("\nschema:")[0]
    assert "Decision: keep-defaults. Serve with the default" in kept
    assert "tuned" not in kept


def test_no_secret_and_no_path_of_this_machine(study):
    for result in results(study).values():
        text = profile_text(build_profile(result))
        assert study.SECRET not in text and study.API_KEY not in text
        assert "${HF_TOKEN}" in text and "${API_KEY}" in text
        assert "TOKENIZERS_PARALLELISM: 'false'" in text
        assert not re.search(r"(?<![\w.])/(data|opt|root|home|tmp)\b", text)


def test_settings_that_yaml_could_misread_survive(study):
    words = (
        "--a",
        "true",
        "--b",
        "1e5",
        "--c",
        "0.90",
        "--d",
        "yes",
        "--e",
        "",
        "--f",
        "007",
        "--g",
        "1.0",
        "--h",
        "2026-01-01",
    )
    command = Command((*study.BASELINE_COMMAND.argv, *words), {})
    profile = build_profile(replace(study.keep_defaults(), baseline_command=command))
    again = Profile.model_validate(yaml.safe_load(profile_text(profile)))
    assert again.serve.args == profile.serve.args
    assert again.serve.line().words[-len(words) :] == words


def test_a_line_break_in_a_name_stays_in_its_comment(study):
    result = replace(study.RESULT, workload=replace(study.RESULT.workload, name="chat\nschema: other"))
    text = profile_text(build_profile(result))
    assert yaml.safe_load(text)["schema"] == "advisor.profile/1"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chat", "--workload chat --num-prompts 256 --"),
        (
            "chat-c64-in1024",
            "--workload chat --num-prompts 256 --input-tokens 1024 --output-tokens 128 --concurrency 64 --",
        ),
        ("my-own", "--workload my-own --num-prompts 256 --"),
    ],
)
def test_the_command_to_measure_again_has_the_load(study, name, expected):
    result = replace(study.RESULT, workload=replace(study.RESULT.workload, name=name))
    text = profile_text(build_profile(result))
    assert expected in text
    assert "--env VLLM_LOGGING_LEVEL=INFO" in text and '--env "HF_TOKEN=${HF_TOKEN}"' in text


@pytest.mark.parametrize(
    ("space", "head", "words"),
    [
        ("default", "# Measure it again:", ""),
        ("scheduler", "# Measure it again:", "--space scheduler --"),
        ("mine.yaml", "# Measure it again, with the search space of your own file mine.yaml:", "--space mine.yaml --"),
    ],
)
def test_the_command_to_measure_again_has_the_space(study, space, head, words):
    text = profile_text(build_profile(replace(study.RESULT, space=space)))
    assert head in text and words in text and ("--space" in text) == bool(words)
    assert yaml.safe_load(text)["study"]["space"] == space


def test_an_objective_that_the_sides_do_not_hold_still_has_its_ratio_in_the_head(study):
    text = profile_text(build_profile(replace(study.RESULT, objective=Objective("ttft_ms.p90"))))
    assert "ttft_ms.p90, tuned against default: -5.8%" in text
    assert "--objective ttft_ms.p90" in text


def test_the_ratio_reads_like_the_reason_above_it(study):
    """From a real study: rounded to 1.0375 its lower end became +3.8% beside a reason that said +3.7%."""
    seen = Interval(1.482931, 1.03746, 2.11957)
    told = changes(seen.value, seen.low, seen.high, True)
    reason = f"x {told[0]} (95% interval {told[1]} to {told[2]}, 5 fresh launches each)"
    result = replace(study.RESULT, verdict=replace(study.RESULT.verdict, ratio=seen, reason=reason))
    text = profile_text(build_profile(result))
    assert told[1] == "+3.7%" and f"tuned against default: {told[0]}, 95% interval {told[1]} to {told[2]}" in text
