"""One cause that fails launch after launch ends the study with that cause: the next launch would fail with it too. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from advisor.errors import LaunchesFailed
from advisor.launch.failure import signature
from advisor.records import Outcome, Trial

FAILURES_IN_A_ROW = 4
# A setting that all of them share may be the cause, and the sampler learns to leave it out: that gets more patience.
WITH_SHARED_SETTING = 8


def check_common_failure(searched: Sequence[Trial]) -> None:
    """Raises LaunchesFailed when the last trials of the search failed for one cause, or the first few and none worked."""
    ended = [trial for trial in searched if trial.outcome is not Outcome.INTERRUPTED]
    row = failures_in_a_row(ended)
    if len(row) < FAILURES_IN_A_ROW:
        return
    all_of_them = len(row) == len(ended)
    if not all_of_them and shared_settings(row) and len(row) < WITH_SHARED_SETTING:
        return
    which = f"the first {len(row)} candidates all" if all_of_them else f"{len(row)} candidates in a row"
    first = row[0]
    raise LaunchesFailed(
        f"{which} ended as {first.outcome.value}: {first.reason}",
        f"the log of one of them: {first.folder}/server.log in the study's folder; "
        "what was measured is kept, and the same command goes on when the cause is fixed",
    )


def failures_in_a_row(ended: Sequence[Trial]) -> list[Trial]:
    """The last trials as far as they failed for the cause of the very last one, oldest first."""
    if not ended or ended[-1].ok:
        return []
    last = cause(ended[-1])
    return list(takewhile(lambda trial: not trial.ok and cause(trial) == last, reversed(ended)))[::-1]


def cause(trial: Trial) -> tuple[Outcome, str]:
    """What failed trials are compared by: the class of an invalid measurement, else the reason without its numbers."""
    kinds = [sample.classes[0].value for sample in trial.samples if sample.classes]
    if trial.outcome is Outcome.INVALID_MEASUREMENT and kinds:
        return trial.outcome, kinds[0]
    return trial.outcome, signature(trial.reason)


def shared_settings(trials: Sequence[Trial]) -> set[tuple[str, str]]:
    """Settings and values that all candidates have."""
    each = [{(name, repr(value)) for name, value in trial.candidate.settings.items()} for trial in trials]
    return set.intersection(*each) if each else set()
