"""The end of a launch: neither processes, nor the port, nor GPU memory are left of it before the next begins."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import psutil

from advisor import nvml
from advisor.errors import EnvironmentMismatch
from advisor.launch import gpu_memory, ports
from advisor.launch.process import GuardedProcess

# A listening socket goes with its last process; the rest is for a busy machine.
PORT_TIMEOUT_S = 5.0


class NotStopped(EnvironmentMismatch):
    """Something of a server is still there after SIGKILL. Measuring beside it would be wrong."""


@dataclass(frozen=True)
class Stopped:
    """`leftovers`: processes that the server left behind when it had ended, and that had to be killed; for people."""

    seconds: float
    leftovers: tuple[str, ...] = ()


def stop(process: GuardedProcess, port: int, memory: gpu_memory.Watch, known: Collection[int] = ()) -> Stopped:
    """End the server and wait until its processes, port and GPU memory are gone.

    `known`: pids that were the server's earlier; what is left of one that has ended may still be listed by the driver.
    The order of signals is the guard's (guard.py). Raises NotStopped or gpu_memory.GpuMemoryHeld, each naming the pids.
    """
    begun = time.monotonic()
    try:
        ours = {member.pid: _name(member.pid) for member in process.processes()}
        held = {holder.pid: holder.mib for holder in memory.holders()}
    finally:  # Ctrl-C at the wrong moment included
        left = process.stop()
    if left:
        raise NotStopped(
            f"processes of the server outlived SIGKILL: {', '.join(_unkillable(pid, ours.get(pid, '')) for pid in left)}",
            "they are stuck inside the kernel or the GPU driver: only a reset of the GPU or a restart of the machine ends them. "
            "Then the same command goes on from what was measured",
        )
    _wait_port_closed(port, ours)
    memory.wait_released({*ours, *known})
    return Stopped(time.monotonic() - begun, tuple(_leftover(pid, ours, held) for pid in process.stubborn))


def _leftover(pid: int, names: Mapping[int, str], held: Mapping[int, int | None]) -> str:
    """`pid 4711 (python3, 29.3 GiB)`: with its GPU memory, where the driver lists it."""
    memory = nvml.gib(held[pid]) if pid in held else ""
    return f"pid {pid} ({', '.join(filter(None, (names.get(pid, ''), memory))) or 'started at the end'})"


def _unkillable(pid: int, name: str) -> str:
    """`pid 4711 (VLLM::EngineCore, disk-sleep)`: the state tells a driver call (D) from a loop inside it (R)."""
    try:
        state = psutil.Process(pid).status()
    except psutil.Error:
        state = ""
    return f"pid {pid} ({', '.join(filter(None, (name or _name(pid), state))) or 'not visible from here'})"


def _name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return ""


def _wait_port_closed(port: int, ours: Collection[int]) -> None:
    """A foreign listener on the port is none of our business here: only our own must be gone."""
    deadline = time.monotonic() + PORT_TIMEOUT_S
    while ports.is_open(port) and any(listener.pid in ours for listener in ports.listeners(port) or ()):
        if time.monotonic() > deadline:
            raise NotStopped(f"port {port} is still open after the server ended", "end the process that listens on it")
        time.sleep(0.05)
