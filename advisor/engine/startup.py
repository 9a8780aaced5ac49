"""What a server's start went into, told from its log. Pure.

The figures that vLLM states are taken as they are; the others are differences of time stamps, which have whole seconds. Texts
follow the sources of vLLM 0.9 to 0.33 and logs of 0.26.0 (CUDA) and 0.32.0 (CPU).
"""

from __future__ import annotations

import re
from datetime import datetime

from advisor.engine.log_lines import plain_log
from advisor.records import Active, StartUp

_STAMP = re.compile(r"\b(?P<stamp>\d\d-\d\d \d\d:\d\d:\d\d)\b")  # month and day: no year
_ENGINE = re.compile(r"Initializing a V1 LLM engine")  # the engine's process has its imports behind it
_SERVING = re.compile(r"Starting vLLM (?:API )?server")
_COMPILED = re.compile(r"Compiling a graph for|Cache the graph (?:of|for)|saved AOT compiled function")
_FROM_CACHE = re.compile(r"Directly load (?:the|AOT)")
_TUNING = re.compile(r"(?P<stamp>\d\d-\d\d \d\d:\d\d:\d\d),\d+.*\[Autotuner\]: Autotuning process (?P<end>starts|ends)")
_CAPTURED = re.compile(r"Free memory on device .* on startup|Graph capturing finished")
_WARMED = re.compile(r"Kernel JIT monitor activated")  # 0.24 on: after the warm-up of sampler and kernels


def parse_startup(log_text: str, start_s: float, active: Active, forked: bool = False) -> StartUp:
    """The parts of a start of `start_s` seconds (exec to first token); `active` is what parse_active made of the same log.

    A forked server has its imports behind it.
    """
    log_text = plain_log(log_text)
    lines = log_text.splitlines()
    engine, serving = _first(lines, _ENGINE), _first(lines, _SERVING)
    imports_s = start_s - _between(engine, serving) if engine and serving and not forked else None
    kernels_s = _tuning_s(lines) + _between(_first(lines, _CAPTURED, last=True), _first(lines, _WARMED))
    parts = (imports_s, active.load_s, active.compile_s, active.capture_s, kernels_s or None)
    rest_s = start_s - sum(part for part in parts if part is not None)
    imports_s, load_s, compile_s, capture_s, kernels_s = (None if part is None else round(part, 2) for part in parts)
    return StartUp(
        cache=_cache(log_text),
        imports_s=imports_s,
        load_s=load_s,
        compile_s=compile_s,
        capture_s=capture_s,
        kernels_s=kernels_s,
        rest_s=round(max(rest_s, 0.0), 2),
    )


def _cache(log_text: str) -> str | None:
    """`cold` where anything was compiled anew, `warm` where all of it was found, None where nothing had to be."""
    if _COMPILED.search(log_text):
        return "cold"
    return "warm" if _FROM_CACHE.search(log_text) else None


def _first(lines: list[str], pattern: re.Pattern[str], last: bool = False) -> datetime | None:
    """Time of the first (or last) line with the pattern; None where there is none or it has no stamp."""
    for line in reversed(lines) if last else lines:
        if pattern.search(line) and (found := _STAMP.search(line)):
            return _time(found["stamp"])
    return None


def _tuning_s(lines: list[str]) -> float:
    """Seconds in FlashInfer's autotuner."""
    total, begun = 0.0, None
    for line in lines:
        if found := _TUNING.search(line):
            if found["end"] == "starts":
                begun = _time(found["stamp"])
            else:
                total += _between(begun, _time(found["stamp"]))
                begun = None
    return total


def _time(stamp: str) -> datetime:
    return datetime.strptime(f"2000-{stamp}", "%Y-%m-%d %H:%M:%S")  # a year with a 29 February


def _between(begin: datetime | None, end: datetime | None) -> float:
    """Seconds from one to the other; 0 where either is missing or, over New Year, they are the wrong way round."""
    return max((end - begin).total_seconds(), 0.0) if begin and end else 0.0
