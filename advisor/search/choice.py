"""Which candidate is launched next: the one with the most expected gain for its seconds. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor.records import Candidate, Objective, Trial
from advisor.search.costs import Costs, Resolved
from advisor.search.effects import Point
from advisor.search.expected_gain import Gains
from advisor.search.words import largest_octaves, own_amounts

_WORD = 0.5  # of the best rate: then another's proposal is taken
_NEARLY = 0.8  # of the best rate: then the fewest overrides win, and after them the order of the design


class Outlook:
    """What launches of untried candidates are expected to gain and to cost, after the trials so far.

    `known`: figures of elsewhere (advisor/search/priors.py).
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        objective: Objective,
        resolved: Resolved | None = None,
        known: Sequence[Point] = (),
    ):
        own = own_amounts((resolved or {}).get(Candidate().key, {}))
        octaves = largest_octaves((resolved or {}).values(), own)
        self.gains, self._costs = Gains(trials, objective, known, own, octaves), Costs(trials, resolved)

    @property
    def floor(self) -> float:
        """By how much launches of one configuration differ: an expected gain below is none."""
        return self.gains.floor

    def best(self, untried: Sequence[Candidate], designed: Sequence[Candidate], seconds: float) -> Candidate | None:
        """None: of what fits into the seconds, nothing is expected to gain more than noise, and no value is unseen.

        Values that nobody has tried come one at a time, on top of whatever is best, or as the design has them: where several
        are new, a figure does not tell which of them did it.
        """
        turns = {item.key: turn for turn, item in enumerate(designed)}
        pool = [item for item in untried if item.key in turns or self.gains.tells_apart(item)]
        gains, costs = self.gains.of(pool), self._costs.of(pool)
        news = np.array([bool(self.gains.unseen(item)) for item in pool], dtype=bool)
        usable = (costs <= seconds) & (news | (gains >= self.floor))
        if not usable.any():
            return None
        rates = np.where(usable, gains / np.maximum(costs, 1.0), -1.0)
        nearly = [number for number, rate in enumerate(rates) if usable[number] and rate >= _NEARLY * rates.max()]
        late = len(turns)
        return min((pool[number] for number in nearly), key=lambda item: (item.overrides, turns.get(item.key, late)))

    def simplest(self, simpler: Sequence[Candidate], seconds: float) -> Candidate | None:
        """The first of these, made by leaving an override of the best away, that may be as good as it."""
        return next(iter(self._affordable(self.gains.as_good_as_best(simpler), seconds)), None)

    def likeliest(
        self, untried: Sequence[Candidate], proposed: Sequence[Candidate], seconds: float
    ) -> Candidate | None:
        """The one with the most gain a second, however little that is; None where none fits.

        One that was `proposed` by somebody else, the best of them, where it is expected to gain half of that at least.
        """
        fits, others = self._affordable(untried, seconds), self._affordable(proposed, seconds)
        if not fits:
            return None
        rates, theirs = self._rates(fits), self._rates(others)
        if len(theirs) and theirs.max() >= _WORD * rates.max():
            return others[int(np.argmax(theirs))]
        return fits[int(np.argmax(rates))]

    def _rates(self, candidates: Sequence[Candidate]) -> np.ndarray:
        return self.gains.of(candidates) / np.maximum(self._costs.of(candidates), 1.0)

    def _affordable(self, candidates: Sequence[Candidate], seconds: float) -> list[Candidate]:
        return [item for item, cost in zip(candidates, self._costs.of(candidates), strict=True) if cost <= seconds]

    def least_s(self, candidates: Sequence[Candidate]) -> float | None:
        """Of the cheapest; None where there is none."""
        return float(self._costs.of(candidates).min()) if candidates else None

    def ordered(self, candidates: Sequence[Candidate]) -> list[tuple[Candidate, float]]:
        """With their expected gains, the most promising first."""
        gains = self.gains.of(candidates)
        return [(candidates[number], float(gains[number])) for number in np.argsort(-gains, kind="stable")]
