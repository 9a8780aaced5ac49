"""The machine during a sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Spread:
    """A figure over the polls of one sample."""

    median: float
    least: float
    most: float


@dataclass(frozen=True)
class Foreign:
    """A process that is not of our launch and was there during a sample. None: not known."""

    pid: int
    name: str
    gpu_mib: int | None = None
    gpu_share: float | None = None  # of the GPU's multiprocessors, 0 to 1, the most that was seen
    cores: float | None = None  # processor cores that it used on average
    since_before: bool = False  # it had its GPU memory before our server was launched


@dataclass(frozen=True)
class Telemetry:
    """The machine during one sample (advisor/measure/telemetry.py). None: this machine does not say.

    With several GPUs: the slowest clock, the highest heat and power, the lowest share. Shares are 0 to 1.
    """

    kind: str = "cpu"  # what the server ran on: "cuda", "rocm" or "cpu"
    polls: int = 0
    duration_s: float = 0.0
    longest_gap_s: float | None = None  # between two polls: a machine that stood still shows here
    # GPU, through NVML. Clocks only from polls in which the GPU was not idle.
    sm_clock_mhz: Spread | None = None
    sm_clock_limit_mhz: int | None = None  # the highest that the GPU has
    memory_clock_mhz: Spread | None = None
    temperature_c: Spread | None = None
    power_w: Spread | None = None
    power_limit_w: float | None = None
    gpu_share: Spread | None = None  # of the time in which some kernel ran
    gpu_share_before: float | None = None  # the same, when our server was not launched yet
    gpu_memory_mib: Spread | None = None  # on all GPUs of the launch together
    gpu_growth_mib: int | None = None  # the most above the use when the server was warm
    clock_reasons: Mapping[str, float] = field(default_factory=dict)  # why clocks were held down -> share of the polls
    gpu_processes: tuple[Foreign, ...] = ()
    # Processor: the cores that this process may use.
    cores: int | None = None
    own_cores: float | None = None  # used by the advisor and everything that it started
    api_server_share: float | None = None  # of a core: the thread that serves all requests, of the busiest API server
    api_servers: int | None = None  # whose threads were looked at
    foreign_cores: float | None = None  # used by all others
    steal_share: float | None = None  # of the cores' time that a hypervisor gave to others
    pressure_share: float | None = None  # of the time in which some task waited for a core, ours included
    throttled_share: float | None = None  # of the periods in which the container's quota stopped it
    load: Spread | None = None  # the system's load average over a minute
    cpu_processes: tuple[Foreign, ...] = ()  # the busiest of the others
