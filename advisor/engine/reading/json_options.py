"""Options whose value is JSON: which of several values of one option vLLM keeps, and what is wrong with them.

argparse keeps the last value of an option and never merges two. Dotted keys of one spelling are one value (flexible_words.py)
and stand behind everything else, so that they win over JSON in any order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.engine.options import ATTENTION, COMPILATION
from advisor.engine.reading.argument_parser import Given
from advisor.engine.reading.flexible_words import LEVEL_IS_OPTION_SINCE, Dotted
from advisor.engine.reading.option_tables import config_keys, key_status, option_status, unabbreviated
from advisor.engine.reading.pasted_words import CONFIG_FILE, FLAG
from advisor.engine.versions import seen_in, version_text
from advisor.records import Finding

Version = tuple[int, ...]

BARE_LEVEL_GONE = (0, 9, 2)
LEVEL_DEPRECATED, LEVEL_GONE = (0, 11, 2), (0, 18, 1)
UNKNOWN_KEYS_IGNORED, UNKNOWN_KEYS_REFUSED = (0, 9, 2), (0, 13, 0)  # 0.9.0 refuses them too
# Options whose value must be an object; others of this kind also take older spellings such as image=4.
_OBJECTS = (COMPILATION, ATTENTION, "--speculative-config", "--kernel-config", "--kv-transfer-config")
_KEYS_INSTEAD = {
    "full_cuda_graph": "cudagraph_mode: FULL",
    "use_cudagraph": "cudagraph_mode: PIECEWISE, or NONE for false",
    "use_inductor": "backend: inductor, or eager for false",
    "enable_fusion": "fuse_norm_quant and fuse_act_quant",
    "enable_attn_fusion": "fuse_attn_quant",
    "enable_noop": "eliminate_noops",
    "enable_sequence_parallelism": "enable_sp",
    "enable_async_tp": "fuse_gemm_comms",
    "enable_fi_allreduce_fusion": "fuse_allreduce_rms",
}


@dataclass(frozen=True)
class JsonValue:
    """One value of a JSON option: `form` is json or dotted, `origin` flag or config-file."""

    option: str
    form: str
    shown: str
    value: Any
    origin: str


def from_given(given: Given, version: Version) -> tuple[JsonValue | None, list[Finding]]:
    """A value given as one argument, and what is wrong with it. None where it says nothing that could be used."""
    return _from_text(given, given.values[0], version)


def _from_text(given: Given, text: str, version: Version) -> tuple[JsonValue | None, list[Finding]]:
    try:
        value: Any = json.loads(text)
    except json.JSONDecodeError as error:
        return _not_json(given, text, version, str(error))
    if given.option == COMPILATION and isinstance(value, int) and not isinstance(value, bool):
        return _bare_level(given, text, value, version)
    if given.option in _OBJECTS and not isinstance(value, dict):
        return None, [_invalid(given, f"needs a JSON object, vLLM refuses {text}")]
    return _value(given, value), []


def _value(given: Given, value: Any) -> JsonValue:
    shown = f"{given.spelling} {given.values[0]}"
    return JsonValue(given.option, "json", shown, value, given.word.origin)


def _invalid(given: Given, what: str, fix: str | None = None) -> Finding:
    where = f"{given.spelling} at {given.word.place}"
    return Finding("error", "json-invalid", f"{where} {what}", fix or f"{given.spelling} '{{\"key\": value}}'")


def _bare_level(given: Given, text: str, level: int, version: Version) -> tuple[JsonValue | None, list[Finding]]:
    if version < BARE_LEVEL_GONE and text.strip() in ("0", "1", "2", "3"):
        return _value(given, {"level": level}), []
    where = f"{given.spelling} {text} at {given.word.place}"
    message = f"{where}: vLLM {version_text(version)} refuses a bare level, it wants an object"
    fix = f"-O{level}" if 0 <= level <= 3 else "an object"
    return None, [Finding("error", "bare-compilation-level", message, fix)]


def _not_json(given: Given, text: str, version: Version, why: str) -> tuple[JsonValue | None, list[Finding]]:
    """A value that is no JSON: some options take other text too; the usual slips are named, and read as they were meant."""
    if given.option not in _OBJECTS:
        return _value(given, text), []
    if len(text) > 2 and text[0] == text[-1] and text[0] in "'\"":
        inner, findings = _from_text(given, text[1:-1], version)
        where = f"{given.spelling} at {given.word.place}"
        message = (
            f"{where}: the quotes {text[0]} {text[0]} are part of the value, so that it is no JSON and vLLM refuses it"
        )
        return inner, [Finding("error", "quoted-json-literal", message, f"without them: {text[1:-1]}"), *findings]
    if given.option == COMPILATION and (level := re.fullmatch(r"[oO]([0-3])", text)):
        return _bare_level(given, text, int(level[1]), version)
    if "'" in text and (mended := _single_quoted(text)) is not None:
        what = f"has single quotes inside, which JSON does not allow: vLLM refuses {text}"
        return _value(given, mended), [_invalid(given, what, json.dumps(mended))]
    return None, [_invalid(given, f"is not JSON ({why}): vLLM refuses {text!r}")]


def _single_quoted(text: str) -> Any:
    try:
        value = json.loads(
            text.replace("'", '"').replace("True", "true").replace("False", "false").replace("None", "null")
        )
    except json.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def from_dotted(dotted: Dotted, version: Version) -> JsonValue | None:
    """The value that the dotted keys of one spelling make; None for an option that does not exist."""
    status = option_status(dotted.spelling, version)
    if not status.exists and dotted.spelling.startswith("--"):  # the JSON that it becomes is an ordinary argument of argparse
        meant = {option_status(name, version).option for name in unabbreviated(dotted.spelling, version)}
        status = option_status(meant.pop() or "", version) if len(meant) == 1 else status
    if not status.exists or status.option is None:
        return None
    origins = {word.origin for word in dotted.words}
    origin = CONFIG_FILE if origins == {CONFIG_FILE} else FLAG
    return JsonValue(status.option, "dotted", dotted.shown, dotted.value, origin)


# ---------------------------------------------------------------- several values of one option


def keep_last(values: Sequence[JsonValue], version: Version) -> tuple[dict[str, JsonValue], list[Finding]]:
    """The value that vLLM keeps of each option, and a finding for each one that it loses."""
    kept: dict[str, JsonValue] = {}
    for value in values:
        kept[value.option] = value
    findings = [_lost(value, kept[value.option], version) for value in values if value is not kept[value.option]]
    return kept, findings


def _lost(lost: JsonValue, kept: JsonValue, version: Version) -> Finding:
    this = version_text(version)
    tail = f"vLLM {this} keeps {kept.shown} and loses {lost.shown}"
    fix = f"give {lost.option} once: {_merged(lost, kept)}"
    if kept.form == "json":
        severity = "warning" if lost.origin == CONFIG_FILE and kept.origin == FLAG else "error"
        return Finding(severity, "two-json-values", f"two values of {lost.option} are not merged: {tail}", fix)
    level = ""
    if version < LEVEL_IS_OPTION_SINCE and any(
        re.match(r"-O\.(level|mode)[= ]", part) for part in kept.shown.split(", ")
    ):
        level = " (-O with a number counts as a dotted key)"
    if lost.form == "dotted":
        message = f"short and long dotted keys of {lost.option} are not merged{level}: {tail}"
        return Finding("error", "mixed-dotted-spellings", message, fix)
    if lost.origin == CONFIG_FILE:
        message = f"a dotted key replaces the whole of {lost.option} in the config file{level}: {tail}"
        return Finding("error", "yaml-map-lost-to-dotted-key", message, fix)
    message = f"a dotted key replaces the whole JSON of {lost.option}, in either order{level}: {tail}"
    return Finding("error", "json-lost-to-dotted-key", message, fix)


def _merged(first: JsonValue, second: JsonValue) -> str:
    """Both together as one JSON text, for the fix. Where they disagree, the one that vLLM keeps wins."""
    if not (isinstance(first.value, Mapping) and isinstance(second.value, Mapping)):
        return second.shown
    return f"{first.option} '{json.dumps(_deep(first.value, second.value))}'"


def _deep(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**old, **new}
    for key, value in new.items():
        if isinstance(value, Mapping) and isinstance(old.get(key), Mapping):
            merged[key] = _deep(old[key], value)
    return merged


# ---------------------------------------------------------------- keys


def check_keys(value: JsonValue, version: Version) -> list[Finding]:
    """Findings for keys that this version does not have, where a table holds its keys."""
    if not isinstance(value.value, Mapping):
        return []
    findings = list(_level_key(value, version))
    for path in _paths(value.option, value.value, version):
        status = key_status(value.option, path, version)
        if status.exists or (value.option == COMPILATION and path == "level"):
            continue
        findings.append(_unknown_key(value, path, status.state, status.changed, status.renamed_to, version))
    return findings


def _paths(option: str, value: Mapping[str, Any], version: Version) -> list[str]:
    """Keys with their outer key before a dot, as far as a table holds them."""
    if not config_keys(option, version):
        return []
    paths: list[str] = []
    for key, inner in value.items():
        paths.append(key)
        if isinstance(inner, Mapping) and config_keys(f"{option}.{key}", version):
            paths += [f"{key}.{name}" for name in inner]
    return paths


def _level_key(value: JsonValue, version: Version) -> list[Finding]:
    if value.option != COMPILATION or "level" not in value.value or version < LEVEL_DEPRECATED:
        return []
    level = value.value["level"]
    if version < LEVEL_GONE:
        message = f"the key level of {COMPILATION} is deprecated since 0.11.2 and gone from 0.18"
        return [Finding("warning", "level-deprecated", message, f"mode: {level}")]
    message = f"the key level of {COMPILATION} is gone, vLLM {version_text(version)} refuses it"
    return [Finding("error", "level-removed", message, f"mode: {level}")]


def _unknown_key(
    value: JsonValue, path: str, state: str, changed: Version | None, renamed: str | None, version: Version
) -> Finding:
    refused = not UNKNOWN_KEYS_IGNORED <= version < UNKNOWN_KEYS_REFUSED
    effect = "refuses it" if refused else "ignores it without a word"
    when = {
        "removed": f"is gone since {seen_in(changed or ())}",
        "renamed": f"was renamed in {seen_in(changed or ())}",
        "added": f"comes with {seen_in(changed or ())}",
    }.get(state, "is in no release that was read")
    message = f"the key {path} of {value.option} {when}: vLLM {version_text(version)} {effect}"
    fix = renamed or _KEYS_INSTEAD.get(path.split(".")[-1])
    code = {"removed": "option-renamed" if fix else "option-removed", "renamed": "option-renamed"}.get(
        state, "option-unknown"
    )
    return Finding("error", code, message, fix or "leave it out")
