"""One backend: an engine in a process of its own (advisor/target/attention.py), asked for one cell after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor.attention.arms import Arm, active, not_as_asked
from advisor.attention.grid import DECODE, WARMUP, Cell, steps_of
from advisor.attention.rows import LATE, by_key, in_order, is_measured, is_refusal, key_of, row_of, with_repeat
from advisor.attention.shares import Shares
from advisor.attention.traces import NO_TIME, to_trace, trace_of, with_gpu_time, without_gpu_time
from advisor.engine.logs import parse_active
from advisor.stepping.ahead import Ahead
from advisor.stepping.figures import is_steady, steadier
from advisor.stepping.started import what_started
from advisor.target_process import TargetDied, TargetProcess, TargetTimeout

MEASURED, PARTLY, FAILED, OTHER = "measured", "partly", "failed", "not-as-requested"
_GRACE_S = 60.0  # a step that builds kernels does not look at the clock
_IMPORTS_S = (
    60.0  # the next process may import for so long after an engine has started, before steps are timed beside it
)
_IN_A_ROW = 2  # failures after which an engine is taken to be broken
_REASON = 400  # characters


@dataclass(frozen=True)
class Measuring:
    """What all backends have in common. `clean` takes paths and secrets out of a text; logs go into `logs`.

    `gpu`: there is one, whose time can be traced.
    """

    model: str
    cells: Sequence[Cell]
    steps: int
    logs: Path
    clean: Callable[[str], str]
    shares: Shares
    gpu: bool = False


@dataclass
class Run:
    """One start of one backend: what it may take, what is in the file already (rows of `earlier`), and which backend is next."""

    arm: Arm
    argv: Sequence[str]
    share_s: float
    earlier: Mapping[str, Any] = field(default_factory=dict)
    following: str | None = None


class _Stopped(Exception):
    """The rest is not measured, for the reason that is told."""


class _Over(_Stopped):
    """The time is over."""


def process(name: str, python: str, environment: Mapping[str, str], logs: Path) -> TargetProcess:
    """That of this name (Arm.process), not started yet."""
    logs.mkdir(parents=True, exist_ok=True)
    return TargetProcess(python, "attention", environment, log_of(name, logs))


def log_of(name: str, logs: Path) -> Path:
    return logs / f"{name}.log"


def measure(run: Run, measuring: Measuring, ahead: Ahead) -> Iterator[dict[str, Any]]:
    """Yields the backend's part of the document after every answer; the last one is whole."""
    log = log_of(run.arm.process, measuring.logs)
    state = {
        "default": run.arm.default, "settings": dict(run.arm.settings), "status": FAILED, "reason": None, "log": log.name,
        "active": {}, "resolved": {}, "start": {}, "rows": list(run.earlier.get("rows", [])),
    }  # fmt: skip
    asking = _Asking(state, run, measuring, log, ahead)
    try:
        with ahead.engine(run.arm.process) as engine:
            for _ in asking.all(engine):
                yield state
    except (TargetDied, TargetTimeout) as ended:
        asking.died(ended.problem)
    except _Stopped as stopped:
        asking.ended(str(stopped))
    yield state


def missing(cells: Sequence[Cell], rows: Sequence[Mapping[str, Any]]) -> list[Cell]:
    """Cells without an answer, cheap ones first, and then those at which an engine failed before."""
    known = by_key(rows)
    new = [cell for cell in cells if cell.key not in known]
    return new + [cell for cell in cells if cell.key in known and known[cell.key].get("failed")]


def to_repeat(cells: Sequence[Cell], rows: Sequence[Mapping[str, Any]]) -> list[Cell]:
    """Of vLLM's own choice: cells that were not measured a second time. What differs then is noise."""
    known = by_key(rows)
    found = [cell for cell in cells if cell.key in known and is_measured(known[cell.key])]
    return [cell for cell in found if known[cell.key].get("again_steady") is None]


class _Asking:
    """Requests to one engine, and the rows that their answers come to."""

    def __init__(self, state: dict[str, Any], run: Run, measuring: Measuring, log: Path, ahead: Ahead):
        self._state, self._run, self._measuring, self._log, self._ahead = state, run, measuring, log, ahead
        self._asked: Cell | None = None
        self._tracing = False
        self._failures = 0
        self._until = 0.0

    def all(self, engine: TargetProcess) -> Iterator[None]:
        shares, cells = self._measuring.shares, self._measuring.cells
        begun = shares.clock()
        self._ahead.begin(self._run.following)  # beside the start: no step is timed yet
        self._start(engine)
        self._ahead.wait(min(_IMPORTS_S, max(shares.left_s, 0.0)))
        self._until = shares.measuring_until(begun, self._run.share_s)
        yield
        for cell in missing(cells, self._state["rows"]):
            self._put(row_of(cell, self._steadier(engine, cell, 0, "measured"), self._measuring.clean))
            yield
        if self._run.arm.default:
            yield from self._repeat(engine)
        if self._measuring.gpu:
            yield from self._trace(engine, shares.tracing_until(begun))
        self._state["status"] = MEASURED

    def _start(self, engine: TargetProcess) -> None:
        """Raises _Stopped where the engine does not start, or runs another backend than it was asked for."""
        limit_s = self._measuring.shares.start_limit_s(self._run.share_s)
        started = engine.request({"do": "start", "argv": [self._measuring.model, *self._run.argv]}, limit_s)
        if not started["ok"]:
            raise _Stopped(f"{started['error_type']}: {started['error']}")
        log = self._log.read_text(errors="replace")
        told = parse_active(log)
        self._state |= what_started(started, log)
        self._state["active"] = active(started["attention"], told.attention_backends, told.flash_attention_version)
        if problem := not_as_asked(self._run.arm, self._state["active"]):
            self._state |= {"status": OTHER, "rows": []}
            raise _Stopped(problem)
        self._state["status"] = PARTLY

    def _repeat(self, engine: TargetProcess) -> Iterator[None]:
        for cell in to_repeat(self._measuring.cells, self._state["rows"]):
            answer = self._steadier(engine, cell, 1, "measured again, which tells the noise")
            self._put(with_repeat(by_key(self._state["rows"])[cell.key], answer))
            yield

    def _trace(self, engine: TargetProcess, until: float) -> Iterator[None]:
        """GPU times, after all others: the profiler stays in the process and slows the host. After `until` no more of them."""
        self._tracing, whole = True, self._until
        self._until, lost = min(whole, until), 0
        for cell in self._untraced():
            try:
                answer = self._ask(engine, cell, lambda left_s, cell=cell: trace_of(cell, left_s), "traced")
            except _Over:
                if self._until == whole:
                    raise
                self._give_up(NO_TIME)
                return
            row = with_gpu_time(by_key(self._state["rows"])[cell.key], answer, self._measuring.clean)
            self._put(row)
            lost = lost + 1 if row["gpu_ms"] is None else 0
            if lost == _IN_A_ROW:
                self._give_up(row["gpu_reason"])
                return
            yield

    def _untraced(self) -> list[Cell]:
        return to_trace(self._measuring.cells, self._state["rows"])

    def _give_up(self, reason: str) -> None:
        """No more traces, for this reason."""
        for cell in self._untraced():
            self._put(without_gpu_time(by_key(self._state["rows"])[cell.key], reason))

    def _steadier(self, engine: TargetProcess, cell: Cell, seed: int, done: str) -> dict[str, Any]:
        """The answer; if its steps were not steady, the steadier one of two, as long as there is time. Raises as _answer does."""
        first = self._answer(engine, cell, seed, done)
        if not first["ok"] or is_steady(first["step_ms"]):
            return first
        try:
            return steadier(first, self._answer(engine, cell, seed + 2, done))  # with prompts that are not in the cache
        except _Stopped:
            return first

    def _answer(self, engine: TargetProcess, cell: Cell, seed: int, done: str) -> dict[str, Any]:
        """Raises as _ask does."""
        return self._ask(engine, cell, lambda left_s: request_of(cell, self._measuring.steps, left_s, seed), done)

    def _ask(
        self, engine: TargetProcess, cell: Cell, request: Callable[[float], dict[str, Any]], done: str
    ) -> dict[str, Any]:
        """`request` takes the seconds that are left. Raises _Over where there are none, _Stopped where the engine seems broken."""
        left_s = self._until - self._measuring.shares.clock()
        late = _Over(f"the time was over before everything was {done}; the same command goes on")
        if left_s <= 0:
            raise late
        if self._failures >= _IN_A_ROW:
            raise _Stopped("the engine failed several times in a row; the last rows say how")
        self._asked = cell
        answer = engine.request(request(left_s), left_s + _GRACE_S)
        self._asked = None
        if answer.get("error_type") == LATE:
            raise late
        self._failures = 0 if answer["ok"] or is_refusal(answer) else self._failures + 1
        return answer

    def _put(self, row: dict[str, Any]) -> None:
        others = [one for one in self._state["rows"] if key_of(one) != key_of(row)]
        self._state["rows"] = in_order([*others, row])

    def died(self, problem: str) -> None:
        """What was asked last is not asked first the next time."""
        known = by_key(self._state["rows"])
        if self._asked and self._tracing:
            self._put(without_gpu_time(known[self._asked.key], self._measuring.clean(f"engine lost: {problem}")))
        elif self._asked and not (self._asked.key in known and is_measured(known[self._asked.key])):
            answer = {"ok": False, "error_type": "engine lost", "error": problem}
            self._put(row_of(self._asked, answer, self._measuring.clean))
        self.ended(problem)

    def ended(self, reason: str) -> None:
        """Before everything was measured."""
        if self._state["status"] != OTHER:
            self._state["status"] = PARTLY if any(map(is_measured, self._state["rows"])) else FAILED
        self._state["reason"] = self._measuring.clean(reason)[:_REASON]


def request_of(cell: Cell, steps: int, limit_s: float, seed: int) -> dict[str, Any]:
    """The request of advisor/target/attention.py. Another `seed`: other prompts, for another time."""
    request = {
        "do": cell.phase, "batch": cell.batch, "context": cell.context, "warmup": WARMUP[cell.phase],
        "steps": steps_of(cell.phase, steps), "limit_s": round(limit_s, 1),
    }  # fmt: skip
    if cell.phase != DECODE:
        request["seed"] = seed
    return {**request, "chunk": cell.chunk} if cell.chunk else request
