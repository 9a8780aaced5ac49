"""What is optimised, from a person's words: --objective, --slo, --find-load (docs/objectives.md). Pure."""

from __future__ import annotations

from advisor.errors import InputError
from advisor.measure.slo import parse_slo
from advisor.records import Objective, Workload

RATES = ("output_tok_s", "input_tok_s", "requests_s", "goodput")
LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms")
PERCENTILES = ("mean", "p50", "p90", "p99")
LOADS = {"concurrency": "max_concurrency", "rate": "max_rate"}  # word of --find-load -> the metric it stands for
MOST = 3  # objectives at once: a front of more says nothing to a person, and nearly every candidate is on it
_SLO_EXAMPLE = 'for example --slo "ttft_p99<500ms,tpot_p99<30ms"'


def parse_goal(objective: str | None, slo: str | None = None, find_load: str | None = None) -> Objective:
    """The objective of a study. Raises InputError for a word that is not known and for words that do not fit together.

    Without --objective it is the highest load with --find-load, else goodput with --slo, else output_tok_s.
    """
    limits = parse_slo(slo) if slo is not None else ()
    if find_load is not None and find_load not in LOADS:
        raise InputError(f"--find-load {find_load!r} is not known", f"one of {', '.join(LOADS)}")
    metrics = _metrics(objective or LOADS.get(find_load or "") or ("goodput" if limits else "output_tok_s"))
    kind = _load_kind(metrics, find_load)
    if not limits and (kind or "goodput" in metrics):
        what = f"--find-load {kind}" if kind else "--objective goodput"
        raise InputError(f"{what} needs --slo: the limits that requests must keep", _SLO_EXAMPLE)
    return Objective(metrics[0], metrics[1:], limits, kind)


def check_load(objective: Objective, workload: Workload) -> None:
    """Raise InputError where the workload's load is not of the kind that --find-load raises, or no single one."""
    if objective.find_load and workload.loads:
        raise InputError(
            f"--find-load with workload {workload.name!r}, which lists several loads", "give one with --concurrency or --rate"
        )
    if objective.find_load == "concurrency" and workload.concurrency is None:
        raise InputError(
            f"--find-load concurrency with workload {workload.name!r}, which has a rate",
            "give --concurrency N to begin with, or --find-load rate",
        )


def _metrics(text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(","))
    for word in words:
        _check_metric(text, word)
    if len(set(words)) < len(words):
        raise InputError(f"--objective {text!r} names a metric twice")
    if len(words) > MOST:
        raise InputError(
            f"--objective {text!r} names {len(words)} metrics", f"at most {MOST}: give a limit in --slo instead"
        )
    return words


def _check_metric(text: str, word: str) -> None:
    name, dot, percentile = word.partition(".")
    if word in RATES or word == "start_s" or word in LOADS.values():
        return
    if name in LATENCIES:
        if percentile in PERCENTILES:
            return
        problem = f"{percentile!r} is not measured" if dot else "a latency needs a percentile"
        raise InputError(f"--objective {text!r}: {problem}", f"write {name}.{f', {name}.'.join(PERCENTILES)}")
    raise InputError(
        f"--objective {text!r} is not known" if word == text else f"--objective {text!r}: {word!r} is not known",
        f"one of {', '.join((*RATES, 'start_s', *LOADS.values()))}, or {', '.join(LATENCIES)} with "
        f".{', .'.join(PERCENTILES)}; several with a comma between them",
    )


def _load_kind(metrics: tuple[str, ...], find_load: str | None) -> str | None:
    """`max_rate` alone says what to find; both together must agree."""
    kinds = {kind for kind, metric in LOADS.items() if metric in metrics} | ({find_load} if find_load else set())
    if len(kinds) > 1:
        raise InputError(
            f"--objective {','.join(metrics)} with --find-load {find_load}: one load is raised at a time"
            if find_load
            else f"--objective {','.join(metrics)}: one load is raised at a time",
            "max_concurrency belongs to --find-load concurrency, max_rate to --find-load rate",
        )
    return next(iter(kinds), None)
