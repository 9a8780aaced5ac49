"""What several test folders share: which tests can run here, and the small model that engine tests serve."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def engine_here() -> str | None:
    """The interpreter that has vLLM: $ADVISOR_ENGINE_PYTHON, or this one; None where it is missing. Imports nothing."""
    named = os.environ.get("ADVISOR_ENGINE_PYTHON")
    if named:
        return named
    return sys.executable if importlib.util.find_spec("vllm") else None


def gpu_here() -> bool:
    """Whether the NVIDIA driver is loaded."""
    return Path("/proc/driver/nvidia/version").exists()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what cannot run here. `make test` sets ADVISOR_REQUIRE_ENGINE=1, and then a missing engine fails instead."""
    no_engine = engine_here() is None and os.environ.get("ADVISOR_REQUIRE_ENGINE") != "1"
    for item in items:
        if no_engine and item.get_closest_marker("engine"):
            item.add_marker(pytest.mark.skip(reason="no vLLM in this environment (make test installs it)"))
        if not gpu_here() and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no GPU on this machine"))


@pytest.fixture(scope="session")
def engine_python() -> str:
    """Path of an interpreter that can import vLLM. Only for tests marked `engine`."""
    found = engine_here()
    assert found is not None, "this test needs vLLM: run it with `make test`"
    return found


@pytest.fixture(scope="session")
def tiny_model(engine_python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a Llama of 2 layers x 128 without weights, to be served with --load-format dummy."""
    return _model(engine_python, tmp_path_factory, "tiny")


@pytest.fixture(scope="session")
def demo_model(engine_python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the model of `make tune`, without weights: a decode step takes milliseconds on a processor."""
    return _model(engine_python, tmp_path_factory, "demo")


def _model(python: str, folders: pytest.TempPathFactory, size: str) -> Path:
    folder = folders.mktemp("models") / size
    script = ROOT / "advisor" / "target" / "demo_model.py"
    subprocess.run([python, str(script), str(folder), "--size", size], check=True, capture_output=True)
    return folder
