"""What a profile was measured with, as a request that can be launched again. Pure: the environment is handed in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from advisor.engine.options import split_serve_args
from advisor.errors import InputError
from advisor.launch.warm_choice import COLD
from advisor.records import Objective, SamplingPlan, Workload
from advisor.request import TuneRequest
from advisor.search.budget import Budget
from advisor.search.goal import parse_goal
from advisor.serving_profile.args import quoted
from advisor.serving_profile.schema import Profile, Side

LEAST_LAUNCHES = 2  # of each side: one has no interval
_SOAK_S = 10.0  # of a profile that does not say how long its winner's was
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class Wish:
    """What a person asks of `advisor verify`, beside the profile."""

    profile: Path
    model: str | None = None  # where it lies here; None: under the profile's own name
    challenger: bool = False  # launch the candidate that was not chosen, too
    proof: bool = False  # a winner's soak and second start, too
    launches: int = 3  # fresh ones of each side
    budget_s: float = 1800.0  # wall time from the command's start
    tolerance: float = 0.05  # by which a figure may differ from the profile's
    client_processes: int | None = None  # None: as many as the profile says
    engine_python: str = "python"
    runs: Path = Path("runs")

    @property
    def command(self) -> str:
        """What was asked for, without the places that are this machine's."""
        words = ["advisor verify", quoted(self.profile.name), *(["--challenger"] if self.challenger else [])]
        words += ["--proof"] if self.proof else []
        words += [f"--launches {self.launches}", f"--tolerance {self.tolerance * 100:g}"]
        return " ".join([*words, *([f"--client-processes {self.client_processes}"] if self.client_processes else [])])


def default_side(profile: Profile) -> Side:
    """Raises InputError for a profile without figures."""
    side = profile.measured.default
    if side is None or not side.launches:
        raise InputError("the profile has no figures of the default: there is nothing to verify", "tune again")
    return side


def request_of(profile: Profile, wish: Wish, environment: Mapping[str, str], study: str) -> TuneRequest:
    """The same default, workload, objective and seeds a launch. `environment`: where `${NAME}` of a secret is looked up.

    All launches are executed and measured in full, as those of a confirmation are.
    """
    side, model = default_side(profile), model_here(profile, wish.model)
    rounds = max(wish.launches, LEAST_LAUNCHES)
    soak_s = profile.proof.soak_s if profile.proof else _SOAK_S
    words = split_serve_args(profile.study.serve_args)
    serve_args = tuple(_filled(_moved(word, profile, model), environment) for word in words)
    return TuneRequest(
        model=model,
        gpu="cpu" if profile.gpu.slug == "cpu" else "auto",
        workload=workload_of(profile),
        budget=Budget(wish.budget_s, None, rounds, rounds, soak_s),
        engine_python=wish.engine_python,
        objective=objective_of(profile),
        serve_args=serve_args,
        serve_env={
            name: _filled(_moved(value, profile, model), environment)
            for name, value in profile.study.serve_env.items()
        },
        study=study,
        runs=wish.runs,
        samples=max(1, side.samples // side.launches // loads_of(profile)),
        measure_all=True,
        client_processes=wish.client_processes or (profile.workload.client_processes if loads_of(profile) > 1 else None),
        launcher=COLD,
    )


def model_here(profile: Profile, given: str | None) -> str:
    """Raises InputError where the profile's model was a folder and none of its name is here."""
    model = profile.model
    if given is not None:
        return given
    if not model.local_folder:
        return model.id
    found = next((path for path in (Path(model.id), Path("models") / model.id) if path.is_dir()), None)
    if found is None:
        raise InputError(
            f"the profile's model {model.id!r} was a folder, and there is none of that name here or in models/",
            "give its path with --model",
        )
    return f"./{found}"  # a bare name could be a hub id


def workload_of(profile: Profile) -> Workload:
    """With the requests of a sample that the study had in the end."""
    load = profile.workload
    return Workload(
        name=load.name,
        input_tokens=load.input_tokens,
        output_tokens=load.output_tokens,
        num_prompts=load.num_prompts,
        concurrency=load.concurrency,
        rate=load.rate_requests_s,
        length_spread=load.length_spread,
        shared_prefix_tokens=load.shared_prefix_tokens,
        warmup_prompts=load.warmup_prompts,
        source=load.source,
        loads=tuple(load.loads) if load.loads else None,
        preemptions=load.preemptions,
    )


def plan_of(profile: Profile, client_processes: int | None = None) -> SamplingPlan | None:
    """The study's plan. Profiles of an advisor that had one client process do not say how many they had.

    None with several loads, whose numbers of requests the profile does not hold: the first launch decides it anew, with the
    profile's client processes.
    """
    if loads_of(profile) > 1:
        return None
    load = profile.workload
    return SamplingPlan(load.num_prompts, client_processes or load.client_processes or 1, "as in the profile")


def objective_of(profile: Profile) -> Objective:
    goal = profile.objective
    return parse_goal(",".join([goal.metric, *(goal.secondary or [])]), ",".join(goal.slo or []) or None, goal.find_load)


def loads_of(profile: Profile) -> int:
    return len(profile.workload.loads or ()) or 1


def _moved(word: str, profile: Profile, model: str) -> str:
    """A word that names the model's folder, as `--tokenizer` may, where the folder has another path here."""
    own = profile.model.id
    return model if profile.model.local_folder and word in (own, f"./{own}") else word


def _filled(text: str, environment: Mapping[str, str]) -> str:
    """With the secrets that the profile has as `${NAME}`. Raises InputError for one that is not set."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in environment:
            raise InputError(f"the profile has ${{{match[1]}}} for a secret, which is not set", f"set {match[1]}")
        return environment[match[1]]

    return _REFERENCE.sub(value, text)
