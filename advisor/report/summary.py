"""The end of `advisor tune`: at most seven lines that a busy person can act on. Pure."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Sequence
from pathlib import Path

from advisor.records import Candidate, Decision, Interval, Objective, Outcome, StudyResult, Trial, Verdict
from advisor.report.plan import display
from advisor.search.untried import untried
from advisor.units import change, changes, duration, number
from advisor.verdict.output_gate import HIDDEN
from advisor.verdict.sequential import EACH
from advisor.verdict.words import changed, told_costs, unit

_REASON = 400  # characters of the verdict's reason


def summary(result: StudyResult, profile: Path) -> list[str]:
    """Verdict, figures with their noise, start, output, command, profile, cost: seven lines at most, without markup."""
    lines = [headline(result.verdict), figures(result.verdict), starts(result), output(result)]
    lines += [f"serve with: {_served(result, profile)}", f"profile: {profile}"]
    last = "; ".join(filter(None, (launches(result.trials, result.elapsed_s), untried(result.rejections))))
    return [" ".join(line.splitlines()) for line in (*filter(None, lines), last)]


def _served(result: StudyResult, profile: Path) -> str:
    """The command; one with a line break in it would not be one line that can be pasted."""
    command = display(result.tuned_command)
    return command if len(command.splitlines()) == 1 else f"what `advisor export {shlex.quote(str(profile))}` prints"


def figures(verdict: Verdict) -> str:
    """Both sides on the objective, and what fresh launches of one configuration differ by."""
    metric = verdict.objective
    sides = {"default": verdict.baseline, "candidate": verdict.tuned}
    both = [f"{name} {_figure(measured[metric])}" for name, measured in sides.items() if metric in measured]
    told = [", ".join(both)] if both else []
    if verdict.noise is not None:
        gain = f", {_smallest(verdict)} would have shown" if verdict.smallest_gain is not None else ""
        told.append(f"launches of the default differ by {verdict.noise:.1%}{gain}")
    else:
        why = f": {_cut(verdict.no_noise, 'noise_not_measured')}" if verdict.no_noise else ""
        told.append(f"what launches of the default differ by was not measured{why}")
    return f"{unit(metric)}: {'; '.join(told)}"


def _smallest(verdict: Verdict) -> str:
    """`a gain of 2.3%`; of a figure of which less is better `a change of -2.2%`."""
    if Objective(verdict.objective).maximise:
        return f"a gain of {verdict.smallest_gain:.1%}"
    return f"a change of {change(1 + verdict.smallest_gain, maximise=False)}"


def starts(result: StudyResult) -> str:
    """`start: default 99s cold, 55s warm; candidate 20s`: medians of what the study saw; the last one has nothing to compile."""
    arms = {"default": Candidate(), "candidate": result.verdict.challenger}
    told = [
        f"{name} {_starts(result.trials, arm)}" for name, arm in arms.items() if arm and _starts(result.trials, arm)
    ]
    return f"start: {'; '.join(told)}" if told else ""


def _starts(trials: Sequence[Trial], candidate: Candidate) -> str:
    every = [trial for trial in trials if trial.candidate.key == candidate.key and trial.start_up and trial.start_s]
    ours = [trial for trial in every if trial.launcher == "cold"]  # a person's own server is never forked
    kinds = {kind: [trial.start_s for trial in ours if trial.start_up.cache == kind] for kind in ("cold", "warm", None)}
    medians = {kind: statistics.median(found) for kind, found in kinds.items() if found}
    told = [f"{duration(seconds)} {kind or ''}".strip() for kind, seconds in medians.items()]
    if told and not kinds["cold"] and any(trial.start_up.cache == "cold" for trial in every):
        told.append("cold only as a fork")  # that compiled too, but had its imports behind it
    return ", ".join(told)


def output(result: StudyResult) -> str:
    """What is known of the answers."""
    # Experts, speculation and stop tokens work as the output decides: the profile's note says so of each.
    weights = "random weights: speed is the architecture's, answers are noise; " if result.random_weights else ""
    candidate = result.verdict.challenger
    gates = [trial.gate for trial in result.trials if trial.gate]
    own = next(
        (gate.reason for gate in gates if gate.passed is False and gate.reason.startswith("the baseline's own")), ""
    )
    if own:
        return f"{weights}{own}: nothing was judged against it"
    ours = [trial.gate for trial in result.trials if trial.gate and candidate and trial.candidate.key == candidate.key]
    if wrong := next((gate.reason for gate in ours if gate.passed is False), ""):
        return f"{weights}the candidate's answers to fixed prompts are not the default's: {_cut(wrong)}"
    if ours and all(gate.passed for gate in ours):
        hidden = any(HIDDEN in note for gate in ours for note in gate.notes)
        doubt = f", as far as they tell: {HIDDEN}" if hidden else ""
        return f"{weights}the candidate's answers to fixed prompts agree with the default's{doubt}"
    return (weights + "output was not judged") if weights or candidate else ""


def launches(trials: Sequence[Trial], elapsed_s: float) -> str:
    """`12 launches in 20m10s, 3 dropped early, 2 of them failed`: what a person or the end of the budget stopped is no failure.

    Nor is one that ran with other settings than were asked for: its figure counts for those.
    """
    stopped = sum(trial.outcome is Outcome.INTERRUPTED for trial in trials)
    otherwise = sum(trial.outcome is Outcome.NOT_AS_REQUESTED for trial in trials)
    failed = sum(not trial.ok for trial in trials) - stopped - otherwise
    dropped = sum(trial.ok and trial.dropped is not None for trial in trials)
    return (
        f"{len(trials)} launch{'es' if len(trials) != 1 else ''} in {duration(elapsed_s)}"
        + (f", {dropped} dropped early" if dropped else "")
        + (f", {failed} of them failed" if failed else "")
        + (f", {otherwise} ran with other settings than asked for" if otherwise else "")
        + (f", {stopped} interrupted" if stopped else "")
    )


def headline(verdict: Verdict) -> str:
    """What was gained, with its uncertainty, in one line."""
    improved = verdict.decision is Decision.IMPROVED
    reason = _cut(verdict.reason)
    if improved and (verdict.others or verdict.ratio is None or verdict.ratio.low <= 1):
        # By another objective, or by meeting the SLO: the reason names all figures.
        return f"improved: {reason}{told_costs(verdict.tradeoffs)}"
    if improved and verdict.ratio:
        ratio = verdict.ratio
        value, low, high = changes(ratio.value, ratio.low, ratio.high, Objective(verdict.objective).maximise)
        return (
            f"improved: {verdict.winner.label} gives {value} {changed(verdict.objective)} against the default "
            f"(95% interval {low} to {high}, "
            f"{verdict.launches} {EACH}{told_costs(verdict.tradeoffs)}{_cut(verdict.reason.partition(EACH)[2])}"
        )
    if verdict.decision is Decision.KEEP_DEFAULTS:
        return f"keep-defaults: {reason}"
    return f"inconclusive, so keep the defaults for now: {reason}"


def _cut(reason: str, field: str = "reason") -> str:
    """What fits a line that is read; the profile's decision has all of it."""
    return reason if len(reason) <= _REASON else f"{reason[:_REASON].rsplit(' ', 1)[0]} ... (decision.{field} in the profile)"


def _figure(interval: Interval) -> str:
    half = (interval.high - interval.low) / 2
    return f"{number(interval.value)} ± {number(half)}"
