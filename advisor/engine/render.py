"""A candidate in the spelling of the installed vLLM: argument list and environment.

Abstract settings and where they live (facts: sources of vLLM 0.13 to 0.33):
`attention_backend` -> --attention-backend; `enforce_eager` -> --enforce-eager; `optimization_level` -> --optimization-level;
`compilation_mode`, `cudagraph_mode` and `cudagraph_capture_sizes` -> fields of --compilation-config. A name that starts with
dashes is that flag itself, a name in capitals an environment variable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from advisor.engine.options import ATTENTION, COMPILATION, ServeOptions, parse_options
from advisor.errors import EnvironmentMismatch
from advisor.records import Candidate, Command

OLDEST = (0, 13)  # the first release with --attention-backend, --optimization-level and the `mode` key together
_FLAGS = {
    "attention_backend": "--attention-backend",
    "enforce_eager": "--enforce-eager",
    "optimization_level": "--optimization-level",
}
_COMPILATION_KEYS = {
    "compilation_mode": "mode",
    "cudagraph_mode": "cudagraph_mode",
    "cudagraph_capture_sizes": "cudagraph_capture_sizes",
}
SETTINGS = (*_FLAGS, *_COMPILATION_KEYS)


def version_tuple(version: str) -> tuple[int, ...]:
    """`0.26.0.post1+cu130` -> (0, 26, 0)."""
    return tuple(int(part) for part in re.match(r"\d+(?:\.\d+)*", version)[0].split("."))  # type: ignore[index]


def check_version(version: str) -> None:
    """Raises EnvironmentMismatch for a vLLM whose spelling is not known here."""
    if version_tuple(version) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise EnvironmentMismatch(
            f"vLLM {version} is too old: {needed} or newer is needed", "choose another environment with --engine-python"
        )


def is_flag(name: str) -> bool:
    return name.startswith("--")


def is_environment(name: str) -> bool:
    return re.fullmatch(r"[A-Z][A-Z0-9_]*", name) is not None


def is_setting(name: str) -> bool:
    return name in SETTINGS or is_flag(name) or is_environment(name)


def changes(candidate: Candidate) -> tuple[dict[str, Any], dict[str, str]]:
    """(option -> value, environment) that the candidate's settings ask for."""
    options: dict[str, Any] = {}
    env: dict[str, str] = {}
    for name, value in candidate.settings.items():
        if name in _FLAGS:
            options[_FLAGS[name]] = value
        elif name in _COMPILATION_KEYS:
            options.setdefault(COMPILATION, {})[_COMPILATION_KEYS[name]] = (
                list(value) if isinstance(value, tuple) else value
            )
        elif is_environment(name):
            env[name] = str(value)
        else:
            options[name] = value
    return options, env


def fixed_by(options: ServeOptions, env: Mapping[str, str]) -> set[str]:
    """Abstract settings that the person's own arguments already fix; the search leaves them alone."""
    given = options.values
    fixed = {name for name, flag in _FLAGS.items() if flag in given}
    fixed |= {name for name, key in _COMPILATION_KEYS.items() if key in given.get(COMPILATION, {})}
    if "max_cudagraph_capture_size" in given.get(COMPILATION, {}):
        fixed.add("cudagraph_capture_sizes")
    if "backend" in given.get(ATTENTION, {}):
        fixed.add("attention_backend")
    return fixed | {name for name in given if is_flag(name)} | set(env)


def serve_arguments(serve_args: tuple[str, ...], candidate: Candidate) -> list[str]:
    """Arguments after the model. The baseline gets the person's words exactly as given, a candidate one merged set."""
    if candidate.is_baseline:
        return list(serve_args)
    options, _ = changes(candidate)
    return parse_options(serve_args).with_changes(options).argv()


def serve_command(
    python: str, model: str, serve_args: tuple[str, ...], serve_env: Mapping[str, str], candidate: Candidate
) -> Command:
    """The full command for a candidate, without host, port and served name, which belong to the launch."""
    _, env = changes(candidate)
    argv = (python, "-m", "vllm.entrypoints.cli.main", "serve", model, *serve_arguments(serve_args, candidate))
    return Command(argv, {**serve_env, **env})
