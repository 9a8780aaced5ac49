"""What stands against a fork: the CUDA driver, with a stand-in for its device file and for its library."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import types

import pytest

from .test_warm_gpu import Cuda, load


@pytest.fixture
def imports(monkeypatch):
    """The module, in a process that has no other thread, and torch without CUDA."""
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.main_thread()])
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=Cuda()))
    return load("warm_imports")


@pytest.fixture
def open_device(monkeypatch):
    """A descriptor of this process looks like one of that device."""
    real = os.readlink
    with contextlib.ExitStack() as stack:

        def put(device):
            file = stack.enter_context(open(os.devnull))
            mine = f"/proc/self/fd/{file.fileno()}"
            monkeypatch.setattr(os, "readlink", lambda path: device if path == mine else real(path))

        yield put


def has_driver(imports, monkeypatch, answer):
    """cuInit answers this, or raises it; returns how it was asked in this process."""
    asked = []

    def cu_init(flags):
        asked.append(flags)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(imports.ctypes, "CDLL", lambda name: types.SimpleNamespace(cuInit=cu_init))
    return asked


def test_without_its_device_the_driver_is_not_asked(imports, monkeypatch):
    monkeypatch.setattr(imports, "driver_starts_in_a_fork", lambda: pytest.fail("asked"))
    assert not imports.driver_in_use() and imports.against_a_fork() is None


@pytest.mark.parametrize(
    ("device", "in_use"),
    [("/dev/nvidia-uvm", True), ("/dev/nvidia-uvm-tools", True), ("/dev/nvidiactl", False), ("/dev/nvidia0", False)],
)
def test_the_drivers_device_is_told_from_nvmls(imports, open_device, device, in_use):
    open_device(device)
    assert imports.driver_in_use() is in_use


@pytest.mark.parametrize("answer", [3, 100, 256, -1, OSError("no library")])
def test_a_driver_that_refuses_a_child_stands_against_a_fork(imports, monkeypatch, open_device, answer):
    open_device("/dev/nvidia-uvm")
    has_driver(imports, monkeypatch, answer)
    assert imports.against_a_fork() == "started the CUDA driver"


def test_a_driver_that_starts_in_a_child_does_not(imports, monkeypatch, open_device):
    open_device("/dev/nvidia-uvm")
    asked = has_driver(imports, monkeypatch, 0)
    assert imports.against_a_fork() is None
    assert asked == []  # here: it was the child that asked
    with pytest.raises(ChildProcessError):  # none is left
        os.waitpid(-1, os.WNOHANG)


def test_an_initialised_cuda_is_named_first(imports, open_device):
    open_device("/dev/nvidia-uvm")
    sys.modules["torch"].cuda.initialised = True
    assert imports.against_a_fork() == "initialised CUDA"
