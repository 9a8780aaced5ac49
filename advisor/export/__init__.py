"""Exporters: a profile in, the text of a file or command out. One file a target; a new one is one line in EXPORTERS."""

from __future__ import annotations

from collections.abc import Callable

from advisor.errors import InputError
from advisor.export.shell import shell_command, with_model
from advisor.export.vllm_yaml import vllm_yaml
from advisor.serving_profile.schema import Profile

EXPORTERS: dict[str, Callable[[Profile], str]] = {
    "command": shell_command,
    "vllm-yaml": vllm_yaml,
}


def export_profile(profile: Profile, to: str = "command", model: str | None = None) -> str:
    """Text for a target, ending with a newline; `model` replaces the profile's. Raises InputError for an unknown `to`."""
    if to not in EXPORTERS:
        raise InputError(f"--to {to!r} is not known", f"allowed: {', '.join(EXPORTERS)}")
    text = EXPORTERS[to](with_model(profile, model) if model else profile)
    return text.rstrip("\n") + "\n"


__all__ = ["EXPORTERS", "export_profile", "shell_command", "vllm_yaml", "with_model"]
