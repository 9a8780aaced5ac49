"""Figures of one candidate over its fresh launches: means, intervals, and what ran."""

from __future__ import annotations

import dataclasses
import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from advisor.measure.loads import by_load
from advisor.records import Active, Candidate, Sample, Trial
from advisor.serving_profile.schema import AtLoad, Figure, LeftBehind, Running, Side, StartParts
from advisor.verdict.statistics import mean_interval

_NOTES = 6
_LATENCIES = {"ttft": "ttft_ms", "tpot": "tpot_ms", "itl": "itl_ms", "e2el": "e2el_ms"}
_OTHER_NAMES = {"goodput": "goodput_requests_s", "max_concurrency": "load", "max_rate": "load"}
_START_PARTS = ("imports_s", "load_s", "compile_s", "capture_s", "kernels_s", "rest_s")
_RUNNING = (
    "attention_backends",
    "flash_attention_version",
    "compilation_mode",
    "cudagraph_mode",
    "capture_sizes",
    "enforce_eager",
    "model_runner",
    "block_size",
    "kv_cache_dtype",
    "prefix_caching",
)


def sample_value(sample: Sample, metric: str) -> float:
    """`output_tok_s`, `goodput`, or `ttft_ms.p99` for a latency. A figure that the sample lacks is NaN."""
    name, _, percentile = metric.partition(".")
    value = getattr(sample, _OTHER_NAMES.get(name, name))
    if percentile:
        return value.get(percentile, math.nan)
    return math.nan if value is None else value


def launch_mean(trial: Trial, metric: str) -> float:
    """Mean over a launch's valid samples, of several loads their geometric mean; NaN where there is none.

    `start_s` is the launch's own.
    """
    if metric == "start_s":
        return math.nan if trial.start_s is None else trial.start_s
    loads = by_load(sample for sample in trial.samples if not sample.problems).values()
    means = [statistics.fmean(sample_value(sample, metric) for sample in samples) for samples in loads]
    if len(means) < 2:
        return means[0] if means else math.nan
    return statistics.geometric_mean(means) if min(means) > 0 else math.nan


def figure(values: Sequence[float]) -> Figure | None:
    """Mean of the launches' means with its 95% t-interval (n - 1 degrees of freedom); None without a value."""
    values = [value for value in values if math.isfinite(value)]
    if not values:
        return None
    interval = mean_interval(values)
    if interval is None:
        return Figure(mean=statistics.fmean(values))
    low = max(interval.low, 0.0)  # none of these figures can be negative; few scattered launches reach below
    return Figure(mean=interval.value, low=low, high=interval.high)


def fresh_launches(trials: Sequence[Trial], candidate: Candidate) -> list[Trial]:
    """The candidate's OK launches of the confirmation; those before it only where it has none."""
    good = [trial for trial in trials if trial.ok and trial.candidate.key == candidate.key and _valid(trial)]
    return [trial for trial in good if trial.phase == "confirm"] or good


def paired(arms: Mapping[str, list[Trial]]) -> dict[str, list[Trial]]:
    """Both arms' launches of the rounds that both have, so that they were made together; all where that leaves fewer than two."""
    rounds = [{trial.round for trial in launches if trial.round is not None} for launches in arms.values()]
    shared = set.intersection(*rounds) if rounds else set()
    if len(shared) < 2:
        return dict(arms)
    return {name: [trial for trial in launches if trial.round in shared] for name, launches in arms.items()}


def _valid(trial: Trial) -> bool:
    return trial.dropped is None and any(not sample.problems for sample in trial.samples)


def starts(trials: Sequence[Trial], candidate: Candidate) -> dict[str, StartParts]:
    """`start_cold` and `start_warm` from all of the candidate's starts; one that had nothing to compile is warm."""
    ours = [trial for trial in trials if trial.candidate.key == candidate.key and trial.start_up and trial.start_s]
    ours = [trial for trial in ours if trial.launcher == "cold"]  # a person's own server is never forked
    kinds = {
        "start_cold": [trial for trial in ours if trial.start_up.cache == "cold"],
        "start_warm": [trial for trial in ours if trial.start_up.cache != "cold"],
    }
    return {name: _start_parts(found) for name, found in kinds.items() if found}


def _start_parts(launches: Sequence[Trial]) -> StartParts:
    """Medians, part by part: they need not add up to the median of the whole."""
    parts = {name: [getattr(trial.start_up, name) for trial in launches] for name in _START_PARTS}
    known = {name: [value for value in values if value is not None] for name, values in parts.items()}
    return StartParts(
        launches=len(launches),
        total_s=statistics.median([trial.start_s for trial in launches]),
        **{name: statistics.median(values) for name, values in known.items() if values},
    )


def left_behind(trials: Sequence[Trial], candidate: Candidate, clean: Callable[[str], str]) -> LeftBehind | None:
    """Stops of all its launches after which processes had to be killed; None where none had to be."""
    ours = [trial for trial in trials if trial.candidate.key == candidate.key]
    stopped = [trial for trial in ours if trial.stop_s is not None or trial.leftovers]
    left = [trial.leftovers for trial in stopped if trial.leftovers]
    return LeftBehind(stops=len(left), of=len(stopped), example=clean(left[-1][0])) if left else None


def at_loads(launches: Sequence[Trial]) -> list[AtLoad] | None:
    """Figures at each load; None where all samples are of one."""
    found = sorted({sample.load for trial in launches for sample in trial.samples if sample.load is not None})
    if not all(len(by_load(trial.samples)) == len(found) for trial in launches) or len(found) < 2:
        return None
    return [_at_load(launches, load) for load in found]


def _at_load(launches: Sequence[Trial], load: float) -> AtLoad:
    alone = [dataclasses.replace(t, samples=tuple(by_load(t.samples)[load])) for t in launches]
    names = {"output_tok_s": "output_tok_s"}
    names |= {f"{name}_{point}_ms": f"{name}_ms.{point}" for name in ("ttft", "tpot") for point in ("p50", "p99")}
    return AtLoad(
        load=load,
        **{name: figure([launch_mean(trial, metric) for trial in alone]) for name, metric in names.items()},
    )


def side(launches: Sequence[Trial], more: Mapping[str, Any] | None = None) -> Side | None:
    """Figures of one candidate's launches, None where there is no launch.

    `more`: fields that come from all launches of it, as `starts()` and `left_behind()` give them.
    """
    if not launches:
        return None
    metrics = {name: name for name in ("output_tok_s", "input_tok_s", "requests_s", "goodput_requests_s", "load")}
    metrics |= {f"{n}_{p}_ms": f"{field}.{p}" for n, field in _LATENCIES.items() for p in ("p50", "p99")}
    figures = {name: figure([launch_mean(trial, metric) for trial in launches]) for name, metric in metrics.items()}
    loads = at_loads(launches)
    if loads:
        figures["load"] = None  # it is not one that was found
    tokens = _median(launches, lambda active: active.kv_cache_tokens)
    return Side(
        phase="confirm" if launches[0].phase == "confirm" else "search",
        launches=len(launches),
        samples=sum(not sample.problems for trial in launches for sample in trial.samples),
        slo_percent=_slo_percent(launches),
        **figures,
        loads=loads,
        start_s=figure([one.start_s for one in launches if one.start_s is not None and one.launcher == "cold"]),
        **(more or {}),
        graph_memory_gib=_median(launches, lambda active: active.graph_memory_gib),
        kv_cache_tokens=None if tokens is None else int(tokens),
        prefix_hit_ratio=_prefix_hits(launches),
    )


def _median(launches: Sequence[Trial], of: Callable[[Active], float | None]) -> float | None:
    """Lower median: a value that one of the logs states."""
    values = [value for trial in launches if (value := of(trial.active)) is not None]
    return statistics.median_low(values) if values else None


def _slo_percent(launches: Sequence[Trial]) -> Figure | None:
    """Percent of the requests that were within every limit, as goodput counts them."""
    found = figure([launch_mean(trial, "slo_share") * 100 for trial in launches])
    if found is None or found.high is None:
        return found
    return found.model_copy(update={"high": min(found.high, 100.0)})


def _prefix_hits(launches: Sequence[Trial]) -> float | None:
    samples = [sample for trial in launches for sample in trial.samples if not sample.problems]
    values = [sample.prefix_hit_ratio for sample in samples if sample.prefix_hit_ratio is not None]
    return statistics.fmean(values) if values else None


def _notes(launches: Sequence[Trial], clean: Callable[[str], str]) -> list[str]:
    """Notes of all launches, those that differ in numbers only once, at most six: the journal has them all."""
    found: dict[str, str] = {}
    for note in (clean(note) for trial in launches for note in trial.notes):
        found.setdefault(re.sub(r"\d+", "#", note), note)
    return list(found.values())[:_NOTES]


def running(launches: Sequence[Trial], clean: Callable[[str], str]) -> Running | None:
    """What the first launch states, and what differed in another launch. `clean` is applied to log lines and notes."""
    if not launches:
        return None
    first, *others = [trial.active for trial in launches]
    shown = {name: getattr(first, name) for name in _RUNNING}
    return Running(
        **{name: list(value) if isinstance(value, tuple) else value for name, value in shown.items()},
        decode_modes=next((dict(t.active.decode_modes) for t in launches if t.active.decode_modes), None),
        notes=_notes(launches, clean) or None,
        rewrites=[clean(line) for line in first.rewrites] or None,
        varies=[n for n, value in shown.items() if any(getattr(other, n) != value for other in others)] or None,
    )
