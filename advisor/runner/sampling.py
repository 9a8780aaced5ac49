"""Warm-up and samples on one launched server: waves until it is steady, then each seed until it is valid or hopeless."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from advisor.measure.client import usable_cores
from advisor.measure.client_load import OWN_WORK, most_processes
from advisor.measure.length import lasts
from advisor.measure.plan import REVISIONS, first_plan, planned, revised
from advisor.measure.slice_rules import as_slice, objection, sliced
from advisor.measure.taints import Judge
from advisor.measure.telemetry import Guard
from advisor.measure.validity import Problem, first_problem, with_problems
from advisor.measure.warmup import Wave, judge_warm_up, wave_of
from advisor.records import Invalid, Sample, SamplingPlan, WarmUp, Workload
from advisor.runner.window import Window

REPEAT_SEEDS_FROM = 1_000_000  # a repeated sample needs new prompts, or the prefix cache answers them
REPEATS = 1  # of an invalid sample: on a busy machine the client can starve
REPEATS_BY_CLASS = {Invalid.JIT_COMPILED: 2}  # one warm-up more each time
TAINTED_REPEATS = 2  # of a sample that is valid but was disturbed
# What another try with other prompts cannot mend: the load, the client and the length are what they are.
FINAL = frozenset({Invalid.CLIENT_BOUND, Invalid.TOO_SHORT, Invalid.OTHER_PROMPTS})
TAINTED_REPEATS_A_LAUNCH = 3  # a machine that is busy all the time must not make every launch three times as long
MOST_REPEATS = 3


class Client(Protocol):
    """What the runner needs of a load generator (advisor/measure/client.py)."""

    def warm_up(self, server_url: str, served_name: str, workload: Workload) -> Sample: ...

    def sample(self, server_url: str, served_name: str, workload: Workload, seed: int, folder: Path) -> Sample: ...

    def use_processes(self, count: int) -> None: ...

    def end_by(self, moment: float) -> None: ...


class Target(Protocol):
    """What sampling needs of a launched server (advisor/launch/server.py)."""

    base_url: str
    served_name: str
    log_path: Path

    def pids(self) -> list[int]: ...

    def check_alive(self, ask: bool = False) -> None: ...

_TELL_OF_DEATH = {Invalid.CLIENT_DIED, Invalid.FAILED_REQUESTS}


class Sampling:
    """One launch's warm-up and samples. `waiting(what)` is told what goes on, `note(text)` what the trial should keep.

    `digests` is the study's memory of what prompts a seed and a number of them stand for, filled and checked here.
    `processes`: how many client processes a person wants; None leaves it to the measurement. `guard` watches the machine
    during each sample, `judge` says of what it saw which of it disturbed the sample.
    """

    def __init__(
        self,
        client: Client,
        server: Target,
        workload: Workload,
        folder: Path,
        digests: dict[tuple[int, int], str],
        waiting: Callable[[str], None],
        note: Callable[[str], None],
        processes: int | None = None,
        *,
        guard: Guard,
        judge: Judge,
    ):
        self._client, self._server, self._workload, self._folder = client, server, workload, folder
        self._guard, self._judge = guard, judge
        self._tainted_repeats = 0
        self._digests, self._waiting, self._note = digests, waiting, note
        self._processes = processes
        self._most = most_processes(usable_cores(), workload)
        self._last_wave: Sample | None = None

    @property
    def workload(self) -> Workload:
        """The launch's own, with its own number of requests."""
        return self._workload

    def warm_up(self) -> WarmUp:
        """Waves until two successive ones agree, or a limit. Raises LaunchFailed when the server dies meanwhile."""
        waves: list[Wave] = []
        begun = time.monotonic()
        while (ended := judge_warm_up(waves, time.monotonic() - begun)) is None:
            self._waiting(f"warm-up, wave {len(waves) + 1}")
            waves.append(self._wave())
        if not ended.steady:
            self._note(f"the warm-up did not become steady: {ended.why}")
        self._guard.warm()
        return ended

    def first_plan(self, slice_waves: int = 0) -> SamplingPlan:
        """For the baseline, after its warm-up. `slice_waves`: of the load in a slice at least; 0: without slices."""
        return first_plan(self._workload, self._last_wave, self._most, self._processes, slice_waves)

    def measure_long_enough(self, seed: int, plan: SamplingPlan, workload: Workload) -> tuple[Sample, int]:
        """The baseline's first sample at a further load, and the requests that it takes there to last as long as it should."""
        sample = self.measure(seed, plan, workload=workload)
        longer = lasts(sample, dataclasses.replace(plan, num_prompts=workload.num_prompts), workload).num_prompts
        if longer > workload.num_prompts:
            more = dataclasses.replace(workload, num_prompts=longer)
            sample = self.measure(seed, plan, first_attempt=1, workload=more)
        return sample, longer

    def slice(self, seed: int, plan: SamplingPlan, workload: Workload, prompts: int, attempt: int = 0) -> Sample:
        """A short sample. One that is not valid or was disturbed is not repeated: it decides nothing, whole ones follow."""
        now = sliced(workload, prompts)
        if plan.client_processes > 1:
            self._client.use_processes(plan.client_processes)
        taken = as_slice(self._attempt(seed, attempt, now), now)
        if why := objection(taken):
            self._note(f"the slice of seed {taken.seed} decides nothing: {why}")
        return taken

    def measure_and_revise(self, seed: int, plan: SamplingPlan) -> tuple[Sample, SamplingPlan]:
        """The baseline's first sample, and the plan that it needed. Repeats have prompts of their own."""
        for revision in range(REVISIONS):
            sample = self.measure(seed, plan, first_attempt=revision)
            better = revised(plan, sample, self._workload, self._most, self._processes)
            if better == plan:
                break
            self._note(f"seed {seed} is measured again with {better.why}: {first_problem(sample)}")
            plan = better
        return sample, plan

    def measure(
        self, seed: int, plan: SamplingPlan, first_attempt: int = 0, workload: Workload | None = None
    ) -> Sample:
        """A valid sample of the seed, or the last of a few attempts. Raises LaunchFailed when the server has died.

        `workload`: another load than the launch's own, with its own number of prompts.
        """
        now = workload or planned(self._workload, plan)
        if plan.client_processes > 1:
            self._client.use_processes(plan.client_processes)
        for attempt in range(first_attempt, first_attempt + MOST_REPEATS + 1):
            sample = self._attempt(seed, attempt, now)
            if not worth_repeating(sample, attempt - first_attempt) or self._busy_all_the_time(sample):
                return self._told(sample)
            self._note(f"seed {sample.seed} was {'not valid' if sample.problems else 'tainted'}: {_why(sample)}")
            if Invalid.JIT_COMPILED in sample.classes:
                self._waiting("warm-up after a compilation")
                self._wave()
        return self._told(sample)

    def _busy_all_the_time(self, sample: Sample) -> bool:
        """Whether the repeats that a launch has for taints are used up."""
        if sample.problems or not sample.taints:
            return False
        self._tainted_repeats += 1
        return self._tainted_repeats > TAINTED_REPEATS_A_LAUNCH

    def _told(self, sample: Sample) -> Sample:
        """A sample that stays tainted counts, and is never silent about it."""
        if sample.taints and not sample.problems:
            self._note(f"seed {sample.seed} counts although it is tainted: {'; '.join(sample.taints)}")
        return sample

    def _attempt(self, seed: int, attempt: int, workload: Workload) -> Sample:
        used = seed + attempt * REPEAT_SEEDS_FROM
        self._waiting(f"measuring, seed {used}")
        with self._guard.watch() as watch, self._window() as window:
            sample = self._client.sample(self._server.base_url, self._server.served_name, workload, used, self._folder)
        self._check_server(sample)
        sample = dataclasses.replace(
            sample,
            asked_seed=seed if attempt else None,
            running=window.running,
            telemetry=watch.telemetry,
            taints=self._judge(watch.telemetry),
        )
        return with_problems(sample, (*seen_by_window(window), *self._other_prompts(sample, workload)))

    def _other_prompts(self, sample: Sample, workload: Workload) -> list[Problem]:
        """Candidates are compared on the same prompts: a seed must stand for the same ones on every launch."""
        if sample.prompts is None:
            return []
        known = self._digests.setdefault((sample.seed, workload.num_prompts), sample.prompts)
        if known == sample.prompts:
            return []
        text = f"the prompts of seed {sample.seed} are not those of the launches before ({sample.prompts}, not {known})"
        return [Problem(Invalid.OTHER_PROMPTS, text)]

    def _wave(self) -> Wave:
        with self._window() as window:
            self._last_wave = self._client.warm_up(self._server.base_url, self._server.served_name, self._workload)
        self._check_server(self._last_wave)
        return wave_of(self._last_wave, window.compiled)

    def _check_server(self, sample: Sample) -> None:
        """Raises LaunchFailed for a dead server, and where the launch has had its time.

        A server that only looks alive lets a client wait without end, or its requests fail.
        """
        self._server.check_alive(ask=bool(_TELL_OF_DEATH & set(sample.classes)))

    def _window(self) -> Window:
        return Window(self._server.base_url, self._server.log_path, self._server.pids)


def seen_by_window(window: Window) -> list[Problem]:
    """What happened in the server meanwhile that tells against a sample."""
    if not window.compiled:
        return []
    others = f" and {len(window.compiled) - 1} more" if len(window.compiled) > 1 else ""
    return [Problem(Invalid.JIT_COMPILED, f"{window.compiled[0]}{others} was compiled during the sample")]


def worth_repeating(sample: Sample, repeats: int) -> bool:
    """Whether another attempt may mend an invalid or tainted sample, after so many repeats."""
    if repeats >= MOST_REPEATS or _final(sample):
        return False
    if sample.problems:
        return repeats < max((REPEATS_BY_CLASS.get(kind, REPEATS) for kind in sample.classes), default=REPEATS)
    return bool(sample.taints) and repeats < TAINTED_REPEATS


def _final(sample: Sample) -> bool:
    """A client that did little and yet set the pace was not woken in time: others had the cores, which may be over."""
    starved = sample.client is not None and sample.client.cpu_share <= OWN_WORK
    return bool((FINAL - {Invalid.CLIENT_BOUND} if starved else FINAL) & set(sample.classes))


def _why(sample: Sample) -> str:
    return first_problem(sample) if sample.problems else sample.taints[0]
