"""NVML over a folder in which the fake engine's processes say how much GPU memory they have: a dead one has none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil

from tests.fakes.fake_nvml import FakeGpu, FakeNvml


class FolderNvml(FakeNvml):
    """One GPU, `GPU-a`. Files in `folder`: the name is a pid, the content MiB (FAKE_GPU_FOLDER of fake_engine.py).

    Pid 0 is memory of nobody whom the driver lists.
    """

    def __init__(self, folder: Path):
        super().__init__(GPU_a=FakeGpu())
        self.folder = folder

    def nvmlDeviceGetMemoryInfo(self, handle: str, version: int | None = None) -> SimpleNamespace:
        self._look()
        return super().nvmlDeviceGetMemoryInfo(handle, version)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:
        self._look()
        return super().nvmlDeviceGetComputeRunningProcesses(handle)

    def _look(self) -> None:
        (gpu,) = self.gpus.values()
        gpu.processes = {int(file.name): int(file.read_text() or 0) for file in self.folder.iterdir() if _lives(file.name)}
        nobody = self.folder / "0"
        gpu.used = sum(gpu.processes.values()) + (int(nobody.read_text() or 0) if nobody.exists() else 0)


def _lives(pid: str) -> bool:
    try:
        return pid != "0" and psutil.Process(int(pid)).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
