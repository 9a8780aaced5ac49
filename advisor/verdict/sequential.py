"""When launches suffice: looking after every round keeps the error of all looks together (docs/verdict.md). Pure.

A group-sequential design with repeated confidence intervals (Jennison and Turnbull, 1989). Each look has a share of the error
(Lan and DeMets, 1983), the shares add up to ERROR, so by the union bound no dependence between looks has to be assumed,
and Student's t keeps each share exact however few launches there are. Several finalists divide each share (Bonferroni).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from advisor.records import Decision, Interval, Objective
from advisor.units import changes
from advisor.verdict.statistics import Comparison

ERROR = 0.025  # on each side, of all looks and finalists together: a two-sided interval of 95%
MIN_GAIN = 0.02  # a gain that is proven but smaller is not worth an override that has to be kept for years
FUTILE = 0.10  # a smaller chance that further launches show a gain is not worth their time
EACH = "fresh launches each)"  # the end of a described comparison
_DECAY = 0.8  # each look gets this share of the error of the one before: most studies end after few rounds


@dataclass(frozen=True)
class Looks:
    """Looks after each round from the `first` to the `end`, at `finalists` arms beside the baseline."""

    first: int
    last: int
    finalists: int = 1

    @property
    def end(self) -> int:
        """A person may ask for more first rounds than are otherwise the most."""
        return max(self.first, self.last)

    def tail(self, launches: int) -> float:
        """Error of one side, one finalist and the look after so many launches an arm."""
        shares = [_DECAY**step for step in range(self.end - self.first + 1)]
        step = min(max(launches, self.first), self.end) - self.first
        return ERROR * shares[step] / sum(shares) / self.finalists


def interval(found: Comparison, looks: Looks) -> Interval:
    """The ratio with its 95% interval, which holds at whatever look it is read and for all finalists at once."""
    return found.interval(looks.tail(found.launches))


def smallest_gain(found: Comparison, looks: Looks) -> float:
    """The gain, as a fraction, that would have to be measured for these launches to show it."""
    return math.exp(found.half_width(looks.tail(found.launches))) - 1


def chance(found: Comparison, looks: Looks) -> float:
    """Probability that the last look shows a gain, going by what was measured (predictive power with a flat prior).

    It only decides when to give up, which cannot raise the error of `improved`; so a normal distribution is good enough.
    """
    missing = looks.end - found.launches
    if missing <= 0:
        return 0.0
    end = dataclasses.replace(found, launches=looks.end, degrees=found.degrees + missing)
    needed = max(math.log(1 + MIN_GAIN), end.half_width(looks.tail(looks.end)))
    spread = found.deviation * math.sqrt(1 / found.launches - 1 / looks.end)
    return 0.5 * math.erfc((needed - found.gain) / spread / math.sqrt(2))


def launches_needed(found: Comparison, looks: Looks, most: int = 200) -> int | None:
    """Launches an arm after which a single look would show the measured gain; None where even `most` would not.

    Were the true gain the measured one, half of such studies would show it.
    """
    for launches in range(looks.first, most + 1):
        end = dataclasses.replace(found, launches=launches, degrees=max(launches - 1, found.degrees))
        if end.half_width(ERROR / looks.finalists) < found.gain:
            return launches
    return None


@dataclass(frozen=True)
class Judgement:
    """`decision` None: more launches may tell."""

    decision: Decision | None
    reason: str


def judge(found: Comparison, looks: Looks, ended: bool) -> Judgement:
    """What a finalist's launches say; `ended`: no more will follow, so a decision is due.

    improved: the whole interval is above zero gain, and the gain is at least MIN_GAIN.
    keep-defaults: the interval leaves no gain of MIN_GAIN, or less was measured than that when launches ended or have little
    chance to show one; or, with as little chance, less than what one launch of the same settings differs by.
    inconclusive: anything else.
    """
    seen = interval(found, looks)
    if seen.low > 1 and found.ratio >= 1 + MIN_GAIN:
        return Judgement(Decision.IMPROVED, "")
    if seen.high < 1 + MIN_GAIN:
        return Judgement(Decision.KEEP_DEFAULTS, f"a gain of {MIN_GAIN:.0%} is ruled out")
    hopeless = chance(found, looks) < FUTILE
    if (ended or hopeless) and found.ratio < 1 + MIN_GAIN:
        return Judgement(Decision.KEEP_DEFAULTS, "not worth an override")
    if hopeless and found.gain < found.launch_deviation:
        noise = f"{found.launch_deviation * 100:.1f}%"
        return Judgement(
            Decision.KEEP_DEFAULTS,
            f"less than launches of the same settings differ by ({noise}), and up to {looks.end} launches are unlikely to show it",
        )
    if not ended and not hopeless:
        return Judgement(None, "more launches may tell")
    needed = launches_needed(found, looks)
    more = f"about {needed} launches each would tell" if needed else "no reasonable number of launches would tell"
    return Judgement(Decision.INCONCLUSIVE, f"the interval includes zero gain; {more}")


def named(metric: str, told: str, several: bool = False) -> str:
    """`ttft_ms.p50 +10.1%`: a change says what it is of, unless it is the throughput alone."""
    return f"{metric} {told}" if several or metric != Objective().metric else told


def described(found: Comparison, looks: Looks, maximise: bool) -> str:
    seen = interval(found, looks)
    value, low, high = changes(seen.value, seen.low, seen.high, maximise)
    return f"{value} (95% interval {low} to {high}, {found.launches} {EACH}"
