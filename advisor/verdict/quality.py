"""What a person's own evaluation of baseline and winner comes to. Pure."""

from __future__ import annotations

from advisor.records import QualityScore

TOLERANCE = 0.01  # of the baseline's score; an evaluation of some hundred questions repeats to about that


def quality_problem(baseline: QualityScore, winner: QualityScore, tolerance: float = TOLERANCE) -> str:
    """Why the winner must not win; empty: it may. `tolerance` is a share of the baseline's score, more is better.

    An evaluation that fails on the baseline judges nobody: see baseline_problem.
    """
    if baseline.problem:
        return ""
    if winner.problem:
        return f"the quality command passes on the baseline and fails on it ({winner.problem})"
    if baseline.score is None:
        return ""
    if winner.score is None:
        return "the quality command names a score for the baseline and names no score for it"
    if winner.score < baseline.score - tolerance * abs(baseline.score):
        return f"the quality command scores {winner.score:g}, the baseline {baseline.score:g} (tolerance {tolerance:.1%})"
    return ""


def baseline_problem(baseline: QualityScore) -> str:
    """Why the person's evaluation cannot judge, in the baseline's own case; empty: it can."""
    return f"the quality command fails on the baseline itself: {baseline.problem}" if baseline.problem else ""
