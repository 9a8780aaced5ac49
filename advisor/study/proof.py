"""The winner's proof: launched as long as its verdict lacks a step, then judged. Who loses it makes room for the next finalist."""

from __future__ import annotations

from collections.abc import Callable

from advisor.launch.caches import forget_proof_cache, has_proof_cache
from advisor.progress import Progress
from advisor.records import Candidate, Trial, Verdict
from advisor.request import TuneRequest
from advisor.search.budget import PROOF_LAUNCHES, typical_cost_s
from advisor.study.launches import Launches
from advisor.units import duration
from advisor.verdict import proof
from advisor.verdict.fresh import launched


def prove(judge: Callable[[], Verdict], request: TuneRequest, launch: Launches, progress: Progress) -> Verdict:
    """The verdict on a winner that stood cold start and soak, second start, and the quality command on both sides.

    `judge` launches afresh what is still missing and says who leads. It is asked again when a winner lost its proof: the next
    finalist may be improved too, or worth more launches. Its proof is made as far as the budget lasts.
    """
    evaluates, tolerance = bool(request.quality_command), request.quality_tolerance
    verdict = judge()
    while step := next(iter(proof.steps(verdict, launch.done(), evaluates, tolerance)), None):
        if not _fits(verdict.winner, request, launch):
            verdict = proof.unproven(verdict)
            break
        progress.stage(_told(*step, request.budget.soak_s))
        _one(launch, *step)
        if lost := proof.loss(verdict.winner, launch.done(), tolerance):
            progress.note(f"{verdict.winner.label} {lost.why}: it cannot win; the next finalist is looked at")
            verdict = judge()
    forget_proof_cache(launch.folder)
    for remark in proof.remarks(verdict.winner, launch.done()):
        progress.note(remark)
    return proof.proven(verdict, launch.done(), tolerance)


def _fits(winner: Candidate, request: TuneRequest, launch: Launches) -> bool:
    """The first winner's proof is always made, and one that was begun is ended. Others have to fit into the budget."""
    done, budget = launch.done(), request.budget
    lost = any(proof.loss(item, done, request.quality_tolerance) for item in launched(done))
    if not lost or proof.proof_trial(done, proof.SOAK, winner):
        return True
    return budget.left_s(done) >= budget.soak_s + PROOF_LAUNCHES * typical_cost_s(done)


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
