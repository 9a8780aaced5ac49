"""From a search space and the facts to the candidates worth a launch: legal, resolved by vLLM itself, no two alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from advisor.engine.render import is_environment
from advisor.records import Candidate, EngineFacts, GpuFacts, ModelFacts, Rejection
from advisor.space.choices import Limits, SettingChoices, concrete_settings, legal_settings
from advisor.space.design import combinations, count, one_less, singles_and_pairs
from advisor.space.rules import Place, objection

__all__ = [
    "AT_ONCE",
    "Limits",
    "SearchSpace",
    "SettingChoices",
    "build_space",
    "concrete_settings",
    "first_candidates",
    "resolved_identity",
]

# resolve(candidates) -> for each one a dictionary: {"ok": True, "resolved": {...}} or {"ok": False, "error": "..."}
Resolver = Callable[[Sequence[Candidate]], Sequence[Mapping[str, Any]]]
AT_ONCE = 600  # combinations; vLLM resolves tens of them a second


class SearchSpace:
    """What may be proposed: the tree of choices, and the distinct legal candidates known in it (without the baseline).

    A space of up to `at_once` combinations is known whole from the beginning. Of a larger one, each value and each pair of
    values is; what else is proposed gets known through `admit`, one resolution at a time. `total` counts combinations of values
    that this vLLM has words for.
    """

    def __init__(
        self,
        settings: tuple[SettingChoices, ...],
        place: Place,
        resolve: Resolver,
        refused: Sequence[Rejection] = (),
        at_once: int = AT_ONCE,
    ):
        self.settings = settings
        self.total = count(settings)
        self.complete = self.total <= at_once
        self.resolved: dict[str, Mapping[str, Any]] = {}  # candidate key -> what vLLM makes of it
        self._resolve = resolve
        self._stands_for: dict[
            str, Candidate | None
        ] = {}  # key -> the candidate of its class, None where it is dropped
        self._classes: dict[str, Candidate] = {}
        self._answers: dict[str, Mapping[str, Any]] = {}  # what rules and vLLM say of everything that was looked at
        self._distinct: list[Candidate] = []
        self._rejections = list(refused)
        self._place = Place(place.engine, place.gpu, place.model, self._baseline())
        self.admit(combinations(settings) if self.complete else singles_and_pairs(settings))

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The distinct legal ones known so far."""
        return tuple(self._distinct)

    @property
    def rejections(self) -> tuple[Rejection, ...]:
        """What was looked at and dropped, with the reason."""
        return tuple(self._rejections)

    def knows(self, candidate: Candidate) -> bool:
        return candidate.key in self._stands_for

    def stands_for(self, candidate: Candidate) -> Candidate | None:
        """The candidate (perhaps the baseline) that runs the same; None where it is dropped or not known."""
        return self._stands_for.get(candidate.key)

    def admit(self, candidates: Iterable[Candidate], simplest: bool = False) -> list[Candidate]:
        """Judge candidates, those with the fewest overrides first. Returns the new ones that are worth a launch.

        `simplest`: instead of a candidate of which an override changes nothing, the one without it.
        """
        new = {item.key: item for item in candidates if item.key not in self._stands_for}
        ordered = sorted(new.values(), key=lambda item: item.overrides)  # stable: the simplest of equals is kept
        self._ask(ordered)
        found = []
        for candidate in ordered:
            least = self._simplest(candidate) if simplest else candidate
            if self._enter(least):
                found.append(least)
            if least is not candidate:
                self._enter(candidate)
        return found

    def skip(self, candidate: Candidate, reason: str) -> None:
        """Keep with the rejections that a distinct candidate was not launched, and why."""
        self._rejections.append(Rejection(candidate, reason))

    @property
    def told(self) -> str:
        """One line for people."""
        if self.complete:
            return f"distinct candidates: {len(self._distinct)}; combinations dropped before launch: {len(self._rejections)}"
        return (
            f"{len(self._distinct)} distinct candidates among each value and each pair of values "
            f"({len(self._rejections)} dropped); the rest of {self.total:,} combinations is resolved when it is proposed"
        )

    def _baseline(self) -> Mapping[str, Any]:
        baseline = Candidate()
        answer = self._resolve([baseline])[0]
        self._answers[baseline.key] = answer
        self._stands_for[baseline.key] = baseline
        if answer["ok"]:
            self.resolved[baseline.key] = answer["resolved"]
            self._classes[resolved_identity(baseline, answer["resolved"])] = baseline
        return answer.get("resolved") or {}

    def _ask(self, candidates: Iterable[Candidate]) -> None:
        """Rules first, then the installed vLLM, each candidate once."""
        legal = []
        for candidate in candidates:
            if candidate.key in self._answers:
                continue
            reason = objection(candidate.settings, self._place)
            if reason:
                self._answers[candidate.key] = {"ok": False, "reason": reason}
            else:
                legal.append(candidate)
        for candidate, answer in zip(legal, self._resolve(legal) if legal else (), strict=True):
            self._answers[candidate.key] = answer

    def _identity(self, candidate: Candidate) -> str | None:
        answer = self._answers[candidate.key]
        return resolved_identity(candidate, answer["resolved"]) if answer["ok"] else None

    def _simplest(self, candidate: Candidate) -> Candidate:
        """The candidate without the overrides that change nothing in what vLLM resolves."""
        identity = self._identity(candidate)
        if identity is None:
            return candidate
        fewer = one_less(candidate)
        self._ask(fewer)
        same = next((item for item in fewer if self._identity(item) == identity), None)
        return self._simplest(same) if same is not None else candidate

    def _enter(self, candidate: Candidate) -> bool:
        """Whether it is new and worth a launch; otherwise it is dropped with the reason, once."""
        if candidate.key in self._stands_for:
            return False
        answer = self._answers[candidate.key]
        if not answer["ok"]:
            self._drop(candidate, answer.get("reason") or f"vLLM refuses it: {answer['error']}")
            return False
        same = self._classes.setdefault(resolved_identity(candidate, answer["resolved"]), candidate)
        self._stands_for[candidate.key] = same
        if same is not candidate:
            self._rejections.append(Rejection(candidate, f"resolves to the same as {same.label}"))
            return False
        self.resolved[candidate.key] = answer["resolved"]
        self._distinct.append(candidate)
        return True

    def _drop(self, candidate: Candidate, reason: str) -> None:
        self._stands_for[candidate.key] = None
        self._rejections.append(Rejection(candidate, reason))


def build_space(
    settings: tuple[SettingChoices, ...],
    engine: EngineFacts,
    resolve: Resolver,
    *,
    gpu: GpuFacts | None = None,
    model: ModelFacts | None = None,
    at_once: int = AT_ONCE,
) -> SearchSpace:
    """Drop values that this vLLM has no words for, then what a rule forbids, what vLLM refuses, and what resolves to the
    baseline or to a candidate with fewer overrides."""
    legal, refused = legal_settings(settings, engine)
    return SearchSpace(legal, Place(engine, gpu, model), resolve, refused, at_once)


def resolved_identity(candidate: Candidate, resolved: Mapping[str, Any]) -> str:
    """Candidates with one identity run the same: vLLM's resolved configuration, and the environment, which it does not hold."""
    environment = {name: value for name, value in candidate.settings.items() if is_environment(name)}
    return json.dumps([resolved.get("fingerprint") or resolved, environment], sort_keys=True, default=str)


def first_candidates(space: SearchSpace) -> tuple[Candidate, ...]:
    """The designed first trials: each value of each setting at least once, in candidates with few overrides.

    Within the 8 to 20 launches that people can afford, a sampler's random start would leave whole settings untried. Settings
    take turns, so that a search that stops early has looked at all of them.
    """
    turns: list[list[Candidate]] = []
    covered: set[tuple[str, str]] = set()
    for choice in space.settings:
        row = []
        for value in choice.values:
            pair = (choice.name, json.dumps(value))
            if value is None or pair in covered:
                continue
            holders = [item for item in space.candidates if item.settings.get(choice.name) == value]
            if holders:
                simplest = min(holders, key=lambda item: item.overrides)
                covered |= {(name, json.dumps(item)) for name, item in simplest.settings.items()}
                row.append(simplest)
        turns.append(row)
    ordered = [row[turn] for turn in range(max(map(len, turns), default=0)) for row in turns if turn < len(row)]
    return tuple({candidate.key: candidate for candidate in ordered}.values())
