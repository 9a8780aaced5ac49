"""Why candidates of a search are never launched although nothing speaks against them: a closed list, kept with the rejections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from advisor.launch.readiness import NO_TIME
from advisor.records import Rejection

NOT_EXPECTED = "expected gain below the noise floor"
ENOUGH = "as many trials as were asked for"
UNTRIED = (NOT_EXPECTED, NO_TIME, ENOUGH)


def short(reason: str) -> str:
    """For each candidate that is left when the search stops: one of the list, without the figures of the study."""
    return NO_TIME if reason.startswith("budget") else ENOUGH


def untried(rejections: Sequence[Rejection]) -> str:
    """`14 candidates not launched: expected gain below the noise floor`; empty where all were."""
    counts = Counter(item.reason for item in rejections if item.reason in UNTRIED)
    return "; ".join(
        f"{count} candidate{'s' if count > 1 else ''} not launched: {reason}" for reason, count in counts.items()
    )
