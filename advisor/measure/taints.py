"""Whether the machine was disturbed during a sample: judgement of a Telemetry record. Pure.

A taint is a cause outside of the candidate that changes its figures. What the candidate itself does (drawing so much power
that the clock falls, using every core) is none. Thresholds are explained in docs/measuring.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from advisor.records import Foreign, Sample, Telemetry, Trial

Judge = Callable[[Telemetry | None], tuple[str, ...]]

# Heat, the power supply and the driver's own protection: the clock is lower than this GPU's in good health.
TAINTING_REASONS = {
    "hw_thermal_slowdown": "the GPU was too hot (hw_thermal_slowdown)",
    "sw_thermal_slowdown": "the GPU was too hot (sw_thermal_slowdown)",
    "hw_power_brake_slowdown": "the power supply slowed the GPU (hw_power_brake_slowdown)",
    "hw_slowdown": "the GPU's hardware halved its clock or more (hw_slowdown)",
}
REASON_SHARE = 0.05  # of the polls
TRANSIENT = {"hw_slowdown": 2}  # NVML reports it for a moment while clocks change: this many polls at least
CLOCK_LOSS = 0.05  # below the reference's median SM clock
MEMORY_CLOCK_LOSS = 0.02  # a data-centre GPU under load has one memory clock
CAPPED = 0.10  # of the polls under sw_power_cap, or
AT_LIMIT = 0.90  # of the power limit drawn: such a GPU lowers its clock by itself
LIMIT_LOSS = 0.01  # a power limit that somebody lowered
FOREIGN_GPU_SHARE = 0.05  # a foreign process's share of the multiprocessors
GPU_SHARE_BEFORE = 0.05  # of the time, before our server existed
FOREIGN_GPU_MIB = 1024  # memory that came during the sample and belongs to nobody whom the driver names
FOREIGN_CORES = 0.10  # foreign use of the cores
FULL = 0.90  # a processor without free cores: only then foreign use slows a server that runs on a GPU
STEAL = 0.05
THROTTLED_MORE = 0.10  # share of the quota's periods, above the reference's
STOOD_STILL_S = 5.0


def judge(seen: Telemetry | None, reference: Telemetry | None = None) -> tuple[str, ...]:
    """What disturbed the sample, as sentences; empty: nothing that was seen.

    `reference`: telemetry of the study's baseline (see `reference`), for what only a comparison tells.
    """
    if seen is None:
        return ()
    found = [*_reasons(seen), *_gpu_processes(seen), *_processor(seen), *_standstill(seen)]
    if reference is not None:
        found += [*_clocks(seen, reference), *_quota(seen, reference)]
    return tuple(found)


def reference(trials: Iterable[Trial], samples: Sequence[Sample] = ()) -> Telemetry | None:
    """What to compare with: the first untainted sample of a baseline, of the journal's trials or of this session."""
    of_trials = (sample for trial in trials if trial.candidate.is_baseline and trial.ok for sample in trial.samples)
    clean = (sample.telemetry for sample in (*of_trials, *samples) if sample.telemetry and not sample.taints)
    return next(clean, None)


def tainted(trial: Trial) -> tuple[str, ...]:
    """What disturbed the samples that the trial's figures are from, each once; empty for a clean trial."""
    return tuple(dict.fromkeys(taint for sample in trial.samples for taint in sample.taints))


def remarks(seen: Telemetry | None) -> tuple[str, ...]:
    """What a person should know of a sample that is not tainted by it: the same for all candidates, or their own doing."""
    if seen is None:
        return ()
    found = [f"{_name(process)} holds GPU memory beside the server" for process in seen.gpu_processes if not _disturbs(process)]
    if (seen.throttled_share or 0) > REASON_SHARE:
        found.append(f"the container's CPU quota was used up in {seen.throttled_share:.0%} of its periods")
    if capped := seen.clock_reasons.get("sw_power_cap", 0) > 0.5 and seen.sm_clock_mhz:
        found.append(f"the GPU ran at its power limit, with {seen.sm_clock_mhz.median:.0f} MHz")
    limit = seen.sm_clock_limit_mhz
    if not capped and limit and seen.sm_clock_mhz and seen.sm_clock_mhz.median < 0.8 * limit:
        why = ", ".join(seen.clock_reasons) or "no reason is given"
        found.append(f"the SM clock was {seen.sm_clock_mhz.median:.0f} MHz of {limit} MHz: {why}")
    return tuple(found)


# ---------------------------------------------------------------- GPU


def _reasons(seen: Telemetry) -> list[str]:
    return [
        f"{words}, in {share:.0%} of the polls"
        for name, words in TAINTING_REASONS.items()
        if (share := seen.clock_reasons.get(name, 0.0)) >= REASON_SHARE
        and share * seen.polls >= TRANSIENT.get(name, 1) - 0.5
    ]


def _gpu_processes(seen: Telemetry) -> list[str]:
    found = []
    for process in seen.gpu_processes:
        if (process.gpu_share or 0) >= FOREIGN_GPU_SHARE:
            found.append(f"{_name(process)} computed on the GPU ({process.gpu_share:.0%} of it)")
        elif not process.since_before:
            found.append(f"{_name(process)} came to the GPU")
    if (seen.gpu_share_before or 0) > GPU_SHARE_BEFORE:
        found.append(f"the GPU was in use before our server was launched ({seen.gpu_share_before:.0%} of the time)")
    if (seen.gpu_growth_mib or 0) > FOREIGN_GPU_MIB and not found:
        found.append(f"GPU memory in use rose by {seen.gpu_growth_mib / 1024:.1f} GiB while the server was warm")
    return found


def _disturbs(process: Foreign) -> bool:
    return not process.since_before or (process.gpu_share or 0) >= FOREIGN_GPU_SHARE


def _clocks(seen: Telemetry, reference: Telemetry) -> list[str]:
    found = []
    limit, usual = seen.power_limit_w, reference.power_limit_w
    if limit and usual and limit < usual * (1 - LIMIT_LOSS):
        found.append(f"the GPU's power limit was {limit:.0f} W instead of {usual:.0f} W")
    if _below(seen, reference, "memory_clock_mhz", MEMORY_CLOCK_LOSS):
        found.append(_slower("memory", seen.memory_clock_mhz.median, reference.memory_clock_mhz.median))
    if _below(seen, reference, "sm_clock_mhz", CLOCK_LOSS) and not _draws_its_limit(seen):
        found.append(_slower("SM", seen.sm_clock_mhz.median, reference.sm_clock_mhz.median))
    return found


def _below(seen: Telemetry, reference: Telemetry, name: str, loss: float) -> bool:
    ours, usual = getattr(seen, name), getattr(reference, name)
    return bool(ours and usual and ours.median < usual.median * (1 - loss))


def _draws_its_limit(seen: Telemetry) -> bool:
    """The candidate's own doing: it keeps the GPU so busy that power, and nothing else, sets the clock."""
    capped = seen.clock_reasons.get("sw_power_cap", 0.0) >= CAPPED
    near = seen.power_w and seen.power_limit_w and seen.power_w.median >= AT_LIMIT * seen.power_limit_w
    return bool(capped or near)


def _slower(which: str, ours: float, usual: float) -> str:
    return f"the GPU's {which} clock was {ours:.0f} MHz, in the baseline's samples {usual:.0f} MHz"


# ---------------------------------------------------------------- processor


def _processor(seen: Telemetry) -> list[str]:
    found = []
    if seen.cores and seen.foreign_cores is not None and seen.foreign_cores >= FOREIGN_CORES * seen.cores:
        full = (seen.own_cores or 0) + seen.foreign_cores >= FULL * seen.cores
        if full or seen.kind == "cpu":
            who = ", ".join(f"{process.name} (pid {process.pid}) {process.cores:.1f}" for process in seen.cpu_processes)
            who = who or "by nobody who can be seen from here"
            found.append(f"other programs used {seen.foreign_cores:.1f} of {seen.cores} cores: {who}")
    if (seen.steal_share or 0) > STEAL:
        found.append(f"the hypervisor gave {seen.steal_share:.0%} of the cores' time to others (steal)")
    return found


def _quota(seen: Telemetry, reference: Telemetry) -> list[str]:
    """A quota that bites more than it did: whether that is the candidate's own appetite cannot be told on a CPU."""
    if seen.throttled_share is None or seen.kind == "cpu":
        return []
    if seen.throttled_share - (reference.throttled_share or 0) <= THROTTLED_MORE:
        return []
    return [f"the container's CPU quota stopped it in {seen.throttled_share:.0%} of the periods"]


def _standstill(seen: Telemetry) -> list[str]:
    if (seen.longest_gap_s or 0) <= STOOD_STILL_S:
        return []
    return [f"the machine stood still, or had no time for the advisor, for {seen.longest_gap_s:.0f} s"]


def _name(process: Foreign) -> str:
    memory = f", {process.gpu_mib / 1024:.1f} GiB" if process.gpu_mib else ""
    return f"pid {process.pid} ({process.name}{memory})"
