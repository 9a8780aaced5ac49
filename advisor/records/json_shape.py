"""Records as plain JSON values, and back."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any

_PLAIN = {str, int, float, bool, type(None)}  # by their exact type: an enum may be a str too


def to_json(value: Any) -> Any:
    """Records, enums, tuples and mappings as plain JSON values; fields at their default None are kept out."""
    if type(value) in _PLAIN:
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {name: to_json(item) for name, item in pairs if item is not None}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): item if type(item) in _PLAIN else to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [item if type(item) in _PLAIN else to_json(item) for item in value]
    return value


def from_json(kind: Any, value: Any) -> Any:
    """Read back what `to_json` wrote, following the type hints of `kind`. Unknown fields are ignored (a newer writer)."""
    read = _reader(kind)
    return value if read is None else read(value)


@cache
def _reader(kind: Any) -> Callable[[Any], Any] | None:
    """What makes a value of this type out of JSON; None where JSON's own value is it already.

    Type hints are looked at once: a journal has hundreds of records, and answers of the output gate have thousands of numbers.
    """
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        read = _reader(next(arg for arg in typing.get_args(kind) if arg is not type(None)))
        return None if read is None else lambda value: None if value is None else read(value)
    if dataclasses.is_dataclass(kind):
        return lambda value: _record(kind, value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if origin is tuple:
        read = _reader(typing.get_args(kind)[0])
        return tuple if read is None else lambda value: tuple(read(item) for item in value)
    return None


def _record(kind: Any, value: Mapping[str, Any]) -> Any:
    readers = _readers(kind)
    known = ((name, item, readers[name]) for name, item in value.items() if name in readers)
    return kind(**{name: item if read is None else read(item) for name, item, read in known})


@cache
def _readers(kind: Any) -> dict[str, Callable[[Any], Any] | None]:
    """Field -> its reader; asked for when the first record is read, since a record may hold others of its own type."""
    hints = typing.get_type_hints(kind)
    return {field.name: _reader(hints[field.name]) for field in dataclasses.fields(kind)}


def fingerprint(value: Any) -> str:
    """16 hex digits of the sha256 over canonical JSON: equal values, equal fingerprints."""
    text = json.dumps(to_json(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
