"""What this machine has to serve on: GPUs through NVML or the AMD kernel driver, else the processor. Reads only.

NVML and not CUDA: it answers without a CUDA context, and a context would take GPU memory from the server that is measured.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from advisor.errors import EnvironmentMismatch
from advisor.inspection import amd
from advisor.inspection.gpu_names import matches, slug_of, slug_of_driver_name
from advisor.records import GpuFacts
from advisor.units import GIB


def detect(env: Mapping[str, str] = os.environ) -> GpuFacts:
    """Facts of the first visible GPU and how many equal ones there are; of the processor where there is none."""
    return _nvidia(env) or amd.detect() or cpu_facts()


def check_requested(requested: str, found: GpuFacts) -> GpuFacts:
    """What `--gpu REQUESTED` means on a machine that has `found`.

    Raises InputError for a name that is no GPU's, EnvironmentMismatch where the machine has another one. Whether the
    installed vLLM can run on what this returns is not known here (see advisor/inspection/engine.py).
    """
    wanted = requested.strip().lower()
    if wanted == "auto":
        return found
    if wanted == "cpu":
        return found if found.kind == "cpu" else cpu_facts()
    if found.kind != "cpu" and matches(requested, found.name):
        return found
    slug_of(requested)  # a typing mistake is told as such, before the machine is blamed
    here = "no GPU" if found.kind == "cpu" else f"a {found.name}"
    hint = f"use --gpu auto to tune for what is here ({found.slug})"
    raise EnvironmentMismatch(f"--gpu {requested} was asked for, but this machine has {here}", hint)


# ---------------------------------------------------------------- NVIDIA


def _nvidia(env: Mapping[str, str]) -> GpuFacts | None:
    """None without a driver, without a GPU, or where CUDA_VISIBLE_DEVICES hides them all."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # library or driver not there
        return None
    try:
        handles = _visible_handles(pynvml, env.get("CUDA_VISIBLE_DEVICES"))
        return _facts(pynvml, handles) if handles else None
    except pynvml.NVMLError as error:
        raise EnvironmentMismatch(f"the NVIDIA driver does not answer: {error}", "does nvidia-smi work?") from error
    finally:
        pynvml.nvmlShutdown()


def _visible_handles(pynvml: Any, setting: str | None) -> list[Any]:
    """Handles in CUDA's order. NVML counts in PCI order: on a machine with unlike GPUs, CUDA does so only with
    CUDA_DEVICE_ORDER=PCI_BUS_ID; vLLM itself makes the same assumption."""
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    if setting is None:
        return handles
    uuids = [_text(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    chosen = visible_devices(setting, uuids)
    return [handles[item] if isinstance(item, int) else pynvml.nvmlDeviceGetHandleByUUID(item) for item in chosen]


def visible_devices(setting: str, uuids: list[str]) -> list[int | str]:
    """Indices that CUDA_VISIBLE_DEVICES leaves, in its order; a MIG slice stays its own id.

    As CUDA reads it: indices or beginnings of a UUID, and the first entry that names nothing hides all after it.
    """
    chosen: list[int | str] = []
    for entry in (part.strip() for part in setting.split(",")):
        if entry.startswith("MIG-"):
            chosen.append(entry)
            continue
        if entry.isdigit():
            found = [int(entry)] if int(entry) < len(uuids) else []
        else:
            found = [index for index, uuid in enumerate(uuids) if entry and uuid.startswith(entry)]
        if len(found) != 1:
            break
        chosen.append(found[0])
    return chosen


def _facts(pynvml: Any, handles: list[Any]) -> GpuFacts:
    names = [_text(pynvml.nvmlDeviceGetName(handle)) for handle in handles]
    equal = [handle for handle, name in zip(handles, names, strict=True) if name == names[0]]
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handles[0])
    return GpuFacts(
        kind="cuda",
        name=names[0],
        slug=slug_of_driver_name(names[0]),
        count=len(equal),
        memory_gib=round(pynvml.nvmlDeviceGetMemoryInfo(handles[0]).total / GIB, 2),
        compute_capability=f"{major}.{minor}",
        driver=_text(pynvml.nvmlSystemGetDriverVersion()),
        uuids=tuple(_text(pynvml.nvmlDeviceGetUUID(handle)) for handle in equal),
    )


def _text(value: str | bytes) -> str:
    """NVML's binding gives bytes in old releases."""
    return value.decode() if isinstance(value, bytes) else value


# ---------------------------------------------------------------- processor


def cpu_facts(cpuinfo: Path = Path("/proc/cpuinfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> GpuFacts:
    """The processor as the thing to serve on: cores that this process may use, memory that its container allows."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = min(psutil.virtual_memory().total, _memory_limit(cgroup))
    return GpuFacts("cpu", _cpu_name(cpuinfo), "cpu", cores, round(memory / GIB, 2))


def _cpu_name(cpuinfo: Path) -> str:
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.lower().startswith("model name") and ":" in line]
    return names[0] if names else "CPU"


def _memory_limit(cgroup: Path) -> float:
    """Bytes that the control group allows (version 2, then 1); infinite where it says nothing."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            text = (cgroup / name).read_text().strip()
        except OSError:
            continue
        return float(text) if text.isdigit() else float("inf")
    return float("inf")
