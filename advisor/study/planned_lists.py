"""Capture lists for the search, planned from what the baseline ran: its own count of steps, or when the client saw its tokens."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.engine.capture import CaptureRequest
from advisor.engine.foretold import capture_request
from advisor.engine.options import parse_options
from advisor.engine.rules.requested import read_request
from advisor.engine.rules.resolution import resolve_by_rules
from advisor.engine.versions import known_version
from advisor.errors import InputError
from advisor.records import Facts, Trial
from advisor.search.graph_costs import ASSUMED_COSTS, costs_of
from advisor.search.planned_sizes import planned_lists
from advisor.search.step_times import StepTimes, assumed, step_times_of
from advisor.search.token_times import step_histogram


@dataclass(frozen=True)
class PlannedLists:
    """`lists`: a handful, best first by the plan; empty where nothing can be planned, and `note` says why."""

    lists: tuple[tuple[int, ...], ...] = ()
    note: str = ""


def plan_lists(
    serve_args: Sequence[str],
    serve_env: Mapping[str, str],
    facts: Facts,
    folder: Path,
    baseline: Trial,
    eager_ms: float | None = None,
) -> PlannedLists:
    """The lists for a baseline whose raw results lie in the study's `folder`. Never fails: without a plan there are none.

    Depends on the journal and the raw results only, so that a study that goes on gets the same lists. `eager_ms`: of a step
    without graphs, where a trial in eager mode has told it.
    """
    request = _request(serve_args, serve_env, facts, baseline)
    if request is None or not request.graphs:
        return PlannedLists(note="no capture lists are planned: nothing is captured here")
    paths = [folder / sample.raw for sample in baseline.samples if sample.raw and not sample.problems]
    raws = [raw for path in paths if (raw := _raw(path))]
    histogram, source = _histogram(baseline, raws, request)
    if not histogram:
        return PlannedLists(note="no capture lists are planned: the baseline's batches are not known")
    times = _times(raws, eager_ms, request.query_length)
    costs = costs_of(baseline.active, "baseline") or ASSUMED_COSTS
    try:
        lists = planned_lists(histogram, times, request, costs)
    except InputError as error:
        return PlannedLists(note=f"no capture lists are planned: {error.problem}")
    return PlannedLists(
        lists, f"{len(lists)} capture lists planned from {sum(histogram.values()):,.0f} steps ({source})"
    )


def _request(
    serve_args: Sequence[str], serve_env: Mapping[str, str], facts: Facts, baseline: Trial
) -> CaptureRequest | None:
    """By what the server said that it runs, then by what vLLM resolved, then by the rules."""
    version, _ = known_version(facts.engine.vllm_version)
    capability = facts.gpu.compute_capability
    pair = tuple(map(int, capability.split("."))) if capability else None
    options, platform = parse_options(serve_args), facts.engine.platform
    rules = resolve_by_rules(
        options, serve_env, version,
        compute_capability=pair, gpu_memory_gib=facts.gpu.memory_gib, platform=platform, model=facts.model,
    ).values  # fmt: skip
    names = ("max_num_seqs", "max_num_batched_tokens", "cudagraph_mode", "enforce_eager")
    told = {name: baseline.resolved.get(name) for name in names}
    active = baseline.active
    said = {
        "cudagraph_mode": active.cudagraph_mode,
        "enforce_eager": active.enforce_eager,
        "model_runner": active.model_runner,
    }
    known = {name: value for name, value in (*told.items(), *said.items()) if value is not None}
    return capture_request(read_request(options, serve_env, version), {**rules, **known}, version, platform, pair)


def _histogram(
    baseline: Trial, raws: Sequence[Mapping[str, Any]], request: CaptureRequest
) -> tuple[dict[int, float], str]:
    """Tokens -> steps. The server's own table counts every step, those with prompts too."""
    counts: Counter[int] = Counter()
    for step in baseline.active.graph_steps:
        counts[step.tokens] += step.count
    if counts:
        return dict(counts), "counted by the server"
    ratios = [sample.prefix_hit_ratio or 0.0 for sample in baseline.samples if not sample.problems]
    computed = 1 - sum(ratios) / len(ratios) if ratios else 1.0
    steps: dict[int, float] = {}
    for raw in raws:
        try:
            found = step_histogram(raw, request.query_length, request.max_num_batched_tokens, computed)
        except (ValueError, TypeError, KeyError):
            continue
        for tokens, count in found.items():
            steps[tokens] = steps.get(tokens, 0.0) + count
    return steps, "from when the client saw its tokens"


def _times(raws: Sequence[Mapping[str, Any]], eager_ms: float | None, tokens_a_request: int) -> StepTimes:
    """Of the first result that tells; the others were measured on the same server."""
    for raw in raws:
        try:
            if times := step_times_of(raw, eager_ms, tokens_a_request):
                return times
        except (ValueError, TypeError, KeyError):
            continue
    return assumed(eager_ms)


def _raw(path: Path) -> Mapping[str, Any] | None:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return raw if isinstance(raw, Mapping) else None
