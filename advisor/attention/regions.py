"""A set of cells in words: `from batch 64 on, at context 4096 and more`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

Place = tuple[int, int]  # batch, context
_Range = tuple[str, Callable[[int], bool]]


def region(places: Iterable[Place], every: Iterable[Place], names: tuple[str, str]) -> str:
    """Where `places` are among all `every`, by one rectangle where one holds exactly them, else one by one.

    `names`: what the two numbers are called, `("batch", "context")`. Empty for all of them.
    """
    wanted, all_of_them = set(places), set(every)
    for first in _ranges(names[0], [batch for batch, _ in wanted], [batch for batch, _ in all_of_them]):
        for second in _ranges(names[1], [context for _, context in wanted], [context for _, context in all_of_them]):
            if {place for place in all_of_them if first[1](place[0]) and second[1](place[1])} == wanted:
                return ", ".join(filter(None, (first[0], second[0])))
    return _listed(wanted, names)


def _ranges(name: str, wanted: Sequence[int], every: Sequence[int]) -> list[_Range]:
    """Plainest first: all, from a number on, up to one, one alone, between two."""
    low, high = min(wanted), max(wanted)
    found: list[_Range] = [("", lambda _: True)]
    if low > min(every):
        found.append((f"from {name} {low} on", lambda number: number >= low))
    if high < max(every):
        found.append((f"up to {name} {high}", lambda number: number <= high))
    if low == high:
        return [found[0], (f"at {name} {low}", lambda number: number == low)]
    return [*found, (f"from {name} {low} to {high}", lambda number: low <= number <= high)]


def _listed(places: set[Place], names: tuple[str, str]) -> str:
    """`at context 512 with batch 1 and 64, at context 4096 with batch 16`."""
    parts = []
    for context in sorted({context for _, context in places}):
        batches = sorted(batch for batch, other in places if other == context)
        parts.append(f"at {names[1]} {context} with {names[0]} {joined(map(str, batches))}")
    return ", ".join(parts)


def joined(words: Iterable[str]) -> str:
    """`1, 16 and 64`."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
