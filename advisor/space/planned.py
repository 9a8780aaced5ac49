"""Capture lists that were planned from the baseline's batches, put among the values of a space. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from advisor.records import Workload
from advisor.space.capture_lists import NAMES, named_list
from advisor.space.choices import Limits, SettingChoices

SETTING = "cudagraph_capture_sizes"


def searches_named_lists(settings: Sequence[SettingChoices], workload: Workload, limits: Limits) -> bool:
    """Whether there are named lists that planned ones would take the place of."""
    named = _named(workload, limits)
    return any(choice.name == SETTING and not named.isdisjoint(choice.values) for choice in settings)


def with_planned_lists(
    settings: Sequence[SettingChoices], lists: Sequence[Sequence[int]], workload: Workload, limits: Limits
) -> tuple[SettingChoices, ...]:
    """The same settings with the planned lists where the named ones were; a person's own lists stay.

    Unchanged where there is no planned list, or where the space does not search the list at all.
    """
    planned = tuple(tuple(sizes) for sizes in lists)
    if not planned:
        return tuple(settings)
    named = _named(workload, limits)
    return tuple(_planned(choice, planned, named) if choice.name == SETTING else choice for choice in settings)


def _named(workload: Workload, limits: Limits) -> set[tuple[int, ...]]:
    load = workload.concurrency or limits.max_num_seqs
    return {tuple(named_list(name, load, limits.max_num_seqs, limits.max_num_batched_tokens)) for name in NAMES}


def _planned(
    choice: SettingChoices, planned: tuple[tuple[int, ...], ...], named: set[tuple[int, ...]]
) -> SettingChoices:
    if not any(value in named for value in choice.values):
        return choice
    rest = [value for value in choice.values if value is not None and value not in named]
    default = (None,) if None in choice.values else ()
    return dataclasses.replace(choice, values=tuple(dict.fromkeys((*default, *planned, *rest))))
