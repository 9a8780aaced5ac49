"""The record of a verification: when, where, with which versions, what was measured and what it means. Pure, but for its file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from advisor import __version__
from advisor.errors import InputError
from advisor.journal import write_atomically
from advisor.records import Facts, Interval, Trial
from advisor.serving_profile.schema import Profile
from advisor.serving_profile.values import rounded
from advisor.verification.checks import FigureCheck
from advisor.verification.differences import Difference
from advisor.verification.judgement import Judgement
from advisor.verification.origin import Wish
from advisor.verification.slo import SloCheck

SCHEMA = "advisor.verification/1"


def document(
    profile: Profile,
    wish: Wish,
    facts: Facts,
    found: Sequence[Difference],
    judgement: Judgement,
    trials: Sequence[Trial],
    when: str,
    clean: Callable[[str], str] = str,
) -> dict[str, Any]:
    """Plain values; numbers rounded as in a profile. `when`: the verification began, ISO 8601 in UTC.

    `clean` takes secrets and paths of this machine out of free text.
    """
    check = judgement.verdict
    now = check.verdict
    return {
        "schema": SCHEMA,
        "profile": wish.profile.name,
        "result": judgement.held.value,
        "measured_at": profile.study.created_at,
        "verified_at": when,
        "command": wish.command,
        "advisor": __version__,
        "gpu": facts.gpu.name,
        "driver": facts.gpu.driver,
        "vllm": facts.engine.vllm_version,
        "torch": facts.engine.torch_version,
        "random_weights": profile.model.random_weights,
        "differences": [item.told for item in found],
        "tolerance_percent": rounded(wish.tolerance * 100),
        "figures": [_figure(item) for item in judgement.figures],
        "slo": _slo(judgement.slo, clean) if judgement.slo else None,
        "verdict": {
            "profile": check.before.value,
            "ratio_profile": _interval(check.ratio_before),
            "here": now.decision.value if now else None,
            "ratio_here": _interval(now.ratio) if now else None,
            "reason": clean(now.reason) if now else None,
            "held": check.held.value if check.held else None,
            "why": clean(check.why),
        },
        "notes": [clean(note) for note in judgement.notes],
        "launches": [_launch(trial, clean) for trial in trials],
    }


def as_json(record: dict[str, Any]) -> str:
    return json.dumps(record, indent=1)


def write(path: Path, record: dict[str, Any]) -> None:
    """YAML for a name that ends so, else JSON. Raises InputError where it cannot be written."""
    is_yaml = path.suffix in (".yaml", ".yml")
    text = yaml.safe_dump(record, sort_keys=False, allow_unicode=True, width=120) if is_yaml else as_json(record) + "\n"
    try:
        write_atomically(path, text)
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be written: {error.strerror}", "choose another --output") from None


def check_writable(path: Path) -> None:
    """Before anything is launched. Raises InputError."""
    try:
        if path.is_dir():
            raise InputError(f"{str(path)!r} is a folder", "name a file in it with --output")
        path.parent.mkdir(parents=True, exist_ok=True)
        probe = path.with_name(f".{path.name}.tmp")
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be written: {error.strerror}", "choose another --output") from None


def _figure(check: FigureCheck) -> dict[str, Any]:
    return {
        "side": check.side,
        "metric": check.metric,
        "profile": rounded(check.before.mean),
        "here": [rounded(value) for value in check.now],
        "ratio": _interval(check.ratio),
        "tolerance_percent": rounded(check.tolerance * 100),
        "held": check.held.value,
        "launches_needed": check.needed,
    }


def _slo(check: SloCheck, clean: Callable[[str], str]) -> dict[str, Any]:
    return {
        "side": check.side,
        "percent_profile": None if check.percent is None else rounded(check.percent),
        "met_in_profile": check.before,
        "launches": check.launches,
        "missed": [clean(text) for text in check.broken],
        "held": check.held.value if check.held else None,
    }


def _interval(found: Interval | None) -> dict[str, float] | None:
    if found is None:
        return None
    return {name: rounded(getattr(found, name), 5) for name in ("value", "low", "high")}


def _launch(trial: Trial, clean: Callable[[str], str]) -> dict[str, Any]:
    rates = [sample.output_tok_s for sample in trial.samples if not sample.problems]
    return {
        "round": trial.round,
        "phase": trial.phase,
        "candidate": trial.candidate.label,
        "outcome": trial.outcome.value,
        "reason": clean(trial.reason),
        "seeds": [sample.seed for sample in trial.samples],
        "output_tok_s": [rounded(rate) for rate in rates],
        "start_s": None if trial.start_s is None else rounded(trial.start_s),
        "output_judged": trial.gate.passed if trial.gate else None,
        "taints": sorted({clean(taint) for sample in trial.samples for taint in sample.taints}),
    }
