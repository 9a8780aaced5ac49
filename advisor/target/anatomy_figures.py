"""What times and a profiler's trace come to. Pure; loaded by anatomy.py by its path, imports the standard library only."""

from __future__ import annotations

import re
import statistics

GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
HOST_CALLS = ("cuda_runtime", "cuda_driver")
LAUNCH = re.compile(r"^(cuda|cu)Launch\w*Kernel")
GRAPH_LAUNCH = re.compile(r"^(cuda|cu)GraphLaunch")


def quantiles(values: list) -> list:
    """Lower quartile, median, upper quartile."""
    if len(values) < 2:
        return [values[0]] * 3
    return statistics.quantiles(values, n=4, method="inclusive")


def quartiles(times: list) -> dict:
    """Seconds as milliseconds: median and quartiles."""
    low, median, high = (round(value * 1000, 4) for value in quantiles(times))
    return {"median": median, "low": low, "high": high}


def union_us(intervals: list) -> float:
    """Length of what (begin, duration) pairs cover together: work that overlaps on two streams counts once."""
    covered, reach = 0.0, float("-inf")
    for begin, length in sorted(intervals):
        end = begin + length
        if end > reach:
            covered += end - max(begin, reach)
            reach = end
    return covered


def trace_figures(events: list, steps: int, wall_s: float, cuda: bool) -> dict:
    """Figures a step of a trace of `steps` steps, in the form that torch.profiler exports (microseconds)."""
    whole = [event for event in events if event.get("ph") == "X"]
    figures = {"traced_ms": round(wall_s * 1000 / steps, 4)}
    if not cuda:
        return {**figures, **cpu_figures([event for event in whole if event.get("cat") == "cpu_op"], steps)}
    on_gpu = [event for event in whole if event.get("cat") in GPU_WORK]
    calls = [event for event in whole if event.get("cat") in HOST_CALLS]
    return {**figures, **gpu_figures(on_gpu, calls, steps)}


def gpu_figures(on_gpu: list, calls: list, steps: int) -> dict:
    """`gpu_ms`: time with at least one kernel, copy or fill on the GPU. `launches`: calls of the host, a graph is one."""
    kernels = [event for event in on_gpu if event["cat"] == "kernel"]
    single = outermost([event for event in calls if LAUNCH.match(event["name"])])
    graphs = outermost([event for event in calls if GRAPH_LAUNCH.match(event["name"])])
    lost = None
    if not kernels or (graphs and not of_graphs(kernels, calls)):
        lost = f"the profiler saw {'graphs launched and none of their' if graphs else 'no'} kernels: is CUPTI there, and allowed?"
    return {
        "gpu_ms": None if lost else round(union_us(spans(on_gpu)) / 1000 / steps, 4),
        "gpu_reason": lost,
        "kernels": None if lost else round(len(kernels) / steps, 1),
        "launches": round((len(single) + len(graphs)) / steps, 1) if calls else None,
        "graph_launches": round(len(graphs) / steps, 1) if calls else None,
        "copies": round((len(on_gpu) - len(kernels)) / steps, 1),
        "launch_us": median_us(single),  # under the profiler, so more than without
        "graph_launch_us": median_us(graphs),
        "top_kernels": top(kernels, steps),
    }


def of_graphs(kernels: list, calls: list) -> list:
    """Kernels that no call launched by itself. Those of a graph have the correlation of its launch; some tools tell none."""
    alone = {correlation(event) for event in calls if not GRAPH_LAUNCH.match(event["name"])} - {None}
    return [event for event in kernels if correlation(event) not in alone]


def correlation(event: dict) -> int | None:
    """CUPTI's number of a call of the host and of what it made the GPU do."""
    return event.get("args", {}).get("correlation")


def cpu_figures(operators: list, steps: int) -> dict:
    """Of a processor: PyTorch's operators, those within another one apart, and the time that any of them ran.

    Compiled code is one operator there, however much it does; the profiler sees into none of it.
    """
    own = [event for event in operators if not event["name"].startswith(("## ", "Torch-Compiled"))]
    return {
        "gpu_ms": None,
        "gpu_reason": "a processor: no kernels are launched",
        "kernels": None,
        "launches": None,
        "operators": round(len(own) / steps, 1),
        "outer_operators": round(len(outermost(own)) / steps, 1),
        "operators_ms": round(union_us(spans(own)) / 1000 / steps, 4),
        "top_kernels": top(outermost(own), steps),
    }


def spans(events: list) -> list:
    return [(float(event["ts"]), float(event.get("dur", 0))) for event in events]


def outermost(events: list) -> list:
    """Without calls that lie within another one of the same thread: a runtime's launch may be told as a driver's, too."""
    kept, reach = [], {}
    for event in sorted(events, key=lambda one: (float(one["ts"]), -float(one.get("dur", 0)))):
        thread, end = (event.get("pid"), event.get("tid")), float(event["ts"]) + float(event.get("dur", 0))
        if end > reach.get(thread, float("-inf")):
            kept.append(event)
            reach[thread] = end
    return kept


def median_us(events: list) -> float | None:
    return round(statistics.median(float(event.get("dur", 0)) for event in events), 2) if events else None


def top(events: list, steps: int, count: int = 6) -> list:
    """The names that took most time, milliseconds and number a step."""
    sums: dict = {}
    for event in events:
        found = sums.setdefault(event["name"][:120], [0.0, 0])
        found[0] += float(event.get("dur", 0)) / 1000 / steps
        found[1] += 1
    ordered = sorted(sums.items(), key=lambda item: -item[1][0])[:count]
    return [{"name": name, "ms": round(ms, 4), "count": round(number / steps, 1)} for name, (ms, number) in ordered]
