"""What a search saves, replayed on recorded grids: `python -m benchmarks.search [--json] [--seeds N] [--grid FILE ...]`.

Every strategy searches the same recorded configurations with their recorded noise, costs and failures (advisor/runner/replay.py),
once for each seed. Compared is the GPU time until the best so far is *really* worth 98% of the grid's best configuration, where
a configuration's real worth is its mean over everything that was recorded of it. docs/recording.md says what that leaves out.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import json
import math
import os
import statistics
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.errors import AdvisorError
from advisor.records import Candidate
from benchmarks.grids import Case, load, recorded_files
from benchmarks.player import Enough, Player, Step, reached, share_at
from benchmarks.strategies import STRATEGIES

TARGETS = (0.98, 0.995)
AFFORDABLE_S = 1800.0  # at which the regrets are compared, or half of the whole grid where that is less
CHUNK = 10
POINTS = 24  # of a curve
SLOW = ("gp",)  # half a second of processor time a proposal: only where it is asked for, and with fewer seeds
FEWER = 20
NEEDS = {"gp": ("torch", "scipy")}


@dataclass(frozen=True)
class Run:
    """What one run of a strategy is judged by; times are minutes, infinite where a target was not reached."""

    minutes: tuple[float, ...]  # one a target
    launches: tuple[float, ...]  # the same in launches
    regret: float
    curve: tuple[float, ...]


def targets(case: Case) -> dict[str, float]:
    """Name -> share of the best. `within noise`: no worse than the best by more than launches of one configuration differ."""
    return {
        **{f"{share:.1%}".replace(".0%", "%"): share for share in TARGETS},
        "within noise": 1 - case.launch_noise,
    }


def least_s(case: Case, share: float) -> float:
    """Seconds of a search that would know the answer: the default, and then the quickest launch that is worth that share."""
    default = Candidate().key
    if case.share(default) >= share:
        return case.cost_s(default)
    enough = [key for key in case.truth if case.share(key) >= share]
    return case.cost_s(default) + min(map(case.cost_s, enough))


def compared_at_s(case: Case) -> float:
    return min(AFFORDABLE_S, case.whole_s / 2)


def play(case: Case, strategy: str, seed: int) -> Run:
    """One run, ended as soon as the rest cannot change what it is judged by."""
    shares, at_s = targets(case), compared_at_s(case)
    player = Player(case, seed, (max(shares.values()), at_s))
    with contextlib.suppress(Enough):
        STRATEGIES[strategy](player)
    return judged(player.steps, list(shares.values()), at_s, case.whole_s)


def judged(steps: Sequence[Step], shares: Sequence[float], at_s: float, whole_s: float) -> Run:
    found = [reached(steps, share) for share in shares]
    return Run(
        minutes=tuple(step.spent_s / 60 if step else math.inf for step in found),
        launches=tuple(float(step.launches) if step else math.inf for step in found),
        regret=1 - share_at(steps, at_s),
        curve=tuple(share_at(steps, second) for second in _seconds(whole_s)),
    )


def _seconds(whole_s: float) -> list[float]:
    return [whole_s * (point + 1) / POINTS for point in range(POINTS)]


# ---------------------------------------------------------------- all runs


@functools.lru_cache
def _case(path: Path) -> Case:
    return load(path)


def _runs(path: Path, strategy: str, seeds: range) -> list[Run]:
    return [play(_case(path), strategy, seed) for seed in seeds]


def report(paths: Sequence[Path], seeds: int, names: Sequence[str], workers: int | None = None) -> dict[str, Any]:
    """`{"grids": {NAME: {..., "strategies": {NAME: {...}}}}}`; not finite numbers are None."""
    with ProcessPoolExecutor(workers or len(os.sched_getaffinity(0))) as pool:
        waiting = {
            (path, name): [
                pool.submit(_runs, path, name, range(first, min(first + CHUNK, count)))
                for count in [min(seeds, FEWER) if name in SLOW else seeds]
                for first in range(0, count, CHUNK)
            ]
            for path in paths
            for name in names
        }
        found = {key: [run for part in parts for run in part.result()] for key, parts in waiting.items()}
    return {"seeds": seeds, "grids": {_case(path).name: _of_grid(path, names, found) for path in paths}}


def _of_grid(path: Path, names: Sequence[str], found: dict[tuple[Path, str], list[Run]]) -> dict[str, Any]:
    case = _case(path)
    shares = targets(case)
    told = {name: _of_strategy(found[path, name], list(shares)) for name in names}
    first = next(iter(shares))
    random_minutes = told.get("random", {}).get("minutes", {}).get(first, {}).get("median")
    for item in told.values():
        mine = item["minutes"][first]["median"]
        item["ratio_to_random"] = mine / random_minutes if mine is not None and random_minutes else None
    launched = {trial.candidate.key for trial in case.trials}
    return {
        "gpu": case.head.facts.gpu.name,
        "vllm": case.head.facts.engine.vllm_version,
        "workload": case.head.workload.name,
        "objective": case.objective.metric,
        "configurations": len(launched),
        "failed": len(launched - case.truth.keys()),
        "gpu_minutes_of_all": case.whole_s / 60,
        "compared_at_gpu_minutes": compared_at_s(case) / 60,
        "default_share": case.share("{}"),
        "within_2_percent": sum(case.share(key) >= TARGETS[0] for key in case.truth),
        "targets": shares,
        "gpu_minutes_to_98_percent_least": least_s(case, TARGETS[0]) / 60,
        "curve_gpu_minutes": [second / 60 for second in _seconds(case.whole_s)],
        "noise": {"launch": case.launch_noise, "source": case.noise_source},
        "strategies": told,
    }


def _of_strategy(runs: Sequence[Run], names: Sequence[str]) -> dict[str, Any]:
    whole = {
        "minutes": {name: _quartiles(run.minutes[i] for run in runs) for i, name in enumerate(names)},
        "launches": {name: _quartiles(run.launches[i] for run in runs) for i, name in enumerate(names)},
    }
    return {
        "gpu_minutes_to_98_percent_median": whole["minutes"][names[0]]["median"],
        "final_regret_median": statistics.median(run.regret for run in runs),
        "final_regret_worst_decile": sorted(run.regret for run in runs)[math.ceil(0.9 * len(runs)) - 1],
        "runs": len(runs),
        **whole,
        # The low median: half of the runs may have no launch yet (0), and what lies between that and a share is no share.
        "curve": [statistics.median_low(run.curve[i] for run in runs) for i in range(POINTS)],
    }


def _quartiles(values: Iterable[float]) -> dict[str, float | None]:
    """Low, median and high quartile, and the share of runs that reached the target at all."""
    ordered = sorted(values)
    last = len(ordered) - 1
    at = {"low": ordered[round(last * 0.25)], "median": statistics.median(ordered), "high": ordered[round(last * 0.75)]}
    told: dict[str, float | None] = {key: value if math.isfinite(value) else None for key, value in at.items()}
    return {**told, "reached": sum(map(math.isfinite, ordered)) / len(ordered)}


# ---------------------------------------------------------------- words


def lines(result: dict[str, Any]) -> list[str]:
    """A table and a curve for each grid."""
    return [line for name, grid in result["grids"].items() for line in (*_table(name, grid), "", *_curves(grid), "")]


def _table(name: str, grid: dict[str, Any]) -> list[str]:
    rows = [
        f"## {name}",
        "",
        f"{grid['gpu']}, vLLM {grid['vllm']}; {grid['configurations']} configurations, {grid['failed']} of them fail, "
        f"{grid['gpu_minutes_of_all']:.0f} GPU minutes for one launch of each. The default is worth {grid['default_share']:.1%} of "
        f"the best; {grid['within_2_percent']} are within 2% of it. Launches of one configuration differ by "
        f"{grid['noise']['launch']:.2%} ({grid['noise']['source']}). Who knew the answer would need "
        f"{grid['gpu_minutes_to_98_percent_least']:.1f} GPU minutes to 98%: the default, then that launch.",
        "",
        "| strategy | " + " | ".join(f"GPU minutes to {target}" for target in grid["targets"])
        + f" | of random | launches to 98% | regret after {grid['compared_at_gpu_minutes']:.0f} min | runs |",
        "|---|" + "---|" * (len(grid["targets"]) + 4),
    ]  # fmt: skip
    for strategy, item in grid["strategies"].items():
        cells = [_spread(item["minutes"][target]) for target in grid["targets"]]
        ratio = "" if item["ratio_to_random"] is None else f"{item['ratio_to_random']:.0%}"
        launches = item["launches"][next(iter(grid["targets"]))]["median"]
        rows.append(
            f"| {strategy} | {' | '.join(cells)} | {ratio} | {'never' if launches is None else f'{launches:g}'} "
            f"| {item['final_regret_median']:.2%} | {item['runs']} |"
        )
    return rows


def _spread(item: dict[str, float | None]) -> str:
    """`12.3 (10.1 to 14.0)`; `never` where most runs did not come there."""
    low, median, high = ("never" if item[key] is None else f"{item[key]:.1f}" for key in ("low", "median", "high"))
    missed = "" if item["reached"] == 1 else f", {item['reached']:.0%} of runs"
    return f"{median} ({low} to {high}{missed})"


_LEVELS = " ▁▂▃▄▅▆▇█"


def _curves(grid: dict[str, Any]) -> list[str]:
    """Median true value of the best so far against GPU minutes, from the worst that any had to the best, as bars."""
    curves = {name: item["curve"] for name, item in grid["strategies"].items()}
    low = min(min((value for value in curve if value > 0), default=1.0) for curve in curves.values())
    width = max(map(len, curves))
    rows = [f"    {name:<{width}} {''.join(_bar(value, low) for value in curve)}" for name, curve in curves.items()]
    minutes = grid["gpu_minutes_of_all"]
    return [
        f"What the best so far is really worth, from {low:.1%} (lowest bar) to 100% of the best, over 0 to {minutes:.0f} GPU "
        "minutes; it falls where a lesser configuration measured better:",
        "",
        *rows,
    ]


def _bar(value: float, low: float) -> str:
    if value <= 0:
        return _LEVELS[0]
    height = (value - low) / (1 - low) if low < 1 else 1.0
    return _LEVELS[1 + round(height * (len(_LEVELS) - 2))]


def _at_least_one(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is no number of at least 1")
    return int(word)


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--seeds", type=_at_least_one, default=200, help="runs of each strategy on each grid")
    parser.add_argument(
        "--grid", type=Path, nargs="+", action="extend", help="grid files or study folders; default: benchmarks/recorded"
    )
    quick = [name for name in STRATEGIES if name not in SLOW]
    parser.add_argument(
        "--strategies", nargs="+", choices=list(STRATEGIES), default=quick, help=f"default: all but {', '.join(SLOW)}"
    )
    given = parser.parse_args(words)
    lacks = {
        name: [package for package in NEEDS.get(name, ()) if not importlib.util.find_spec(package)]
        for name in given.strategies
    }
    here = [name for name, missing in lacks.items() if not missing]
    for name in lacks.keys() - set(here):
        needed, missing = " and ".join(NEEDS[name]), " and ".join(lacks[name])
        print(f"{name} is left out: it needs {needed}, of which {missing} is missing", file=sys.stderr)
    if not here:
        sys.exit("benchmarks.search: no strategy is left")
    for name in set(here) & set(SLOW):
        if given.seeds > FEWER:
            print(f"{name} runs with {FEWER} seeds, not {given.seeds}: it is slow", file=sys.stderr)
    grids = given.grid or recorded_files()
    if not grids:
        sys.exit("benchmarks.search: no grid is recorded in benchmarks/recorded: see docs/recording.md, or give --grid FILE")
    try:
        result = report(grids, given.seeds, here)
    except AdvisorError as error:
        sys.exit(f"benchmarks.search: {error.problem}")
    print(json.dumps(result, indent=1) if given.json else "\n".join(lines(result)))


if __name__ == "__main__":
    main(sys.argv[1:])
