"""YAML files that people write: read safely, checked against a pydantic model, every mistake named with its line."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, TypeVar

import pydantic
import yaml

from advisor.errors import InputError

Model = TypeVar("Model", bound=pydantic.BaseModel)


def read_yaml(path: Path, what: str) -> tuple[Any, dict[tuple, int]]:
    """The file's data, and for each key path (a tuple of keys and indices) the line it starts on, counted from 1.

    `what` names the file's role in messages ("search space"). Raises InputError when it is missing, unreadable or not YAML.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{what} {str(path)!r} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{what} {str(path)!r} cannot be read: {error}") from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise InputError(f"{what} {str(path)!r}{place}: not valid YAML: {problem}") from None
    lines: dict[tuple, int] = {}
    if node is not None:
        _collect_lines(node, (), lines)
    return data, lines


def _collect_lines(node: yaml.Node, place: tuple, lines: dict[tuple, int]) -> None:
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = yaml.safe_load(key.value) if key.tag.endswith((":int", ":bool")) else key.value
            lines[(*place, name)] = key.start_mark.line + 1
            _collect_lines(value, (*place, name), lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _collect_lines(item, (*place, index), lines)


def read_model(path: Path, what: str, model: type[Model]) -> Model:
    """The file as an instance of `model`. Raises one InputError that lists all mistakes, one line each, with file and line."""
    data, lines = read_yaml(path, what)
    if not isinstance(data, dict):
        raise InputError(f"{what} {str(path)!r}: expected a mapping of keys, found {type(data).__name__}")
    try:
        return model.model_validate(data)
    except pydantic.ValidationError as error:
        mistakes = [_mistake(item, lines, model) for item in error.errors()]
        first, *rest = dict.fromkeys(mistakes)
        raise InputError(f"{what} {str(path)!r}, {first}", "\n".join(rest) or None) from None


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
    names = [field.alias or name for name, field in model.model_fields.items()]
    near = difflib.get_close_matches(str(place[0]), names, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"{hint}; allowed: {', '.join(names)}"
