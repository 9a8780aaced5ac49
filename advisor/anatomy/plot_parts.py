"""What the plot of an anatomy shows: bars, lines and texts, without a word of how they are drawn. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.anatomy.modes import TITLES
from advisor.anatomy.parts import GAPS, IDLE, OTHER, READING, WHOLE, parts, share_of_most
from advisor.anatomy.words import best_mode, broken_floor, by_batch, ends, no_graphs, no_idle, with_floor_that_holds
from advisor.stepping.figures import STEADY, ms

Modes = Mapping[str, Mapping[str, Any]]
# Parts of a step, from the bottom of a bar to its top, and what the legend calls them.
PARTS = {
    "floor": "floor: weights and KV cache",
    "other": "other GPU work",
    "idle": "idle GPU: the rest of the step",
    "rest": "above the floor, not split",
}
HOST = "the host's work, timed by itself"
_MOST = 200  # characters of a reason in the picture; the tables tell it whole


@dataclass(frozen=True)
class Bar:
    """One step. `parts` are milliseconds, under names of PARTS; `host_ms` is what the host does for it, hidden or not."""

    batch: int
    step_ms: float
    parts: Mapping[str, float]
    steady: bool
    host_ms: float | None = None

    @property
    def shares(self) -> dict[str, float]:
        """Of the whole: the GPU's time is of other, traced steps, and may be a little more than the step's."""
        whole = sum(self.parts.values())
        return {name: value / whole for name, value in self.parts.items()} if whole else {}


@dataclass(frozen=True)
class Point:
    """A time (ms) at a number of requests or tokens."""

    at: int
    ms: float
    steady: bool


@dataclass(frozen=True)
class Shown:
    """One mode. `same` are titles of modes that vLLM resolves to this one."""

    name: str
    title: str
    same: tuple[str, ...]
    bars: tuple[Bar, ...]
    prefill: tuple[Point, ...]
    start_s: float | None
    start_note: str

    @property
    def steps(self) -> tuple[Point, ...]:
        return tuple(Point(bar.batch, bar.step_ms, bar.steady) for bar in self.bars)


@dataclass(frozen=True)
class Picture:
    """All of it. `floor` is batch size -> ms; `best` sentences go below the title, `notes` below the panels."""

    title: str
    subtitle: str
    best: tuple[str, ...]
    modes: tuple[Shown, ...]
    floor: Mapping[int, float]
    notes: tuple[str, ...]

    @property
    def batches(self) -> tuple[int, ...]:
        return tuple(sorted({bar.batch for mode in self.modes for bar in mode.bars}))

    @property
    def kinds(self) -> dict[str, str]:
        """Those of PARTS that some bar has."""
        found = {name for mode in self.modes for bar in mode.bars for name in bar.parts}
        labels = PARTS if "floor" in found else {**PARTS, "other": "GPU work", "rest": "not split"}
        return {name: label for name, label in labels.items() if name in found}


def picture(document: Mapping[str, Any]) -> Picture:
    """Of a whole document (document.py). Modes without a single time have no place in it but a note."""
    modes = with_floor_that_holds(document["modes"])
    return Picture(
        f"What a decode step of {document['model']['name']} is made of",
        ", ".join((
            *(["random weights"] if document["model"].get("random_weights") else []),
            document["gpu"]["name"], f"vLLM {document['versions']['vllm']}", document["date"][:10],
            f"{document['context']} tokens of context a request",
        )),
        tuple(told_best(modes)),
        tuple(shown(modes, name) for name in modes if any(row["step_ms"] is not None for row in modes[name]["decode"])),
        floors(modes),
        tuple(notes(document)),
    )  # fmt: skip


def shown(modes: Modes, name: str) -> Shown:
    mode = modes[name]
    start = mode.get("start") or {}
    rows = sorted(mode["decode"], key=lambda row: row["batch"])
    return Shown(
        name,
        TITLES[name],
        tuple(TITLES[other] for other in modes if modes[other].get("same_as") == name),
        tuple(bar(row) for row in rows if row["step_ms"] is not None),
        tuple(
            Point(row["tokens"], row["step_ms"], row["steady"]) for row in mode["prefill"] if row["step_ms"] is not None
        ),
        start.get("start_s"),
        told_start(start),
    )


def bar(row: Mapping[str, Any]) -> Bar:
    """Without GPU time a step is split at the floor alone."""
    if row.get("gpu_ms") is None:
        floor = min(row.get("floor_ms") or 0.0, row["step_ms"])
        split = ({"floor": floor} if floor else {}) | {"rest": row["step_ms"] - floor}
    else:
        names = {READING: "floor", WHOLE: "other", OTHER: "other", IDLE: "idle", GAPS: "idle"}
        split = {names[part]: value for part, value in parts(row).items()}
    return Bar(row["batch"], row["step_ms"], split, row["steady"], row.get("host_ms"))


def told_start(start: Mapping[str, Any]) -> str:
    """`98.8 s, cold compile cache; graphs 0.98 GiB`."""
    if start.get("start_s") is None:
        return ""
    cache = f", {start['cache']} compile cache" if start.get("cache") else ""
    memory = start.get("graph_memory_gib")
    return f"{start['start_s']:.1f} s{cache}" + ("" if memory is None else f"; graphs {memory:.2f} GiB")


def floors(modes: Modes) -> dict[int, float]:
    """Of the first mode that has one: the modes read the same."""
    found: dict[int, float] = {}
    for mode in modes.values():
        for row in mode["decode"]:
            if row.get("floor_ms"):
                found.setdefault(row["batch"], row["floor_ms"])
    return dict(sorted(found.items()))


def told_best(modes: Modes) -> list[str]:
    """The best step of the smallest and of the largest batch, how far from the floor, and what takes most of it."""
    steps = {name: by_batch(mode) for name, mode in modes.items()}
    said = []
    for batch in ends(sorted({batch for rows in steps.values() for batch in rows})):
        best = best_mode(steps, batch)
        assert best is not None  # the batch is one of theirs
        row = steps[best][batch]
        text = f"batch {batch}: best step {ms(row['step_ms'])} ({TITLES[best]})"
        if row.get("floor_ms"):
            text += f", {row['step_ms'] / row['floor_ms']:.1f} times the floor of {ms(row['floor_ms'])}"
        if most := share_of_most(row):
            text += f", {most}"
        said.append(text)
    return said


def notes(document: Mapping[str, Any]) -> list[str]:
    """What a person has to know who sees nothing but the picture."""
    modes = document["modes"]
    rows = [row for mode in modes.values() for row in mode["decode"] if row["step_ms"] is not None]
    said = [*no_graphs(modes), *(broken := broken_floor(modes))]
    if document["versions"].get("platform") == "cpu":
        shown = (
            "steps are not split"
            if broken
            else "only the step and its floor are shown, what lies above it is not split"
        )
        said.append(f"a processor has no GPU time: {shown}")
    elif untraced := dict.fromkeys(row["reason"] for row in rows if row.get("gpu_ms") is None):
        said += [f"not split, no GPU time: {_cut(reason or 'not traced')}" for reason in untraced]
    said += no_idle(modes)
    if not broken and any(not row.get("floor_ms") for row in rows):
        said.append("no floor where the bandwidth was not measured")
    if not all(row["steady"] for row in [*rows, *_prefills(modes)]):
        said.append(
            f"* and hollow marks: the steps were not steady, their middle half spreads over more than {STEADY:.0%} of the median"
        )
    for name, mode in modes.items():
        if mode["reason"] and not mode.get("same_as"):
            said.append(f"{TITLES[name]}: {mode['status']}: {_cut(mode['reason'])}")
    return said


def _prefills(modes: Modes) -> list[Mapping[str, Any]]:
    return [row for mode in modes.values() for row in mode["prefill"] if row["step_ms"] is not None]


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _MOST else f"{flat[: _MOST - 3]}..."
