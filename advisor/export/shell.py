"""The profile as a command line for a POSIX shell."""

from __future__ import annotations

from dataclasses import replace

from advisor.serving_profile.args import format_line
from advisor.serving_profile.schema import Profile


def shell_command(profile: Profile) -> str:
    """`NAME=VALUE vllm serve MODEL --option value ...` on one line; a secret is a `${NAME}` for the shell to fill."""
    return format_line(profile.serve.line())


def with_model(profile: Profile, model: str) -> Profile:
    """The profile with another model in its command: the folder's path on the machine that will serve it."""
    line = replace(profile.serve.line(), model=model)
    return profile.model_copy(update={"serve": profile.serve.model_copy(update={"command": format_line(line)})})
