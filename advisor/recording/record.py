"""The whole of `advisor record`, in order: inspect, space, then one launch after the other into the grid's file."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from advisor.engine.options import parse_options
from advisor.errors import InputError
from advisor.inspection.resolution import Resolution
from advisor.journal import now
from advisor.measure.client import usable_cores
from advisor.measure.plan import plan_of
from advisor.progress import Progress
from advisor.recording.files import files_of, other_parts, shard_path
from advisor.recording.grid import Grid, Head, Recorded, Session, read_grid
from advisor.recording.head import grid_name, identity_of, new_head
from advisor.recording.order import part
from advisor.recording.space import recorded_space
from advisor.records import Candidate, Facts, FirstFacts, Outcome, SamplingPlan, Trial
from advisor.request import TuneRequest
from advisor.search.common_failure import check_common_failure
from advisor.serving_profile.scrub import Scrubber, model_name, scrubber
from advisor.serving_profile.store import file_name
from advisor.study import setup
from advisor.study.ahead import Ahead
from advisor.study.endings import ends_are_told, termination_is_ctrl_c
from advisor.study.launches import Launches, check_baseline
from advisor.units import duration
from advisor.verdict.output_gate import baseline_answers

FOLDER = Path("benchmarks") / "recorded"
TRIES = 2  # of a configuration whose measurement is not valid
PRUDENT = 0.75  # the quantile of the launches so far that the next one is taken to last


@dataclass(frozen=True)
class Wish:
    """What is recorded, beside what a request says. The request's budget is wall time from the command's start."""

    output: Path | None = None  # the grid's file; None: benchmarks/recorded/MODEL-GPU-WORKLOAD.jsonl
    configs: int | None = None  # of the order, the default included; None: all
    launches: int = 1  # of each
    shard: tuple[int, int] | None = None  # (i, n): every n-th candidate, into a file of its own
    fixed_prompts: bool = False  # the request's number of prompts was asked for
    command: str = ""


@dataclass(frozen=True)
class Answer:
    path: Path
    recorded: int  # configurations that have all their launches now, those of other files included
    wanted: int
    ended: str  # why nothing more was launched


def record(request: TuneRequest, wish: Wish, progress: Progress) -> Answer:
    """Launch what the grid lacks until nothing is missing or the budget ends.

    Raises the errors of advisor/errors.py; Interrupted after Ctrl-C, with every finished launch in the file.
    """
    begun = time.monotonic()
    request = dataclasses.replace(request, measure_all=True)  # a launch that cannot win is what others are compared with
    with ends_are_told(request), termination_is_ctrl_c(), contextlib.ExitStack() as stack:
        parse_options(request.serve_args)
        resolution = Resolution(request.engine_python, request.model, request.serve_env)
        if wish.output is None or not files_of(wish.output):
            stack.enter_context(resolution)  # imports vLLM while the inspection does, in another process
        ahead = stack.enter_context(Ahead(request, lambda facts: _folder_of_launches(request, wish, facts)))
        facts = setup.inspect(request, progress, ahead.begin)
        clean = scrubber((facts.model.model, model_name(facts.model)), [request.serve_env], [request.serve_args])
        whole, path = _files(request, wish, facts)
        identity = identity_of(request, facts, clean)
        others = other_parts(whole, path, identity)
        known = [*([read_grid(path)] if path.exists() else []), *others]
        plan = _plan(request, wish, known)
        head = known[0].head if known else new_head(request, facts, whole, identity, clean, resolution, progress)
        resolution.close()
        grid = stack.enter_context(Grid(path, _folder(request, path), head, identity, clean.text))
        client = stack.enter_context(setup.client(request, facts, grid))
        runner = setup.runner(request, facts, grid, client, progress.waiting, plan, ahead.launcher)
        stack.callback(runner.close)
        launch = Launches(request, grid, recorded_space(head), runner, progress, None)
        todo = _todo(head, wish)
        elsewhere = [trial for other in others for trial in other.trials]
        progress.note(f"grid {path}: {todo.told([*elsewhere, *grid.trials])}")
        if todo.next([*elsewhere, *grid.trials]):
            grid.begin_session(_session(request, wish, facts, clean))
        ended = _launches(launch, grid, todo, elsewhere, begun + request.budget.total_s)
        trials = [*elsewhere, *grid.trials]
        return Answer(path, todo.finished(trials), len(todo.candidates), ended)


def _files(request: TuneRequest, wish: Wish, facts: Facts | FirstFacts) -> tuple[Path, Path]:
    """The grid's file and that of this part, which may be the same one."""
    whole = wish.output or FOLDER / f"{grid_name(request, facts)}.jsonl"
    return whole, shard_path(whole, wish.shard)


def _folder(request: TuneRequest, path: Path) -> Path:
    """Of the launches' logs and raw results."""
    return request.runs / f"record-{file_name(path.stem)}"


def _folder_of_launches(request: TuneRequest, wish: Wish, facts: FirstFacts) -> Path | None:
    """None where the files lack no launch. Raises InputError."""
    whole, path = _files(request, wish, facts)
    known = [read_grid(item) for item in files_of(whole)]
    trials = [trial for grid in known for trial in grid.trials]
    return _folder(request, path) if not known or _todo(known[0].head, wish).next(trials) else None


def _launches(launch: Launches, grid: Grid, todo: Todo, elsewhere: Sequence[Trial], end: float) -> str:
    """Returns why it ended. The first launch on a machine is the default: the answers of all others are judged against it."""
    first = len(grid.trials)
    if todo.next([*elsewhere, *grid.trials]) and not baseline_answers(grid.trials, grid.folder):
        check_baseline(launch("baseline", Candidate()), grid)
    while candidate := todo.next([*elsewhere, *grid.trials]):
        needed, left = expected_s([*elsewhere, *grid.trials]), end - time.monotonic()
        if left < needed:
            return f"budget: {duration(max(left, 0.0))} left, a launch takes about {duration(needed)} here"
        trial = launch("search", candidate)
        if candidate.is_baseline:
            check_baseline(trial, grid)  # it would be launched again at once, for as long as it fails
        check_common_failure(first_tries([*elsewhere, *grid.trials], len(elsewhere) + first))
    return "everything is recorded"


def first_tries(trials: Sequence[Trial], since: int) -> list[Trial]:
    """The search's trials from that index on, without second tries: those come one after the other and mostly end as the first
    did, which tells nothing of the machine."""
    found, invalid = [], set()
    for number, trial in enumerate(trials):
        if number >= since and trial.phase == "search" and trial.candidate.key not in invalid:
            found.append(trial)
        if trial.outcome is Outcome.INVALID_MEASUREMENT:
            invalid.add(trial.candidate.key)
    return found


def _todo(head: Head, wish: Wish) -> Todo:
    return Todo(part(head.candidates[: wish.configs], wish.shard or (0, 1)), wish.launches)


class Todo:
    """What has to be launched: each candidate once, in order, then each again. One that failed is not launched again, unless its
    measurement was not valid: that says nothing about it, so it has one more try, after the others."""

    def __init__(self, candidates: Sequence[Candidate], launches: int):
        self.candidates, self._launches = candidates, launches

    def next(self, trials: Sequence[Trial]) -> Candidate | None:
        """The candidate to launch now, given every launch so far; None: all are there."""
        counts = _counts(trials)
        left = [item for item in self.candidates if not self._is_finished(item.key, counts)]
        return min(left, key=lambda item: counts.tried[item.key], default=None)

    def finished(self, trials: Sequence[Trial]) -> int:
        counts = _counts(trials)
        return sum(self._is_finished(item.key, counts) for item in self.candidates)

    def _is_finished(self, key: str, counts: Counts) -> bool:
        return key in counts.failed or counts.measured[key] >= self._launches

    def told(self, trials: Sequence[Trial]) -> str:
        failed = _counts(trials).failed
        bad = sum(item.key in failed for item in self.candidates)
        return f"{self.finished(trials)} of {len(self.candidates)} configurations recorded" + (
            f", {bad} of them as failures" if bad else ""
        )


class Counts(NamedTuple):
    """By a candidate's key. What was interrupted was not launched, nor a default that failed."""

    measured: Counter[str]
    tried: Counter[str]
    failed: set[str]


def _counts(trials: Sequence[Trial]) -> Counts:
    whole = [trial for trial in trials if trial.ok or _is_failure(trial)]
    invalid = Counter(trial.candidate.key for trial in whole if trial.outcome is Outcome.INVALID_MEASUREMENT)
    failed = {item.candidate.key for item in whole if not item.ok and item.outcome is not Outcome.INVALID_MEASUREMENT}
    return Counts(
        Counter(trial.candidate.key for trial in whole if trial.ok),
        Counter(trial.candidate.key for trial in whole),
        failed | {key for key, times in invalid.items() if times >= TRIES},
    )


def _is_failure(trial: Trial) -> bool:
    """A default that fails ends the recording: what was to blame is mended, and it is launched again."""
    return not trial.ok and trial.outcome is not Outcome.INTERRUPTED and not trial.candidate.is_baseline


def expected_s(trials: Sequence[Trial]) -> float:
    """Wall seconds that a launch takes, prudently: three of four took less. 0 while nothing is known."""
    costs = sorted(trial.total_s for trial in trials if trial.outcome is not Outcome.INTERRUPTED)
    if len(costs) < 2:
        return costs[0] if costs else 0.0
    return statistics.quantiles(costs, n=4, method="inclusive")[round(PRUDENT * 4) - 1]


def _session(request: TuneRequest, wish: Wish, facts: Facts, clean: Scrubber) -> Session:
    shard = f"{wish.shard[0]}/{wish.shard[1]}" if wish.shard else ""
    return Session(now(), clean.text(wish.command), usable_cores(), facts.gpu.count, request.launcher, shard)


def _plan(request: TuneRequest, wish: Wish, grids: Sequence[Recorded]) -> SamplingPlan | None:
    """How each launch is sampled. None: the default's first launch decides it. Raises InputError for parts that could differ."""
    known = plan_of([trial for grid in grids for trial in grid.trials])
    if known is not None:
        return known
    if wish.fixed_prompts and request.client_processes:
        return SamplingPlan(request.workload.num_prompts, request.client_processes, "as asked for")
    if wish.shard:
        raise InputError(
            "the parts of a grid must send the same load, and nothing is recorded yet that says which",
            "give --num-prompts and --client-processes, or record the default first: --configs 1 without --shard",
        )
    return None
