"""The synthetic study as fixtures, so that test files need no import of each other."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from advisor.serving_profile.build import build_profile
from advisor.serving_profile.schema import Profile


@pytest.fixture(scope="session")
def study() -> ModuleType:
    """The module study_fixture.py of this folder."""
    spec = importlib.util.spec_from_file_location("study_fixture", Path(__file__).with_name("study_fixture.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def profile(study) -> Profile:
    return build_profile(study.RESULT)
