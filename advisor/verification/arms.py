"""Who is launched beside the default: what a profile recommends, or the candidate that it did not choose. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.engine.options import parse_options, split_serve_args
from advisor.engine.render import changes, serve_arguments
from advisor.errors import AdvisorError, InputError
from advisor.records import Candidate, Decision
from advisor.search.labels import candidate_of
from advisor.serving_profile.args import ServeLine, normal_options
from advisor.serving_profile.schema import Profile

_SIZES = "cudagraph_capture_sizes"


def recommended(profile: Profile) -> Candidate | None:
    """What an `improved` profile serves with; None where it serves with the default.

    By the settings that it names, if they make its command, so that they are checked against what runs and can be written
    for another release of vLLM; else by whatever its command has and the default's has not.
    """
    if profile.decision.outcome is not Decision.IMPROVED:
        return None
    named = _named(profile)
    return named if named is not None and _makes_command(profile, named) else _difference(profile)


def challenger(profile: Profile) -> Candidate | None:
    """The candidate that was compared with the default and not chosen; None where there was none.

    Raises InputError where its settings cannot be read from the profile.
    """
    if profile.decision.outcome is Decision.IMPROVED or not profile.decision.challenger:
        return None
    found = _named(profile)
    if found is None:
        raise InputError(
            f"the challenger {profile.decision.challenger!r} cannot be read back from the profile",
            "without --challenger the default's figure alone is verified",
        )
    return found


def _named(profile: Profile) -> Candidate | None:
    """From the label; a list that is cut there is the one that the servers' logs state. None where that gives another label."""
    label = profile.decision.challenger or ""
    found = candidate_of(label)
    if found is None:
        return None
    candidate = Candidate({name: _whole(name, value, profile) for name, value in found.settings.items()})
    return candidate if candidate.label == label else None


def _whole(name: str, value: Any, profile: Profile) -> Any:
    if name != _SIZES:
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return [value]
    ran = profile.active.tuned or profile.active.challenger
    return list(ran.capture_sizes or ()) if isinstance(value, str) and ran else value


def _makes_command(profile: Profile, candidate: Candidate) -> bool:
    version = profile.software.vllm
    given = tuple(split_serve_args(profile.study.serve_args))
    try:
        words = serve_arguments(given, candidate, version)
        env = {**profile.study.serve_env, **changes(candidate, version)[1]}
    except AdvisorError:
        return False
    ours = ServeLine("", tuple(words)).options()
    return normal_options(ours) == normal_options(profile.serve.args) and env == profile.serve.env


def _difference(profile: Profile) -> Candidate:
    """Options and variables that the command has beside the default's, each as itself."""
    default = _options(profile.study.serve_args)
    served = {_dashed(name): value for name, value in profile.serve.args.items()}
    settings = {name: value for name, value in served.items() if default.get(name) != value}
    settings |= {
        name: value for name, value in profile.serve.env.items() if profile.study.serve_env.get(name) != value
    }
    return Candidate(settings)


def _options(serve_args: str) -> Mapping[str, Any]:
    line = ServeLine("", tuple(split_serve_args(serve_args)))
    return {_dashed(name): value for name, value in line.options().items()} if parse_options(line.words).values else {}


def _dashed(name: str) -> str:
    return name if name.startswith("-") else f"--{name}"
