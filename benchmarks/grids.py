"""Recorded grids as cases for a comparison of searches: the space, the launches, the truth, the noise.

Truth is the mean over all recorded samples of a configuration. A study's folder (study.json, trials.jsonl) is a case too: its
space is what was launched in it.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from advisor.errors import InputError
from advisor.journal import read_events
from advisor.recording.grid import Head, read_grid
from advisor.recording.space import recorded_space
from advisor.records import (
    Candidate,
    EngineFacts,
    Facts,
    GpuFacts,
    ModelFacts,
    Objective,
    Outcome,
    Trial,
    Workload,
    from_json,
)
from advisor.runner.replay import Noise
from advisor.search.scores import better_by, score
from advisor.space.candidates import SearchSpace, SettingChoices
from benchmarks.verdict import Noise as FileNoise
from benchmarks.verdict import read_noise

RECORDED = Path(__file__).parent / "recorded"
EVIDENCE = Path(__file__).parents[1] / "docs" / "evidence"
LONG_ENOUGH_S = 5.0  # a noise file of shorter samples tells of them, not of launches
OWN_LAUNCHES = 3  # of one configuration: then a grid knows its own noise
UNLIKELY = 0.01  # the chance of a grid's repeats by the noise file, below which the file tells nothing about this grid


@dataclass(frozen=True)
class Case:
    """One grid. Values are oriented by `objective`."""

    name: str
    head: Head
    trials: tuple[Trial, ...]
    objective: Objective
    truth: dict[str, float]  # candidate key -> true value; failures have none
    noise: Noise
    noise_source: str

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(trial.candidate.key for trial in self.trials)

    def space(self) -> SearchSpace:
        """A new one each time: a search adds to it."""
        return recorded_space(self.head, self.keys)

    @property
    def best(self) -> float:
        return (max if self.objective.maximise else min)(self.truth.values())

    def share(self, key: str) -> float:
        """True value as a share of the best one, 1 for the best."""
        return better_by(self.truth[key], self.best, self.objective)

    @property
    def launch_noise(self) -> float:
        """Relative standard deviation between launches of one configuration."""
        return statistics.pstdev(self.noise.launches) if self.noise.launches else 0.0

    def cost_s(self, key: str) -> float:
        """Seconds of one launch of a configuration."""
        return statistics.fmean(trial.total_s for trial in self.trials if trial.candidate.key == key)

    @property
    def whole_s(self) -> float:
        """Seconds of one launch of each configuration."""
        return sum(map(self.cost_s, sorted(self.keys)))


def load(path: Path, objective: Objective = Objective()) -> Case:
    """The case in a grid's file or a study's folder. Raises InputError where there is nothing to compare."""
    head, trials = _of_study(path) if path.is_dir() else _of_grid(path)
    recorded = tuple(trial for trial in trials if trial.outcome is not Outcome.INTERRUPTED)
    reachable = {item.key for item in recorded_space(head).candidates} | {Candidate().key}
    kept = measured_or_failed([trial for trial in recorded if trial.candidate.key in reachable])
    truth = _truth(kept, objective)
    if Candidate().key not in truth or len(truth) < 3:
        raise InputError(f"{str(path)!r} holds too little: the default and two other configurations are needed")
    noise, source = _noise(head, kept, objective)
    return Case(head.name, head, kept, objective, truth, noise, source)


def measured_or_failed(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Without measurements that were not valid where a valid one of the configuration took their place (`advisor record` tries
    again): whoever drew them would be told that it cannot be measured, and the valid one would answer without noise."""
    measured = {trial.candidate.key for trial in trials if trial.ok}
    return tuple(
        trial for trial in trials
        if trial.outcome is not Outcome.INVALID_MEASUREMENT or trial.candidate.key not in measured
    )  # fmt: skip


def recorded_files() -> list[Path]:
    """The repository's grids, without parts that were not merged yet."""
    return sorted(path for path in RECORDED.glob("*.jsonl") if not re.search(r"\.\d+of\d+$", path.stem))


def _truth(trials: Sequence[Trial], objective: Objective) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for trial in trials:
        if (value := score(trial, objective)) is not None:
            values.setdefault(trial.candidate.key, []).append(value)
    return {key: statistics.fmean(found) for key, found in values.items()}


# ---------------------------------------------------------------- reading


def _of_grid(path: Path) -> tuple[Head, tuple[Trial, ...]]:
    grid = read_grid(path)
    return grid.head, grid.trials


def _of_study(folder: Path) -> tuple[Head, tuple[Trial, ...]]:
    """A head as far as a study's description and its trials tell it."""
    try:
        described = json.loads((folder / "study.json").read_text(encoding="utf-8"))
        identity = described["identity"]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{str(folder)!r} holds no study: {error}") from None
    trials = tuple(event["trial"] for event in read_events(folder / "trials.jsonl") if event["event"] == "trial")
    candidates = tuple({trial.candidate.key: trial.candidate for trial in trials}.values())
    settings = tuple(_choices(name, given, candidates) for name, given in identity["space"]["settings"].items())
    head = Head(
        name=described["name"],
        created_at=described["created_at"],
        identity=identity,
        facts=_facts(identity),
        workload=from_json(Workload, identity["workload"]),
        serve_args=tuple(identity["serve_args"]),
        serve_env=identity["env"],
        random_weights="dummy" in identity["serve_args"],
        samples=identity["samples"],
        settings=settings,
        candidates=candidates,
        resolved=tuple({} for _ in candidates),
    )
    return head, trials


def _choices(name: str, given: dict[str, Any], candidates: Sequence[Candidate]) -> SettingChoices:
    seen = [item.settings[name] for item in candidates if name in item.settings]
    values = {json.dumps(value): tuple(value) if isinstance(value, list) else value for value in seen}
    when = {
        other: tuple(None if word == "default" else word for word in words) for other, words in given["when"].items()
    }
    return SettingChoices(name, (None, *values.values()), when)


def _facts(identity: dict[str, Any]) -> Facts:
    gpu = GpuFacts(
        "cuda", identity["gpu"], identity["gpu"].rpartition(" ")[2].lower(), 1, 0.0, driver=identity["driver"]
    )
    engine = EngineFacts("python3", "", identity["vllm"], identity["torch"], "cuda")
    return Facts(gpu, engine, ModelFacts(identity["model"], "", identity["config"], 0, 0, 0, 0, 0, 0, 0))


# ---------------------------------------------------------------- noise


def _noise(head: Head, trials: Sequence[Trial], objective: Objective) -> tuple[Noise, str]:
    """The grid's own where a configuration was launched often enough, else that of a noise file of this GPU; and which it is.

    A file of another model or load is left aside where the grid's few repeats are farther apart than it explains.
    """
    within = _within(trials, objective)
    rows = _repeats(trials, objective)
    if max(map(len, rows), default=0) >= OWN_LAUNCHES:
        return Noise(_own_deviations(rows), within), "repeated launches in the grid"
    for path in _noise_files(head):
        found = read_noise(path)
        if not _explains(found, within, head.samples, rows):
            why = f"few repeated launches in the grid, more apart than {path.name} explains"
            return Noise(_own_deviations(rows), within), why
        return Noise(found.launches, within or found.rest), path.name
    return Noise((), within), "none is known: launches answer as recorded"


def _repeats(trials: Sequence[Trial], objective: Objective) -> list[list[float]]:
    """Logarithms of the scores of each configuration that was launched more than once."""
    rows: dict[str, list[float]] = {}
    for trial in trials:
        if (value := score(trial, objective)) is not None:
            rows.setdefault(trial.candidate.key, []).append(math.log(value))
    return [row for row in rows.values() if len(row) > 1]


def _own_deviations(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(
        (value - statistics.fmean(row)) * math.sqrt(len(row) / (len(row) - 1)) for row in rows for value in row
    )


def _explains(file: FileNoise, within: float, samples: int, rows: Sequence[Sequence[float]]) -> bool:
    """Whether repeats may differ as they do by a file's launches, of which there are few too: an F test over all of them.

    `within`: of one seed on one launch, 0 where the grid does not tell it; `samples`: seeds of a launch, whose mean is its figure.
    """
    free = sum(len(row) - 1 for row in rows)
    squares = sum((value - statistics.fmean(row)) ** 2 for row in rows for value in row)
    variance = file.launch**2 + (within or file.rest) ** 2 / max(1, samples)
    if not squares or not variance:
        return not squares
    # Drawn, which tells 1% to within 0.1%: the exact tail would need SciPy for this one number.
    drawn = np.random.default_rng(0).f(free, len(file.launches) - 1, 100_000)
    return float(np.mean(drawn >= squares / free / variance)) >= UNLIKELY


def _within(trials: Sequence[Trial], objective: Objective) -> float:
    """Of one seed on one launch, beside what the launch and the seed explain: two-way layout over launches with all seeds."""
    rows = [[math.log(sample.output_tok_s) for sample in trial.samples] for trial in trials if trial.ok]
    width = max(map(len, rows), default=0)
    table = [row for row in rows if len(row) == width]
    if width < 2 or len(table) < 2 or objective.metric != "output_tok_s":
        return 0.0
    means = [statistics.fmean(row) for row in table]
    columns = [statistics.fmean(column) for column in zip(*table, strict=True)]
    grand = statistics.fmean(means)
    squares = sum(
        (value - means[i] - columns[j] + grand) ** 2 for i, row in enumerate(table) for j, value in enumerate(row)
    )
    return math.sqrt(squares / ((len(table) - 1) * (width - 1)))


def _noise_files(head: Head) -> list[Path]:
    """Of the same GPU and with samples that are long enough, those of the same model first."""
    found = []
    for path in sorted(EVIDENCE.glob("noise-*.json")):
        noise = json.loads(path.read_text(encoding="utf-8"))
        durations = [sample["duration_s"] for launch in noise["launches"] for sample in launch["samples"]]
        if noise.get("gpu", {}).get("name") == head.facts.gpu.name and statistics.median(durations) >= LONG_ENOUGH_S:
            found.append((noise["model"]["config"] != head.facts.model.config_hash, path))
    return [path for _, path in sorted(found)]
