"""The watch around a sample, with a made-up NVML and a real thread; and what it costs."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from advisor import nvml
from advisor.measure import gpu_readings, telemetry
from advisor.measure.gpu_readings import GpuLook, GpuPoll, foreign, reason_names
from advisor.measure.taints import judge
from advisor.measure.telemetry import Guard, Moment, Watch, assemble
from advisor.records import Foreign, GpuFacts, Spread
from tests.fakes.fake_nvml import FakeGpu, FakeNvml

CPU = GpuFacts("cpu", "cpu", "cpu", 2, 16.0)
GPU = GpuFacts("cuda", "NVIDIA H200", "h200", 1, 140.0, uuids=("GPU-a",))
TWO = GpuFacts("cuda", "NVIDIA H200", "h200", 2, 140.0, uuids=("GPU-a", "GPU-b"))
STRANGER, HOST_PID = 2**22 + 1, 2**22 + 2
OURS = os.getpid()


@pytest.fixture
def gpus(monkeypatch):
    monkeypatch.setattr(telemetry, "POLL_S", 0.01)
    monkeypatch.setattr(Watch.__init__, "__defaults__", (0.01,))
    monkeypatch.setattr(nvml, "pids_are_ours", lambda listed, ours: not set(listed).isdisjoint(ours))

    def make(**machine: FakeGpu) -> None:
        monkeypatch.setattr(nvml, "library", lambda: FakeNvml(**machine))

    return make


def served(guard: Guard, *machine: FakeGpu, pid: int = OURS, mib: int = 120_000) -> None:
    """The server takes its memory and is warmed up."""
    for gpu in machine:
        gpu.used += mib
        gpu.processes = {**gpu.processes, pid: mib}
        gpu.share = 97
    guard.warm()


def watched(guard: Guard, polls: int = 6, meanwhile=lambda: None):
    """Telemetry of two polls, and of twice as many polls after something happened, however late this thread got its turn."""
    with guard.watch() as watch:
        wait_for_polls(watch, 2)
        before = len(watch._moments)
        meanwhile()
        wait_for_polls(watch, max(polls, 3 * before))
    return watch.telemetry


def wait_for_polls(watch: Watch, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(watch._moments) < count and time.monotonic() < deadline:
        time.sleep(0.005)


# ---------------------------------------------------------------- GPU


def test_a_quiet_gpu(gpus) -> None:
    gpu = FakeGpu(used=4, share=0)
    gpus(GPU_a=gpu)
    guard = Guard(GPU)
    served(guard, gpu)
    seen = watched(guard)
    assert seen.kind == "cuda" and seen.polls >= 6
    assert seen.sm_clock_mhz == Spread(1980, 1980, 1980) and seen.sm_clock_limit_mhz == 1980
    assert seen.memory_clock_mhz.median == 3201 and seen.temperature_c.median == 40
    assert (seen.power_w.median, seen.power_limit_w) == (400.0, 700.0)
    assert (seen.gpu_share.median, seen.gpu_share_before) == (0.97, 0.0)
    assert (seen.gpu_memory_mib.most, seen.gpu_growth_mib) == (120_004, 0)
    assert seen.clock_reasons == {} and seen.gpu_processes == ()


def test_reasons_are_shares_of_the_polls_and_idleness_is_none(gpus) -> None:
    gpu = FakeGpu(share=0)
    gpus(GPU_a=gpu)
    guard = Guard(GPU)
    served(guard, gpu)

    def hot() -> None:
        gpu.reasons, gpu.sm_clock = 0x40 | 0x8 | 0x1000, 900

    seen = watched(guard, 12, hot)
    assert set(seen.clock_reasons) == {"hw_thermal_slowdown", "hw_slowdown", "unknown_0x1000"}
    assert 0.3 < seen.clock_reasons["hw_thermal_slowdown"] < 1
    assert seen.sm_clock_mhz.least == 900 and seen.sm_clock_mhz.most == 1980
    gpu.reasons = 0x1
    idle = watched(guard)
    assert idle.clock_reasons == {} and idle.sm_clock_mhz is None and idle.power_w is not None


def test_names_of_a_mask() -> None:
    assert reason_names(0) == []
    assert reason_names(0x4 | 0x80 | 0x400) == ["sw_power_cap", "hw_power_brake_slowdown", "reliability"]
    import pynvml

    theirs = {
        value: name
        for name, value in vars(pynvml).items()
        if name.startswith("nvmlClocksThrottleReason") and isinstance(value, int) and not name.endswith(("None", "All"))
    }
    assert set(theirs) <= set(gpu_readings.CLOCK_REASONS)


def test_what_a_gpu_does_not_support_is_unknown(gpus) -> None:
    """A MIG slice, or a driver without a function: no figure, no error."""
    unknown = dict.fromkeys(("sm_clock", "memory_clock", "power", "power_limit", "reasons", "share", "temperature"))
    gpu = FakeGpu(used=4, **unknown)
    gpus(GPU_a=gpu)
    guard = Guard(GPU)
    seen = watched(guard)
    assert seen.sm_clock_mhz is seen.power_w is seen.power_limit_w is seen.gpu_share is None
    assert seen.gpu_memory_mib is not None and seen.polls >= 6


def test_a_machine_without_nvml(monkeypatch) -> None:
    monkeypatch.setattr(nvml, "library", lambda: None)
    guard = Guard(GPU)
    with guard.watch() as watch:
        time.sleep(0.05)  # some ticks of the kernel's clock
    assert watch.telemetry.polls >= 1 and watch.telemetry.gpu_memory_mib is None and watch.telemetry.cores


def test_a_gpu_that_is_not_the_launchs_is_not_watched(gpus) -> None:
    ours, other = FakeGpu(share=0), FakeGpu(share=0, sm_clock=345, temperature=90, processes={STRANGER: 70_000})
    gpus(GPU_a=ours, GPU_b=other)
    guard = Guard(TWO)
    served(guard, ours)
    seen = watched(guard)
    assert seen.sm_clock_mhz.median == 1980 and seen.temperature_c.median == 40 and seen.gpu_processes == ()


def test_of_two_gpus_the_worse_one_counts(gpus) -> None:
    one, two = FakeGpu(), FakeGpu(sm_clock=1200, temperature=80, reasons=0x20, share=0)
    gpus(GPU_a=one, GPU_b=two)
    guard = Guard(TWO)
    served(guard, one, two)
    seen = watched(guard)
    assert (seen.sm_clock_mhz.median, seen.temperature_c.median) == (1200, 80)
    assert seen.clock_reasons == {"sw_thermal_slowdown": 1.0} and seen.gpu_memory_mib.median == 240_000


# ---------------------------------------------------------------- processes on the GPU


def test_a_stranger_that_comes_during_the_sample(gpus) -> None:
    gpu = FakeGpu(share=0)
    gpus(GPU_a=gpu)
    guard = Guard(GPU)
    served(guard, gpu)

    def come() -> None:
        gpu.used, gpu.processes = 125_000, {OURS: 120_000, STRANGER: 5_000}
        gpu.shares = {OURS: 60, STRANGER: 35}

    seen = watched(guard, 10, come)
    assert seen.gpu_processes == (Foreign(STRANGER, nvml.OUTSIDE, 5_000, 0.35, None, False),)
    assert seen.gpu_growth_mib == 5_000


def test_a_stranger_who_was_there_before_is_told_apart(gpus) -> None:
    gpu = FakeGpu(share=0, processes={STRANGER: 300})
    gpus(GPU_a=gpu)
    guard = Guard(GPU)
    served(guard, gpu)
    (found,) = watched(guard).gpu_processes
    assert found.since_before and found.gpu_share is None and found.gpu_mib == 300


def test_pids_of_another_namespace(gpus) -> None:
    """The driver gives the machine's pids: what came between the look before the launch and the warm server is ours."""
    gpu = FakeGpu(share=0, processes={STRANGER: 300})
    gpus(GPU_a=gpu)
    guard = Guard(GPU)
    served(guard, gpu, pid=HOST_PID)
    assert [found.pid for found in watched(guard).gpu_processes] == [STRANGER]
    gpu.processes |= {HOST_PID + 1: 4_000}
    late = watched(guard).gpu_processes
    assert [(found.pid, found.since_before) for found in late] == [(STRANGER, True), (HOST_PID + 1, False)]


def test_no_listed_process_no_stranger_but_memory_grows(gpus) -> None:
    gpu = FakeGpu(share=0)
    gpus(GPU_a=gpu)
    guard = Guard(GPU)
    served(guard, gpu)
    gpu.processes = {}

    def grow() -> None:
        gpu.used = 124_000

    gpu.shares = {HOST_PID: 90}
    seen = watched(guard, 6, grow)
    assert seen.gpu_processes == () and seen.gpu_growth_mib == 4_000


def test_whose_is_a_pid() -> None:
    before, warm = GpuLook(processes={7: 10}), GpuLook(processes={7: 10, 8: 20})
    assert [found.pid for found in foreign({7: 10, OURS: 20, 9: 1}, {}, before, warm, {OURS})] == [7, 9]
    assert foreign({}, {9: 0.5}, before, warm, {OURS}) == []


def test_the_gpu_was_in_use_before_the_launch(gpus, monkeypatch) -> None:
    gpus(GPU_a=FakeGpu(share=80))
    monkeypatch.setattr(gpu_readings.time, "sleep", lambda s: None)
    assert Guard(GPU).share_before == 0.8


# ---------------------------------------------------------------- the watch itself


def test_an_error_in_the_sample_ends_the_thread_and_goes_on(gpus) -> None:
    gpus(GPU_a=FakeGpu(share=0))
    watch = Guard(GPU).watch()
    with pytest.raises(KeyboardInterrupt), watch:
        raise KeyboardInterrupt
    assert not watch._thread.is_alive() and watch.telemetry.polls >= 1


def test_a_gap_between_polls_is_seen() -> None:
    seen = assemble("cpu", [Moment(0.0), Moment(0.5), Moment(9.5), Moment(10.0)], 10.0)
    assert seen.longest_gap_s == 9.0 and seen.polls == 4


def test_growth_is_the_most_and_not_the_last() -> None:
    moments = [Moment(at, {"GPU-a": GpuPoll(memory_mib=mib)}) for at, mib in enumerate((100, 900, 50))]
    assert assemble("cuda", moments, 3.0, warm=GpuLook({"GPU-a": 90})).gpu_growth_mib == 810


ORPHAN = """\
import os, sys, time
if os.fork() == 0:
    os.setsid()
    print(os.getpid(), flush=True)
    sys.stdout.close(); os.close(1)
    end = time.monotonic() + 20
    while time.monotonic() < end: pass
"""


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs Linux")
def test_a_program_that_somebody_else_runs_taints_a_sample_of_a_cpu_server() -> None:
    """A real stranger: its parent has ended, so that it is nobody's child here, and it uses a whole core."""
    started = subprocess.run([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    stranger = int(started.stdout)
    try:
        with Guard(CPU).watch() as watch:
            time.sleep(1.0)
    finally:
        os.kill(stranger, signal.SIGKILL)
    seen = watch.telemetry
    (found,) = (taint for taint in judge(dataclasses.replace(seen, cores=min(seen.cores, 4))) if "other programs" in taint)
    assert f"(pid {stranger})" in found or len(seen.cpu_processes) == 3  # unless three others are busier still


def test_the_guard_costs_less_than_half_a_percent_of_a_core() -> None:
    """Real polls of this machine, and those of eight GPUs without the driver's own part (see docs/measuring.md)."""
    with Guard(CPU).watch() as watch:
        time.sleep(2.0)
    assert watch.telemetry.polls >= 2
    assert watch.thread_cpu_s / watch.telemetry.duration_s < 0.005


def test_polling_eight_gpus_costs_less_than_half_a_percent_of_a_core(monkeypatch) -> None:
    machine = {f"GPU_{index}": FakeGpu(used=10, share=0, processes={OURS: 9}) for index in range(8)}
    monkeypatch.setattr(nvml, "library", lambda: FakeNvml(**machine))
    guard = Guard(GpuFacts("cuda", "H200", "h200", 8, 140.0, uuids=tuple(name.replace("_", "-") for name in machine)))
    watch = guard.watch()
    begun = time.thread_time()
    for _ in range(20):
        watch._since_us = 0
        watch._poll()
    assert (time.thread_time() - begun) / 20 / telemetry.POLL_S < 0.005
