"""A grid with a known truth, written as `advisor record` writes it. For tests only: nothing here was measured."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

from advisor.recording.grid import Head, Session, head_line, line
from advisor.recording.order import spread
from advisor.records import (
    Candidate,
    EngineFacts,
    Facts,
    GpuFacts,
    ModelFacts,
    Outcome,
    Sample,
    SamplingPlan,
    Slice,
    StartUp,
    Trial,
    Workload,
    to_json,
)
from advisor.space.candidates import SettingChoices
from advisor.space.design import combinations

SETTINGS = (
    SettingChoices("enforce_eager", (None, True)),
    SettingChoices("--backend", (None, "B1", "B2", "B3")),
    SettingChoices("--graphs", (None, "G1", "G2", "G3"), {"enforce_eager": (None,)}),
    SettingChoices("--sizes", (None, "S1", "S2", "S3"), {"enforce_eager": (None,), "--graphs": (None, "G1", "G2")}),
)
BACKEND_LAST = tuple(sorted(SETTINGS, key=lambda choice: choice.name == "--backend"))
# What each value multiplies the throughput by, and two that only work well together.
FACTORS = {
    ("enforce_eager", True): 0.5, ("--backend", "B1"): 0.97, ("--backend", "B2"): 0.94, ("--backend", "B3"): 0.4,
    ("--graphs", "G1"): 1.01, ("--graphs", "G2"): 0.95, ("--graphs", "G3"): 0.7,
    ("--sizes", "S1"): 1.25, ("--sizes", "S2"): 1.06, ("--sizes", "S3"): 0.99,
}  # fmt: skip
TOGETHER = {("B1", "S1"): 1.10}
FAILS = ("B2", "G2")
LAUNCH, SEED, REST = 0.006, 0.004, 0.003
FACTS = Facts(
    GpuFacts("cuda", "NVIDIA Test", "test", 1, 80.0, "9.0"),
    EngineFacts("python3", "3.12", "0.26.0", "2.11.0", "cuda"),
    ModelFacts("synthetic", "LlamaForCausalLM", "0" * 16, 2, 128, 2, 2, 64, 10000, 2048),
)
WORKLOAD = Workload("chat", 1024, 128, 256, concurrency=64)


def truth(candidate: Candidate) -> float | None:
    """Output tokens a second; None where it never starts."""
    chosen = candidate.settings
    if {chosen.get("--backend"), chosen.get("--graphs")} == set(FAILS):
        return None
    value = 3000.0
    for item in chosen.items():
        value *= FACTORS[item]
    return value * TOGETHER.get((chosen.get("--backend"), chosen.get("--sizes")), 1.0)


def cost_s(candidate: Candidate) -> float:
    """A start that compiles costs more than an eager one."""
    return 40.0 if candidate.settings.get("enforce_eager") else 90.0


def candidates(settings: tuple[SettingChoices, ...] = SETTINGS) -> list[Candidate]:
    return [item for item in combinations(settings) if not item.is_baseline]


def launch(number: int, candidate: Candidate, seeds: list[float], rng: random.Random) -> Trial:
    value = truth(candidate)
    if value is None:
        return Trial(number, "record", candidate, Outcome.CRASHED, "it died", total_s=30.0)
    own = math.exp(rng.gauss(0, LAUNCH))
    samples = tuple(
        sample(seed, value * own * math.exp(effect + rng.gauss(0, REST))) for seed, effect in enumerate(seeds)
    )
    measure_s = sum(item.duration_s for item in samples) * 1.1
    total_s = cost_s(candidate) + 8.0 + measure_s + 1.0
    return Trial(
        number, "record", candidate, Outcome.OK, samples=samples, start_s=cost_s(candidate), warmup_s=8.0, stop_s=1.0,
        measure_s=measure_s, total_s=total_s, plan=SamplingPlan(256, 1), start_up=StartUp(cache="cold"),
        started_at=f"2026-01-01T00:00:{number:02d}+00:00",
    )  # fmt: skip


def sample(seed: int, tok_s: float) -> Sample:
    duration_s = 256 * 128 / tok_s
    times = dict.fromkeys(("mean", "p50", "p90", "p99"), 1000 * 64 / tok_s)
    slices = tuple(
        Slice(count, duration_s * count / 256 * 1.05, tok_s / 1.05, tok_s * 8 / 1.05, tok_s / 128 / 1.05, times, times, times)
        for count in (32, 64, 128, 192)
    )
    return Sample(
        seed=seed, duration_s=duration_s, requests=256, failed=0, input_tokens=256 * 1024, output_tokens=256 * 128,
        output_tok_s=tok_s, input_tok_s=tok_s * 8, requests_s=tok_s / 128, ttft_ms=times, tpot_ms=times, itl_ms=times,
        e2el_ms=times, slices=slices, prompts=f"digest {seed}",
    )  # fmt: skip


def write_grid(
    path: Path,
    launches: int = 1,
    seed: int = 0,
    name: str = "synthetic",
    settings: tuple[SettingChoices, ...] = SETTINGS,
) -> Path:
    rng = random.Random(seed)
    order = spread(candidates(settings), settings)
    effects = [rng.gauss(0, SEED) for _ in range(2)]
    head = Head(
        name, "2026-01-01T00:00:00+00:00", {"model": "synthetic"}, FACTS, WORKLOAD, (), {}, True, 2, settings, tuple(order),
        tuple({"fingerprint": item.key} for item in order),
    )  # fmt: skip
    jobs = [item for _ in range(launches) for item in order]
    trials = [launch(number, item, effects, rng) for number, item in enumerate(jobs)]
    session = Session("2026-01-01T00:00:00+00:00", "advisor record", 16, 1)
    lines = [head_line(head), line("session", to_json(session)), *(line("trial", to_json(item)) for item in trials)]
    path.write_text("".join(lines))
    json.loads(lines[0])
    return path
