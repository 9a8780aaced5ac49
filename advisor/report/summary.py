"""The end of `advisor tune`: at most seven lines that a busy person can act on. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from advisor.records import Decision, Interval, Outcome, StudyResult, Trial, Verdict
from advisor.report.plan import display
from advisor.units import duration, number, percent

_UNITS = {
    "output_tok_s": "output tok/s",
    "input_tok_s": "input tok/s",
    "requests_s": "requests/s",
    "goodput": "requests/s within the SLO",
    "start_s": "s to start",
    "max_concurrency": "requests in flight within the SLO",
    "max_rate": "requests/s arriving within the SLO",
}


def summary(result: StudyResult, profile: Path) -> list[str]:
    """Verdict, figures, command, profile: lines without markup."""
    verdict = result.verdict
    lines = [headline(verdict)]
    if verdict.baseline and verdict.tuned:
        metric = verdict.objective
        lines.append(
            f"{unit(metric)}: default {_figure(verdict.baseline[metric])}, candidate {_figure(verdict.tuned[metric])}"
        )
    if result.random_weights:
        lines.append("measured with random weights: speed carries over to the real ones, output was not judged")
    lines.append(f"serve with: {display(result.tuned_command)}")
    lines.append(f"profile: {profile}")
    return [*lines, launches(result.trials, result.elapsed_s)]


def launches(trials: Sequence[Trial], elapsed_s: float) -> str:
    """`12 launches in 20m10s, 2 of them failed, 1 interrupted`: what a person stopped is no failure.

    Nor is one that ran with other settings than were asked for: its figure counts for those.
    """
    stopped = sum(trial.outcome is Outcome.INTERRUPTED for trial in trials)
    otherwise = sum(trial.outcome is Outcome.NOT_AS_REQUESTED for trial in trials)
    failed = sum(not trial.ok for trial in trials) - stopped - otherwise
    return (
        f"{len(trials)} launch{'es' if len(trials) != 1 else ''} in {duration(elapsed_s)}"
        + (f", {failed} of them failed" if failed else "")
        + (f", {otherwise} ran with other settings than asked for" if otherwise else "")
        + (f", {stopped} interrupted" if stopped else "")
    )


def headline(verdict: Verdict) -> str:
    """What was gained, with its uncertainty, in one line."""
    improved = verdict.decision is Decision.IMPROVED
    if improved and (verdict.others or verdict.ratio is None or verdict.ratio.low <= 1):
        return f"improved: {verdict.reason}"  # by another objective, or by meeting the SLO: the reason names all figures
    if improved and verdict.ratio:
        return (
            f"improved: {verdict.winner.label} gives {percent(verdict.ratio.value)} {unit(verdict.objective)} over the default "
            f"(95% interval {percent(verdict.ratio.low)} to {percent(verdict.ratio.high)}, "
            f"{verdict.launches} fresh launches each)"
        )
    if verdict.decision is Decision.KEEP_DEFAULTS:
        return f"keep-defaults: {verdict.reason}"
    return f"inconclusive, so keep the defaults for now: {verdict.reason}"


def unit(metric: str) -> str:
    """`ttft_ms.p99` -> `ms TTFT p99`; a rate gets its own words."""
    name, _, percentile = metric.partition(".")
    if name in _UNITS:
        return _UNITS[name]
    return f"ms {name.removesuffix('_ms').upper()} {percentile}".strip()


def _figure(interval: Interval) -> str:
    half = (interval.high - interval.low) / 2
    return f"{number(interval.value)} ± {number(half)}"
