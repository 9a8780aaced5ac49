"""GPU memory before and after a launch, through NVML. Where there is no NVML (CPU, ROCm) nothing is checked.

A dirty GPU looks like a bad configuration: vLLM does not start, or runs out of memory. So the memory is looked at before
each launch and again after it, and what others hold ends the study with their names; it is never a candidate's outcome.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

import psutil

from advisor import nvml
from advisor.errors import EnvironmentMismatch
from advisor.nvml import Holder
from advisor.records import GpuFacts

# What may remain over the use before the launch: driver book-keeping of other processes moves by some tens of MiB.
TOLERANCE_MIB = 256
# The driver frees a killed process's memory within a second or two; a busy host can take longer.
RELEASE_TIMEOUT_S = 60.0
# Somebody else's memory: less than this is a desktop or an idle context, and costs a launch neither speed nor room.
FOREIGN_MIB = 1024
# How long to wait before a launch for a GPU that somebody else uses: long enough for a process that is just ending.
CLEAN_TIMEOUT_S = 60.0
POLL_S = 0.25

Usage = Mapping[str, int]  # MiB by GPU uuid


class GpuMemoryHeld(EnvironmentMismatch):
    """GPU memory did not come back after a server had ended: later launches would be measured on a dirty GPU."""

    def __init__(self, excess: Usage, holders: list[Holder]):
        super().__init__(
            f"GPU memory was not given back after the server ended: {_amounts(excess)}, held by {nvml.told(holders)}",
            "end these processes; if there are none, the driver is stuck and the GPU needs a reset. "
            "The same command goes on from what was measured",
        )
        self.excess = excess
        self.holders = holders


class GpuInUse(EnvironmentMismatch):
    """Somebody else has the GPU's memory. Found before a launch, or as the cause of one that failed."""

    def __init__(self, held: Usage, holders: list[Holder], why: str, fits: float | None = None):
        super().__init__(f"GPU memory is in use by others: {_amounts(held)}, held by {nvml.told(holders)}; {why}", _hint(fits))
        self.held = held
        self.holders = holders


def _amounts(usage: Usage) -> str:
    return ", ".join(f"{nvml.gib(mib)} on {uuid}" for uuid, mib in usage.items()) or "some"


def _hint(fits: float | None) -> str:
    beside = f", or stay beside them with --serve-args '--gpu-memory-utilization {fits:.2f}'" if fits else ""
    return f"end these processes{beside}; the same command goes on from what was measured"


def used(gpu: GpuFacts) -> Usage | None:
    """MiB in use on each GPU of `gpu`; None where NVML cannot say."""
    return _memory(gpu, 0)


def totals(gpu: GpuFacts) -> Usage | None:
    """MiB of each GPU of `gpu` that can be used, as CUDA counts them; None where NVML cannot say."""
    return _memory(gpu, 1)


def free_share(gpu: GpuFacts) -> float | None:
    """Share of the memory that nobody uses: of the fullest GPU, or of the machine where vLLM runs on its processor."""
    if gpu.kind == "cpu":
        memory = psutil.virtual_memory()
        return memory.available / memory.total
    now, whole = used(gpu), totals(gpu)
    return min(1 - now[uuid] / whole[uuid] for uuid in whole) if now and whole else None


def _memory(gpu: GpuFacts, which: int) -> Usage | None:
    library = nvml.library() if gpu.kind == "cuda" else None
    if library is None:
        return None
    try:
        found = nvml.devices(library, gpu.uuids)
        return {uuid: nvml.memory(library, handle)[which] for uuid, handle in found}
    except library.NVMLError:
        return None


def excess(before: Usage, now: Usage, tolerance_mib: int = TOLERANCE_MIB) -> Usage:
    """MiB over the use before the launch, for the GPUs of `before` where it is more than the tolerance."""
    growth = {uuid: now[uuid] - mib for uuid, mib in before.items() if uuid in now}
    return {uuid: mib for uuid, mib in growth.items() if mib > tolerance_mib}


# ---------------------------------------------------------------- before a launch


def foreign(now: Usage, total: Usage, share: float | None, usual: Usage | None) -> Usage:
    """MiB of others that stand in a launch's way, by GPU; empty: the launch may begin.

    `share`: of the total that vLLM insists on finding free (--gpu-memory-utilization; None: not known). `usual`: the use
    before the study's first launch; what was there then is there for every candidate alike.
    """
    found = {}
    for uuid, mib in now.items():
        too_full = share is not None and total.get(uuid, 0) - mib < share * total.get(uuid, 0)
        grown = usual is not None and mib - usual.get(uuid, 0) > FOREIGN_MIB
        if mib > FOREIGN_MIB and (too_full or grown):
            found[uuid] = mib
    return found


def wait_clean(
    gpu: GpuFacts,
    share: float | None,
    usual: Usage | None,
    count: int = 1,
    timeout_s: float | None = None,
    waiting: Callable[[], None] = lambda: None,
) -> None:
    """Return when nobody else's memory is in the way on the first `count` GPUs. Raises GpuInUse that names who has it."""
    total = totals(gpu) or {}
    names = list(total)[:count]
    deadline = time.monotonic() + (CLEAN_TIMEOUT_S if timeout_s is None else timeout_s)
    while True:
        now = {uuid: mib for uuid, mib in (used(gpu) or {}).items() if uuid in names}
        held = foreign(now, total, share, usual)
        if not held:
            return
        if time.monotonic() > deadline:
            raise GpuInUse(held, nvml.holders(held), _why(held, total, share), _fits(held, total, share))
        waiting()
        time.sleep(POLL_S)


def _why(held: Usage, total: Usage, share: float | None) -> str:
    full = [uuid for uuid, mib in held.items() if share is not None and total[uuid] - mib < share * total[uuid]]
    if not full:
        return "it was not there when the study's first server was launched"
    uuid = full[0]
    return f"vLLM wants {nvml.gib(int(share * total[uuid]))} of {nvml.gib(total[uuid])} free (--gpu-memory-utilization {share:g})"


def _fits(held: Usage, total: Usage, share: float | None) -> float | None:
    """The largest share that is free everywhere, a hundredth below the edge; None where it is no way out."""
    free = min((total[uuid] - mib) / total[uuid] for uuid, mib in held.items())
    fits = int(free * 100 - 1) / 100
    return fits if share is not None and 0.1 <= fits < share else None


def check_alone(gpu: GpuFacts, reason: str) -> None:
    """Raises GpuInUse where others have much memory, after vLLM has said so and nothing of the launch is left."""
    held = {uuid: mib for uuid, mib in (used(gpu) or {}).items() if mib > FOREIGN_MIB}
    if held:
        raise GpuInUse(held, nvml.holders(held), f"the server did not start: {reason}")


# ---------------------------------------------------------------- during and after a launch


class Watch:
    """Remembers the use before a launch and on which GPUs the launch took memory.

    Only those are waited for in the end: on a machine with several GPUs somebody else's work grows and shrinks beside.
    """

    def __init__(self, gpu: GpuFacts):
        self._gpu = gpu
        self._before = used(gpu) or {}
        self._pids_before = {holder.pid for holder in self.holders()} if self._before else set()
        self._taken: set[str] = set()

    def total_mib(self) -> int:
        """MiB in use now on all GPUs together."""
        now = used(self._gpu) or {}
        self._taken.update(excess(self._before, now))
        return sum(now.values())

    def intruders(self, ours: Collection[int]) -> list[Holder]:
        """Processes that took much memory since the launch began and are not ours; empty where pids cannot be told apart."""
        if not self._before:
            return []
        listed = self.holders()
        if not nvml.pids_are_ours((holder.pid for holder in listed), ours):
            return []
        return [h for h in listed if h.pid not in ours and h.pid not in self._pids_before and (h.mib or 0) > FOREIGN_MIB]

    def check_intruders(self, ours: Collection[int], reason: str) -> None:
        """Raises GpuInUse where a start that failed for `reason` had to share the GPU with somebody who came meanwhile."""
        if intruders := self.intruders(ours):
            held = excess(self._before, used(self._gpu) or {}, FOREIGN_MIB)
            raise GpuInUse(held, intruders, f"they came while the server was starting, which then failed: {reason}")

    def wait_released(self, ours: Collection[int] = ()) -> None:
        """Raises GpuMemoryHeld if the memory that the launch took does not come back.

        Memory of processes that came meanwhile and are not of `ours` is not waited for: the check before the next launch
        names them.
        """
        wait_released(
            self._gpu,
            {uuid: mib for uuid, mib in self._before.items() if uuid in self._taken},
            others=lambda: self.intruders(ours),
        )

    def holders(self) -> list[Holder]:
        """Who has memory now on the watched GPUs; empty where NVML cannot say."""
        return nvml.holders(self._before) if self._before else []


def wait_released(
    gpu: GpuFacts,
    before: Usage,
    timeout_s: float | None = None,
    read: Callable[[GpuFacts], Usage | None] = used,
    others: Callable[[], list[Holder]] = list,
) -> None:
    """Return when memory is back to `before` (as `used` gave it). Raises GpuMemoryHeld with the pids that have it."""
    deadline = time.monotonic() + (RELEASE_TIMEOUT_S if timeout_s is None else timeout_s)
    while over := before and excess(before, read(gpu) or {}):
        theirs = sum(holder.mib or 0 for holder in others())
        if theirs and sum(over.values()) - theirs <= TOLERANCE_MIB * len(over):
            return
        if time.monotonic() > deadline:
            raise GpuMemoryHeld(over, nvml.holders(over))
        time.sleep(POLL_S)
