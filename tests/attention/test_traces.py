"""GPU times without a GPU: traced rows of the target script, and the profiler around them (the command: test_gpu_time.py)."""

from __future__ import annotations

import json
import sys
from types import ModuleType, SimpleNamespace

import pytest

from advisor.attention import traces
from advisor.attention.grid import DEFAULT_STEPS, PHASES, WARMUP, Cell, steps_of
from advisor.target import anatomy, attention, step_trace
from tests.attention.test_target import MOST, Core, is_empty, made


def kernel(begin, length):
    return {"ph": "X", "cat": "kernel", "name": "k", "ts": begin, "dur": length, "pid": 1, "tid": 7}


@pytest.fixture(params=[False, True], ids=["one by one", "pipelined"])
def engine(request, monkeypatch):
    found = made(Core(request.param), monkeypatch)
    found.seen = []

    def traced(work, drain):
        assert drain == found.drain
        scheduled = []
        plain = found.core.schedule
        monkeypatch.setattr(found.core, "schedule", lambda: scheduled.append(plain()) or scheduled[-1])
        work()
        monkeypatch.setattr(found.core, "schedule", plain)
        found.seen.append([sorted(step.num_scheduled_tokens.values()) for step in scheduled])
        return [kernel(0, 2000), kernel(5000, 1000 * len(found.seen))], 0.02

    monkeypatch.setattr(attention.trace, "traced", traced)
    return found


def ask(engine, phase, batch, context, limit_s=60, **more):
    request = {**traces.trace_of(Cell(phase, batch, context), limit_s), **more}
    return attention.stepped.answer(engine, request)


@pytest.mark.parametrize(
    ("phase", "batch", "more", "windows"),
    [
        ("decode", 4, {}, [[[1] * 4] * 3] * 2),
        ("prefill", 2, {}, [[[300] * 2]] * 2),
        ("mixed", 4, {"chunk": 64}, [[[1] * 4 + [64]] * 2] * 2),
    ],
)
def test_each_trace_holds_so_many_steps_of_the_composition(engine, phase, batch, more, windows):
    found = ask(engine, phase, batch, 300, **more)
    assert found["ok"], found
    assert engine.seen == windows
    each = len(windows[0])
    times = [round(ms / each, 4) for ms in (3, 4)]
    assert found["gpu_ms"] == {"mean": pytest.approx(sum(times) / 2, abs=1e-4), "low": times[0], "high": times[1]}
    assert found["gpu_reason"] is None
    assert "step_ms" not in found  # steps under the profiler are slower
    assert engine.core.scheduler.max_num_scheduled_tokens == MOST
    assert is_empty(engine)


def test_traced_prompts_are_in_no_cache(engine):
    for phase, more in (("prefill", {}), ("mixed", {"chunk": 64})):
        ask(engine, phase, 2, 300, **more)
    timed = {attention.row_seed(phase, 2, 300, seed) for phase in ("prefill", "mixed") for seed in range(4)}
    drawn = [seed for count, _, seed in engine.prompts]
    new = [attention.row_seed(phase, 2, 300, traces._SEED) for phase in ("prefill", "mixed")]
    assert drawn == [new[0], 1, new[1]]  # 1: what decodes beside the prompts
    assert not timed & set(drawn)


def test_timed_rows_are_not_traced(engine, monkeypatch):
    monkeypatch.setattr(attention.trace, "traced", lambda work, drain: 1 / 0)
    request = {"do": "prefill", "batch": 1, "context": 64, "warmup": 1, "steps": 4, "limit_s": 60, "seed": 0}
    found = attention.stepped.answer(engine, request)
    assert set(found["step_ms"]) == {"median", "low", "high"}
    assert "gpu_ms" not in found


def test_one_trace_that_is_lost_loses_the_cell(engine, monkeypatch):
    seen = iter([[kernel(0, 2000)], []])
    monkeypatch.setattr(attention.trace, "traced", lambda work, drain: (work() and next(seen), 0.1))
    found = ask(engine, "decode", 2, 300)
    assert (found["ok"], found["gpu_ms"]) == (True, None)
    assert found["gpu_reason"].startswith("the profiler saw no kernels")


def test_another_step_than_was_meant_is_refused_and_leaves_nothing(engine, monkeypatch):
    monkeypatch.setattr(attention.Budget, "__enter__", lambda self: self)
    found = ask(engine, "prefill", 2, 512)
    assert (found["ok"], found["error_type"]) == (False, "Refusal")
    assert is_empty(engine)


def test_time_that_is_over_ends_a_trace(engine):
    engine.core.slow_s = 0.05
    found = ask(engine, "mixed", 2, 300, limit_s=0.06, chunk=64)
    assert found["error_type"] == "Late"
    assert is_empty(engine)


def test_a_processor_is_told(engine):
    engine.cuda = False
    found = ask(engine, "decode", 2, 300)
    assert (found["error_type"], found["error"]) == ("Refusal", "a processor: there is no GPU time")


@pytest.mark.parametrize("phase", PHASES)
def test_what_is_traced_takes_no_more_steps_than_a_third_of_those_that_are_timed(phase):
    asked = traces.trace_of(Cell(phase, 1, 512), 60)
    assert asked["steps"] % asked["windows"] == 0
    assert 3 * (asked["warmup"] + asked["steps"]) <= WARMUP[phase] + steps_of(phase, DEFAULT_STEPS)


# ---------------------------------------------------------------- the profiler


@pytest.fixture
def happened(monkeypatch):
    """What happens in which order, with a torch that is a stand-in."""
    order = []

    class Profile:
        def __init__(self, activities):
            order.append(activities)

        def __enter__(self):
            order.append("begins")
            return self

        def __exit__(self, *_):
            order.append("ends")

        def export_chrome_trace(self, path):
            with open(path, "w") as file:
                json.dump({"traceEvents": [kernel(1, 2)]}, file)

    torch, profiler = ModuleType("torch"), ModuleType("torch.profiler")
    torch.profiler, profiler.profile = profiler, Profile
    profiler.ProfilerActivity = SimpleNamespace(CUDA="cuda", CPU="cpu")
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.profiler", profiler)
    for name in ("TEARDOWN_CUPTI", "DISABLE_CUPTI_LAZY_REINIT"):
        monkeypatch.setenv(name, "")
    return order


def test_all_that_was_launched_is_in_the_trace_and_nothing_of_before(happened):
    events, wall = step_trace.traced(lambda: happened.append("work"), lambda: happened.append("drained"))
    assert happened == ["drained", ["cuda"], "begins", "work", "drained", "ends"]
    assert events == [kernel(1, 2)]
    assert 0 <= wall < 1


def test_on_a_processor_its_operators_are_traced(happened):
    step_trace.traced(lambda: happened.append("work"), None)
    assert happened == [["cpu"], "begins", "work", "ends"]


@pytest.mark.parametrize("cuda", [True, False])
def test_anatomy_traces_with_the_same_code(monkeypatch, cuda):
    found = anatomy.Anatomy()
    found.cuda = cuda
    monkeypatch.setattr(anatomy.trace, "traced", lambda work, drain: (work, drain))
    assert found.traced(len) == (len, found.drain if cuda else None)
