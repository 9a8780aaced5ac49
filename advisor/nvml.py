"""NVML, the driver's own interface to NVIDIA GPUs, for every stage. Reads only, and never creates a CUDA context.

Which processes have GPU memory is told with the pids of the machine, of the container, or not at all, by driver and
container: a pid is given a name only where the process that bears it here has a GPU open.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import psutil

MIB = 1024**2
OUTSIDE = "a process outside this container"
GPU_FILES = ("/dev/nvidia", "/dev/dxg")  # what every process with a CUDA context has open; the second one on WSL
_FIRST_NAMESPACE = "pid:[4026531836]"  # the kernel's PROC_PID_INIT_INO: pids here are the machine's


@dataclass(frozen=True)
class Holder:
    """A process that has memory on a GPU. mib None: the driver does not say."""

    pid: int
    name: str
    mib: int | None

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.name}, {gib(self.mib)})"


def gib(mib: int | None) -> str:
    """MiB as people read them: `12.3 GiB`."""
    return "unknown" if mib is None else f"{mib / 1024:.1f} GiB"


@functools.lru_cache(maxsize=1)
def library() -> Any | None:
    """pynvml, initialised once; None without a usable driver. Imported here: it is of no use on a CPU."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # ImportError, NVMLError_LibraryNotFound, NVMLError_DriverNotLoaded: all mean "no NVML here"
        return None
    return pynvml


def devices(nvml: Any, uuids: Iterable[str] = ()) -> list[tuple[str, Any]]:
    """UUID and handle of the named GPUs, of all where none is named. Raises NVMLError for one that is not there."""
    if named := list(uuids):
        return [(uuid, nvml.nvmlDeviceGetHandleByUUID(uuid)) for uuid in named]
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    return [(nvml.nvmlDeviceGetUUID(handle), handle) for handle in handles]


def ask(nvml: Any, function: str, *arguments: Any) -> Any | None:
    """The answer of one NVML function; None where this GPU, driver or binding does not have it."""
    try:
        return getattr(nvml, function)(*arguments)
    except (nvml.NVMLError, AttributeError):
        return None


def memory(nvml: Any, handle: Any) -> tuple[int, int]:
    """MiB in use and MiB that can be used, of one GPU. Raises NVMLError.

    Without what the driver keeps for itself (615 MiB of an H200): the older structure counts that as used, and then an
    empty GPU does not look empty. The rest is what CUDA gives as its total, and what vLLM takes its share of.
    """
    info = ask(nvml, "nvmlDeviceGetMemoryInfo", handle, getattr(nvml, "nvmlMemory_v2", None))
    if info is None:  # a driver before 510
        info = nvml.nvmlDeviceGetMemoryInfo(handle)
    return info.used // MIB, (info.used + info.free) // MIB


def memory_by_pid(nvml: Any, handle: Any) -> dict[int, int | None]:
    """MiB that each listed process has on one GPU. Empty also where the driver lists none (containers, virtual GPUs)."""
    found: dict[int, int | None] = {}
    for kind in ("Compute", "Graphics"):  # a desktop's processes are in the second list, some in both
        for process in ask(nvml, f"nvmlDeviceGet{kind}RunningProcesses", handle) or ():
            mib = None if process.usedGpuMemory is None else process.usedGpuMemory // MIB
            found[process.pid] = mib if found.get(process.pid) is None else max(found[process.pid] or 0, mib or 0)
    return found


def holders(uuids: Iterable[str]) -> list[Holder]:
    """Processes with memory on the GPUs, the largest first; empty where NVML cannot say."""
    nvml = library()
    if nvml is None:
        return []
    try:
        lists = [memory_by_pid(nvml, handle) for _, handle in devices(nvml, uuids)]
    except nvml.NVMLError:
        return []
    return sorted(named(added(lists)), key=lambda holder: -(holder.mib or 0))


def added(lists: Iterable[Mapping[int, int | None]]) -> dict[int, int | None]:
    """The memory of each process on all GPUs together; unknown as soon as one part is."""
    total: dict[int, int | None] = {}
    for one in lists:
        for pid, mib in one.items():
            before = total.get(pid, 0)
            total[pid] = None if mib is None or before is None else before + mib
    return total


def named(memory: Mapping[int, int | None]) -> list[Holder]:
    return [Holder(pid, name_of(pid), mib) for pid, mib in memory.items()]


def told(found: Iterable[Holder]) -> str:
    """For an error message: who holds memory, where the driver says."""
    return " and ".join(str(holder) for holder in found) or f"{OUTSIDE} (the driver lists no process)"


def name_of(pid: int) -> str:
    """The name of the process that NVML means by this pid, as far as it can be seen from here."""
    try:
        name = psutil.Process(pid).name()
    except (psutil.Error, ValueError):
        return OUTSIDE
    return OUTSIDE if has_gpu_open(pid) is False else name


def has_gpu_open(pid: int) -> bool | None:
    """None where the system does not show another process's files."""
    try:
        folder = os.scandir(f"/proc/{pid}/fd")
    except OSError:
        return None
    with folder:
        return any(_target(entry.path).startswith(GPU_FILES) for entry in folder)


def _target(link: str) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115 (a descriptor's target need not be a path)
    except OSError:
        return ""


def pids_are_ours(listed: Iterable[int], ours: Iterable[int]) -> bool:
    """Whether NVML's pids are those of this process's own namespace, so that `ours` can be recognised among them."""
    try:
        first = os.readlink("/proc/self/ns/pid") == _FIRST_NAMESPACE  # noqa: PTH115
    except OSError:
        first = False
    return first or not set(listed).isdisjoint(ours)
