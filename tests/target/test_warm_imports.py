"""What the warm launcher does around its imports, with a stand-in for vLLM's platform."""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from pathlib import Path
from typing import NamedTuple

import pytest

import advisor


@pytest.fixture
def imports():
    path = Path(advisor.__file__).parent / "target" / "warm_imports.py"
    spec = importlib.util.spec_from_file_location("warm_imports", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Capability(NamedTuple):
    major: int
    minor: int


class NvmlCudaPlatform:
    gpus = (Capability(9, 0),)

    def device_count(self):
        return len(self.gpus)

    def get_device_capability(self, number):
        return self.gpus[number]


class NonNvmlCudaPlatform(NvmlCudaPlatform):
    def get_device_capability(self, number):
        raise AssertionError("this would initialise CUDA")


@pytest.fixture
def place(monkeypatch):
    def put(platform):
        module = types.ModuleType("vllm.platforms")
        module.current_platform = platform
        monkeypatch.setitem(sys.modules, "vllm", types.ModuleType("vllm"))
        monkeypatch.setitem(sys.modules, "vllm.platforms", module)

    monkeypatch.delenv("FLASHINFER_CUDA_ARCH_LIST", raising=False)
    return put


def seen_inside(imports, platform="cuda"):
    with imports.flashinfer_told_the_gpu(platform):
        return os.environ.get(imports.ARCH_LIST)


def test_flashinfer_is_told_the_gpu_for_the_imports_only(imports, place):
    place(NvmlCudaPlatform())
    assert seen_inside(imports) == "9.0"
    assert imports.ARCH_LIST not in os.environ


def test_each_kind_of_gpu_is_named_once(imports, place):
    mixed = NvmlCudaPlatform()
    mixed.gpus = (Capability(9, 0), Capability(8, 9), Capability(9, 0))
    place(mixed)
    assert seen_inside(imports) == "8.9 9.0"


def test_a_persons_own_list_stays(imports, place, monkeypatch):
    place(NvmlCudaPlatform())
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", "12.0f")
    assert seen_inside(imports) == "12.0f"
    assert os.environ["FLASHINFER_CUDA_ARCH_LIST"] == "12.0f"


def test_nothing_is_asked_that_would_start_cuda(imports, place):
    place(NonNvmlCudaPlatform())
    assert seen_inside(imports) is None


def test_an_older_release_that_cannot_count_is_left_alone(imports, place):
    class NvmlOld(NvmlCudaPlatform):
        device_count = None

    place(NvmlOld())
    assert seen_inside(imports) is None


def test_other_platforms_have_no_flashinfer(imports, place):
    place(NvmlCudaPlatform())
    assert seen_inside(imports, "cpu") is None


def test_the_variable_goes_when_an_import_is_unfit(imports, place):
    place(NvmlCudaPlatform())
    with pytest.raises(imports.Unfit), imports.flashinfer_told_the_gpu("cuda"):
        raise imports.Unfit("importing x initialised CUDA", "x")
    assert imports.ARCH_LIST not in os.environ
