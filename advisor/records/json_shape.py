"""Records as plain JSON values, and back."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any


def to_json(value: Any) -> Any:
    """Records, enums, tuples and mappings as plain JSON values; fields at their default None are kept out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {name: to_json(item) for name, item in pairs if item is not None}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value


def from_json(kind: Any, value: Any) -> Any:
    """Read back what `to_json` wrote, following the type hints of `kind`. Unknown fields are ignored (a newer writer)."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        inner = [arg for arg in typing.get_args(kind) if arg is not type(None)]
        return None if value is None else from_json(inner[0], value)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        names = {f.name for f in dataclasses.fields(kind)}
        return kind(**{name: from_json(hints[name], item) for name, item in value.items() if name in names})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if origin is tuple:
        item_kind = typing.get_args(kind)[0]
        return tuple(from_json(item_kind, item) for item in value)
    return value


def fingerprint(value: Any) -> str:
    """16 hex digits of the sha256 over canonical JSON: equal values, equal fingerprints."""
    text = json.dumps(to_json(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
