"""Search-space files: `search_spaces/*.yaml` and a person's own, read and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from advisor.engine.render import SETTINGS, is_setting
from advisor.resources import search_space_path
from advisor.yaml_files import Mistakes, read_model

DEFAULT = "default"
LEGAL = "legal"


class SettingSpec(BaseModel):
    """One setting: its values in the order in which they are tried first, and when it exists at all."""

    model_config = ConfigDict(extra="forbid")

    values: list[Any] | Literal["legal"]
    when: dict[str, list[Any]] = Field(default_factory=dict)
    why: str = ""

    @field_validator("values")
    @classmethod
    def _not_empty(cls, values: Any) -> Any:
        if values == []:
            raise ValueError("an empty list of values leaves nothing to choose")
        return values


class SpaceSpec(BaseModel):
    """A search space. A setting's `when` may name only settings that stand above it, so choices follow the file's order."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    schema_version: Literal["advisor.space/1"] = Field(alias="schema")
    name: str
    settings: dict[str, SettingSpec]

    @model_validator(mode="after")
    def _consistent(self) -> SpaceSpec:
        found = [
            (("settings", name), problem)
            for name, spec in self.settings.items()
            for problem in self._problems(name, spec)
        ]
        if not self.settings:
            found.append((("settings",), "no settings to search"))
        if found:
            raise Mistakes(found)
        return self

    def _problems(self, name: str, spec: SettingSpec) -> list[str]:
        problems = []
        if not is_setting(name):
            problems.append(
                f"unknown setting {name!r}: use one of {', '.join(SETTINGS)}, a vLLM flag such as --max-num-seqs, or an "
                "environment variable in capitals"
            )
        if spec.values == LEGAL and name != "attention_backend":
            problems.append(f"{name}: `legal` is only for attention_backend")
        above = list(self.settings)[: list(self.settings).index(name)]
        for other, wanted in spec.when.items():
            if other not in above:
                problems.append(f"{name}: `when` names {other!r}, which does not stand above it")
                continue
            known = self.settings[other].values
            if known != LEGAL and not [value for value in wanted if value in known]:
                problems.append(f"{name}: contradictory: {other} is never one of {wanted}, so {name} could never exist")
        return problems


def load_space(name_or_path: str) -> SpaceSpec:
    """A shipped space by its name (`default`, `cpu`) or a file. Raises InputError with file and line."""
    looks_like_path = "/" in name_or_path or name_or_path.endswith((".yaml", ".yml"))
    path = Path(name_or_path) if looks_like_path else search_space_path(name_or_path)
    return read_model(path, "search space", SpaceSpec)
