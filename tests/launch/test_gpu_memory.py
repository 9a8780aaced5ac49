"""GPU memory before, during and after a launch, with a made-up NVML: who has it is named, and no candidate is blamed."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from advisor import nvml
from advisor.launch import gpu_memory, server
from advisor.launch.failure import LaunchFailed
from advisor.launch.gpu_memory import (
    GpuInUse,
    GpuMemoryHeld,
    Watch,
    check_alone,
    excess,
    foreign,
    used,
    wait_clean,
    wait_released,
)
from advisor.launch.gpu_room import Room, asked
from advisor.nvml import OUTSIDE, Holder, holders
from advisor.records import GpuFacts
from tests.fakes.fake_nvml import FakeGpu, FakeNvml

GPU = GpuFacts("cuda", "NVIDIA H200", "h200", 1, 140.0, uuids=("GPU-a",))
TWO = GpuFacts("cuda", "NVIDIA H200", "h200", 2, 140.0, uuids=("GPU-a", "GPU-b"))
CPU = GpuFacts("cpu", "cpu", "cpu", 1, 16.0)
STRANGER = 2**22 + 1  # more than Linux's largest pid
OURS = os.getpid()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeGpu]:
    """Makes a machine of one GPU, GPU-a, and returns the GPU. Pids are this container's own, unless said otherwise."""

    def make(pids_known: bool = True, **figures) -> FakeGpu:
        gpu = FakeGpu(**figures)
        monkeypatch.setattr(nvml, "library", lambda: FakeNvml(GPU_a=gpu))
        monkeypatch.setattr(nvml, "pids_are_ours", lambda listed, ours: pids_known)
        monkeypatch.setattr(nvml, "has_gpu_open", lambda pid: True)
        monkeypatch.setattr(gpu_memory, "POLL_S", 0.0)
        return gpu

    return make


# ---------------------------------------------------------------- who holds it


def test_no_gpu_nothing_to_wait_for() -> None:
    assert used(CPU) is None
    watch = Watch(CPU)
    assert watch.total_mib() == 0
    watch.wait_released()
    wait_clean(CPU, 0.9, None)


def test_holders_are_named_with_their_memory(machine) -> None:
    machine(used=3000, processes={OURS: 2048, STRANGER: 512}, graphics={1: None})
    assert used(GPU) == {"GPU-a": 3000}
    found = holders(GPU.uuids)
    assert [(holder.pid, holder.mib) for holder in found] == [(OURS, 2048), (STRANGER, 512), (1, None)]
    assert found[0].name.startswith("python") or "pytest" in found[0].name
    assert found[1].name == OUTSIDE
    assert nvml.told(found).endswith(f"pid {STRANGER} ({OUTSIDE}, 0.5 GiB) and {found[2]}")
    assert nvml.told([]) == f"{OUTSIDE} (the driver lists no process)"


@pytest.mark.parametrize("old_driver", [False, True])
def test_what_the_driver_keeps_for_itself_is_not_others_memory(machine, monkeypatch, old_driver) -> None:
    """An empty H200: 615 MiB by the old structure, nothing by the new one (recorded, driver 580)."""
    machine(used=0)
    monkeypatch.setattr(FakeNvml, "old_driver", old_driver)
    assert used(GPU) == {"GPU-a": 615 if old_driver else 0}
    assert gpu_memory.totals(GPU)["GPU-a"] >= 143156
    wait_clean(GPU, 0.99, None, timeout_s=0)


def test_a_pid_of_another_namespace_gets_no_name_of_ours(machine, monkeypatch) -> None:
    """In a container NVML may give the machine's pids: then pid N here is another process, without a GPU file open."""
    machine(processes={OURS: 2048})
    monkeypatch.undo()
    assert nvml.has_gpu_open(OURS) is False and nvml.name_of(OURS) == OUTSIDE


def test_memory_of_a_process_on_two_gpus_is_added() -> None:
    assert nvml.added([{1: 100, 2: None}, {1: 50, 2: 7}]) == {1: 150, 2: None}


# ---------------------------------------------------------------- before a launch


@pytest.mark.parametrize(
    ("words", "room"),
    [
        ((), Room(0.9, 1)),
        (("--gpu-memory-utilization", "0.5", "-tp", "2"), Room(0.5, 2)),
        (("--gpu_memory_utilization=0.5", "--tensor-parallel-size=2", "--pipeline-parallel-size", "2"), Room(0.5, 4)),
        (("--config", "serve.yaml"), Room(None, 1)),
        (("--config", "serve.yaml", "--gpu-memory-utilization", "0.8"), Room(0.8, 1)),
    ],
)
def test_the_room_that_a_command_asks_for(words, room) -> None:
    assert asked(("python", "-m", "vllm", "serve", "some/model", *words)) == room


@pytest.mark.parametrize(
    ("mib", "share", "usual", "in_the_way"),
    [
        (900, 0.999, None, False),  # a desktop is nobody's fault, and 0.999 is the settings' own
        (8_000, 0.9, None, False),  # 94% is free
        (20_000, 0.9, None, True),  # 86% is free
        (20_000, None, None, False),  # a config file may say anything: the launch will tell
        (20_000, 0.5, 20_000, False),  # was there when the study began
        (24_000, 0.5, 20_000, True),  # was not
    ],
)
def test_what_stands_in_the_way_of_a_launch(mib, share, usual, in_the_way) -> None:
    held = foreign({"GPU-a": mib}, {"GPU-a": 143771}, share, None if usual is None else {"GPU-a": usual})
    assert held == ({"GPU-a": mib} if in_the_way else {})


def test_a_dirty_gpu_is_told_before_anything_is_launched(machine, tmp_path, fake_server) -> None:
    machine(used=20_000, processes={OURS: 19_000})
    with pytest.raises(GpuInUse) as caught:
        wait_clean(GPU, 0.9, None, timeout_s=0)
    name = nvml.name_of(OURS)
    assert caught.value.problem == (
        f"GPU memory is in use by others: 19.5 GiB on GPU-a, held by pid {OURS} ({name}, 18.6 GiB); "
        "vLLM wants 125.8 GiB of 139.8 GiB free (--gpu-memory-utilization 0.9)"
    )
    assert "--gpu-memory-utilization 0.85'" in caught.value.hint
    assert caught.value.exit_code == 3


def test_a_dirty_gpu_ends_the_launch_before_a_process_exists(machine, fake_server, monkeypatch) -> None:
    machine(used=20_000)
    monkeypatch.setattr(gpu_memory, "CLEAN_TIMEOUT_S", 0.0)
    launched = fake_server(gpu=GPU)
    with pytest.raises(GpuInUse, match="the driver lists no process"), launched:
        pytest.fail("it must not be launched")
    assert not launched.log_path.exists()


def test_memory_that_is_just_being_freed_is_waited_for(machine) -> None:
    gpu = machine(used=20_000)
    waited: list[int] = []

    def free_it() -> None:
        waited.append(gpu.used)
        gpu.used -= 6_000

    wait_clean(GPU, 0.9, None, timeout_s=60, waiting=free_it)
    assert waited == [20_000]


def test_only_the_gpus_of_the_launch_count(monkeypatch) -> None:
    monkeypatch.setattr(nvml, "library", lambda: FakeNvml(GPU_a=FakeGpu(used=10), GPU_b=FakeGpu(used=90_000)))
    wait_clean(TWO, 0.9, None, count=1, timeout_s=0)
    with pytest.raises(GpuInUse, match="GPU-b"):
        wait_clean(TWO, 0.9, None, count=2, timeout_s=0)


# ---------------------------------------------------------------- a start that had to share


def test_an_out_of_memory_beside_an_intruder_is_not_the_candidates(machine, fake_server, monkeypatch) -> None:
    """The intruder comes while the server starts, takes 60 GiB, and the server runs out of memory."""
    gpu = machine(used=500)
    launched = fake_server("oom_at_load", gpu=GPU, on_event=lambda name, at_s: intrude(gpu, name))
    with pytest.raises(GpuInUse) as caught, launched:
        pass
    assert f"pid {STRANGER} ({OUTSIDE}, 58.6 GiB)" in caught.value.problem
    assert "came while the server was starting" in caught.value.problem and "out of memory" in caught.value.problem


def intrude(gpu: FakeGpu, event: str) -> None:
    if event == "started":
        gpu.used, gpu.processes = 60_500, {STRANGER: 60_000}
    if event == "stopping":
        gpu.used, gpu.processes = 500, {}


def test_an_out_of_memory_alone_on_the_gpu_is_the_candidates(machine, fake_server) -> None:
    machine(used=500)
    with pytest.raises(LaunchFailed, match="out_of_memory"), fake_server("oom_at_load", gpu=GPU):
        pass


def test_a_gpu_that_vllm_found_too_full_is_tried_once_more(machine, fake_server, monkeypatch) -> None:
    """Others have gone when the server has ended: the second start is the candidate's own, and its failure too."""
    machine(used=500)
    launched = fake_server("gpu_in_use", gpu=GPU)
    with pytest.raises(LaunchFailed) as caught, launched:
        pass
    assert not caught.value.retryable and "less than desired GPU memory utilization" in caught.value.reason
    assert (launched.folder / server.FIRST_LOG).exists()
    with pytest.raises(LaunchFailed) as caught, fake_server("memory_profiling", gpu=GPU, name="advisor-2"):
        pass
    assert caught.value.retryable


def test_a_gpu_that_vllm_found_too_full_and_still_is(machine, fake_server) -> None:
    """9 GiB of others leave 0.9 free, but not the 0.92 of this vLLM: found by the failure, and told as what it is."""
    machine(used=13_000, processes={STRANGER: 13_000})
    launched = fake_server("gpu_in_use", gpu=GPU)
    with pytest.raises(GpuInUse) as caught, launched:
        pass
    assert f"pid {STRANGER}" in caught.value.problem and "less than desired" in caught.value.problem
    assert not (launched.folder / server.FIRST_LOG).exists()
    with pytest.raises(GpuInUse):
        check_alone(GPU, "why")


# ---------------------------------------------------------------- after a launch


def test_small_changes_are_tolerated() -> None:
    assert excess({"GPU-a": 1000}, {"GPU-a": 1000 + gpu_memory.TOLERANCE_MIB}) == {}
    assert excess({"GPU-a": 1000}, {"GPU-a": 1400}) == {"GPU-a": 400}
    assert excess({}, {"GPU-a": 900}) == {}


def test_waits_until_it_is_back(machine) -> None:
    machine()
    readings = iter([{"GPU-a": 90_000}, {"GPU-a": 20_000}, {"GPU-a": 600}])
    wait_released(GPU, {"GPU-a": 500}, read=lambda _: next(readings))
    assert next(readings, None) is None


def test_only_gpus_that_the_launch_took_memory_on_count(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, other = FakeGpu(used=500), FakeGpu(used=500)
    monkeypatch.setattr(nvml, "library", lambda: FakeNvml(GPU_a=ours, GPU_b=other))
    watch = Watch(TWO)
    ours.used = 90_000
    assert watch.total_mib() == 90_500
    ours.used, other.used = 500, 70_000
    watch.wait_released()


def test_memory_that_stays_is_an_error_with_names(machine) -> None:
    gpu = machine(used=3000, processes={OURS: 2048})
    with pytest.raises(GpuMemoryHeld) as caught:
        wait_released(GPU, {"GPU-a": 500}, timeout_s=0)
    assert "2.4 GiB on GPU-a" in caught.value.problem
    assert f"pid {OURS} (" in caught.value.problem and "2.0 GiB" in caught.value.problem
    gpu.processes = {}
    with pytest.raises(GpuMemoryHeld, match="the driver lists no process"):
        wait_released(GPU, {"GPU-a": 500}, timeout_s=0)


@pytest.mark.parametrize("pids_known", [True, False])
def test_an_intruders_memory_is_not_taken_for_the_servers(machine, monkeypatch, pids_known) -> None:
    """Where pids tell who it is, the next launch's check names him; where they do not, the memory did not come back."""
    gpu = machine(pids_known, used=500)
    watch = Watch(GPU)
    gpu.used, gpu.processes = 90_500, {OURS: 80_000, STRANGER: 10_000}
    watch.total_mib()
    gpu.used, gpu.processes = 10_600, {STRANGER: 10_000}
    monkeypatch.setattr(gpu_memory, "RELEASE_TIMEOUT_S", 0.0)
    if pids_known:
        watch.wait_released({OURS})
        assert watch.intruders({OURS}) == [Holder(STRANGER, OUTSIDE, 10_000)]
    else:
        with pytest.raises(GpuMemoryHeld, match=str(STRANGER)):
            watch.wait_released({OURS})
