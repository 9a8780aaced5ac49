"""How much of the budget the search may use, and when it has to stop. Pure: seconds in, a reason or None out."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from advisor.launch.readiness import LaunchLimits
from advisor.records import Objective, Outcome, Trial
from advisor.search.scores import evidence, leads
from advisor.units import duration

PROOF_LAUNCHES = 3  # two launches, of which the first has to compile and to build everything anew
# Of a cold start, what a warm one saves: an H200 with an 8B 99 -> 55 s and 79 -> 53 s, the CPU build with a toy 55 -> 31 s.
COLD_PART = 0.4
# Seconds that forking saves, over those of the launcher's imports: 24 to 41 s of 21 to 32 s on the CPU build, 37 to 42 s of 29 s on
# an H200 (58 s for two goes at it; docs/evidence).
IMPORTS = 1.4
# A candidate's start may be silent for so many whole starts of the default, of which only a part is silent; but never less than a
# kernel build: FlashInfer's took 100 to 220 s on an H200, with no line in the log.
SILENT_STARTS, SILENT_LEAST_S = 3.0, 300.0
# Of a typical launch: by how much the last one of the search may overrun. Estimates err by a fifth on average (test_costs.py), and
# the confirmation keeps at least six launches.
OVERRUN = 0.5
FINALISTS = 3  # candidates that are launched afresh at most: each one more makes the interval of all wider


@dataclass(frozen=True)
class Budget:
    """`total_s` of launches in all (search and confirmation), at most `trials` in the search (None: no limit).

    The confirmation has `confirm_rounds` rounds at least, and as long as the budget lasts up to `confirm_most`.
    """

    total_s: float
    trials: int | None = None
    confirm_rounds: int = 3
    confirm_most: int = 12
    soak_s: float = 0.0  # of load on the winner, before it is recommended

    def left_s(self, done: Sequence[Trial]) -> float:
        """Seconds that further launches may take."""
        return self.total_s - sum(trial.total_s for trial in done)

    def reserve_s(self, done: Sequence[Trial], objective: Objective) -> float:
        """What the confirmation will cost: baseline and finalists afresh in each of its first rounds, at the cost seen so far.

        More than one finalist gets no more than half of the budget: a search that tries nothing has no finalists. A winner's
        proof is kept room for as soon as a candidate leads by more than launches differ.
        """
        one_round = self.confirm_rounds * typical_cost_s(done)
        found = sum(trial.phase == "search" and trial.ok and not trial.dropped for trial in done)
        wanted = (1 + min(max(found, 1), FINALISTS)) * one_round
        proof_s = self.proof_s(done, objective)
        return max(2 * one_round + proof_s, min(wanted + proof_s, self.total_s / 2))

    def proof_s(self, done: Sequence[Trial], objective: Objective) -> float:
        """What the proof of a winner costs: a cold start, the soak and a second start.

        Nothing while no candidate leads, or once every one that does had its proof.
        """
        had = {trial.candidate.key for trial in done if trial.phase == "soak"}
        lacking = [trial for trial in done if evidence(trial).candidate.key not in had]
        if not self.soak_s or not leads(lacking, objective):
            return 0.0
        return self.soak_s + PROOF_LAUNCHES * typical_cost_s(done)

    def search_s(self, done: Sequence[Trial], objective: Objective) -> float:
        """Seconds that the search may still use."""
        return self.left_s(done) - self.reserve_s(done, objective)

    def search_limits(self, done: Sequence[Trial], objective: Objective, limits: LaunchLimits) -> LaunchLimits:
        """`limits`, for the next launch of the search: silence by the default's start, the whole by what the search has left."""
        silent_s = max(SILENT_LEAST_S, SILENT_STARTS * _executed_start_s(done))
        share = min(1.0, silent_s / limits.stall_s)  # a silence with work in it is longer, as it always is
        whole_s = max(self.search_s(done, objective), 0.0) + OVERRUN * typical_cost_s(done)
        return replace(limits, stall_s=share * limits.stall_s, quiet_cpu_s=share * limits.quiet_cpu_s, whole_s=whole_s)

    def stop_reason(self, done: Sequence[Trial], objective: Objective, least_s: float | None = None) -> str | None:
        """Why the search must not launch once more, or None. `least_s`: what the cheapest launch would cost, if that is known."""
        launched = [trial for trial in done if trial.phase == "search"]
        searched = sum(trial.outcome is not Outcome.INTERRUPTED for trial in launched)
        if self.trials is not None and searched >= self.trials:
            return "1 trial was asked for" if searched == 1 else f"{searched} trials were asked for"
        reserve = self.reserve_s(done, objective)
        least_s = typical_cost_s(done) if least_s is None else least_s
        if self.left_s(done) - reserve < least_s:
            spent = self.total_s - self.left_s(done)
            if not launched:
                least = duration(spent + reserve + least_s)
                return f"budget: one try and its confirmation need about {least} here, --budget gives {duration(self.total_s)}"
            return f"budget: {duration(spent)} of {duration(self.total_s)} used, {duration(reserve)} kept for the confirmation"
        return None


def typical_cost_s(done: Sequence[Trial]) -> float:
    """Median wall seconds of the OK trials that were measured in full, as fresh launches are; those that compiled anew at what
    they would have cost with their code at hand. Fresh launches are executed: until two such were seen, forked ones tell it.
    """
    full = [trial for trial in done if trial.ok and trial.samples and not trial.dropped]
    executed = [trial for trial in full if trial.launcher != "warm"]
    imports_s = max((trial.imports_s for trial in done), default=0.0)
    costs = [_fresh_s(trial, imports_s) for trial in (executed if len(executed) > 1 else full)]
    return statistics.median(costs) if costs else 0.0


def _executed_start_s(done: Sequence[Trial]) -> float:
    """Of the default, as far as it is known: a forked one had the imports behind it."""
    baseline = next((trial for trial in done if trial.phase == "baseline" and trial.ok), None)
    if baseline is None:
        return 0.0
    imports_s = max(trial.imports_s for trial in done) if baseline.launcher == "warm" else 0.0
    return (baseline.start_s or 0.0) + IMPORTS * imports_s


def _fresh_s(trial: Trial, imports_s: float) -> float:
    """`imports_s`: of the launcher. A server that is executed imports most of it twice, in its API server and in its engine.

    Fresh launches take no slices, of which the baseline has several.
    """
    saved = COLD_PART * (trial.start_s or 0.0) if _cold(trial) else 0.0
    forked = IMPORTS * imports_s - (trial.launcher_s or 0.0) if trial.launcher == "warm" else 0.0
    return trial.total_s - saved - _slices_s(trial) + forked


def _slices_s(trial: Trial) -> float:
    """The part of measuring that slices took, by how long they and the samples lasted."""
    slices, samples = (sum(item.duration_s for item in items) for items in (trial.slices, trial.samples))
    return (trial.measure_s or 0.0) * slices / (slices + samples) if slices else 0.0


def _cold(trial: Trial) -> bool:
    return trial.start_up is not None and trial.start_up.cache == "cold"
