"""What the start of each mode costs beside that of the plainest one, in sentences. Pure.

Compared is the engine's initialisation, which vLLM's log tells (memory profiling, KV cache, warm-up, compilation, capture):
imports and loading are the same for all modes, and what they differ by is chance. Kernels that the first start on a machine builds
and later ones find are left out of the comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.anatomy.modes import TITLES

_SEEN_S = 2.0  # the log's clock has whole seconds


def starts(modes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One sentence a mode, and before them one about kernels that one mode alone built."""
    found = {name: mode["start"] for name, mode in modes.items() if (mode.get("start") or {}).get("start_s")}
    plain = found.pop("none", None)
    if plain is None:
        return []
    once = {name: built_once(name, modes) for name in ("none", *found)}
    said = [
        f"{TITLES[name]}: {seconds:.0f} s of its start built kernels that the other starts found on the disk: they are left out of "
        "what follows"
        for name, seconds in once.items()
        if seconds
    ]
    return said + [_one(name, start, plain, once) for name, start in found.items()]


def _one(name: str, start: Mapping[str, Any], plain: Mapping[str, Any], once: Mapping[str, float]) -> str:
    part = "engine_init_s" if start.get("engine_init_s") and plain.get("engine_init_s") else "start_s"
    more = (start[part] - once[name]) - (plain[part] - once["none"])
    beside = (
        f"{abs(more):.0f} s {'more' if more > 0 else 'less'} than without optimisation"
        if abs(more) >= 0.5
        else "no longer than without optimisation"
    )
    cache = f" ({start['cache']} compile cache)" if start.get("cache") else ""
    memory = start.get("graph_memory_gib")
    graphs = f"; graphs take {memory:.2f} GiB" if memory is not None else ""
    whose = "its engine's initialisation takes " if part == "engine_init_s" else "which is "
    return f"{TITLES[name]}: starts in {start['start_s']:.0f} s{cache}, {whose}{beside}{graphs}"


def built_once(name: str, modes: Mapping[str, Mapping[str, Any]]) -> float:
    """Seconds that a mode without compilation took to build kernels and the other one did not: they were on the disk by then.

    Modes that compile are not judged: much of their warm-up is paid in every start.
    """
    plain = ("none", "full")
    others = [modes[one].get("start") for one in plain if one != name and one in modes]
    if name not in plain or not others or not others[0]:
        return 0.0
    mine = (modes[name].get("start") or {}).get("kernels_s") or 0.0
    more = mine - (others[0].get("kernels_s") or 0.0)
    return more if more >= _SEEN_S else 0.0
