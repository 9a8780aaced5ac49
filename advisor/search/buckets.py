"""The question of `advisor buckets`: reads the files and pages that it names, plans, and answers in one dictionary.

Neither vLLM nor a GPU is needed. Imports that cost time stand inside functions.

    {"vllm_version", "limits", "histogram": {}, "step_times", "graph_costs", "prices": {}, "assumed": [], "default": {},
     "today": {} or None, "operating_point", "plans": [], "recommended": {}, "step_ms_by_graphs": []}
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from advisor.engine.capture import CaptureRequest
from advisor.engine.foretold import capture_request
from advisor.engine.logs import parse_active
from advisor.engine.options import ServeOptions, parse_options
from advisor.engine.rules.requested import read_request
from advisor.engine.rules.resolution import resolve_by_rules
from advisor.engine.versions import NEWEST, known_version, version_text
from advisor.errors import InputError
from advisor.records import Active
from advisor.search.batch_histogram import Histogram, from_pages, read_histogram, read_pairs
from advisor.search.graph_costs import ASSUMED_COSTS, PRICES, GraphCosts, Prices, available_kv_gib, costs_of
from advisor.search.planned_sizes import Plan, Planner
from advisor.search.step_times import StepTimes, assumed, measured, step_times_of
from advisor.search.written_sizes import limits_said, spelled

_COUNTS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Question:
    """A person's words. Exactly one of histogram and metrics says which batches run."""

    histogram: Path | None = None
    metrics: str | None = None
    watch_s: float | None = None
    graphs: int | None = None
    vllm_version: str | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    serve_args: str = ""
    gpu: str | None = None
    log: Path | None = None
    step_times: Path | None = None
    eager_ms: float | None = None
    prices: Prices = PRICES
    kv_gib: float | None = None
    cover: int | None = None


def answer(question: Question) -> dict[str, Any]:
    """Raises InputError for words, files and pages that cannot be read, and where vLLM would capture nothing."""
    log_text = _text(question.log, "--log") if question.log else ""
    active = parse_active(log_text) if log_text else Active()
    request, said = _request(question, active)
    histogram = _histogram(question, request)
    times = _times(question, histogram, request.query_length)
    costs = (costs_of(active, question.log.name) if question.log else None) or ASSUMED_COSTS
    prices, priced = _prices(question, log_text)
    planner = Planner(histogram.steps, times, request, costs, prices, question.cover)
    beyond = f"{100 * planner.beyond:.1f}% of the steps hold more tokens than any graph and are left out"
    notes = [
        *([beyond] if planner.beyond >= 0.0005 else []),
        *histogram.approximations,
        *_assumptions(times, costs, priced),
        *said,
    ]
    told = _told(question, planner, histogram, times, costs, prices, notes)
    today = active.capture_sizes
    return {
        **told,
        "today": _plan(planner.of(today), planner, None) if today and today != planner.default.sizes else None,
    }


def _told(
    question: Question, planner: Planner, histogram: Histogram, times: StepTimes, costs: GraphCosts, prices: Prices,
    notes: list[str],
) -> dict[str, Any]:  # fmt: skip
    request, most = planner.request, planner.curve.most
    wanted = question.graphs or planner.best
    counts = sorted({count for count in (*_COUNTS, planner.best, wanted) if count <= most} or {1})
    plans = {count: planner.at(count) for count in ([min(wanted, most)] if question.graphs else counts)}
    chosen = plans[min(wanted, most)]
    total = histogram.total
    return {
        "vllm_version": version_text(request.version),
        "limits": limits_said(request),
        "histogram": {
            "source": histogram.source,
            "steps": total,
            "least": min(histogram.steps),
            "mean": sum(tokens * steps for tokens, steps in histogram.steps.items()) / total,
            "most": max(histogram.steps),
            "beyond_percent": 100 * planner.beyond,
        },
        "step_times": times.source,
        "eager_ms": times.eager_ms,
        "graph_costs": asdict(costs),
        "prices": asdict(prices),
        "assumed": notes,
        "ideal_ms": planner.ideal_ms,
        "operating_point": request.operating_point,
        "default": _plan(planner.default, planner, None),
        "plans": [_plan(plan, planner, request) for plan in dict.fromkeys(plans.values())],
        "recommended": _plan(chosen, planner, request),
        "step_ms_by_graphs": list(planner.step_ms),
    }


def _plan(plan: Plan, planner: Planner, request: CaptureRequest | None) -> dict[str, Any]:
    """`padding_saved_percent`: of the time that the default list adds to steps of their very size; None where it adds none."""
    default = planner.default
    extra, ours = default.step_ms - planner.ideal_ms, plan.step_ms - planner.ideal_ms
    told = {
        "graphs": plan.graphs,
        "sizes": list(plan.sizes),
        "step_ms": plan.step_ms,
        "padding_saved_percent": 100 * (1 - ours / extra) if extra > 1e-9 * default.step_ms else None,
        "step_time_percent": 100 * (plan.step_ms / default.step_ms - 1),
        "charged_time_percent": 100 * (plan.charged_ms / default.charged_ms - 1),
        "padded_tokens_percent": 100 * plan.padding,
        "outside_graphs_percent": 100 * plan.outside,
        "not_in_full_graph_percent": 100 * plan.not_full,
        "graph_gib": plan.gib,
        "capture_s": plan.seconds,
    }
    if request is not None and plan.sizes:
        told["flag"] = shlex.join(spelled(request.version, plan.sizes).argv())
    return told


# ---------------------------------------------------------------- what is planned for


def _histogram(question: Question, request: CaptureRequest) -> Histogram:
    if (question.histogram is None) == (question.metrics is None):
        raise InputError("give either --histogram or --from-metrics", "advisor buckets --histogram batches.json")
    if question.histogram is not None:
        if question.watch_s is not None:
            raise InputError("--watch is for --from-metrics: a file does not change", "leave --watch out")
        text, most = _text(question.histogram, "--histogram"), request.max_num_batched_tokens
        return read_histogram(text, question.histogram.name, request.query_length, most)
    from advisor.measure.step_counters import watch

    seen = watch(question.metrics or "", question.watch_s)
    return from_pages(seen.before, seen.page, seen.running, request.query_length, question.metrics or "")


def _times(question: Question, histogram: Histogram, tokens_a_request: int) -> StepTimes:
    if question.step_times:
        pairs = read_pairs(_text(question.step_times, "--step-times"), question.step_times.name)
        return measured({int(tokens): ms for tokens, ms in pairs}, question.eager_ms, question.step_times.name)
    seen = step_times_of(histogram.raw, question.eager_ms, tokens_a_request) if histogram.raw else None
    return seen or assumed(question.eager_ms)


def _request(question: Question, active: Active) -> tuple[CaptureRequest, list[str]]:
    """All that vLLM's list depends on: by the rules of the version, then what the log says."""
    if question.vllm_version or active.vllm_version:
        version, note = known_version(question.vllm_version or active.vllm_version or "")
    else:
        version, note = NEWEST, f"no --vllm-version: the rules of {version_text(NEWEST)}, the newest known"
    options = _options(question)
    capability, memory, platform = _gpu(question.gpu)
    rules = resolve_by_rules(
        options, {}, version, compute_capability=capability, gpu_memory_gib=memory, platform=platform
    )
    values: dict[str, Any] = dict(rules.values)
    if refused := values.get("refused"):
        raise InputError(str(refused[0]))
    told = {"cudagraph_mode": active.cudagraph_mode, "model_runner": active.model_runner}
    values.update({name: value for name, value in told.items() if value})
    request = capture_request(read_request(options, {}, version), values, version, platform, capability)
    if request is None:
        raise InputError("nothing is captured there: vLLM uses CUDA graphs on GPUs only", "--gpu H100")
    return request, [*([note] if note else []), *(f"rules: {sentence}" for sentence in rules.assumed)]


def _options(question: Question) -> ServeOptions:
    try:
        words = shlex.split(question.serve_args)
    except ValueError as error:
        raise InputError(f"--serve-args cannot be split into words: {error}") from None
    given = {"--max-num-seqs": question.max_num_seqs, "--max-num-batched-tokens": question.max_num_batched_tokens}
    return parse_options(tuple(words)).with_changes({name: value for name, value in given.items() if value is not None})


def _gpu(name: str | None) -> tuple[tuple[int, int] | None, float | None, str]:
    if name is None:
        return None, None, "cuda"
    from advisor.inspection.gpu_specs import spec_of

    spec = spec_of(name)
    return spec.compute_capability, spec.memory_gib, spec.platform


def _prices(question: Question, log_text: str) -> tuple[Prices, str | None]:
    """(prices, what of them is assumed)."""
    told = question.kv_gib or (available_kv_gib(log_text) if log_text else None)
    memory = _gpu(question.gpu)[1]
    assumed_gib = memory / 2 if memory else PRICES.kv_gib
    prices = Prices(told or assumed_gib, question.prices.pressure, question.prices.lifetime_s)
    if told:
        return prices, None
    whose = f"the {memory:g} GiB of {question.gpu}" if memory else "an H100's 80 GiB"
    return prices, f"assumed: {prices.kv_gib:g} GiB of KV cache, half of {whose} (--kv-gib, or --log of a launch)"


def _assumptions(times: StepTimes, costs: GraphCosts, priced: str | None) -> list[str]:
    said = [f"step times {times.source}"] if times.source.startswith("assumed") else []
    said.append(f"a step without a graph takes at least {times.eager_ms:g} ms (--eager-ms)")
    said += [f"costs of a graph {costs.source}"] if costs.source.startswith("assumed") else []
    return said + ([priced] if priced else [])


def _text(path: Path, option: str) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{option} {str(path)!r} cannot be read: {error.strerror}") from None


def as_json(told: Mapping[str, Any]) -> str:
    return json.dumps(told, indent=2)
