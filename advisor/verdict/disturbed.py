"""Fresh launches whose samples the machine disturbed: a verdict that rests on them says so, and does not claim a gain. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from advisor.measure.taints import tainted
from advisor.records import Candidate, Decision, Trial, Verdict
from advisor.verdict.fresh import BASELINE, fresh, tried

MOST = 0.5  # of the launches that a gain rests on may be disturbed


def with_disturbances(verdict: Verdict, trials: Sequence[Trial]) -> Verdict:
    """The verdict with what disturbed its launches in the reason; `improved` on mostly disturbed ones is inconclusive."""
    if verdict.challenger is None:
        return verdict
    launches, bad = _launches(verdict.challenger, trials)
    if not bad:
        return verdict
    what = tainted(bad[0])[0].partition(": ")[0]  # who it was stands in the journal: pids mean nothing to a later reader
    told = f"{len(bad)} of {len(launches)} fresh launches were disturbed ({what})"
    reason = f"{verdict.reason}; {told}"
    if verdict.decision is Decision.IMPROVED and mostly_disturbed(verdict.challenger, trials):
        reason = f"{reason}: with so many no gain is claimed; on a quiet machine the same command goes on, as far as --budget lasts"
        return dataclasses.replace(verdict, decision=Decision.INCONCLUSIVE, reason=reason, winner=Candidate())
    return dataclasses.replace(verdict, reason=reason)


def mostly_disturbed(candidate: Candidate, trials: Sequence[Trial]) -> bool:
    """Whether too many of the launches that compare it with the default were disturbed to claim a gain of it."""
    launches, bad = _launches(candidate, trials)
    return len(bad) > MOST * len(launches)


def _launches(candidate: Candidate, trials: Sequence[Trial]) -> tuple[list[Trial], list[Trial]]:
    """Both sides' fresh launches of the rounds that both have, and those of them that were disturbed."""
    rounds = sorted(tried(trials, candidate))
    launches = [fresh(trials, arm)[number] for arm in (BASELINE, candidate) for number in rounds]
    return launches, [trial for trial in launches if tainted(trial)]
