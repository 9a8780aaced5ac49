"""Numbers as people read them, and durations as people write them."""

from __future__ import annotations

import re

from advisor.errors import InputError

_EXAMPLES = "write it as 90s, 30m or 1h30m"
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
GIB = 1024**3


def parse_duration_s(text: str, option: str = "--budget") -> float:
    """Seconds in `90s`, `30m` or `1h30m`. Raises InputError naming `option`; a number without a unit may be meant as minutes."""
    cleaned = text.strip().lower()
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", cleaned)
    if not parts or "".join(number + unit for number, unit in parts) != cleaned:
        bare = re.fullmatch(r"\d+(\.\d+)?", cleaned)
        problem = "needs a unit: s, m or h" if bare else "is not a duration"
        raise InputError(f"{option} {text!r} {problem}", _EXAMPLES)
    seconds = sum(float(number) * _UNIT_S[unit] for number, unit in parts)
    if not 0 < seconds < float("inf"):
        raise InputError(f"{option} {text!r} must be more than zero", _EXAMPLES)
    return seconds


def duration(seconds: float) -> str:
    """`75.2` -> `1m15s`; under ten seconds with one decimal."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def percent(ratio: float) -> str:
    """A ratio as a signed change: `1.037` -> `+3.7%`."""
    return f"{(ratio - 1) * 100:+.1f}%"


def change(ratio: float, maximise: bool) -> str:
    """A ratio of which more than 1 is better, as the change of the figure itself: 1.25 is `-20.0%` of a time."""
    return percent(ratio if maximise else 1 / ratio)


def changes(value: float, low: float, high: float, maximise: bool) -> tuple[str, str, str]:
    """`change` of a ratio and of the ends of its interval, the smaller end first."""
    low, high = (low, high) if maximise else (high, low)
    return change(value, maximise), change(low, maximise), change(high, maximise)


def number(value: float) -> str:
    """Three to four significant digits, thousands separated: 27957.3 -> `27,957`, 4.893 -> `4.89`."""
    magnitude = abs(value)
    decimals = 0 if magnitude >= 1000 else 1 if magnitude >= 100 else 2
    return f"{value:,.{decimals}f}"
