"""How the time of `--budget` is divided among the backends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from advisor.attention.arms import Arm

LEAST_S = 45.0  # no engine comes up and measures anything in less
START_AT_LEAST_S = 300.0  # an 8B with nothing compiled yet took 211 s on an H200
_DEFAULTS_SHARE = 2.0  # vLLM's own choice is measured twice
_TRACES = 1 / 3  # of what a backend took until then, its start included


@dataclass(frozen=True)
class Shares:
    """`until`: when everything has to be over, on `clock`. A slow start is not taken from what a backend may measure in."""

    until: float
    clock: Callable[[], float]

    @property
    def left_s(self) -> float:
        return self.until - self.clock()

    def is_over(self) -> bool:
        return self.left_s < LEAST_S

    def share_s(self, arm: Arm, others: Sequence[Arm]) -> float:
        """Seconds for `arm`, its start included, where `others` are still to come."""
        weights = [_DEFAULTS_SHARE if one.default else 1.0 for one in (arm, *others)]
        return self.left_s * weights[0] / sum(weights)

    def start_limit_s(self, share_s: float) -> float:
        """How long an engine may take to come up: longer than its share, but not what all others need."""
        return max(1.0, min(self.left_s, max(share_s, START_AT_LEAST_S)))

    def measuring_until(self, begun: float, share_s: float) -> float:
        """When an arm that began at `begun` and is ready now has to stop: at its share's end, but not before LEAST_S."""
        return min(self.until, max(begun + share_s, self.clock() + LEAST_S))

    def tracing_until(self, begun: float) -> float:
        """When the traces of an arm that began at `begun`, and has timed its steps now, have to stop."""
        return self.clock() + (self.clock() - begun) * _TRACES
