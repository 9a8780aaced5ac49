"""What the wall time of a tune went into. Pure: trials and seconds in, seconds by name and text out."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.records import Trial
from advisor.units import duration

PARTS = {  # fields of a StartUp -> what a person reads
    "imports_s": "imports",
    "load_s": "load",
    "compile_s": "compile",
    "capture_s": "capture",
    "kernels_s": "kernel builds",
    "rest_s": "other start-up",
}
FAILED, WARM_UP, MEASURING, STOPPING, OWN = "failed starts", "warm-up", "measuring", "stopping", "own overhead"
NAMES = (*PARTS.values(), FAILED, WARM_UP, MEASURING, STOPPING, OWN)
_SHOWN_S = 0.5  # less than that is a rounded 0


def time_account(trials: Sequence[Trial], wall_s: float, inspection_s: float = 0.0) -> dict[str, float]:
    """Seconds by NAMES, which add up to `wall_s`. `trials`: those of the same session; `inspection_s`: vLLM's imports before them.

    Own overhead is what no server, no client and no import of vLLM can be blamed for. What went into a launch that never answered,
    its stop included, is one sum: its log has no end to count from.
    """
    spent = {**dict.fromkeys(NAMES, 0.0), PARTS["imports_s"]: inspection_s}
    for trial in trials:
        for name, seconds in _parts(trial).items():
            spent[name] += seconds
    spent[OWN] = wall_s - sum(spent.values())
    return spent


def _parts(trial: Trial) -> dict[str, float]:
    waited_s = trial.launcher_s or 0.0
    if trial.start_s is None:
        return {"imports": waited_s, FAILED: max(trial.total_s - waited_s, 0.0)}
    start = {words: getattr(trial.start_up, field, None) or 0.0 for field, words in PARTS.items()}
    start["imports"] += waited_s
    # What no part of the log accounts for was the server's as well, an older journal's whole start.
    start["other start-up"] += max(trial.start_s + waited_s - sum(start.values()), 0.0)
    # Parts that a log states may be rounded up: together they are never more than the start was.
    scale = min(1.0, (trial.start_s + waited_s) / (sum(start.values()) or 1.0))
    return {
        FAILED: trial.lost_s or 0.0,
        **{words: seconds * scale for words, seconds in start.items()},
        WARM_UP: trial.warmup_s or 0.0,
        MEASURING: (trial.measure_s or 0.0) + (trial.checks_s or 0.0),
        STOPPING: trial.stop_s or 0.0,
    }


def own_share(account: dict[str, float]) -> float:
    """Own overhead over the wall time, 0 to 1."""
    return account[OWN] / (sum(account.values()) or 1.0)


def time_line(account: dict[str, float]) -> str:
    """`time: 31m of wall: imports 2m10s, ..., own overhead 22s (1.2%)`; what took no time is left out."""
    told = [f"{name} {duration(spent)}" for name, spent in account.items() if spent >= _SHOWN_S and name != OWN]
    own = f"{OWN} {duration(max(account[OWN], 0.0))} ({own_share(account):.1%})"
    return f"time: {duration(sum(account.values()))} of wall: {', '.join([*told, own])}"
