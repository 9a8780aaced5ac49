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
    rounds = sorted(tried(trials, verdict.challenger))
    launches = [fresh(trials, arm)[number] for arm in (BASELINE, verdict.challenger) for number in rounds]
    bad = [trial for trial in launches if tainted(trial)]
    if not bad:
        return verdict
    what = tainted(bad[0])[0].partition(": ")[0]  # who it was stands in the journal: pids mean nothing to a later reader
    told = f"{len(bad)} of {len(launches)} fresh launches were disturbed ({what})"
    reason = f"{verdict.reason}; {told}"
    if verdict.decision is Decision.IMPROVED and len(bad) > MOST * len(launches):
        reason = f"{reason}: of so many no gain is claimed (tune again with another --study when the machine is quiet)"
        return dataclasses.replace(verdict, decision=Decision.INCONCLUSIVE, reason=reason, winner=Candidate())
    return dataclasses.replace(verdict, reason=reason)
