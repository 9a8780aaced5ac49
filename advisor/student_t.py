"""Quantiles of Student's t distribution, so that the advisor needs no SciPy (143 MB installed) for one number."""

from __future__ import annotations

import functools
import math


def central_probability(angle: float, degrees: int) -> float:
    """P(|T| < t) for whole degrees of freedom, with t given as the angle atan(t / sqrt(degrees)), from 0 to pi / 2.

    A finite sum of powers of the angle's cosine (Abramowitz and Stegun, 26.7.3 and 26.7.4).
    """
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = degrees % 2 == 1
    term = total = (cosine if degrees > 1 else 0.0) if odd else 1.0
    for power in range(2 + odd, degrees - 1, 2):
        term *= cosine**2 * (power - 1) / power
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


@functools.lru_cache(maxsize=4096)
def two_sided_quantile(confidence: float, degrees: int) -> float:
    """The t with P(|T| < t) = `confidence`: 4.303 for 0.95 and 2 degrees. Found by halving the angle's interval."""
    if degrees < 1 or not 0 < confidence < 1:
        raise ValueError(f"no quantile for confidence {confidence} and {degrees} degrees of freedom")
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if central_probability(middle, degrees) < confidence else (low, middle)
    return math.sqrt(degrees) * math.tan((low + high) / 2)
