"""What the warm launcher tells its imports of the GPU, with stand-ins for vLLM's platform and for torch."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
import types
from pathlib import Path
from typing import NamedTuple

import pytest

import advisor


def load(name):
    path = Path(advisor.__file__).parent / "target" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def gpu():
    return load("warm_gpu")


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


def seen_inside(gpu, platform="cuda"):
    with gpu.flashinfer_told_the_gpu(platform):
        return os.environ.get(gpu.ARCH_LIST)


def test_flashinfer_is_told_the_gpu_for_the_imports_only(gpu, place):
    place(NvmlCudaPlatform())
    assert seen_inside(gpu) == "9.0"
    assert gpu.ARCH_LIST not in os.environ


def test_each_kind_of_gpu_is_named_once(gpu, place):
    mixed = NvmlCudaPlatform()
    mixed.gpus = (Capability(9, 0), Capability(8, 9), Capability(9, 0))
    place(mixed)
    assert seen_inside(gpu) == "8.9 9.0"


def test_a_persons_own_list_stays(gpu, place, monkeypatch):
    place(NvmlCudaPlatform())
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", "12.0f")
    assert seen_inside(gpu) == "12.0f"
    assert os.environ["FLASHINFER_CUDA_ARCH_LIST"] == "12.0f"


def test_nothing_is_asked_that_would_start_cuda(gpu, place):
    place(NonNvmlCudaPlatform())
    assert seen_inside(gpu) is None


def test_an_older_release_that_cannot_count_is_left_alone(gpu, place):
    class NvmlOld(NvmlCudaPlatform):
        device_count = None

    place(NvmlOld())
    assert seen_inside(gpu) is None


def test_other_platforms_have_no_flashinfer(gpu, place):
    place(NvmlCudaPlatform())
    assert seen_inside(gpu, "cpu") is None


def test_the_variable_goes_when_an_import_is_unfit(gpu, place):
    place(NvmlCudaPlatform())
    with pytest.raises(RuntimeError), gpu.told("cuda"):
        raise RuntimeError("importing x initialised CUDA")
    assert gpu.ARCH_LIST not in os.environ


# ---------------------------------------------------------------- what torch is asked


class Properties:
    """Of an H200, as C++ gives them: attributes, of which one is no plain value."""

    name, major, minor, multi_processor_count, uuid = "NVIDIA H200", 9, 0, 132, b"GPU"


class Cuda:
    """torch.cuda: to tell of a GPU, it initialises CUDA in the process that asks."""

    def __init__(self, fails=False):
        self.initialised, self.fails = False, fails

    def is_initialized(self):
        return self.initialised

    def get_device_properties(self, device=None):
        if self.fails:
            raise RuntimeError("no GPU")
        self.initialised = True
        return Properties

    def get_device_capability(self, device=None):
        found = self.get_device_properties(device)
        return found.major, found.minor

    def get_device_name(self, device=None):
        return self.get_device_properties(device).name


@pytest.fixture
def cuda(monkeypatch):
    """Put in torch's place; a `Cuda` whose functions can be replaced, as a module's can."""
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=Cuda()))
    return sys.modules["torch"].cuda


def test_an_import_that_asks_for_the_gpu_starts_no_cuda_here(gpu, cuda):
    with gpu.torch_asks_in_a_child("cuda"):
        assert cuda.get_device_properties(0).multi_processor_count == 132
        assert cuda.get_device_capability(0) == (9, 0) and cuda.get_device_name() == "NVIDIA H200"
        assert not hasattr(cuda.get_device_properties(0), "uuid")
    assert not cuda.initialised
    with pytest.raises(ChildProcessError):  # none is left, nor anybody to wait for
        os.waitpid(-1, os.WNOHANG)


def test_one_child_answers_all_questions_of_a_gpu(gpu, cuda, monkeypatch):
    asked = []
    monkeypatch.setattr(gpu, "ask_child", lambda question: asked.append(1) or types.SimpleNamespace(**question()))
    with gpu.torch_asks_in_a_child("cuda"):
        cuda.initialised = False
        for _ in range(3):
            cuda.get_device_properties(0)
            cuda.initialised = False  # this stand-in asked right here
            cuda.get_device_capability(0)
    assert asked == [1]


def test_who_took_a_function_over_by_name_has_the_real_one_afterwards(gpu, cuda):
    with gpu.torch_asks_in_a_child("cuda"):
        taken = cuda.get_device_properties
    assert taken(0) is Properties and cuda.initialised
    assert cuda.get_device_properties(0) is Properties


def test_where_no_child_can_tell_the_import_gets_what_it_always_got(gpu, cuda):
    cuda.fails = True
    with gpu.torch_asks_in_a_child("cuda"), pytest.raises(RuntimeError, match="no GPU"):
        cuda.get_device_properties(0)


def test_a_child_that_hangs_is_ended(gpu, monkeypatch):
    monkeypatch.setattr(gpu, "CHILD_S", 0.2)
    assert gpu.ask_child(lambda: time.sleep(60)) is None
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_other_platforms_are_asked_nothing(gpu, cuda):
    with gpu.torch_asks_in_a_child("cpu"):
        assert cuda.get_device_properties(0) is Properties
