"""The space of a recorded grid, as the search sees it: what vLLM said of each candidate comes from the head."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from advisor.recording.grid import Equal, Head
from advisor.records import Candidate
from advisor.space.candidates import SearchSpace, SettingChoices, build_space

NOT_RECORDED = "it was not recorded"


def recorded_space(head: Head, keys: Collection[str] | None = None) -> SearchSpace:
    """Only candidates with these keys may be proposed; None: all that the head knows. Nothing is asked of a real vLLM."""
    resolved = {item.key: found for item, found in zip(head.candidates, head.resolved, strict=True)}
    same = {item.candidate.key: item.same_as.key for item in head.equal}
    default = Candidate().key

    def resolve(candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
        return [answer(same.get(item.key, item.key)) for item in candidates]

    def answer(key: str) -> dict[str, Any]:
        if key not in resolved or (keys is not None and key not in keys and key != default):
            return {"ok": False, "error": NOT_RECORDED}
        return {"ok": True, "resolved": {"fingerprint": key, **resolved[key]}}

    settings = tuple(_hashable(choice) for choice in head.settings)
    return build_space(settings, head.facts.engine, resolve, gpu=head.facts.gpu, model=head.facts.model)


def equal_ones(space: SearchSpace, combinations: Sequence[Candidate]) -> tuple[Equal, ...]:
    """What a space has dropped because something else runs the same."""
    found = []
    for item in combinations:
        same = space.stands_for(item)
        if same is not None and same.key != item.key:
            found.append(Equal(item, same))
    return tuple(found)


def kept(resolved: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: resolved[name] for name in names if name in resolved}


def _hashable(choice: SettingChoices) -> SettingChoices:
    """JSON has lists where a space has tuples."""
    when = {name: tuple(map(_plain, wanted)) for name, wanted in choice.when.items()}
    return dataclasses.replace(choice, values=tuple(map(_plain, choice.values)), when=when)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
