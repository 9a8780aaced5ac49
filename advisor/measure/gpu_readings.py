"""What NVML says of the GPUs during a sample: polled figures, reasons for low clocks, and processes that are not ours.

Units as NVML has them are converted once, here: mW to W, percent to shares, bytes to MiB. What a GPU, a driver or a MIG
slice does not support is None.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from advisor import nvml
from advisor.records import Foreign, GpuFacts

# Names of the bits of nvmlClocksEventReasons (nvml.h). The last two came with nvidia-ml-py 13.
CLOCK_REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
IDLE = 0x001


@dataclass(frozen=True)
class GpuPoll:
    """One GPU at one moment."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    share: float | None = None
    memory_mib: int | None = None
    reasons: int | None = None  # a mask of CLOCK_REASONS

    @property
    def idle(self) -> bool:
        return bool((self.reasons or 0) & IDLE)


@dataclass(frozen=True)
class GpuLook:
    """The GPUs when no sample is running: before the launch, and when the server is warm. Keys are UUIDs."""

    memory_mib: Mapping[str, int] = field(default_factory=dict)
    processes: Mapping[int, int | None] = field(default_factory=dict)  # pid -> MiB
    share: float | None = None  # the largest of all GPUs


class GpuReader:
    """Reads the GPUs of `gpu`; of a machine without NVML it reads nothing."""

    def __init__(self, gpu: GpuFacts):
        self._nvml = nvml.library() if gpu.kind == "cuda" else None
        try:
            self._devices = nvml.devices(self._nvml, gpu.uuids) if self._nvml else []
        except self._nvml.NVMLError:
            self._devices = []

    @property
    def available(self) -> bool:
        return bool(self._devices)

    def only(self, uuids: Collection[str]) -> None:
        """Read only these from now on: on a machine with several GPUs, those that the launch took memory on."""
        self._devices = [(uuid, handle) for uuid, handle in self._devices if uuid in uuids] or self._devices

    def poll(self) -> dict[str, GpuPoll]:
        return {uuid: self._poll(handle) for uuid, handle in self._devices}

    def look(self) -> GpuLook:
        polls = self.poll()
        memory = {uuid: poll.memory_mib for uuid, poll in polls.items() if poll.memory_mib is not None}
        shares = [poll.share for poll in polls.values() if poll.share is not None]
        return GpuLook(memory, self.processes(), max(shares, default=None))

    def processes(self) -> dict[int, int | None]:
        """pid -> MiB on all the GPUs together."""
        return nvml.added(nvml.memory_by_pid(self._nvml, handle) for _, handle in self._devices)

    def shares(self, since_us: int) -> dict[int, float]:
        """pid -> largest share of a GPU's multiprocessors since that time (microseconds since 1970)."""
        found: dict[int, float] = {}
        for _, handle in self._devices:
            for seen in nvml.ask(self._nvml, "nvmlDeviceGetProcessUtilization", handle, since_us) or ():
                if seen.timeStamp > since_us and seen.smUtil <= 100:  # an unused slot of the answer holds anything
                    found[seen.pid] = max(found.get(seen.pid, 0.0), seen.smUtil / 100)
        return found

    def limits(self) -> tuple[float | None, int | None]:
        """The power limit in W and the highest SM clock in MHz; of several GPUs the lowest ones."""
        watts = [nvml.ask(self._nvml, "nvmlDeviceGetEnforcedPowerLimit", handle) for _, handle in self._devices]
        clocks = [self._ask("nvmlDeviceGetMaxClockInfo", handle, "NVML_CLOCK_SM") for _, handle in self._devices]
        lowest_w, lowest_mhz = _least(watts), _least(clocks)
        return None if lowest_w is None else lowest_w / 1000, lowest_mhz

    def _poll(self, handle: Any) -> GpuPoll:
        power = nvml.ask(self._nvml, "nvmlDeviceGetPowerUsage", handle)
        rates = nvml.ask(self._nvml, "nvmlDeviceGetUtilizationRates", handle)
        return GpuPoll(
            sm_clock_mhz=self._ask("nvmlDeviceGetClockInfo", handle, "NVML_CLOCK_SM"),
            memory_clock_mhz=self._ask("nvmlDeviceGetClockInfo", handle, "NVML_CLOCK_MEM"),
            temperature_c=self._ask("nvmlDeviceGetTemperature", handle, "NVML_TEMPERATURE_GPU"),
            power_w=None if power is None else power / 1000,
            share=None if rates is None else rates.gpu / 100,
            memory_mib=self._used_mib(handle),
            # The old name of nvmlDeviceGetCurrentClocksEventReasons: drivers before 535 have only this one.
            reasons=nvml.ask(self._nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle),
        )

    def _used_mib(self, handle: Any) -> int | None:
        try:
            return nvml.memory(self._nvml, handle)[0]
        except self._nvml.NVMLError:
            return None

    def _ask(self, function: str, handle: Any, constant: str) -> Any | None:
        return nvml.ask(self._nvml, function, handle, getattr(self._nvml, constant))


def _least(values: Sequence[Any]) -> Any | None:
    return min((value for value in values if value is not None), default=None)


def reason_names(mask: int) -> list[str]:
    """The names of a mask's bits; `unknown_0x800` for one that this file does not know."""
    bits = (1 << place for place in range(mask.bit_length()))
    return [CLOCK_REASONS.get(bit, f"unknown_{bit:#x}") for bit in bits if mask & bit]


def settled_share(reader: GpuReader, tries: int = 6, pause_s: float = 0.25, busy: float = 0.05) -> float | None:
    """The share of time in which kernels run, before a launch. NVML looks back up to a second, onto our last server."""
    for turn in range(tries):
        share = reader.look().share
        if share is None or share <= busy or turn == tries - 1:
            return share
        time.sleep(pause_s)
    return None


# ---------------------------------------------------------------- whose processes


def foreign(
    listed: Mapping[int, int | None],
    shares: Mapping[int, float],
    before: GpuLook,
    warm: GpuLook,
    ours: Collection[int],
) -> list[Foreign]:
    """Those of the listed processes that are not of our launch.

    Where NVML's pids are this namespace's, `ours` tells. Where they are another one's, what came between the look before
    the launch and the one at the warm server counts as ours. Where none is listed nobody can be told.
    """
    if nvml.pids_are_ours(listed, ours):
        mine = set(ours)
    else:
        mine = warm.processes.keys() - before.processes.keys()
    return [
        Foreign(pid, nvml.name_of(pid), gpu_mib=mib, gpu_share=shares.get(pid), since_before=pid in before.processes)
        for pid, mib in listed.items()
        if pid not in mine
    ]


def growth_mib(most: Mapping[str, int], warm: GpuLook) -> int | None:
    """How far memory rose above the warm server's, on all GPUs together; None where NVML does not say."""
    both = [mib - warm.memory_mib[uuid] for uuid, mib in most.items() if uuid in warm.memory_mib]
    return max(0, sum(both)) if both else None
