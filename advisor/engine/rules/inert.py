"""Settings that change nothing beside others, with the reason: what a search need not try."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from advisor.engine.rules.backend_table import Version

GRAPH_SETTINGS = (
    "cudagraph_mode",
    "cudagraph_capture_sizes",
    "max_cudagraph_capture_size",
    "--cudagraph-capture-sizes",
    "--max-cudagraph-capture-size",
    "--cuda-graph-sizes",
)
_SIZES = GRAPH_SETTINGS[1:]
_ANY_VERSION = (10**6,)


@dataclass(frozen=True)
class _Case:
    settings: Mapping[str, Any]
    platform: str
    version: Version


@dataclass(frozen=True)
class InertRule:
    """`names` change nothing where `holds(case)`."""

    names: tuple[str, ...]
    reason: str
    holds: Callable[[_Case], bool]


def _eager(settings: Mapping[str, Any]) -> bool:
    return settings.get("enforce_eager", settings.get("--enforce-eager")) is True


def _level_three(value: Any) -> bool:
    return str(value).upper().removeprefix("O") == "3"


RULES: tuple[InertRule, ...] = (
    InertRule(("cudagraph_num_of_warmups",), "vLLM sets it to 1 whenever graphs are on", lambda case: case is not None),
    InertRule(GRAPH_SETTINGS, "vLLM captures no graphs on a CPU", lambda case: case.platform == "cpu"),
    InertRule(
        ("attention_backend", "--attention-backend"),
        "on a CPU vLLM takes its own backend whatever is asked for",
        lambda case: case.platform == "cpu",
    ),
    InertRule(GRAPH_SETTINGS, "eager mode captures no graphs", lambda case: _eager(case.settings)),
    InertRule(
        ("compilation_mode",),
        "eager mode turns compilation off",  # until 0.16 an explicit mode stayed
        lambda case: _eager(case.settings) and case.version >= (0, 17, 1),
    ),
    InertRule(
        _SIZES,
        "without graphs there is nothing to capture",
        lambda case: str(case.settings.get("cudagraph_mode") or "").upper() == "NONE",  # absent is not NONE
    ),
    InertRule(
        ("optimization_level", "--optimization-level"),
        "-O3 equals -O2, the default, in every release",
        lambda case: any(
            _level_three(case.settings.get(name)) for name in ("optimization_level", "--optimization-level")
        ),
    ),
)


def inert_settings(settings: Mapping[str, Any], platform: str, version: Version = _ANY_VERSION) -> dict[str, str]:
    """Name -> reason for each of a candidate's settings that changes nothing. Without a version the newest rules count.

    Names as in render.py: abstract settings, flags with dashes, and keys of the compilation config.
    """
    case = _Case(settings, platform, version)
    found: dict[str, str] = {}
    for rule in RULES:
        if rule.holds(case):
            for name in rule.names:
                if name in settings:
                    found.setdefault(name, rule.reason)
    return found
