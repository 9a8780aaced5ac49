"""GPU memory in use before and after a launch, through NVML. Where there is no NVML (CPU, ROCm) nothing is checked."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from advisor.errors import EnvironmentMismatch
from advisor.records import GpuFacts

MIB = 1024**2
# What may remain over the use before the launch: driver book-keeping of other processes moves by some tens of MiB.
TOLERANCE_MIB = 256
# The driver frees a killed process's memory within a second or two; a busy host can take longer.
RELEASE_TIMEOUT_S = 60.0
POLL_S = 0.25

Usage = Mapping[str, int]  # MiB in use by GPU uuid


@dataclass(frozen=True)
class Holder:
    """A process that has memory on a GPU. mib None: the driver does not say (containers)."""

    pid: int
    name: str
    mib: int | None


class GpuMemoryHeld(EnvironmentMismatch):
    """GPU memory did not come back after a server had ended: later launches would be measured on a dirty GPU."""

    def __init__(self, excess: Usage, holders: list[Holder]):
        amounts = ", ".join(f"{mib / 1024:.1f} GiB on {uuid}" for uuid, mib in excess.items())
        names = ", ".join(f"pid {h.pid} ({h.name}, {_amount(h.mib)})" for h in holders) or "no process that NVML names"
        super().__init__(
            f"GPU memory was not given back after the server ended: {amounts}, held by {names}",
            "end these processes; if there are none, the driver is stuck and the GPU needs a reset",
        )
        self.excess = excess
        self.holders = holders


def _amount(mib: int | None) -> str:
    return "unknown" if mib is None else f"{mib / 1024:.1f} GiB"


def used(gpu: GpuFacts) -> Usage | None:
    """MiB in use on each GPU of `gpu`; None where NVML cannot say."""
    nvml = _nvml() if gpu.kind == "cuda" else None
    if nvml is None:
        return None
    try:
        return {uuid: nvml.nvmlDeviceGetMemoryInfo(handle).used // MIB for uuid, handle in _devices(nvml, gpu.uuids)}
    except nvml.NVMLError:
        return None


def excess(before: Usage, now: Usage, tolerance_mib: int = TOLERANCE_MIB) -> Usage:
    """MiB over the use before the launch, for the GPUs of `before` where it is more than the tolerance."""
    growth = {uuid: now[uuid] - mib for uuid, mib in before.items() if uuid in now}
    return {uuid: mib for uuid, mib in growth.items() if mib > tolerance_mib}


class Watch:
    """Remembers the use before a launch and on which GPUs the launch took memory.

    Only those are waited for in the end: on a machine with several GPUs somebody else's work grows and shrinks beside.
    """

    def __init__(self, gpu: GpuFacts):
        self._gpu = gpu
        self._before = used(gpu) or {}
        self._taken: set[str] = set()

    def total_mib(self) -> int:
        """MiB in use now on all GPUs together."""
        now = used(self._gpu) or {}
        self._taken.update(excess(self._before, now))
        return sum(now.values())

    def wait_released(self) -> None:
        """Raises GpuMemoryHeld if the memory that the launch took does not come back."""
        wait_released(self._gpu, {uuid: mib for uuid, mib in self._before.items() if uuid in self._taken})


def wait_released(
    gpu: GpuFacts,
    before: Usage,
    timeout_s: float = RELEASE_TIMEOUT_S,
    read: Callable[[GpuFacts], Usage | None] = used,
) -> None:
    """Return when memory is back to `before` (as `used` gave it). Raises GpuMemoryHeld with the pids that have it."""
    deadline = time.monotonic() + timeout_s
    while over := before and excess(before, read(gpu) or {}):
        if time.monotonic() > deadline:
            raise GpuMemoryHeld(over, holders(gpu))
        time.sleep(POLL_S)


def holders(gpu: GpuFacts) -> list[Holder]:
    """Processes with memory on the GPUs of `gpu`, the largest first."""
    nvml = _nvml()
    if nvml is None:
        return []
    found: dict[int, int | None] = {}
    with contextlib.suppress(nvml.NVMLError):  # virtual GPUs do not list processes
        for _, handle in _devices(nvml, gpu.uuids):
            for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                mib = None if process.usedGpuMemory is None else process.usedGpuMemory // MIB
                found[process.pid] = mib if mib is None else (found.get(process.pid) or 0) + mib
    listed = [Holder(pid, _name(pid), mib) for pid, mib in found.items()]
    return sorted(listed, key=lambda holder: -(holder.mib or 0))


def _name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return "not visible from here"


def _devices(nvml: Any, uuids: tuple[str, ...]) -> list[tuple[str, Any]]:
    if uuids:
        return [(uuid, nvml.nvmlDeviceGetHandleByUUID(uuid)) for uuid in uuids]
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    return [(nvml.nvmlDeviceGetUUID(handle), handle) for handle in handles]


@functools.lru_cache(maxsize=1)
def _nvml() -> Any | None:
    """pynvml, initialised once; None without a usable driver. Imported here: it is of no use on a CPU."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # ImportError, NVMLError_LibraryNotFound, NVMLError_DriverNotLoaded: all mean "no NVML here"
        return None
    return pynvml
