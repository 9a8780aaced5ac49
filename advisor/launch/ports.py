"""Free ports of this machine, and who listens on a port."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection
from dataclasses import dataclass

import psutil

from advisor.errors import EnvironmentMismatch

HOST = "127.0.0.1"
# Below the range that Linux takes outgoing connections from (32768 and up): vLLM binds its port only after some 20 s of
# imports, and until then any program's outgoing connection could take a port from that range.
PORTS = range(20000, 30000)
TRIES = 200


@dataclass(frozen=True)
class Listener:
    """A process that listens on a port; pid None where another user owns it and the system does not say."""

    pid: int | None
    name: str = ""

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.name})" if self.pid else "a process of another user"


def free_port(avoid: Collection[int] = ()) -> int:
    """A port on which nobody listens now. Raises EnvironmentMismatch if there is none."""
    draw = random.SystemRandom()
    for _ in range(TRIES):
        port = draw.choice(PORTS)
        if port not in avoid and _can_bind(port):
            return port
    raise EnvironmentMismatch(f"no free port from {PORTS.start} to {PORTS.stop - 1}", "end what listens there")


def _can_bind(port: int) -> bool:
    """On all addresses, so that a server that listens on another one than ours is noticed as well."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def is_open(port: int, timeout_s: float = 0.5) -> bool:
    """Whether somebody accepts connections on 127.0.0.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(timeout_s)
        return probe.connect_ex((HOST, port)) == 0


def listeners(port: int) -> list[Listener] | None:
    """Everybody who listens on the port, on whatever address; None where the system does not tell.

    Several may share a port (SO_REUSEPORT, which vLLM set up to 0.24), and then each gets a part of the requests.
    """
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:  # macOS without root
        return None
    owners = {c.pid for c in connections if c.status == psutil.CONN_LISTEN and c.laddr and c.laddr.port == port}
    return [Listener(pid, _name(pid)) for pid in sorted(owners, key=lambda pid: pid or 0)]


def _name(pid: int | None) -> str:
    try:
        return psutil.Process(pid).name() if pid else ""
    except psutil.Error:
        return ""


def describe(found: Collection[Listener] | None) -> str:
    """For an error message."""
    return " and ".join(str(listener) for listener in found or ()) or "a process that cannot be seen or has ended"


def foreign(found: Collection[Listener], ours: Collection[int]) -> list[Listener]:
    """Those of the listeners that are not our processes."""
    return [listener for listener in found if listener.pid not in ours]
