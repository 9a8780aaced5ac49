"""The synthetic study of tests/profile, which exporters are tried on too."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from advisor.serving_profile.build import build_profile
from advisor.serving_profile.schema import Profile


@pytest.fixture(scope="session")
def study() -> ModuleType:
    """The module tests/profile/study_fixture.py."""
    path = Path(__file__).resolve().parent.parent / "profile" / "study_fixture.py"
    spec = importlib.util.spec_from_file_location("study_fixture", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def profile(study) -> Profile:
    return build_profile(study.RESULT)
