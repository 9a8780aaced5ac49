"""One mode: an engine in a process of its own (advisor/target/anatomy.py), asked one thing after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.anatomy.document import FAILED, MEASURED, PARTLY
from advisor.anatomy.floor import floor_ms
from advisor.anatomy.modes import Mode
from advisor.anatomy.rows import decode_row, prefill_row
from advisor.stepping.ahead import Ahead
from advisor.stepping.figures import is_steady, steadier
from advisor.stepping.started import START_S, what_started
from advisor.target_process import TargetDied, TargetProcess, TargetTimeout

_ANSWER_S = 900.0  # kernels may be built in the first step of a batch size
_WARMUP, _SERIAL, _TRACED, _PREFILLS, _TRACED_PREFILLS = 10, 30, 10, 7, 3
_REASON = 400  # characters


@dataclass(frozen=True)
class Measuring:
    """What all modes have in common. `clean` takes paths and secrets out of a text; logs go into `logs`."""

    model: str
    python: str
    environment: Mapping[str, str]
    batches: Sequence[int]
    context: int
    steps: int
    prefills: Sequence[int]
    logs: Path
    clean: Callable[[str], str]

    @staticmethod
    def around(steps: int) -> int:
        """Tokens that a request decodes besides the timed ones: before them and, drained, after them."""
        return 2 * _WARMUP + _SERIAL + steps % 2


@dataclass(frozen=True)
class Turn:
    """Whose turn it is: the arguments of `vllm serve`, and the mode after it whose imports may begin, if there is one."""

    mode: Mode
    argv: Sequence[str]
    following: str | None = None


def process(name: str, python: str, environment: Mapping[str, str], logs: Path) -> TargetProcess:
    """That of the mode of this name, not started yet."""
    logs.mkdir(parents=True, exist_ok=True)
    return TargetProcess(python, "anatomy", environment, log_of(name, logs))


def log_of(name: str, logs: Path) -> Path:
    return logs / f"{name}.log"


def measure(turn: Turn, measuring: Measuring, machine: dict[str, Any], ahead: Ahead) -> Iterator[dict[str, Any]]:
    """Yields the mode's part of the document after every answer; the last one is whole.

    `machine`: bandwidth and cost of a launch, of the first mode that comes so far; `launch` of the mode is its own.
    """
    mode, log = turn.mode, log_of(turn.mode.name, measuring.logs)
    state = {
        "title": mode.title, "settings": dict(mode.settings), "status": FAILED, "reason": None, "log": log.name,
        "resolved": {}, "start": {}, "loaded": {}, "decode": [], "prefill": [],
    }  # fmt: skip
    try:
        with ahead.engine(mode.name) as engine:
            for _ in _asked(engine, turn.argv, measuring, state, machine, lambda: ahead.begin(turn.following)):
                yield state
    except (TargetDied, TargetTimeout) as ended:
        state["status"] = PARTLY if state["decode"] else FAILED
        state["reason"] = measuring.clean(ended.problem)[:_REASON]
    yield state


def _asked(
    engine: TargetProcess,
    argv: Sequence[str],
    measuring: Measuring,
    state: dict[str, Any],
    machine: dict[str, Any],
    timed: Callable[[], None],
) -> Iterator[None]:
    """Timings before traces: the profiler, once it has been there, slows what comes after it. `timed` is called in between."""
    started = engine.request({"do": "start", "argv": [measuring.model, *argv]}, START_S)
    if not started["ok"]:
        state["reason"] = measuring.clean(f"{started['error_type']}: {started['error']}")[:_REASON]
        return
    state |= loaded(started, (measuring.logs / state["log"]).read_text(errors="replace"))
    state["status"] = PARTLY
    yield
    results = _Results(state, started, measuring.clean)
    for batch in measuring.batches:
        results.timed[batch] = _decode(engine, batch, measuring)
        results.write()
        yield
    for tokens in measuring.prefills:
        results.prefilled[tokens] = _steadier(engine, {"do": "prefill", "tokens": tokens, "repeats": _PREFILLS})
        results.write()
        yield
    if "bandwidth" not in machine and (copied := engine.request({"do": "copy"}, _ANSWER_S)).pop("ok"):
        machine["bandwidth"] = copied
    if (launched := engine.request({"do": "launch"}, _ANSWER_S)).pop("ok"):  # of each: was the host equally fast?
        state["launch"] = launched
        machine.setdefault("launch", launched)
    results.bandwidth = machine.get("bandwidth")
    results.write()
    yield
    timed()
    for batch in measuring.batches:
        if results.timed[batch]["ok"]:
            results.traced[batch] = engine.request(_trace(batch, measuring), _ANSWER_S)
            results.write()
            yield
    for tokens in measuring.prefills:
        request = {"do": "trace_prefill", "tokens": tokens, "repeats": _TRACED_PREFILLS}
        results.traced_prefill[tokens] = engine.request(request, _ANSWER_S)
    results.write()
    state["status"] = MEASURED


def _decode(engine: TargetProcess, batch: int, measuring: Measuring) -> dict[str, Any]:
    request = {"do": "decode", "batch": batch, "context": measuring.context}
    return _steadier(engine, {**request, "warmup": _WARMUP, "steps": measuring.steps, "serial": _SERIAL})


def _steadier(engine: TargetProcess, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a timing; if its steps were not steady, the steadier one of two, with `attempts`."""
    first = engine.request(request, _ANSWER_S)
    if not first["ok"] or is_steady(first["step_ms"]):
        return first
    return {**steadier(first, engine.request(request, _ANSWER_S)), "attempts": 2}


def _trace(batch: int, measuring: Measuring) -> dict[str, Any]:
    return {"do": "trace", "batch": batch, "context": measuring.context, "warmup": _WARMUP, "steps": _TRACED}


class _Results:
    """Answers so far, and the rows that they come to."""

    def __init__(self, state: dict[str, Any], started: Mapping[str, Any], clean: Callable[[str], str]):
        self._state, self._started, self._clean = state, started, clean
        self.timed: dict[int, dict[str, Any]] = {}
        self.traced: dict[int, dict[str, Any]] = {}
        self.prefilled: dict[int, dict[str, Any]] = {}
        self.traced_prefill: dict[int, dict[str, Any]] = {}
        self.bandwidth: Mapping[str, Any] | None = None

    def write(self) -> None:
        rows = [
            decode_row(batch, timed, self.traced.get(batch), self._floor(timed)) for batch, timed in self.timed.items()
        ]
        prefills = [
            prefill_row(tokens, timed, self.traced_prefill.get(tokens)) for tokens, timed in self.prefilled.items()
        ]
        for row in (*rows, *prefills):
            if row.get("reason"):
                row["reason"] = self._clean(row["reason"])[:_REASON]
        self._state["decode"], self._state["prefill"] = rows, prefills

    def _floor(self, timed: Mapping[str, Any]) -> float | None:
        if self.bandwidth is None or not timed["ok"]:
            return None
        started = self._started
        return floor_ms(
            started["weights"], started["kv"], timed["batch"], timed["context_tokens"], self.bandwidth["gb_s"]
        )


def loaded(started: Mapping[str, Any], log_text: str) -> dict[str, Any]:
    """What runs, what its start went into, and what the engine holds."""
    weights = started["weights"]
    return {
        **what_started(started, log_text),
        "loaded": {
            "parameters": weights["parameters"], "weight_bits": weights["weight_bits"],
            "weights": {name: value for name, value in weights.items() if name not in ("parameters", "weight_bits")},
            "kv": started["kv"],
        },
    }  # fmt: skip
