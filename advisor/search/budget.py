"""How much of the budget the search may use, and when it has to stop. Pure: seconds in, a reason or None out."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.records import Outcome, Trial
from advisor.units import duration


@dataclass(frozen=True)
class Budget:
    """`total_s` of launches in all (search and confirmation), at most `trials` in the search (None: no limit)."""

    total_s: float
    trials: int | None = None
    confirm_rounds: int = 3

    def reserve_s(self, done: Sequence[Trial]) -> float:
        """What the confirmation will cost: baseline and challenger afresh in each round, at the cost seen so far."""
        return 2 * self.confirm_rounds * typical_cost_s(done)

    def stop_reason(self, done: Sequence[Trial]) -> str | None:
        """Why the search must not launch once more, or None."""
        searched = sum(trial.phase == "search" and trial.outcome is not Outcome.INTERRUPTED for trial in done)
        if self.trials is not None and searched >= self.trials:
            return f"{searched} trials were asked for"
        spent = sum(trial.total_s for trial in done)
        left = self.total_s - spent - self.reserve_s(done)
        if left < typical_cost_s(done):
            return (
                f"budget: {duration(spent)} of {duration(self.total_s)} used, {duration(self.reserve_s(done))} "
                "kept for the confirmation"
            )
        return None


def typical_cost_s(done: Sequence[Trial]) -> float:
    """Median wall seconds of the OK trials: the first launch on a machine also builds kernels and caches, later ones do not."""
    costs = [trial.total_s for trial in done if trial.ok]
    return statistics.median(costs) if costs else 0.0
