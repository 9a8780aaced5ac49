"""docs/profile.md explains every field of the schema, and no field that is not there."""

from __future__ import annotations

import re
import typing
from pathlib import Path

from pydantic import BaseModel

from advisor.serving_profile.schema import Profile
from advisor.serving_profile.values import Figure, Ratio

DOCS = Path(__file__).resolve().parents[2] / "docs" / "profile.md"


def parts(annotation) -> list[type[BaseModel]]:
    """Models inside a field's type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [part for inner in typing.get_args(annotation) for part in parts(inner)]


def field_names(model: type[BaseModel]) -> set[str]:
    names = set()
    for name, info in model.model_fields.items():
        names.add(info.alias or name)
        for part in parts(info.annotation):
            names |= field_names(part) if part not in (Figure, Ratio) else set()
    return names


def test_every_field_is_explained():
    explained = set(re.findall(r"`([a-z0-9_]+)`", DOCS.read_text()))
    assert field_names(Profile) - explained == set()


def test_the_table_names_no_other_field():
    cells = [line.split("|")[2] for line in DOCS.read_text().splitlines() if line.startswith("| ")][1:]
    named = {name for cell in cells for name in re.findall(r"`([a-z0-9_]+)`", cell)}
    assert named - field_names(Profile) == set()


def test_every_field_has_a_description():
    def missing(model: type[BaseModel]) -> list[str]:
        found = [f"{model.__name__}.{name}" for name, info in model.model_fields.items() if not info.description]
        inner = [part for info in model.model_fields.values() for part in parts(info.annotation)]
        return found + [name for part in inner if part not in (Figure, Ratio) for name in missing(part)]

    assert missing(Profile) == []
