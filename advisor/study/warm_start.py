"""Figures from elsewhere that order the first launches: the nearest profiles, and what is known of settings anyhow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import AdvisorError
from advisor.records import Facts
from advisor.request import TuneRequest
from advisor.resources import profiles_folder
from advisor.search.effects import Point
from advisor.search.labels import candidate_of
from advisor.search.nearness import NEAR, Situation, nearness
from advisor.search.priors import known_before
from advisor.serving_profile.schema import Profile
from advisor.serving_profile.store import read_profile
from advisor.space.candidates import SearchSpace
from advisor.space.choices import Limits, SettingChoices

MOST = 3  # profiles that are looked into
# Of the same model, GPU, load and release: single launches of the default differ by 2% from one day to another (docs/evidence, the
# 8B's 3,231 and 3,301). Of others all may be off by so much more, and each effect by such a share of it: choices.
_SAME, _OFF, _SHARE = 0.02, 0.05, 0.5


@dataclass(frozen=True)
class Known:
    """`notes`: sentences for the person about where the first candidates come from."""

    points: tuple[Point, ...] = ()
    notes: tuple[str, ...] = ()


def known_figures(
    request: TuneRequest, facts: Facts, space: SearchSpace, limits: Limits, own: tuple[str, str] | None = None
) -> Known:
    """What is known before the first launch. `own`: name and creation of this study, whose profile is no other measurement."""
    objective = request.objective
    points, notes = known_before(facts.engine, request.workload, limits, space.settings, objective.metric)
    for near, words, path, profile in nearest(request, facts, own):
        found = figures(profile, near, space.settings)
        if found:
            points += found
            told = ", ".join([*words, f"{near:.1f} of 1.0 near"])
            notes += (f"first candidates from {path} ({told}): {len(found)} figures, {profile.decision.outcome.value}",)
    return Known(tuple(points), tuple(notes))


def nearest(
    request: TuneRequest, facts: Facts, own: tuple[str, str] | None = None
) -> list[tuple[float, tuple[str, ...], Path, Profile]]:
    """Up to MOST profiles that are near enough and optimised the same, the nearest first."""
    here = _here(request, facts)
    found = []
    for path in _files((request.output, profiles_folder()) if request.profiles is None else request.profiles):
        try:
            profile = read_profile(path)
        except (AdvisorError, OSError):
            continue  # somebody else's YAML, or of a newer advisor
        near, words = nearness(here, _there(profile))
        another = own != (profile.study.name, profile.study.created_at)
        if another and near >= NEAR and _comparable(profile, request):
            found.append((near, words, path, profile))
    return sorted(found, key=lambda item: (-item[0], str(item[2])))[:MOST]


def figures(profile: Profile, near: float, settings: Sequence[SettingChoices]) -> tuple[Point, ...]:
    """What the profile's study measured of each candidate, over its default. What failed there has no figure."""
    scores = {item.candidate: item.score for item in profile.study.candidates if item.score}
    default = scores.get("default")
    if not default:
        return ()
    sign = 1.0 if profile.objective.better == "more" else -1.0
    found = []
    for label, score in scores.items():
        candidate = candidate_of(label, settings)
        if candidate is not None and not candidate.is_baseline and score > 0:
            value = sign * math.log(score / default)
            found.append(Point(candidate, value, _SAME + (1 - near) * (_SHARE * abs(value) + _OFF)))
    return tuple(found)


def _comparable(profile: Profile, request: TuneRequest) -> bool:
    """Whether the profile's scores are the figure that is optimised now; under an SLO or a searched load they depend on both."""
    theirs, ours = profile.objective, request.objective
    return theirs.metric == ours.metric and not theirs.find_load and not ours.find_load


def _files(folders: Sequence[Path]) -> Iterator[Path]:
    seen: set[Path] = set()
    for folder in folders:
        for path in sorted(folder.glob("*/*.yaml")) if folder.is_dir() else [folder]:
            if path.suffix == ".yaml" and path.is_file() and path.resolve() not in seen:
                seen.add(path.resolve())
                yield path


def _here(request: TuneRequest, facts: Facts) -> Situation:
    model, load = facts.model, request.workload
    return Situation(
        Path(model.model).name, model.config_hash, model.architecture, facts.gpu.slug, facts.gpu.compute_capability,
        load.input_tokens, load.output_tokens, load.concurrency, load.rate, facts.engine.vllm_version,
    )  # fmt: skip


def _there(profile: Profile) -> Situation:
    load = profile.workload
    return Situation(
        profile.model.id, profile.model.config_hash, profile.model.architecture, profile.gpu.slug,
        profile.gpu.compute_capability, load.input_tokens, load.output_tokens, load.concurrency, load.rate_requests_s,
        profile.software.vllm,
    )  # fmt: skip
