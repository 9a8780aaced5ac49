"""Which trials were made in one go with the next one. Pure.

The machine of tomorrow is not quite that of today (heat, clocks, what else runs), so fresh launches that are compared must come
from one sitting. A study that is continued at once, after Ctrl-C, is still in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from advisor.records import Trial

BREAK_S = 600.0  # between two launches; within one session seconds pass there


def first_of_sitting(trials: Sequence[Trial], now: str) -> int:
    """Number of the first trial of the sitting that goes on at `now` (ISO 8601), or of the next trial where none does.

    A trial that does not say when it began (an older journal) belongs to an earlier one.
    """
    first = 1 + max((trial.number for trial in trials), default=-1)
    later = datetime.fromisoformat(now)
    for trial in reversed(trials):
        begun = _begun(trial)
        if begun is None or later - begun > timedelta(seconds=trial.total_s + BREAK_S):
            break
        first, later = trial.number, begun
    return first


def _begun(trial: Trial) -> datetime | None:
    try:
        found = datetime.fromisoformat(trial.started_at)
    except ValueError:
        return None
    return found if found.tzinfo else None
