"""YAML files that people write: read safely, checked against a pydantic model, every mistake named with its line."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pydantic
import yaml

from advisor.errors import InputError

Model = TypeVar("Model", bound=pydantic.BaseModel)


class Mistakes(ValueError):
    """For validators of a whole model: each mistake with the key path it is at, so that it is told with its line."""

    def __init__(self, found: Sequence[tuple[tuple, str]]):
        super().__init__("; ".join(message for _, message in found))
        self.found = tuple(found)


class _Twice(Exception):
    """A key that stands twice in one mapping, of which YAML silently keeps the last."""

    def __init__(self, name: Any, line: int, first_line: int):
        super().__init__(f"line {line}: key {name!r} stands here again, first in line {first_line}")


def read_yaml(path: Path, what: str) -> tuple[Any, dict[tuple, int]]:
    """The file's data, and for each key path (a tuple of keys and indices) the line it starts on, counted from 1.

    `what` names the file's role in messages ("search space"). Raises InputError when it is missing, unreadable or not YAML.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{what} {str(path)!r} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{what} {str(path)!r} cannot be read: {why}") from None
    try:
        node, data = _parsed(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise InputError(f"{what} {str(path)!r}{place}: not valid YAML: {problem}") from None
    lines: dict[tuple, int] = {}
    if node is not None:
        try:
            _collect_lines(node, (), lines)
        except _Twice as twice:
            raise InputError(f"{what} {str(path)!r}, {twice}") from None
        except RecursionError:
            raise InputError(f"{what} {str(path)!r}: an alias refers to what contains it") from None
    return data, lines


def _parsed(text: str) -> tuple[yaml.Node | None, Any]:
    """The text's node, and its data. libyaml reads ten times as fast; its words for mistakes are not as good."""
    try:
        return _parsed_by(getattr(yaml, "CSafeLoader", yaml.SafeLoader), text)
    except yaml.YAMLError:
        return _parsed_by(yaml.SafeLoader, text)


def _parsed_by(kind: Any, text: str) -> tuple[yaml.Node | None, Any]:
    loader = kind(text)
    try:
        node = loader.get_single_node()
        return node, None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


def _collect_lines(node: yaml.Node, place: tuple, lines: dict[tuple, int]) -> None:
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = yaml.safe_load(key.value) if key.tag.endswith((":int", ":bool")) else key.value
            line = key.start_mark.line + 1
            if isinstance(name, str) and (*place, name) in lines:
                raise _Twice(name, line, lines[(*place, name)])
            lines[(*place, name)] = line
            _collect_lines(value, (*place, name), lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _collect_lines(item, (*place, index), lines)


def read_model(path: Path, what: str, model: type[Model], context: Mapping[str, Any] | None = None) -> Model:
    """The file as an instance of `model`. Raises one InputError that lists all mistakes, one line each, with file and line.

    `context` is what the model's validators are told beside the data.
    """
    data, lines = read_yaml(path, what)
    if not isinstance(data, dict):
        raise InputError(f"{what} {str(path)!r}: expected a mapping of keys, found {type(data).__name__}")
    try:
        return model.model_validate(data, context=dict(context or {}))
    except pydantic.ValidationError as error:
        mistakes = [line for item in error.errors() for line in _mistakes(item, lines, model)]
        first, *rest = dict.fromkeys(mistakes)
        raise InputError(f"{what} {str(path)!r}, {first}", "\n".join(rest) or None) from None


def _mistakes(item: Any, lines: dict[tuple, int], model: type[pydantic.BaseModel]) -> list[str]:
    cause = (item.get("ctx") or {}).get("error")
    if isinstance(cause, Mistakes):
        return [f"line {_line(place, lines)}: {message}" for place, message in cause.found]
    return [_mistake(item, lines, model)]


def _line(place: tuple, lines: dict[tuple, int]) -> int:
    """Line of the innermost part of the place that the file has."""
    while place and place not in lines:
        place = place[:-1]
    return lines.get(place, 1)


def _mistake(item: Any, lines: dict[tuple, int], model: type[pydantic.BaseModel]) -> str:
    place = tuple(item["loc"])
    known = place
    while known and known not in lines:
        known = known[:-1]
    where = ".".join(str(part) for part in known) or "the top level"
    line = lines.get(known, 1)
    if item["type"] == "extra_forbidden":
        return f"line {line}: unknown key {place[-1]!r}{_allowed(place, model)}"
    if item["type"] == "missing":
        return f"line {line}: {place[-1]!r} is missing"
    message = item["msg"].removeprefix("Value error, ")
    shown = "" if isinstance(item["input"], dict | list) else f" (found {item['input']!r})"
    return f"line {line}: {where}: {message[:1].lower()}{message[1:]}{shown}"


def _allowed(place: tuple, model: type[pydantic.BaseModel]) -> str:
    """`; allowed: a, b, c` for a key of the top level, with the nearest name first where one is near."""
    if len(place) != 1:
        return ""
    names = [field.alias or name for name, field in model.model_fields.items() if not field.exclude]
    near = difflib.get_close_matches(str(place[0]), names, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"{hint}; allowed: {', '.join(names)}"
