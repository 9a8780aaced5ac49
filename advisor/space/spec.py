"""Search-space files: `search_spaces/*.yaml` and a person's own, read and checked. docs/search-space.md describes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from advisor.engine.options import LAUNCH_OPTIONS
from advisor.engine.render import FLAG, SETTINGS, is_setting, same_setting
from advisor.errors import InputError
from advisor.resources import search_space_path
from advisor.yaml_files import Mistakes, read_model

DEFAULT = "default"
LEGAL = "legal"
SCHEMA_FILE = "schema.json"  # beside the shipped spaces
_NAMES = {
    "propertyNames": {
        "not": {"pattern": "^--(" + "|".join(name[2:].replace("-", "[-_]") for name in LAUNCH_OPTIONS) + ")$"},
        "anyOf": [{"enum": list(SETTINGS)}, {"pattern": f"^{FLAG}$"}, {"pattern": "^[A-Z][A-Z0-9_]*$"}],
    }
}
_A_VALUE = {"additionalProperties": {"not": {"enum": [None, DEFAULT]}}}
_LEGAL_ONLY_FOR_BACKENDS = {
    "allOf": [{"patternProperties": {"^(?!attention_backend$)": {"properties": {"values": {"type": "array"}}}}}]
}
# What a file extends has settings, and so has one with its own or with fixed ones.
_SOMETHING = {
    "anyOf": [
        {"required": ["extends"], "properties": {"extends": {"type": "string"}}},
        {"required": ["settings"], "properties": {"settings": {"minProperties": 1}}},
        {"required": ["fix"], "properties": {"fix": {"minProperties": 1}}},
    ]
}


class SettingSpec(BaseModel):
    """One setting: its values in the order in which they are tried first, and when it exists at all."""

    model_config = ConfigDict(extra="forbid")

    values: Annotated[
        list[Any] | Literal["legal"],
        Field(
            description="What is tried, in this order; `default` leaves the setting to vLLM. `legal` (attention_backend "
            "only): every backend that the installed vLLM accepts here.",
            json_schema_extra={"minItems": 1},
        ),
    ]
    when: Annotated[
        dict[str, list[Any]],
        Field(
            description="The setting exists only where each of these, which stand above it, has one of the values.",
            json_schema_extra={"additionalProperties": {"type": "array", "minItems": 1}},
        ),
    ] = Field(default_factory=dict)
    why: Annotated[str, Field(description="Why the values are worth a launch.")] = ""

    @field_validator("values")
    @classmethod
    def _not_empty(cls, values: Any) -> Any:
        if values == []:
            raise ValueError("an empty list of values leaves nothing to choose")
        return values


class SpaceSpec(BaseModel):
    """A search space with all its settings. A setting's `when` may name only settings that stand above it."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    schema_version: Literal["advisor.space/1"] = Field(default="advisor.space/1", alias="schema")
    name: str
    settings: dict[str, SettingSpec]


class SpaceFile(BaseModel):
    """A search space of `advisor tune --space FILE`: the settings that are searched, and their values."""

    model_config = ConfigDict(
        extra="forbid", populate_by_name=True, title="advisor search space", json_schema_extra=_SOMETHING
    )

    schema_version: Literal["advisor.space/1"] = Field(alias="schema")
    name: Annotated[str, Field(description="Shown in messages.")]
    extends: Annotated[
        str | None,
        Field(description="A shipped space by its name, or a file, whose settings this one begins with."),
    ] = None
    drop: Annotated[
        list[str], Field(description="Settings of the extended space that are not searched: vLLM's default stays.")
    ] = Field(default_factory=list)
    fix: Annotated[
        dict[str, Any],
        Field(description="Settings that every candidate has, with their value.", json_schema_extra=_NAMES | _A_VALUE),
    ] = Field(default_factory=dict)
    settings: Annotated[
        dict[str, SettingSpec],
        Field(
            description="Settings that are searched; choices follow this order.",
            json_schema_extra=_NAMES | _LEGAL_ONLY_FOR_BACKENDS,
        ),
    ] = Field(default_factory=dict)

    _whole: SpaceSpec = PrivateAttr()

    @property
    def whole(self) -> SpaceSpec:
        """The space with what it extends."""
        return self._whole

    @model_validator(mode="after")
    def _consistent(self, info: ValidationInfo) -> SpaceFile:
        chain = (info.context or {}).get("chain", ())
        base = _read(_base_path(self.extends, chain), chain).settings if self.extends else {}
        found = [*_problems_of_changes(self, base)]
        settings = _combined(self, base)
        own = {*self.settings, *self.fix}
        found += [
            (("settings", name) if name in self.settings else ("fix", name) if name in own else ("extends",), problem)
            for name, spec in settings.items()
            for problem in _problems(name, spec, settings)
        ]
        if not settings:
            found.append((("settings",), "no settings to search"))
        if found:
            raise Mistakes(found)
        self._whole = SpaceSpec(name=self.name, settings=settings)
        return self


# ---------------------------------------------------------------- combining


def _combined(file: SpaceFile, base: Mapping[str, SettingSpec]) -> dict[str, SettingSpec]:
    """Fixed settings first, then those of the base in its order with the file's changes, then the file's new ones.

    A changed setting keeps the base's `when` and `why` unless it brings its own.
    """
    found = {name: SettingSpec(values=[value]) for name, value in file.fix.items()}
    gone = {*file.drop, *file.fix}
    for name, spec in base.items():
        if name not in gone:
            changed = file.settings.get(name)
            given = {key: getattr(changed, key) for key in changed.model_fields_set} if changed else {}
            found[name] = spec.model_copy(update=given)
    found.update({name: spec for name, spec in file.settings.items() if name not in found})
    for name, spec in list(found.items()):
        if name in file.fix or (name in file.settings and "when" in file.settings[name].model_fields_set):
            continue
        kept = {other: wanted for other, wanted in spec.when.items() if other not in file.drop}
        missed = [other for other, wanted in spec.when.items() if other in file.drop and DEFAULT not in wanted]
        never = [other for other, wanted in kept.items() if other in file.fix and file.fix[other] not in wanted]
        if missed or never:  # with what the file drops or fixes it could not exist
            del found[name]
        else:
            found[name] = spec.model_copy(update={"when": kept})
    return found


def _problems_of_changes(file: SpaceFile, base: Mapping[str, SettingSpec]) -> list[tuple[tuple, str]]:
    found: list[tuple[tuple, str]] = []
    for index, name in enumerate(file.drop):
        if name not in base:
            whose = f"{file.extends!r} has no setting of that name" if file.extends else "nothing is extended"
            found.append((("drop", index), f"cannot drop {name!r}: {whose}"))
        if name in file.settings or name in file.fix:
            found.append((("drop", index), f"{name!r} is dropped and given at once"))
    for name, value in file.fix.items():
        if name in file.settings:
            found.append((("fix", name), f"{name!r} is fixed and searched at once"))
        if value is None or value == DEFAULT:
            found.append((("fix", name), f"{name!r} has no value; to leave it to vLLM, put it under `drop`"))
    return found


def _problems(name: str, spec: SettingSpec, settings: Mapping[str, SettingSpec]) -> list[str]:
    problems = []
    if not is_setting(name):
        problems.append(
            f"unknown setting {name!r}: use one of {', '.join(SETTINGS)}, a vLLM flag such as --seed, or an "
            "environment variable in capitals"
        )
    if name.startswith("--") and name.replace("_", "-") in LAUNCH_OPTIONS:
        problems.append(f"{name} may not be searched or fixed: the advisor sets that for each launch; leave it out")
    above = list(settings)[: list(settings).index(name)]
    problems += [
        f"{name} is the same setting as {other}, which stands above it"
        for other in above
        if same_setting(name) == same_setting(other)
    ]
    if spec.values == LEGAL and name != "attention_backend":
        problems.append(f"{name}: `legal` is only for attention_backend")
    for other, wanted in spec.when.items():
        if other not in above:
            problems.append(f"{name}: `when` names {other!r}, which does not stand above it")
            continue
        known = settings[other].values
        if known != LEGAL and not [value for value in wanted if value in known]:
            problems.append(f"{name}: contradictory: {other} is never one of {wanted}, so {name} could never exist")
    return problems


# ---------------------------------------------------------------- reading


def load_space(name_or_path: str) -> SpaceSpec:
    """A shipped space by its name (`default`, `scheduler`, `full`, `cpu`) or a file. Raises InputError with file and line."""
    return _read(_path(name_or_path), ())


def _path(name_or_path: str) -> Path:
    looks_like_path = "/" in name_or_path or name_or_path.endswith((".yaml", ".yml"))
    return Path(name_or_path) if looks_like_path else search_space_path(name_or_path)


def _base_path(name_or_path: str, chain: tuple[Path, ...]) -> Path:
    """A file that is extended lies relative to the file that names it."""
    path = _path(name_or_path)
    return path if path.is_absolute() or not chain else chain[-1].parent / path


def _read(path: Path, chain: tuple[Path, ...]) -> SpaceSpec:
    if path.resolve() in chain:
        names = " -> ".join(item.name for item in (*chain, path))
        raise InputError(f"search space {str(path)!r} extends itself: {names}")
    return read_model(path, "search space", SpaceFile, {"chain": (*chain, path.resolve())}).whole


def schema_text() -> str:
    """JSON Schema of the files, for editors: search_spaces/schema.json, written by `python -m advisor.space.spec`."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **SpaceFile.model_json_schema(by_alias=True)}
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    search_space_path("default").with_name(SCHEMA_FILE).write_text(schema_text(), encoding="utf-8")
