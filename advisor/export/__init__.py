"""Exporters: a profile in, the text of a file or command out. One file a target; a new one is one line in EXPORTERS."""

from __future__ import annotations

from collections.abc import Callable

from advisor.export.shell import shell_command, with_model
from advisor.export.vllm_yaml import vllm_yaml
from advisor.profile_schema import Profile

EXPORTERS: dict[str, Callable[[Profile], str]] = {
    "command": shell_command,
    "vllm-yaml": vllm_yaml,
}

__all__ = ["EXPORTERS", "shell_command", "vllm_yaml", "with_model"]
