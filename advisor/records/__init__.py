"""The values that the stages hand to each other. Imports nothing of ours.

inspect -> Facts; space -> Candidate; launch + measure -> Trial (with Samples); verdict -> Verdict; profile.
Everything is frozen and JSON-shaped: `to_json` gives plain dictionaries for the journal, `from_json` reads them back.
Units stand in the names: `_s` seconds, `_ms` milliseconds, `_gib` GiB (2**30 bytes), `_tok_s` tokens a second.

One file a stage; others import from here: `from advisor.records import Trial`.
"""

from advisor.records.candidate import Candidate, Command, Rejection
from advisor.records.engine import Active, Finding, GraphSteps, Resolved, StartUp
from advisor.records.facts import BackendFacts, EngineFacts, Facts, FirstFacts, GpuFacts, ModelFacts
from advisor.records.json_shape import fingerprint, from_json, to_json
from advisor.records.machine import Foreign, Spread, Telemetry
from advisor.records.objective import Objective, SloLimit
from advisor.records.sample import ClientLoad, Invalid, LoadPoint, Sample, SamplingPlan, Slice, WarmUp
from advisor.records.study import StudyResult
from advisor.records.trial import Dropped, GateResult, Outcome, QualityScore, Trial
from advisor.records.verdict import Compared, Decision, Finalist, FrontPoint, Interval, Tradeoff, Verdict
from advisor.records.workload import Workload

__all__ = [
    "Active",
    "BackendFacts",
    "Candidate",
    "ClientLoad",
    "Command",
    "Compared",
    "Decision",
    "Dropped",
    "EngineFacts",
    "Facts",
    "Finalist",
    "Finding",
    "FirstFacts",
    "Foreign",
    "FrontPoint",
    "GateResult",
    "GpuFacts",
    "GraphSteps",
    "Interval",
    "Invalid",
    "LoadPoint",
    "ModelFacts",
    "Objective",
    "Outcome",
    "QualityScore",
    "Rejection",
    "Resolved",
    "Sample",
    "SamplingPlan",
    "Slice",
    "SloLimit",
    "Spread",
    "StartUp",
    "StudyResult",
    "Telemetry",
    "Tradeoff",
    "Trial",
    "Verdict",
    "WarmUp",
    "Workload",
    "fingerprint",
    "from_json",
    "to_json",
]
