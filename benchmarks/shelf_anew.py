"""Profiles that were measured with another model folder than the one that is made today, by the hash of its config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from advisor.inspection.model import local_model
from advisor.records.json_shape import fingerprint
from advisor.serving_profile.schema import Profile
from benchmarks.model_folders import ARCHITECTURES, COMMON, demo_model


def has_earlier_folder(profile: Profile, models: Path | None = None) -> bool:
    """`models`: a folder that is there counts as it is; else what would be written. False for a model that is not made here."""
    name = profile.model.id
    if not profile.model.local_folder or name not in (*ARCHITECTURES, *demo_model.SIZES):
        return False
    there = models is not None and (models / name / "config.json").exists()
    return fingerprint(local_model(str(models / name)) if there else _written(name)) != profile.model.config_hash


def _written(name: str) -> dict[str, Any]:
    return {**COMMON, **ARCHITECTURES[name]} if name in ARCHITECTURES else demo_model.config(name)
