"""What failures teach: which candidates are not launched because they, or what they have in common with others, failed. Pure.

Told apart from a bad score: the sampler gets an infeasible trial (a constraint), and candidates in a learned region
(advisor/search/regions.py) are skipped with the reason. What the surroundings are to blame for never comes here: the launch
retries it once, and then the study ends (port, others' memory) or the candidate's own second start decides (compile cache).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from advisor.records import Candidate, Outcome, Trial
from advisor.search.common_failure import cause
from advisor.search.regions import Features, Region, Seen, regions

# Outcomes that say something about a candidate's settings. An invalid measurement says that it was not measured.
TELLING = (
    Outcome.OUT_OF_MEMORY, Outcome.UNSUPPORTED, Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.FAILED_TO_START,
    Outcome.WRONG_OUTPUT, Outcome.NOT_AS_REQUESTED,
)  # fmt: skip
Resolved = Mapping[str, Any] | None  # what vLLM makes of a candidate
_NUMBERS = ("max_num_seqs", "max_num_batched_tokens", "block_size")  # known for every candidate, as vLLM resolves them
_SIZES = "cudagraph_capture_sizes"


class Feasibility:
    """Holds what came of the candidates of this study, and of earlier ones in the same surroundings.

    `keep(trial, resolved)` is told every trial that is observed, for studies to come.
    """

    def __init__(self, earlier: Sequence[Seen] = (), keep: Callable[[Trial, Resolved], None] | None = None):
        self._keep = keep
        self._seen: list[Seen] = list(earlier)
        self._known = {item.key: item for item in earlier if item.cause is not None}
        self._regions: tuple[Region, ...] = regions(self._seen)

    @property
    def regions(self) -> tuple[Region, ...]:
        return self._regions

    def observe(self, trial: Trial, resolved: Mapping[str, Any] | None = None) -> list[str]:
        """Learn from a finished trial. Returns a sentence for each region that is new or other than before."""
        item = seen(trial, resolved)
        if item is None:
            return []
        if self._keep is not None:
            self._keep(trial, resolved)
        self._seen.append(item)
        before, self._regions = self._regions, regions(self._seen)
        return [_sentence(region) for region in self._regions if region not in before]

    def objection(self, candidate: Candidate, resolved: Mapping[str, Any] | None = None) -> str | None:
        """Why the candidate is not worth a launch, or None."""
        if (item := self._known.get(candidate.key)) is not None and not self._worked(candidate.key):
            return f"ended as {item.cause[0]} in study {item.where}: {item.reason}"
        found = features(candidate, resolved)
        region = next((region for region in self._regions if region.holds(found)), None)
        if region is None:
            return None
        return f"{region.failures} candidates with {region.text} ended as {region.cause[0]}: {region.reason}"

    def _worked(self, key: str) -> bool:
        return any(item.key == key and item.cause is None for item in self._seen)


def _sentence(region: Region) -> str:
    return (
        f"learned: with {region.text} candidates end as {region.cause[0]} ({region.failures} so far): {region.reason}"
    )


def seen(trial: Trial, resolved: Mapping[str, Any] | None = None, where: str = "") -> Seen | None:
    """What a trial says of its candidate; None where it says nothing (interrupted, not measured)."""
    if not trial.ok and trial.outcome not in TELLING:
        return None
    found = features(trial.candidate, resolved or trial.resolved)
    outcome, why = cause(trial)
    return Seen(trial.candidate.key, found, None if trial.ok else (outcome.value, why), trial.reason, where)


def features(candidate: Candidate, resolved: Mapping[str, Any] | None = None) -> Features:
    """A candidate's settings as words and numbers; capture sizes as how many and how large; limits that vLLM resolved too."""
    found: dict[str, Any] = {}
    for name, value in candidate.settings.items():
        if name != _SIZES:
            found[name] = value if isinstance(value, str | int | float) else json.dumps(value, sort_keys=True)
    known = resolved or {}
    for name in _NUMBERS:
        if name not in found and isinstance(known.get(name), int):
            found[name] = known[name]
    sizes = candidate.settings.get(_SIZES) or known.get(_SIZES) or ()
    if sizes:
        found["captured sizes"], found["largest captured size"] = len(sizes), max(sizes)
    return found
