"""Runs a job on a real server: launch, warm up, measure each seed, stop. One folder a launch."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from advisor.engine.agreement import Agreement, judge
from advisor.engine.graph_steps import metrics_arguments
from advisor.engine.render import serve_command
from advisor.errors import EnvironmentMismatch
from advisor.launch import caches, gpu_memory
from advisor.launch.failure import LaunchFailed
from advisor.launch.readiness import LaunchLimits
from advisor.launch.server import Server
from advisor.launch.warm import WarmLauncher
from advisor.measure import taints
from advisor.measure.load_search import find_load
from advisor.measure.metrics_page import keep_page
from advisor.measure.plan import planned
from advisor.measure.probe import probe
from advisor.measure.quality import TIMEOUT_S, run_quality
from advisor.measure.telemetry import Guard
from advisor.records import (
    Command,
    Facts,
    Objective,
    Outcome,
    Telemetry,
    Trial,
    Workload,
    fingerprint,
)
from advisor.runner import stages
from advisor.runner.base import Earlier, Job
from advisor.runner.launch import Launch
from advisor.runner.sampling import Client, Sampling

# A launch that soaks also counts which steps run in which graphs; vLLM writes that count into its log as often as this.
COUNT_OFTEN = {"VLLM_LOG_STATS_INTERVAL": "2"}
# Phases whose figures are compared with each other only. What a person is told of comes from servers started as theirs are.
FORKED_PHASES = ("baseline", "search")


class RealRunner:
    """Launches the model on this machine. `waiting(what, seconds)` is told what a launch waits for.

    `client_processes` is a person's own wish for it, `evaluation` a person's quality command. `warm`: forks the servers of
    baseline and search, which must not be mixed with executed ones where a start is compared.
    """

    def __init__(
        self,
        facts: Facts,
        workload: Workload,
        serve_args: tuple[str, ...],
        serve_env: Mapping[str, str],
        folder: Path,
        client: Client,
        limits: LaunchLimits | None = None,
        waiting: Callable[[str, float], None] | None = None,
        client_processes: int | None = None,
        objective: Objective | None = None,
        earlier: Earlier | None = None,
        judge_machine: Callable[[Telemetry | None, Telemetry | None], tuple[str, ...]] = taints.judge,
        evaluation: tuple[str, ...] = (),
        evaluation_timeout_s: float = TIMEOUT_S,
        warm: WarmLauncher | None = None,
    ):
        self._facts = facts
        self._workload = workload
        self._serve_args = serve_args
        self._serve_env = serve_env
        self._folder = folder
        self._client = client
        self._limits = limits or LaunchLimits()
        self._waiting = waiting or _nobody
        earlier = earlier or Earlier()
        self._plan, self._client_processes = earlier.plan, client_processes
        self._objective = objective or Objective()
        self._digests = dict(earlier.prompts)
        self._evaluation, self._evaluation_timeout_s = evaluation, evaluation_timeout_s
        self._reference, self._judge_machine = earlier.reference, judge_machine
        self._usual_memory = gpu_memory.used(facts.gpu)  # others' share, before the first launch
        self._default = earlier.default
        self._renewed_for: set[str] = set()  # candidates that got an empty compile cache
        self._warm = warm

    def close(self) -> None:
        """End the process that servers are forked from."""
        if self._warm is not None:
            self._warm.close()

    def run(self, job: Job) -> Trial:
        launch = Launch(job, self._command(job), self._launch_folder(job))
        begun = time.monotonic()
        try:
            self._serve(launch)
        except LaunchFailed as failure:
            if failure.retryable:  # neither this candidate nor any other is to blame
                hint = f"the same command goes on from what was measured; log: {failure.log_path}"
                raise EnvironmentMismatch(f"no server can be started here: {failure.reason}", hint) from None
            launch.outcome, launch.reason = failure.outcome, failure.reason
        except KeyboardInterrupt:
            launch.outcome, launch.reason = Outcome.INTERRUPTED, "stopped by the person"
            launch.active = launch.read_active()
            raise JobInterrupted(launch.trial(self._folder, time.monotonic() - begun)) from None
        launch.active = launch.read_active()
        if job.candidate.is_baseline and launch.outcome is Outcome.OK:
            self._default = launch.active
            self._reference = self._reference or taints.reference((), launch.samples)
        launch.check(self._agreement(launch))
        return launch.trial(self._folder, time.monotonic() - begun)

    def _serve(self, launch: Launch) -> None:
        name = f"advisor-{self._folder.name}-{launch.folder.name}"
        gpu = self._facts.gpu
        guard = Guard(gpu)
        server = launch.server = Server(
            launch.command, name, launch.folder, gpu, launch.job.limits or self._limits, self._waiting,
            usual=self._usual_memory, caches=self._caches(launch.job), renew_caches=self._renewal(launch.job),
            retried=launch.notes.append, warm=self._warm if launch.job.phase in FORKED_PHASES else None,
        )  # fmt: skip
        try:
            with server:
                launch.times["start_s"] = server.start_s
                guard.server = server.pid
                sampling = self._sampling(server, launch, guard)
                if launch.job.seeds and not launch.is_lost():  # by its start alone, where that is the objective
                    with launch.timed("warmup_s"):
                        launch.warm_up = sampling.warm_up()
                    with launch.timed("measure_s"):
                        self._measure(sampling, launch)
                launch.notes += taints.remarks(launch.samples[-1].telemetry if launch.samples else None)
                launch.memory_free = gpu_memory.free_share(gpu)
                keep_page(server.base_url, launch.folder)
                with launch.timed("checks_s"):
                    self._ask_fixed_prompts(server, launch)
                    self._evaluate(server, launch)
        finally:  # a server that died while it was measured was stopped, too
            if server.start_s and server.stop_s is not None:
                launch.times["stop_s"] = server.stop_s
            launch.leftovers = server.leftovers
            launch.notes += [f"left behind when the server had ended, and killed: {one}" for one in server.leftovers]

    def _caches(self, job: Job) -> Mapping[str, str]:
        if job.caches == "study":
            cache = caches.study_cache(self._folder, os.environ)
            caches.lend_model_classes(cache, {**os.environ, **self._serve_env})
            return cache
        return caches.proof_cache(self._folder, empty=job.caches == "empty")

    def _renewal(self, job: Job) -> Callable[[], Mapping[str, str]] | None:
        """For a start on a broken compile cache: once a candidate, since one that breaks its own cache each time must not win.

        A winner's second start is there to meet what its first one left.
        """
        key = job.candidate.key
        if job.caches != "study" or key in self._renewed_for:
            return None

        def renew() -> Mapping[str, str]:
            self._renewed_for.add(key)
            return caches.renewed_cache(self._folder, os.environ)

        return renew

    def _evaluate(self, server: Server, launch: Launch) -> None:
        """The person's own evaluation, where this launch is one that it judges."""
        if not (launch.job.evaluate and self._evaluation):
            return
        self._waiting("the quality command", 0.0)
        name, limit_s = server.served_name, self._evaluation_timeout_s
        found = run_quality(self._evaluation, server.base_url, name, launch.folder, limit_s)
        launch.quality = dataclasses.replace(found, command=fingerprint(list(self._evaluation)))
        server.check_alive()

    def _ask_fixed_prompts(self, server: Server, launch: Launch) -> None:
        """What the output gate is judged by; after the samples, which it must not change, and only where they count."""
        if launch.dropped or any(sample.problems for sample in launch.samples):
            return
        self._waiting("fixed prompts", 0.0)
        launch.answers = probe(
            server.base_url, server.served_name, self._facts.model, launch.folder, ends_at=server.ends_at
        )
        server.check_alive()

    def _sampling(self, server: Server, launch: Launch, guard: Guard) -> Sampling:
        processes = self._plan.client_processes if self._plan else self._client_processes or 1
        if processes > 1:
            self._client.use_processes(processes)
        self._client.end_by(server.ends_at)
        return Sampling(
            self._client, server, self._workload, launch.folder, self._digests,
            lambda what: self._waiting(what, 0.0), launch.notes.append, self._client_processes,
            guard=guard, judge=lambda seen: self._judge_machine(seen, self._reference),
        )  # fmt: skip

    def _measure(self, sampling: Sampling, launch: Launch) -> None:
        """Every seed of the job. The first launch of a study decides the plan that all others have, if it is valid."""
        launch.plan, begun = self._plan, time.monotonic()
        if self._objective.find_load:
            self._find_load(sampling, launch)
            begun = time.monotonic()  # a soak is at the load that was found: to find it takes longer than some soaks
        elif launch.plan is None and launch.job.seeds:
            stages.measure_and_plan(sampling, launch)
        else:
            stages.measure(sampling, launch)
        stages.soak(sampling, launch, begun + launch.job.soak_s, self._objective)
        if self._plan is None and not any(sample.problems for sample in launch.samples):
            self._plan = launch.plan

    def _find_load(self, sampling: Sampling, launch: Launch) -> None:
        """Several loads on this launch; its samples are those of the highest that meets the SLO."""
        plan = launch.plan = self._plan or sampling.first_plan()
        found = find_load(
            lambda workload, seed: sampling.measure(seed, plan, workload=workload),
            planned(self._workload, plan),
            self._objective,
            launch.job.seeds,
        )
        launch.samples += found.samples
        launch.loads = found.loads
        launch.notes.append(found.note)

    def _agreement(self, launch: Launch) -> Agreement:
        in_flight, job = self._in_flight(launch), launch.job
        return judge(job.candidate, launch.command, job.resolved, launch.active, self._default, self._facts, in_flight)

    def _in_flight(self, launch: Launch) -> int | None:
        """Requests that were kept running at most; None where no number was."""
        if self._objective.find_load is None:
            return self._workload.concurrency if self._workload else None
        tried = [int(point.load) for point in launch.loads] if self._objective.find_load == "concurrency" else []
        return max(tried, default=None)

    def _command(self, job: Job) -> Command:
        path = served_model(self._facts.model.model)
        engine = self._facts.engine
        counting = metrics_arguments(engine.flags, engine.platform) if job.soak_s else ()
        env = {**COUNT_OFTEN, **self._serve_env} if counting else self._serve_env
        return serve_command(
            engine.python, path, (*self._serve_args, *counting), env, job.candidate, engine.vllm_version
        )

    def _launch_folder(self, job: Job) -> Path:
        """A new folder each time: a launch that was interrupted keeps its log."""
        base = self._folder / "launches" / f"{job.number:04d}-{job.phase}"
        folder, again = base, 1
        while folder.exists():
            again += 1
            folder = base.with_name(f"{base.name}-{again}")
        folder.mkdir(parents=True)
        return folder


def served_model(model: str) -> str:
    """As the server is told: a folder's whole path, wherever the server runs."""
    return str(Path(model).resolve()) if Path(model).is_dir() else model


class JobInterrupted(KeyboardInterrupt):
    """Ctrl-C during a job; carries the trial as far as it came. The server is gone."""

    def __init__(self, trial: Trial):
        super().__init__()
        self.trial = trial


def _nobody(what: str, seconds: float) -> None:
    """For callers that do not watch."""
    del what, seconds
