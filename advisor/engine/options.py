"""Options of `vllm serve` as one dictionary: parsed from a command line, changed, written out again.

The person's arguments are taken in and emitted anew rather than appended to, because vLLM merges a repeated option badly: JSON
followed by a dotted key of the same option loses the JSON without a word (found by running the parsers of 0.12 to 0.33).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.errors import InputError

# The launch chooses these itself; a person's own value would make the server unreachable for the measurement.
LAUNCH_OPTIONS = ("--host", "--port", "--served-model-name", "--uds", "--api-key", "--config", "--model")
# Options whose value is a dictionary; `-cc.mode=NONE` and `--compilation-config.mode NONE` both set one key of it.
_CONFIG_FLAGS = {
    "-cc": "--compilation-config",
    "-O": "--compilation-config",  # with a dotted key, until 0.12; without one it is the level
    "--compilation-config": "--compilation-config",
    "-ac": "--attention-config",
    "--attention-config": "--attention-config",
}
_SHORT_FLAGS = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-dcp": "--decode-context-parallel-size",
    "-pcp": "--prefill-context-parallel-size",
    "-ep": "--enable-expert-parallel",
    "-q": "--quantization",
}
# Flags that set a field of the compilation config: vLLM refuses one field given in both places, so there is one place.
_COMPILATION_FIELDS = {
    "--cudagraph-capture-sizes": "cudagraph_capture_sizes",
    "--max-cudagraph-capture-size": "max_cudagraph_capture_size",
}
COMPILATION = "--compilation-config"
ATTENTION = "--attention-config"


@dataclass(frozen=True)
class ServeOptions:
    """Long option name -> value: True or False (a switch), a string, a list of strings, or a dictionary (a config option)."""

    values: Mapping[str, Any] = field(default_factory=dict)

    def with_changes(self, changes: Mapping[str, Any]) -> ServeOptions:
        """A copy in which `changes` win; None removes an option; dictionaries are merged key by key, at every level."""
        merged = dict(self.values)
        for name, value in changes.items():
            if value is None:
                merged.pop(name, None)
            elif isinstance(value, Mapping) and isinstance(merged.get(name), Mapping):
                merged[name] = deep_merge(merged[name], value)
            else:
                merged[name] = value
        return ServeOptions(merged)

    def argv(self) -> list[str]:
        """Command-line tokens, each config option once and as JSON."""
        tokens: list[str] = []
        for name, value in self.values.items():
            tokens.extend(_tokens(name, value))
        return tokens


def _tokens(name: str, value: Any) -> list[str]:
    if value is True:
        return [name]
    if value is False:
        return ["--no-" + name.removeprefix("--")]
    if isinstance(value, Mapping):
        return [name, json.dumps(value, separators=(",", ":"))] if value else []
    if isinstance(value, list | tuple):
        return [name, *(str(item) for item in value)]
    return [name, str(value)]


def split_serve_args(text: str) -> list[str]:
    """Tokens of `--serve-args "..."` as a shell would split them. Raises InputError for an open quote, and for JSON without any.

    One pair of quotes keeps the whole together, and the shell's way of splitting then takes the JSON's own away.
    """
    try:
        tokens = shlex.split(text)
    except ValueError as error:
        raise InputError(f"--serve-args {text!r} cannot be split into words: {error}") from None
    bare = next((token for token in tokens if _lost_its_quotes(token, text)), None)
    if bare is not None:
        raise InputError(
            f"--serve-args: {bare!r} is JSON that lost its quotes",
            "JSON in it needs quotes of its own: --serve-args \"--option '{\\\"key\\\": 1}'\"",
        )
    return tokens


def _lost_its_quotes(token: str, text: str) -> bool:
    """Whether the token was JSON with quotes in the text, and has none of them."""
    value = token.partition("=")[2] if token.startswith("-") else token
    return value.startswith("{") and '"' not in value and re.search(r'\{\s*"', text) is not None and value != "{}"


def parse_options(tokens: Iterable[str]) -> ServeOptions:
    """Options from tokens of a `vllm serve` line, without the model. Raises InputError with token and position.

    A token that does not start with a dash belongs to the option before it. Later options win, as in vLLM's parser.
    """
    values: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for position, name, arguments in _grouped(list(tokens)):
        config, dot, key = name.partition(".")
        if config in _CONFIG_FLAGS and (dot or config != "-O"):
            option = _CONFIG_FLAGS[config]
            form = f"{config}." if dot else "JSON"
            if spelled.setdefault(option, form) != form:
                raise InputError(
                    f"--serve-args: {name!r} at word {position} mixes two spellings of {option}; vLLM would drop one of them",
                    f"write {option} once, as JSON",
                )
            given = _nested(key, _scalar(name, position, arguments)) if dot else _json(name, position, arguments)
            values[option] = deep_merge(values.get(option, {}), given) if dot else given
        elif level := re.fullmatch(r"-O(\d)?", name):
            values["--optimization-level"] = level[1] or _scalar(name, position, arguments)
        else:
            _set_plain(values, name, arguments)
    return ServeOptions(_fold_compilation_fields(values))


def _set_plain(values: dict[str, Any], name: str, arguments: list[str]) -> None:
    name = _SHORT_FLAGS.get(name, name)
    if name.startswith("--no-") and not arguments:
        values["--" + name.removeprefix("--no-")] = False
    else:
        values[name] = True if not arguments else arguments[0] if len(arguments) == 1 else arguments


def _grouped(tokens: list[str]) -> list[tuple[int, str, list[str]]]:
    """(position counted from 1, option in its dashed form, its arguments) for each option."""
    groups: list[tuple[int, str, list[str]]] = []
    for position, token in enumerate(tokens, start=1):
        if re.match(r"-{1,2}[A-Za-z]", token):
            name, equals, value = token.partition("=")
            groups.append((position, _dashed(name), [value] if equals else []))
        elif groups:
            groups[-1][2].append(token)
        else:
            raise InputError(
                f"--serve-args: {token!r} at word {position} is not an option of `vllm serve`",
                "the model is given by --model",
            )
    return groups


def _dashed(name: str) -> str:
    head, dot, key = name.partition(".")
    return (head.replace("_", "-") if head.startswith("--") else head) + dot + key


def _scalar(name: str, position: int, arguments: list[str]) -> str:
    if len(arguments) != 1:
        raise InputError(f"--serve-args: {name!r} at word {position} needs one value, found {len(arguments)}")
    return arguments[0]


def _json(name: str, position: int, arguments: list[str]) -> dict[str, Any]:
    text = _scalar(name, position, arguments)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"--serve-args: the value of {name!r} at word {position} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"--serve-args: the value of {name!r} at word {position} must be a JSON object, found {text}")
    return value


def _nested(dotted: str, text: str) -> dict[str, Any]:
    try:
        value: Any = json.loads(text)
    except json.JSONDecodeError:
        value = text
    for key in reversed(dotted.split(".")):
        value = {key: value}
    return value


def deep_merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `old` in which `new` wins, key by key at every level."""
    merged = dict(old)
    for key, value in new.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = deep_merge(merged[key], value) if both else value
    return merged


def _fold_compilation_fields(values: dict[str, Any]) -> dict[str, Any]:
    folded = {name: value for name, value in values.items() if name not in _COMPILATION_FIELDS}
    for flag, name in _COMPILATION_FIELDS.items():
        if flag not in values:
            continue
        config = folded.setdefault(COMPILATION, {})
        if name in config:
            raise InputError(f"--serve-args: {flag} and {COMPILATION} both set {name}; vLLM refuses that")
        given = values[flag] if isinstance(values[flag], list) else [values[flag]]
        if not all(re.fullmatch(r"\d+", str(item)) for item in given):
            raise InputError(
                f"--serve-args: {flag} takes whole numbers separated by spaces, found {' '.join(map(str, given))!r}"
            )
        sizes = [int(item) for item in given]
        folded[COMPILATION] = {**config, name: sizes if name.endswith("sizes") else sizes[0]}
    return folded
