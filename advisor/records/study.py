"""All that a profile and a report are written from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.records.candidate import Command, Rejection
from advisor.records.facts import Facts
from advisor.records.objective import Objective
from advisor.records.trial import Trial
from advisor.records.verdict import Verdict
from advisor.records.workload import Workload


@dataclass(frozen=True)
class StudyResult:
    """All that a profile and a report are written from."""

    name: str
    advisor_version: str
    created_at: str  # ISO 8601, UTC
    facts: Facts
    workload: Workload
    objective: Objective
    serve_args: tuple[str, ...]  # what the person gave, verbatim
    serve_env: Mapping[str, str]
    random_weights: bool
    trials: tuple[Trial, ...]
    verdict: Verdict
    baseline_command: Command
    tuned_command: Command  # equals the baseline's unless the decision is IMPROVED
    rejections: tuple[Rejection, ...] = ()
    elapsed_s: float = 0.0  # wall time of the study, all sessions of it together
    space: str | None = None  # name of the search space; of a person's own file NAME.yaml
