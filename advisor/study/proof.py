"""The winner's proof: launched as long as its verdict lacks a step, then judged."""

from __future__ import annotations

from advisor.launch.caches import forget_proof_cache, has_proof_cache
from advisor.progress import Progress
from advisor.records import Candidate, Trial, Verdict
from advisor.request import TuneRequest
from advisor.study.launches import Launches
from advisor.units import duration
from advisor.verdict import proof


def prove(verdict: Verdict, request: TuneRequest, launch: Launches, progress: Progress) -> Verdict:
    """Cold start and soak, second start, and the quality command on both sides; nothing where the default stays."""
    evaluates = bool(request.quality_command)
    while step := next(iter(proof.steps(verdict, launch.done(), evaluates)), None):
        progress.stage(_told(*step, request.budget.soak_s))
        _one(launch, *step)
    forget_proof_cache(launch.folder)
    for remark in proof.remarks(verdict.winner, launch.done()):
        progress.note(remark)
    return proof.proven(verdict, launch.done(), request.quality_tolerance)


def _one(launch: Launches, phase: str, candidate: Candidate) -> Trial:
    """A second start needs the code that the cold one compiled: one that an earlier session left alone begins with it."""
    if phase == proof.RESTART and not has_proof_cache(launch.folder):
        launch(proof.SOAK, candidate)
    return launch(phase, candidate)


def _told(phase: str, candidate: Candidate, soak_s: float) -> str:
    return {
        proof.QUALITY: "quality command on the default",
        proof.SOAK: f"soak: {candidate.label} from empty caches, {duration(soak_s)} of load",
        proof.RESTART: f"second start: {candidate.label} on the code that its first start compiled",
    }[phase]
