"""Waiting for GPU memory to come back, with a made-up NVML."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from advisor.launch import gpu_memory
from advisor.launch.gpu_memory import MIB, GpuMemoryHeld, Watch, excess, holders, used, wait_released
from advisor.records import GpuFacts

GPU = GpuFacts("cuda", "NVIDIA H200", "h200", 1, 140.0, uuids=("GPU-a",))
CPU = GpuFacts("cpu", "cpu", "cpu", 1, 16.0)


def test_no_gpu_nothing_to_wait_for() -> None:
    assert used(CPU) is None
    watch = Watch(CPU)
    assert watch.total_mib() == 0
    watch.wait_released()


def test_small_changes_are_tolerated() -> None:
    assert excess({"GPU-a": 1000}, {"GPU-a": 1000 + gpu_memory.TOLERANCE_MIB}) == {}
    assert excess({"GPU-a": 1000}, {"GPU-a": 1400}) == {"GPU-a": 400}
    assert excess({}, {"GPU-a": 900}) == {}


def test_waits_until_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_memory, "POLL_S", 0.0)
    readings = iter([{"GPU-a": 90_000}, {"GPU-a": 20_000}, {"GPU-a": 600}])
    wait_released(GPU, {"GPU-a": 500}, read=lambda _: next(readings))
    assert next(readings, None) is None


def test_only_gpus_that_the_launch_took_memory_on_count(monkeypatch: pytest.MonkeyPatch) -> None:
    two = GpuFacts("cuda", "NVIDIA H200", "h200", 2, 140.0, uuids=("GPU-a", "GPU-b"))
    readings = iter([{"GPU-a": 500, "GPU-b": 500}, {"GPU-a": 90_000, "GPU-b": 500}])
    monkeypatch.setattr(gpu_memory, "used", lambda gpu: next(readings))
    watch = Watch(two)
    assert watch.total_mib() == 90_500
    waited: list[dict] = []
    monkeypatch.setattr(gpu_memory, "wait_released", lambda gpu, before: waited.append(before))
    watch.wait_released()
    assert waited == [{"GPU-a": 500}]


def fake_nvml() -> SimpleNamespace:
    running = [SimpleNamespace(pid=1, usedGpuMemory=2048 * MIB), SimpleNamespace(pid=2**22 + 1, usedGpuMemory=None)]
    return SimpleNamespace(
        NVMLError=OSError,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=3000 * MIB),
        nvmlDeviceGetComputeRunningProcesses=lambda handle: running,
    )


def test_who_holds_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_memory, "_nvml", fake_nvml)
    assert used(GPU) == {"GPU-a": 3000}
    assert [(holder.pid, holder.mib) for holder in holders(GPU)] == [(1, 2048), (2**22 + 1, None)]
    with pytest.raises(GpuMemoryHeld) as caught:
        wait_released(GPU, {"GPU-a": 500}, timeout_s=0)
    assert "2.4 GiB on GPU-a" in caught.value.problem
    assert "pid 1 (" in caught.value.problem
    assert "2.0 GiB" in caught.value.problem
    assert caught.value.exit_code == 3
