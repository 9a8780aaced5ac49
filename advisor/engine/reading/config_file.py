"""The words that vLLM makes of a `--config` file, by version. Pure: the file comes as parsed YAML.

Read in `load_config_file` of 0.9.0 to 0.33.0: lists since 0.10.2, maps since 0.16.0; `false` is left out. (Since 0.28 it becomes
`--no-x` where the parser that reads the file knows that option. `vllm serve` reads it with the parser of `vllm` itself, which
does not; `python -m vllm.entrypoints.openai.api_server` reads it with the server's own, which does.)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from advisor.engine.reading.option_tables import defaults, option_status
from advisor.engine.reading.pasted_words import API_SERVER, CONFIG_FILE, IMAGE, Word
from advisor.engine.versions import version_text
from advisor.errors import InputError
from advisor.records import Finding

Version = tuple[int, ...]

LISTS_SINCE, MAPS_SINCE, FALSE_SINCE = (0, 10, 2), (0, 16, 0), (0, 28, 0)
SERVE_IN_IMAGE_SINCE = (0, 11, 2)  # entry point of vLLM's images: the server's own module before


def config_words(data: Any, version: Version, entry: str) -> tuple[list[Word], list[Finding]]:
    """Words in the file's order, and findings about what is lost. Raises InputError where the file is no mapping."""
    if not isinstance(data, Mapping):
        raise InputError(
            f"the config file holds no mapping of options, but {type(data).__name__}", "one `option: value` a line"
        )
    words: list[str] = []
    findings: list[Finding] = []
    for key, value in data.items():
        words += _words(str(key), value, version, entry, findings)
    return [Word(text, position, CONFIG_FILE) for position, text in enumerate(words, start=1)], findings


def _words(key: str, value: Any, version: Version, entry: str, findings: list[Finding]) -> list[str]:
    if isinstance(value, bool):
        return [f"--{key}"] if value else _false(key, version, entry, findings)
    if isinstance(value, list) and version >= LISTS_SINCE:
        return [f"--{key}", *map(str, value)] if value else []
    if isinstance(value, list):
        message = (
            f"{key}: lists in a config file are read since 0.10.2; vLLM {version_text(version)} takes the text {value}"
        )
        findings.append(Finding("error", "yaml-list-not-supported", message, "give this option on the command line"))
        return []
    if isinstance(value, Mapping):
        return _map(key, value, version, findings)
    return [f"--{key}", str(value)]


def _map(key: str, value: Mapping[str, Any], version: Version, findings: list[Finding]) -> list[str]:
    text = json.dumps(value)
    if version < MAPS_SINCE:
        message = f"{key}: maps in a config file are read since 0.16.0, vLLM {version_text(version)} refuses this one"
        findings.append(Finding("error", "yaml-nested-map-not-supported", message, f"{key}: '{text}'"))
    return [f"--{key}", text]


def _false(key: str, version: Version, entry: str, findings: list[Finding]) -> list[str]:
    negated = f"--no-{key}"
    own_parser = entry == API_SERVER or (entry == IMAGE and version < SERVE_IN_IMAGE_SINCE)
    if version >= FALSE_SINCE and own_parser and option_status(negated, version).exists:
        return [negated]
    status = option_status(f"--{key}", version)
    if status.exists and status.kind != "switch":
        return []
    harmless = status.exists and _default(status.option or f"--{key}", version) is False
    effect = "which is its default anyway" if harmless else "and the default stays"
    message = f"{key}: false is dropped by vLLM {version_text(version)}, {effect}"
    fix = "leave it out" if harmless else f"{negated} on the command line"
    findings.append(Finding("info" if harmless else "error", "yaml-false-dropped", message, fix))
    return []


def _default(option: str, version: Version) -> Any:
    known = [entry for entry in defaults(option) if entry.since <= version]
    return known[-1].value if known else None
