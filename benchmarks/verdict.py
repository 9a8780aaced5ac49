"""How often the verdict is right, from recorded noise: `python -m benchmarks.verdict [--json] [--runs N]`.

Each run is a whole study with made-up launches and the real decisions: a search of SEARCHED candidates with one launch each,
the choice of finalists from those noisy figures (so the best of many is mostly the luckiest), and the confirmation as
advisor/verdict/confirm.py runs it, within the budget that a tune reserves for it. Nothing of the decision is copied here.

Noise: the launches and seeds of one configuration that `python -m benchmarks.noise` recorded, docs/evidence/noise-*.json.
From each file come three parts, as relative deviations: a launch's own, a seed's (shared by all launches with that seed, so
pairs cancel it), and what is left for one seed on one launch. Half of the runs draw the launch's own part from the recorded
launches themselves, half from a normal distribution of the same variance.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.records import Candidate, Decision, Objective, Outcome, Sample, Trial, Verdict
from advisor.search.budget import FINALISTS, Budget
from advisor.student_t import two_sided_quantile
from advisor.verdict.confirm import confirm, seeds
from advisor.verdict.sequential import ERROR

EVIDENCE = Path(__file__).parents[1] / "docs" / "evidence"
SEARCHED = 12  # candidates that the search launched
SAMPLES = 2  # seeds of a launch, as `advisor tune` has them
COST_S = 60.0
GAIN = 0.05
MOST_LAUNCHES = 60  # an arm: more take too long to simulate
CHUNK = 25
OBJECTIVE = Objective()


@dataclass(frozen=True)
class Noise:
    """Relative deviations of one configuration's figure."""

    name: str
    launches: tuple[float, ...]  # each recorded launch's own part, scaled to the variance of `launch`
    launch: float
    seed: float
    rest: float  # of one seed on one launch


def read_noise(path: Path, metric: str = "output_tok_s") -> Noise:
    """Raises ValueError for a file with fewer than three good launches."""
    recorded = json.loads(path.read_text())
    good = [launch["samples"] for launch in recorded["launches"] if launch["outcome"] == "ok"]
    return fit_noise(path.stem.removeprefix("noise-"), [[sample[metric] for sample in samples] for samples in good])


def fit_noise(name: str, table: Sequence[Sequence[float]]) -> Noise:
    """Variance components of launches x seeds by the method of moments, on logarithms (two-way layout, one value a cell)."""
    if len(table) < 3:
        raise ValueError(f"{name}: {len(table)} launches tell no deviation")
    logs = [[math.log(value) for value in launch] for launch in table]
    count, width = len(logs), len(logs[0])
    means = [statistics.fmean(launch) for launch in logs]
    by_seed = [statistics.fmean(column) for column in zip(*logs, strict=True)]
    grand = statistics.fmean(means)
    rest = [logs[i][j] - means[i] - by_seed[j] + grand for i in range(count) for j in range(width)]
    rest_variance = sum(item**2 for item in rest) / max(1, (count - 1) * (width - 1))
    launch_variance = max(0.0, statistics.variance(means) - rest_variance / width)
    seed_variance = max(0.0, statistics.variance(by_seed) - rest_variance / count) if width > 1 else 0.0
    spread = statistics.pstdev(means)
    scaled = tuple((mean - grand) / spread * math.sqrt(launch_variance) if spread else 0.0 for mean in means)
    return Noise(name, scaled, math.sqrt(launch_variance), math.sqrt(seed_variance), math.sqrt(rest_variance))


class MadeUp:
    """Launches without a server: 100 tok/s times what candidate, launch, seed and chance make of it."""

    def __init__(self, noise: Noise, gains: dict[str, float], rng: random.Random, recorded: bool):
        self._noise, self._gains, self._rng, self._recorded = noise, gains, rng, recorded
        self._seeds: dict[int, float] = {}
        self.done: list[Trial] = []

    def __call__(self, phase: str, candidate: Candidate, number: int | None = None) -> Trial:
        noise, rng = self._noise, self._rng
        own = rng.choice(noise.launches) if self._recorded else rng.gauss(0, noise.launch)
        own += math.log(self._gains.get(candidate.key, 1.0))
        used = seeds(phase, SAMPLES, number or 0)
        values = [100 * math.exp(own + self._of(seed) + rng.gauss(0, noise.rest)) for seed in used]
        samples = tuple(_sample(seed, value) for seed, value in zip(used, values, strict=True))
        trial = Trial(len(self.done), phase, candidate, Outcome.OK, samples=samples, total_s=COST_S, round=number)
        self.done.append(trial)
        return trial

    def _of(self, seed: int) -> float:
        if seed not in self._seeds:
            self._seeds[seed] = self._rng.gauss(0, self._noise.seed)
        return self._seeds[seed]


def _sample(seed: int, tok_s: float) -> Sample:
    times = {"p50": 1000 / tok_s, "p99": 2000 / tok_s}
    return Sample(
        seed=seed, duration_s=10.0, requests=64, failed=0, input_tokens=640, output_tokens=int(tok_s * 10), output_tok_s=tok_s,
        input_tok_s=64.0, requests_s=6.4, ttft_ms=times, tpot_ms=times, itl_ms=times, e2el_ms=times,
    )  # fmt: skip


def default_budget(rounds: int = 3) -> Budget:
    """What baseline, search and the reserve for three finalists take: the confirmation of a tune that uses up its budget."""
    return Budget((1 + SEARCHED + (1 + FINALISTS) * rounds) * COST_S, SEARCHED, rounds)


def enough_for(launches: int) -> Budget:
    """As many launches of one candidate and of the baseline, decided at one look: `--confirm-launches N`."""
    return Budget(1e9, 1, launches, launches)


def study(
    noise: Noise, gain: float, seed: int, budget: Budget, searched: int = SEARCHED
) -> tuple[Verdict, Candidate, int]:
    """(verdict, the one candidate whose true gain is `gain`, fresh launches) of one made-up study; the others gain nothing."""
    rng = random.Random(f"{noise.name} {gain} {seed}")
    candidates = [Candidate({f"--s{i}": 1, **({"--t": i} if i % 3 == 0 else {})}) for i in range(searched)]
    better = rng.choice(candidates)
    launch = MadeUp(noise, {better.key: 1 + gain}, rng, recorded=seed % 2 == 0)
    launch("baseline", Candidate())
    for candidate in candidates:
        launch("search", candidate)
    before = len(launch.done)
    verdict = confirm(lambda arm, number: launch("confirm", arm, number), lambda: launch.done, OBJECTIVE, budget)
    return verdict, better, len(launch.done) - before


def outcomes(
    noise: Noise, gain: float, numbers: Sequence[int], budget: Budget, searched: int = SEARCHED
) -> list[tuple[str, bool, int]]:
    """(decision, whether the better candidate won, fresh launches) of each run."""
    found = []
    for number in numbers:
        verdict, better, launches = study(noise, gain, number, budget, searched)
        won = verdict.decision is Decision.IMPROVED and verdict.winner.key == better.key
        found.append((verdict.decision.value, won, launches))
    return found


def summary(found: Sequence[tuple[str, bool, int]]) -> dict[str, Any]:
    """Shares of the runs, and the median and largest number of fresh launches."""
    count = len(found)
    return {
        **{item.value: sum(decision == item.value for decision, _, _ in found) / count for item in Decision},
        "better_won": sum(won for _, won, _ in found) / count,
        "launches_median": statistics.median(launches for _, _, launches in found),
        "launches_most": max(launches for _, _, launches in found),
    }


def launches_for(noise: Noise, gain: float, power: float = 0.9) -> int:
    """Launches an arm after which one look shows that gain with that probability: Student's t for the interval, the normal
    distribution for the power, and a little more, because the larger of two deviations is taken."""
    ratio = math.sqrt(2 * (noise.launch**2 + noise.rest**2 / SAMPLES)) / math.log1p(gain)
    by_chance = statistics.NormalDist().inv_cdf(power)
    each = ((n, two_sided_quantile(1 - 2 * ERROR, n - 1) + by_chance) for n in itertools.count(3))
    return next(n for n, deviations in each if 1.04 * (deviations * ratio) ** 2 <= n)


@dataclass(frozen=True)
class Job:
    noise: Noise
    gain: float
    runs: int
    budget: Budget
    searched: int = SEARCHED


def jobs(noises: Sequence[Noise], runs: int) -> dict[str, Job]:
    """Name -> what to simulate. The last of each source tells what a gain of 5% takes when the search is no obstacle."""
    found = {}
    for noise in noises:
        found[f"{noise.name}: baseline against itself"] = Job(noise, 0.0, runs, default_budget())
        found[f"{noise.name}: true gain of 5%"] = Job(noise, GAIN, runs // 4, default_budget())
        each = launches_for(noise, GAIN)
        if each <= MOST_LAUNCHES:
            found[f"{noise.name}: true gain of 5%, {each} launches each"] = Job(
                noise, GAIN, runs // 10, enough_for(each), 1
            )
    return found


def simulate(noises: Sequence[Noise], runs: int, workers: int | None = None) -> dict[str, dict[str, Any]]:
    """All jobs, on all cores that this process may use."""
    with ProcessPoolExecutor(workers or len(os.sched_getaffinity(0))) as pool:
        parts = {name: _submit(pool, job) for name, job in jobs(noises, runs).items()}
        return {name: summary([item for part in futures for item in part.result()]) for name, futures in parts.items()}


def _submit(pool: ProcessPoolExecutor, job: Job) -> list[Future]:
    numbers = [range(start, min(start + CHUNK, job.runs)) for start in range(0, job.runs, CHUNK)]
    return [pool.submit(outcomes, job.noise, job.gain, part, job.budget, job.searched) for part in numbers]


def report(noises: Sequence[Noise], runs: int) -> dict[str, Any]:
    """`false_improved`: of the worst source. `power_at_5_percent` and `launches_median`: of the first source, a GPU.

    The power is that of naming the better candidate; `launches_median` counts fresh launches of baseline against itself;
    `launches_for_5_percent` is what an arm needs for a power of 90% at one look.
    """
    found = simulate(noises, runs)
    null = [found[f"{noise.name}: baseline against itself"] for noise in noises]
    return {
        "false_improved": max(item["improved"] for item in null),
        "power_at_5_percent": found[f"{noises[0].name}: true gain of 5%"]["better_won"],
        "launches_median": null[0]["launches_median"],
        "runs": runs,
        "noise": {
            noise.name: {
                "launches": len(noise.launches),
                "launch_percent": 100 * noise.launch,
                "seed_percent": 100 * noise.seed,
                "rest_percent": 100 * noise.rest,
                "launches_for_5_percent": launches_for(noise, GAIN),
            }
            for noise in noises
        },
        "simulated": found,
    }  # fmt: skip


def lines(result: dict[str, Any]) -> list[str]:
    """The same as a Markdown table."""
    rows = [
        "| noise and truth | improved | keep-defaults | inconclusive | the better one won | fresh launches, median | most |"
    ]
    rows.append("|---|---|---|---|---|---|---|")
    for name, item in result["simulated"].items():
        shares = " | ".join(f"{item[key]:.1%}" for key in ("improved", "keep-defaults", "inconclusive", "better_won"))
        rows.append(f"| {name} | {shares} | {item['launches_median']:g} | {item['launches_most']} |")
    return rows


def recorded() -> list[Path]:
    """The noise files of the repository, the GPU's first."""
    return sorted(EVIDENCE.glob("noise-*.json"), key=lambda path: ("cpu" in path.stem, path.stem))


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdict", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--runs", type=int, default=2000, help="studies of baseline against itself, for each source")
    parser.add_argument(
        "--noise", type=Path, nargs="+", default=recorded(), help="files of benchmarks.noise, a GPU's first"
    )
    given = parser.parse_args(words)
    result = report([read_noise(path) for path in given.noise], given.runs)
    print(json.dumps(result, indent=1) if given.json else "\n".join(lines(result)))


if __name__ == "__main__":
    main(sys.argv[1:])
