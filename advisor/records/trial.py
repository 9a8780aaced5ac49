"""One launch of one candidate and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from advisor.records.candidate import Candidate, Command
from advisor.records.engine import Active, StartUp
from advisor.records.sample import LoadPoint, Sample, SamplingPlan, WarmUp


class Outcome(str, Enum):
    """How a trial ended: a closed list, always with a reason."""

    OK = "ok"
    FAILED_TO_START = "failed_to_start"
    OUT_OF_MEMORY = "out_of_memory"
    UNSUPPORTED = "unsupported"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    INVALID_MEASUREMENT = "invalid_measurement"
    WRONG_OUTPUT = "wrong_output"
    NOT_AS_REQUESTED = "not_as_requested"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class GateResult:
    """Whether a launch's answers to fixed prompts are the baseline's, as far as that can be judged.

    Distances are mean absolute differences of log-probabilities over their own spread in the baseline: 0 is equal, about 1 is
    unrelated. Keys: `decode` (forced tokens) and `prefill` (the prompt's own tokens), each the worst reply.
    """

    passed: bool | None = None  # None: it cannot be judged, and `reason` says why
    reason: str = ""
    distance: Mapping[str, float] = field(default_factory=dict)
    limit: Mapping[str, float] = field(default_factory=dict)
    noise: Mapping[str, float] = field(default_factory=dict)  # baseline against baseline, and its modes against each other
    agreement: float | None = None  # share of the greedy tokens before the first difference, mean over prompts
    baseline_agreement: float | None = None  # the same for baseline against baseline
    baselines: int = 0  # launches of the baseline that were compared with
    notes: tuple[str, ...] = ()  # what could not be judged, as sentences


@dataclass(frozen=True)
class QualityScore:
    """What a person's own evaluation said of one server. No problem and no score: it passed, and names no number."""

    score: float | None = None  # more is better
    exit_code: int | None = None
    seconds: float = 0.0
    problem: str = ""
    command: str = ""  # fingerprint of the command's words; empty in journals before 2026-12


@dataclass(frozen=True)
class Dropped:
    """Why a launch was not measured in full: it cannot win any more (advisor/search/racing.py)."""

    reason: str  # "after a slice of 64 requests: output_tok_s -31.0% (-35.2% to -26.6%) against default"
    estimate: Mapping[str, float] = field(default_factory=dict)  # metric -> what whole samples would have given, as far as is known


@dataclass(frozen=True)
class Trial:
    """One launch of one candidate and what came of it. Only an OK trial has samples that count, unless it was dropped."""

    number: int
    phase: str  # as of runner/base.py's Job
    candidate: Candidate
    outcome: Outcome
    reason: str = ""
    samples: tuple[Sample, ...] = ()
    active: Active = Active()
    resolved: Mapping[str, Any] = field(default_factory=dict)  # what vLLM made of the command before the start
    credited_to: Candidate | None = None  # not_as_requested: what was active instead, and whose figure this is
    notes: tuple[str, ...] = ()  # where active and resolved differ, and other things that the report should name
    command: Command = Command(())
    folder: str | None = None  # of the launch, relative to the study's folder
    start_s: float | None = None  # from exec, or the fork, to the first token
    launcher: str = "cold"  # "warm": forked from a process that had vLLM imported, as no server of a person's is
    launcher_s: float | None = None  # that this launch waited for the imports of that process
    launcher_import_s: float | None = None  # of a core that they took, where this launch was their first: begun ahead or not
    lost_s: float | None = None  # in starts that failed before the one that is counted
    start_up: StartUp | None = None  # what the start that is counted went into
    memory_free: float | None = None  # share of the memory that was free after the samples, on the fullest GPU
    warmup_s: float | None = None
    warm_up: WarmUp | None = None
    plan: SamplingPlan | None = None
    measure_s: float | None = None
    checks_s: float | None = None  # of fixed prompts, and of a person's evaluation
    stop_s: float | None = None
    leftovers: tuple[str, ...] = ()  # processes that it left behind when it had ended, and that had to be killed
    total_s: float = 0.0  # wall time that the trial cost
    loads: tuple[LoadPoint, ...] = ()  # tried by --find-load, in order; `samples` are those of the highest that met the SLO
    round: int | None = None  # of the confirmation
    started_at: str = ""  # ISO 8601, UTC
    answers: str | None = None  # path of the answers to the output gate's prompts, relative to the study's folder
    gate: GateResult | None = None
    quality: QualityScore | None = None
    slices: tuple[Sample, ...] = ()  # short samples, measured before the whole ones; no figure of theirs is ever a score
    dropped: Dropped | None = None  # no score and no answers: it is no finalist

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.OK

    @property
    def imports_s(self) -> float:
        """Seconds that the launcher's imports took, 0 where an earlier launch had them. Older journals have those waited for.

        What was waited for is no measure of them: begun ahead, they share disk and cores with the inspection.
        """
        return self.launcher_s or 0.0 if self.launcher_import_s is None else self.launcher_import_s
