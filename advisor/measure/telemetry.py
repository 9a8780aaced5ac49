"""The machine beside a sample: clocks, heat, power, memory and processes of the GPU, and who used the processor.

    guard = Guard(gpu)               # before the launch: what others have on the GPU
    ...                              # launch, warm up
    guard.warm()                     # what is there now is the server's
    with guard.watch() as watch:
        ...                          # one sample
    watch.telemetry                  # a record for the sample; judge() in taints.py says what it means

A thread polls twice a second (docs/measuring.md says what that costs); processor time is read only before and after.
Nothing here raises for what a machine does not tell: such a figure is None.
"""

from __future__ import annotations

import itertools
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from types import TracebackType

from advisor.measure import cpu_readings, gpu_readings
from advisor.measure.gpu_readings import GpuLook, GpuPoll, GpuReader
from advisor.records import Foreign, GpuFacts, Spread, Telemetry

POLL_S = 0.5
LIST_EVERY = 4  # polls between two lists of the GPU's processes, which cost more than the figures
GREW_MIB = 256  # a GPU on which the launch took more than this is one of its own


@dataclass(frozen=True)
class Moment:
    """One poll."""

    at_s: float
    gpus: dict[str, GpuPoll] = field(default_factory=dict)
    load: float | None = None


class Guard:
    """Of one launch: make it before the server is started, call `warm` when the server is warm, then watch samples."""

    def __init__(self, gpu: GpuFacts):
        self.kind = gpu.kind
        self.reader = GpuReader(gpu)
        self.share_before = gpu_readings.settled_share(self.reader) if self.reader.available else None
        self.before = self.reader.look()
        self.at_warm: GpuLook | None = None
        self.server: int | None = None  # pid of the launched server, as soon as there is one

    def warm(self) -> None:
        """The memory that is used now, and the processes that came since the launch, are the server's."""
        look = self.reader.look()
        grown = [uuid for uuid, mib in look.memory_mib.items() if mib - self.before.memory_mib.get(uuid, 0) > GREW_MIB]
        self.reader.only(grown)
        self.at_warm = self.reader.look()

    def watch(self) -> Watch:
        """Context manager around one sample."""
        if self.at_warm is None:
            self.warm()
        return Watch(self)


class Watch:
    """Polls while the block runs; `telemetry` is there when it has ended, however it ended."""

    def __init__(self, guard: Guard, poll_s: float = POLL_S):
        self.telemetry = Telemetry()
        self._guard, self._poll_s = guard, poll_s
        self._moments: list[Moment] = []
        self._processes: dict[int, int | None] = {}
        self._shares: dict[int, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self.thread_cpu_s = 0.0  # what the polling itself cost

    def __enter__(self) -> Watch:
        self._since_us = int(time.time() * 1e6)
        self._before = cpu_readings.snapshot()
        self._api_before = self._api_servers(self._before)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        after = cpu_readings.snapshot()
        api_after = self._api_servers(after)
        ours = cpu_readings.family(after.processes, os.getpid()) | cpu_readings.family(self._before.processes, os.getpid())
        guard = self._guard
        foreign = gpu_readings.foreign(self._processes, self._shares, guard.before, guard.at_warm or GpuLook(), ours)
        passed_s = after.at_s - self._before.at_s
        self.telemetry = assemble(
            guard.kind,
            self._moments,
            passed_s,
            cpu=cpu_readings.between(self._before, after, os.getpid()),
            api_server_share=cpu_readings.busiest_thread(self._api_before, api_after, passed_s),
            api_servers=len(self._api_before.keys() & api_after.keys()) or None,
            foreign=foreign,
            share_before=guard.share_before,
            limits=guard.reader.limits(),
            warm=guard.at_warm or GpuLook(),
        )

    def _api_servers(self, at: cpu_readings.CpuSnapshot) -> dict[int, int]:
        server = self._guard.server
        return {} if server is None else cpu_readings.api_server_threads(at.processes, server)

    def _run(self) -> None:
        begun = time.thread_time()
        while not self._over.wait(self._poll_s if self._moments else self._poll_s / 2):
            self._poll()
        if not self._moments:  # a sample shorter than a poll
            self._poll()
        self._list_processes()
        self.thread_cpu_s = time.thread_time() - begun

    def _poll(self) -> None:
        self._moments.append(Moment(time.monotonic(), self._guard.reader.poll(), _load()))
        if len(self._moments) % LIST_EVERY == 1:
            self._list_processes()

    def _list_processes(self) -> None:
        for pid, mib in self._guard.reader.processes().items():
            self._processes[pid] = mib if mib is None else max(mib, self._processes.get(pid) or 0)
        for pid, share in self._guard.reader.shares(self._since_us).items():
            self._shares[pid] = max(share, self._shares.get(pid, 0.0))


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


# ---------------------------------------------------------------- from polls to a record (pure)


def assemble(
    kind: str,
    moments: Sequence[Moment],
    duration_s: float,
    *,
    cpu: cpu_readings.CpuUse = cpu_readings.CpuUse(),  # noqa: B008 (frozen)
    api_server_share: float | None = None,
    api_servers: int | None = None,
    foreign: Sequence[Foreign] = (),
    share_before: float | None = None,
    limits: tuple[float | None, int | None] = (None, None),
    warm: GpuLook = GpuLook(),  # noqa: B008 (frozen)
) -> Telemetry:
    """The record of one sample. Of several GPUs the slowest clock, the highest heat and power, the lowest share."""
    times = [moment.at_s for moment in moments]
    gpus = [list(moment.gpus.values()) for moment in moments]
    most = {
        uuid: max(found)
        for uuid in warm.memory_mib
        if (found := [m.gpus[uuid].memory_mib for m in moments if uuid in m.gpus and m.gpus[uuid].memory_mib is not None])
    }
    return Telemetry(
        kind=kind,
        polls=len(moments),
        duration_s=round(duration_s, 2),
        longest_gap_s=round(max((b - a for a, b in itertools.pairwise(times)), default=0.0), 2) or None,
        sm_clock_mhz=_spread(gpus, min, lambda poll: None if poll.idle else poll.sm_clock_mhz),
        sm_clock_limit_mhz=limits[1],
        memory_clock_mhz=_spread(gpus, min, lambda poll: None if poll.idle else poll.memory_clock_mhz),
        temperature_c=_spread(gpus, max, lambda poll: poll.temperature_c),
        power_w=_spread(gpus, max, lambda poll: poll.power_w),
        power_limit_w=limits[0],
        gpu_share=_spread(gpus, min, lambda poll: poll.share),
        gpu_share_before=share_before,
        gpu_memory_mib=_spread(gpus, sum, lambda poll: poll.memory_mib),
        gpu_growth_mib=gpu_readings.growth_mib(most, warm),
        clock_reasons=reason_shares(gpus),
        gpu_processes=tuple(foreign),
        load=spread(moment.load for moment in moments),
        api_server_share=api_server_share,
        api_servers=api_servers,
        **{name: value for name, value in asdict(cpu).items() if name != "cpu_processes"},
        cpu_processes=cpu.cpu_processes,
    )


def reason_shares(gpus: Sequence[Sequence[GpuPoll]]) -> dict[str, float]:
    """Share of the polls in which any GPU gave this reason for a low clock; being idle is none."""
    counts: dict[str, int] = {}
    for polls in gpus:
        names = {name for poll in polls for name in gpu_readings.reason_names(poll.reasons or 0)}
        for name in sorted(names - {"gpu_idle"}):
            counts[name] = counts.get(name, 0) + 1
    return {name: round(count / len(gpus), 3) for name, count in counts.items()}


def _spread(
    gpus: Sequence[Sequence[GpuPoll]],
    worst: Callable[[list[float]], float],
    figure: Callable[[GpuPoll], float | None],
) -> Spread | None:
    each = ([value for poll in polls if (value := figure(poll)) is not None] for polls in gpus)
    return spread(worst(values) for values in each if values)


def spread(values: Iterable[float | None]) -> Spread | None:
    """None where nothing is known."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Spread(round(statistics.median(known), 2), round(min(known), 2), round(max(known), 2))
