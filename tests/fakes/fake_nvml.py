"""A stand-in for pynvml: one or several GPUs whose figures a test sets, and NVML's way of saying that it does not know."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

MIB = 1024**2


class NVMLError(Exception):
    """As in pynvml: every refusal is one."""


@dataclass
class FakeGpu:
    """Units as NVML has them, but MiB for memory. None: this GPU does not support the figure."""

    used: int = 0
    total: int = 143156  # of an H200, without what the driver keeps
    reserved: int = 615
    processes: dict[int, int | None] = field(default_factory=dict)  # pid -> MiB
    graphics: dict[int, int | None] = field(default_factory=dict)
    sm_clock: int | None = 1980
    memory_clock: int | None = 3201
    temperature: int | None = 40
    power: int | None = 400_000  # mW
    power_limit: int | None = 700_000
    share: int | None = 97  # percent
    reasons: int | None = 0
    shares: dict[int, int] = field(default_factory=dict)  # pid -> percent of the multiprocessors


class FakeNvml:
    NVMLError = NVMLError
    nvmlMemory_v2 = 0x2000028
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    old_driver = False

    def __init__(self, **gpus: FakeGpu):
        self.gpus = {name.replace("_", "-"): gpu for name, gpu in gpus.items()}
        self.asked: dict[str, int] = {}

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return list(self.gpus)[index]

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in self.gpus:
            raise NVMLError(f"no {uuid}")
        return uuid

    def nvmlDeviceGetMemoryInfo(self, handle: str, version: int | None = None) -> SimpleNamespace:
        gpu = self.gpus[handle]
        if version and self.old_driver:
            raise NVMLError("not supported")
        used = gpu.used if version else gpu.used + gpu.reserved  # as the older structure has it
        free, total = gpu.total - gpu.used, gpu.total + gpu.reserved
        return SimpleNamespace(used=used * MIB, free=free * MIB, total=total * MIB, reserved=gpu.reserved * MIB)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:
        return self._processes(self.gpus[handle].processes)

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: str) -> list[SimpleNamespace]:
        return self._processes(self.gpus[handle].graphics)

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:
        gpu = self.gpus[handle]
        return self._known("clock", gpu.sm_clock if kind == self.NVML_CLOCK_SM else gpu.memory_clock)

    def nvmlDeviceGetMaxClockInfo(self, handle: str, kind: int) -> int:
        return 1980 if kind == self.NVML_CLOCK_SM else 3201

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return self._known("temperature", self.gpus[handle].temperature)

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return self._known("power", self.gpus[handle].power)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:
        return self._known("limit", self.gpus[handle].power_limit)

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(gpu=self._known("share", self.gpus[handle].share), memory=0)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return self._known("reasons", self.gpus[handle].reasons)

    def nvmlDeviceGetProcessUtilization(self, handle: str, since_us: int) -> list[SimpleNamespace]:
        shares = self.gpus[handle].shares
        if not shares:
            raise NVMLError("not found")  # as NVML does where nobody computed since then
        return [SimpleNamespace(pid=pid, smUtil=share, timeStamp=since_us + 1) for pid, share in shares.items()]

    def _known(self, name: str, value: int | None) -> int:
        self.asked[name] = self.asked.get(name, 0) + 1
        if value is None:
            raise NVMLError(f"{name} is not supported")
        return value

    @staticmethod
    def _processes(listed: dict[int, int | None]) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=p, usedGpuMemory=None if mib is None else mib * MIB) for p, mib in listed.items()]
