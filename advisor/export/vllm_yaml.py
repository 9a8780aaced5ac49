"""The profile as a file that `vllm serve --config FILE` reads.

What is written is what the readers of vLLM 0.13 to 0.33 have in common (read in the sources of those releases): an
option that takes JSON gets it as a string, because maps are read from 0.16 only; a switch that is off is `no-x: true`,
because `x: false` is dropped up to 0.27; `--config FILE` is two words, because with `=` the file is not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

from advisor.serving_profile.args import ServeLine, groups, quoted
from advisor.serving_profile.schema import Profile

# Options that vLLM collects over several mentions, which a mapping cannot hold.
_REPEATED = {"middleware"}


def vllm_yaml(profile: Profile) -> str:
    """The file's text. What YAML cannot hold (variables, secrets) is in the command of its head."""
    line = profile.serve.line()
    left_out = {name for name, value in profile.serve.args.items() if _only_on_command_line(name, value)}
    beside = [word for group in groups(line.words) if _names(group) & left_out for word in group]
    kept = [_entry(name, value) for name, value in profile.serve.args.items() if name not in left_out]
    body = yaml.safe_dump({"model": line.model, **dict(kept)}, sort_keys=False, width=float("inf"), allow_unicode=True)
    # A line break in a quoted word must not end the comment.
    head = [("# " + " ".join(text.splitlines())).rstrip() for text in _head(profile, beside)]
    return "\n".join(head) + "\n" + body


def _head(profile: Profile, beside: list[str]) -> Iterator[str]:
    yield f"Options for `vllm serve` {profile.software.vllm}, from the serving profile of study {profile.study.name!r}."
    yield "Serve with (the file's name must end with .yaml or .yml):"
    env = [f"{name}={quoted(value)}" for name, value in profile.serve.env.items()]
    yield "  " + " ".join([*env, "vllm serve --config FILE.yaml", *map(quoted, beside)])


def _only_on_command_line(name: str, value: Any) -> bool:
    """vLLM's reader fills in no `${NAME}`, puts two dashes before any name, takes a leading dash for an option."""
    text = json.dumps(value)
    return "${" in text or name.startswith("-") or name in _REPEATED or (isinstance(value, str) and value[:1] == "-")


def _names(group: list[str]) -> set[str]:
    return set(ServeLine("", tuple(group)).options())


def _entry(name: str, value: Any) -> tuple[str, Any]:
    if value is False:
        return f"no-{name}", True
    if isinstance(value, dict):
        return name, json.dumps(value, separators=(",", ":"))
    return name, value
