"""A candidate in the spelling of the installed vLLM: argument list and environment.

Abstract settings and where they live stand in writing/spelling_table.py. A name that starts with dashes is that flag itself, a
name in capitals an environment variable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from advisor.engine.options import COMPILATION, ServeOptions, parse_options
from advisor.engine.versions import NEWEST, OLDEST, version_text
from advisor.engine.writing.spelling import Spelling, is_environment, spell
from advisor.engine.writing.spelling_table import OPTIMIZATION, SAME_AS, SAME_KEYS, TABLE
from advisor.errors import EnvironmentMismatch, InputError
from advisor.records import Candidate, Command

SETTINGS = tuple(TABLE)
FLAG = "--[A-Za-z0-9][A-Za-z0-9_.-]*"  # also --max_num_seqs and --compilation-config.mode, as vLLM reads them
_CAPTURE = {"cudagraph_capture_sizes", "max_cudagraph_capture_size"}


def version_tuple(version: str) -> tuple[int, ...]:
    """`0.26.0.post1+cu130` -> (0, 26, 0)."""
    return tuple(int(part) for part in re.match(r"\d+(?:\.\d+)*", version)[0].split("."))  # type: ignore[index]


def check_version(version: str) -> None:
    """Raises EnvironmentMismatch for a vLLM whose spelling is not known here."""
    if version_tuple(version) < OLDEST:
        raise EnvironmentMismatch(
            f"vLLM {version} is too old: {version_text(OLDEST)} or newer is needed",
            "choose another environment with --engine-python",
        )


def is_flag(name: str) -> bool:
    return re.fullmatch(FLAG, name) is not None


def is_setting(name: str) -> bool:
    return name in SETTINGS or is_flag(name) or is_environment(name)


def same_setting(name: str) -> str:
    """The decision that an option stands for, `--max-num-seqs` for max_num_seqs; any other name is its own."""
    return SAME_AS.get(name, name)


def spelling(candidate: Candidate, version: str | None = None) -> Spelling:
    """The candidate's settings for a version; without one, for the newest known.

    Options are not looked up in the tables of the releases: the installed vLLM may be a build that they do not know.
    """
    return spell(candidate.settings, version_tuple(version) if version else NEWEST, check=False)


def changes(candidate: Candidate, version: str | None = None) -> tuple[dict[str, object], dict[str, str]]:
    """(option -> value, environment) that the candidate's settings ask for."""
    spelled = spelling(candidate, version)
    return dict(spelled.options.values), dict(spelled.env)


def fixed_by(options: ServeOptions, env: Mapping[str, str], version: str | None = None) -> set[str]:
    """Abstract settings that the person's own arguments already fix; the search leaves them alone."""
    given = options.values
    fixed = {decision for option, decision in SAME_AS.items() if option in given}
    fixed |= {decision for (option, key), decision in SAME_KEYS.items() if key in _mapping(given.get(option))}
    fixed |= {name for name, places in _NESTED.items() if any(_holds(given, *place) for place in places)}
    if fixed & _CAPTURE:  # vLLM refuses a list and a maximum that disagree
        fixed |= _CAPTURE
    if "VLLM_ATTENTION_BACKEND" in env and version is not None and version_tuple(version) < (0, 15):
        fixed.add("attention_backend")  # later versions do not read it
    return fixed | {name for name in given if is_flag(name)} | set(env)


# Decisions whose key stands one level down, in any version: name -> (option, outer key, inner key).
_NESTED = {
    name: [(row.option, *row.key.split(".")) for row in rows if row.key and "." in row.key]
    for name, rows in TABLE.items()
}


def _holds(given: Mapping[str, object], option: str, outer: str, inner: str) -> bool:
    return inner in _mapping(_mapping(given.get(option)).get(outer))


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def serve_arguments(serve_args: tuple[str, ...], candidate: Candidate, version: str | None = None) -> list[str]:
    """Arguments after the model. The baseline gets the person's words exactly as given, a candidate one merged set."""
    if candidate.is_baseline:
        return list(serve_args)
    options, _ = changes(candidate, version)
    return _parsed(serve_args, version).with_changes(options).argv()


def _parsed(serve_args: tuple[str, ...], version: str | None) -> ServeOptions:
    """Before 0.12, -O3 meant the compilation level 3, a key of --compilation-config."""
    options = parse_options(serve_args)
    level = options.values.get(OPTIMIZATION)
    if version is None or version_tuple(version) >= (0, 12) or not str(level).isdigit():
        return options
    if any(re.match(r"(-cc|--compilation[-_]config)(=|$)", token) for token in serve_args):
        raise InputError(
            f"--serve-args: vLLM {version} reads -O{level} as a key of {COMPILATION} and drops its JSON",
            f'give the level as a key of that: "level": {level}',
        )
    return options.with_changes({OPTIMIZATION: None, COMPILATION: {"level": int(str(level))}})


def serve_command(
    python: str,
    model: str,
    serve_args: tuple[str, ...],
    serve_env: Mapping[str, str],
    candidate: Candidate,
    version: str | None = None,
) -> Command:
    """The full command for a candidate, without host, port and served name, which belong to the launch.

    `version` is the installed vLLM's; without it the spelling is that of the newest known.
    """
    _, env = changes(candidate, version)
    argv = (python, "-m", "vllm.entrypoints.cli.main", "serve", model, *serve_arguments(serve_args, candidate, version))
    return Command(argv, {**serve_env, **env})
