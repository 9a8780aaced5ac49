"""What is tried: settings, the command that they make, and what was left out."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Candidate:
    """Settings that differ from what the person serves today; the empty candidate is the baseline.

    Names are abstract (see advisor/engine/render.py): `attention_backend`, `cudagraph_mode`, `cudagraph_capture_sizes`,
    `compilation_mode`, `enforce_eager`, `optimization_level`; a name with dashes in front is a plain vLLM flag, a name in
    capitals an environment variable.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def key(self) -> str:
        """Identity of the candidate: equal settings give equal keys, whatever their order."""
        return json.dumps(self.settings, sort_keys=True, separators=(",", ":"))

    @property
    def is_baseline(self) -> bool:
        return not self.settings

    @property
    def overrides(self) -> int:
        return len(self.settings)

    @property
    def label(self) -> str:
        """One line for people: `attention_backend=TRITON_ATTN enforce_eager` or `default`."""
        return " ".join(_label(name, value) for name, value in self.settings.items()) or "default"


def _label(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return name if value else f"{name}=false"
    if isinstance(value, list | tuple):
        shown = [str(item) for item in value]
        if len(shown) > 6:
            return f"{name}={','.join(shown[:3])}..{shown[-1]} ({len(shown)})"
        return f"{name}=" + ",".join(shown)
    return f"{name}={value}"


@dataclass(frozen=True)
class Command:
    """What is executed for a candidate: the argument list (without a shell) and the environment variables added to it."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Rejection:
    """A candidate, or a whole setting value, that was not launched or not chosen, and why."""

    candidate: Candidate
    reason: str
