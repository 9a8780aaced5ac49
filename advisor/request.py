"""What a person asks of `advisor tune`, from words to checked values. Reads the files that the words name, nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor.engine.options import LAUNCH_OPTIONS, parse_options, split_serve_args
from advisor.errors import InputError
from advisor.inspection.gpu_names import slug_of
from advisor.launch.readiness import LaunchLimits
from advisor.launch.warm_choice import LAUNCHERS, WARM
from advisor.measure.quality import TIMEOUT_S, parse_command
from advisor.measure.workload import load_workload
from advisor.records import Objective, Workload
from advisor.search.budget import Budget
from advisor.search.goal import check_load, parse_goal
from advisor.space.spec import SpaceSpec, load_space
from advisor.units import parse_duration_s
from advisor.verdict.quality import TOLERANCE


@dataclass(frozen=True)
class TuneRequest:
    """Checked values; `space` None means the one that suits the GPU."""

    model: str
    gpu: str
    workload: Workload
    budget: Budget
    engine_python: str
    space: SpaceSpec | None = None
    objective: Objective = Objective()
    serve_args: tuple[str, ...] = ()
    serve_env: Mapping[str, str] = field(default_factory=dict)
    study: str | None = None
    runs: Path = Path("runs")
    output: Path = Path("profiles")  # a folder, or a file that ends in .yaml
    profiles: tuple[Path, ...] | None = None  # that order the first launches; None: output's and the advisor's
    storage: str | None = None
    seed: int = 0
    samples: int = 2  # seeds that a launch is measured with
    measure_all: bool = False  # no launch is dropped before it is measured in full
    retry_failed: bool = False  # launch again what failed, in this study or another
    client_processes: int | None = None  # that send the load together; None: as many as the baseline shows to be needed
    limits: LaunchLimits = LaunchLimits()
    launcher: str = WARM  # of baseline and search; all else is always launched cold (docs/launcher.md)
    quality_command: tuple[str, ...] = ()  # a person's own evaluation, run against baseline and winner
    quality_tolerance: float = TOLERANCE  # share of the baseline's score that the winner may lack
    quality_timeout_s: float = TIMEOUT_S


def request_from_words(
    *,
    model: str,
    gpu: str,
    workload: str,
    overrides: Mapping[str, Any],
    budget: str,
    trials: int | None,
    confirm_launches: int,
    serve_args: str,
    env: Sequence[str],
    space: str | None,
    objective: str | None,
    slo: str | None = None,
    find_load: str | None = None,
    quality_command: str | None = None,
    soak: str | None = None,
    launcher: str = WARM,
    profiles: str | None = None,
    **rest: Any,
) -> TuneRequest:
    """Raises InputError for the first word that is wrong, before anything is inspected or started."""
    tokens = tuple(split_serve_args(serve_args))
    _check_serve_args(tokens)
    slug_of(gpu)
    total_s = parse_duration_s(budget)
    goal, load = parse_goal(objective, slo, find_load), load_workload(workload, **overrides)
    check_load(goal, load)
    if launcher not in LAUNCHERS:
        raise InputError(f"--launcher {launcher!r} is not known", f"one of {', '.join(LAUNCHERS)}")
    return TuneRequest(
        model=model,
        gpu=gpu,
        workload=load,
        budget=Budget(total_s, trials, confirm_launches, soak_s=_soak_s(soak, total_s)),
        space=load_space(space) if space else None,
        objective=goal,
        serve_args=tokens,
        serve_env=parse_env(env),
        quality_command=parse_command(quality_command) if quality_command is not None else (),
        launcher=launcher,
        profiles=_profiles(profiles),
        **rest,
    )


def _profiles(text: str | None) -> tuple[Path, ...] | None:
    """None: where nothing is said. Raises InputError for a place that is not there."""
    if text is None or text == "none":
        return None if text is None else ()
    path = Path(text)
    if not path.exists():
        raise InputError(f"--profiles {text!r} does not exist", "a folder of profiles, one of them, or none")
    return (path,)


def _soak_s(text: str | None, budget_s: float) -> float:
    """What a person wants, else a twentieth of the budget: from 10 s to 5 minutes."""
    return parse_duration_s(text, "--soak") if text is not None else min(max(budget_s / 20, 10.0), 300.0)


def parse_env(words: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE words as a dictionary."""
    env = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.replace("_", "a").isalnum() or name[:1].isdigit():
            raise InputError(f"--env {word!r} is not NAME=VALUE")
        env[name] = value
    return env


def _check_serve_args(tokens: tuple[str, ...]) -> None:
    taken = [name for name in parse_options(tokens).values if name in LAUNCH_OPTIONS]
    if taken:
        raise InputError(
            f"--serve-args may not hold {', '.join(taken)}: the advisor sets that for each launch",
            "for --config FILE, give the file's settings as arguments" if "--config" in taken else None,
        )
