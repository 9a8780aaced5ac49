"""Profiles as a tune builds them, for tests. EVERY NUMBER HERE IS SYNTHETIC, but for the committed profile."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from advisor.engine.render import serve_command
from advisor.records import (
    Active,
    Candidate,
    Decision,
    EngineFacts,
    Facts,
    GpuFacts,
    Interval,
    ModelFacts,
    Objective,
    StudyResult,
    Verdict,
    Workload,
)
from advisor.serving_profile.build import build_profile
from tests.study_help import trial

LLAMA = Path(__file__).parents[2] / "profiles" / "h200" / "Llama-3.1-8B-chat.yaml"
SERVE_ARGS = ("--load-format", "dummy", "--max-model-len", "2048")
SERVE_ENV = {"VLLM_CPU_KVCACHE_SPACE": "1"}
FACTS = Facts(
    GpuFacts("cuda", "NVIDIA H200", "h200", 1, 140.4, "9.0", "580.1"),
    EngineFacts("/e/bin/python", "3.12.3", "0.26.0", "2.11.0", "cuda", cuda_version="13.0", flashinfer_version="0.6.14"),
    ModelFacts("/models/Small", "LlamaForCausalLM", "0" * 16, 2, 128, 2, 2, 64, 10000, 4096, has_weights=False),
)
WORKLOAD = Workload("chat-c8", 1024, 128, 64, concurrency=8, length_spread=0.2, source="a trace")


def command(candidate):
    return serve_command("/e/bin/python", "/models/Small", SERVE_ARGS, SERVE_ENV, candidate, "0.26.0")


def launches(arms, first=0):
    """Three rounds of each arm: settings -> the rounds' figures."""
    found = []
    for number in range(3):
        for settings, rates in arms:
            made = trial(first + len(found), settings, rates[number], "confirm", round=number, seeds=(1000 * (number + 1),))
            sizes = settings.get("cudagraph_capture_sizes")
            active = Active(attention_backends=("FLASH_ATTN",), capture_sizes=tuple(sizes) if sizes else (1, 2, 4))
            found.append(dataclasses.replace(made, active=active, command=command(Candidate(settings))))
    return found


def result(settings, decision, default=(100.0, 101.0, 99.0), other=(110.0, 111.0, 109.0), **more):
    candidate = Candidate(settings)
    improved = decision is Decision.IMPROVED
    baseline = dataclasses.replace(trial(0, {}, 100.0, "baseline", seeds=(0,)), command=command(Candidate()))
    verdict = Verdict(
        decision, "because", "output_tok_s", candidate if improved else Candidate(), candidate,
        Interval(1.1, 1.05, 1.15) if improved else Interval(1.0, 0.98, 1.02), launches=3,
    )  # fmt: skip
    winner = candidate if improved else Candidate()
    made = StudyResult(
        "s", "0.1.0", "2026-11-29T10:00:00+00:00", FACTS, WORKLOAD, Objective(), SERVE_ARGS, SERVE_ENV, True,
        (baseline, *launches([({}, default), (settings, other)], 1)), verdict, command(Candidate()), command(winner),
    )  # fmt: skip
    return dataclasses.replace(made, **more)


def improved(settings, **more):
    return build_profile(result(settings, Decision.IMPROVED, **more))


def kept(settings, **more):
    return build_profile(result(settings, Decision.KEEP_DEFAULTS, other=(100.5, 100.0, 99.5), **more))


def alone(decision=Decision.KEEP_DEFAULTS):
    """Of a study in which nothing was compared with the default."""
    base = result({}, decision)
    verdict = Verdict(decision, "nothing else was tried", "output_tok_s", Candidate())
    return build_profile(dataclasses.replace(base, trials=base.trials[:1], verdict=verdict))
