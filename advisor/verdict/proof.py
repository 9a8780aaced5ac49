"""The winner's proof, before it is recommended: a cold start, a load that goes on, a second start. Pure.

One good start proves little: servers died minutes into their load (vLLM issue 54331), or on their second start, on code that the
first had compiled (issue 18851).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.records import Candidate, Decision, Objective, Outcome, Sample, Trial, Verdict
from advisor.units import change, percent
from advisor.verdict.quality import TOLERANCE, baseline_problem, quality_problem
from advisor.verdict.sequential import named

SOAK, RESTART, QUALITY = "soak", "restart", "quality"  # phases of trials, in this order
PHASES = (SOAK, RESTART, QUALITY)
FADING = 0.10  # the last quarter of a soak may be so much slower than the first
FADING_TIME = 0.25  # and where a rate drives the load, requests may take so much longer: chance in the arrivals is in that figure
LEAST_FREE = 0.005  # of the memory: 0.7 GiB of an H200. vLLM died while it captured graphs with less (issue 57475)
_BASELINE = Candidate()

Step = tuple[str, Candidate]  # phase and who is launched


def steps(
    verdict: Verdict, trials: Sequence[Trial], evaluates: bool, tolerance: float = TOLERANCE
) -> list[Step]:
    """Launches that the proof of this verdict still lacks, in order; none where nothing new would be recommended.

    `evaluates`: there is a quality command, and so the baseline has to be launched for it as well.
    """
    if verdict.decision is not Decision.IMPROVED or problem(verdict.winner, trials, tolerance):
        return []
    wanted: list[Step] = [(SOAK, verdict.winner), (RESTART, verdict.winner)]
    if evaluates:
        wanted.insert(0, (QUALITY, _BASELINE))
    return [step for step in wanted if not _is_done(proof_trial(trials, *step), evaluates)]


def _is_done(trial: Trial | None, evaluates: bool) -> bool:
    """A soak without an evaluation was made when nobody had asked for one yet, or for another one, as a launch for it alone."""
    return trial is not None and not (evaluates and trial.phase in (SOAK, QUALITY) and trial.ok and trial.quality is None)


@dataclass(frozen=True)
class Loss:
    """Why a candidate must not win, and what that makes of the verdict where nothing else does."""

    decision: Decision
    why: str  # the end of a sentence whose subject is the candidate


def loss(candidate: Candidate, trials: Sequence[Trial], tolerance: float) -> Loss | None:
    """What its proof so far, or what it left behind at its stops, says against a candidate; None: nothing."""
    if against := problem(candidate, trials, tolerance):
        return Loss(Decision.KEEP_DEFAULTS, against)
    if against := unjudged(candidate, trials):
        return Loss(Decision.INCONCLUSIVE, against)
    return None


def proven(verdict: Verdict, trials: Sequence[Trial], tolerance: float) -> Verdict:
    """The verdict after its proof: the default stays where the winner did not stand it.

    A person's evaluation that could not judge does not speak against the winner, and the reason says that it does not speak for it.
    """
    if verdict.decision is not Decision.IMPROVED:
        return verdict
    found = loss(verdict.winner, trials, tolerance)
    if found is None:
        told = "; ".join([verdict.reason, *_not_evaluated(trials)])
        return verdict if told == verdict.reason else dataclasses.replace(verdict, reason=told)
    told = change(verdict.ratio.value, Objective(verdict.objective).maximise) if verdict.ratio else ""
    gain = f"gave {named(verdict.objective, told, bool(verdict.others))} but " if told else ""
    reason = f"{verdict.winner.label} {gain}{found.why}"
    return dataclasses.replace(verdict, decision=found.decision, reason=reason, winner=_BASELINE)


def unproven(verdict: Verdict) -> Verdict:
    """The verdict of a winner that took the place of one that lost its proof, when there is no time for another proof."""
    told = f"the budget leaves no time for the proof of {verdict.winner.label}: soak and second start"
    reason = f"{verdict.reason}; {told}"
    return dataclasses.replace(verdict, decision=Decision.INCONCLUSIVE, reason=reason, winner=_BASELINE)


def unjudged(winner: Candidate, trials: Sequence[Trial]) -> str:
    """Why nobody can tell whether the winner's output is right, as the end of a sentence about it; empty: it was judged."""
    soak = proof_trial(trials, SOAK, winner)
    if soak is None or (soak.gate and soak.gate.passed):
        return ""
    baseline = proof_trial(trials, "baseline", _BASELINE)
    own = baseline.gate.reason if baseline and baseline.gate and baseline.gate.passed is False else ""
    return f"its output could not be judged: {own or 'the server did not answer the fixed prompts'}"


def problem(winner: Candidate, trials: Sequence[Trial], tolerance: float) -> str:
    """What speaks against the winner so far, as the end of a sentence about it; empty: nothing."""
    soak, restart = proof_trial(trials, SOAK, winner), proof_trial(trials, RESTART, winner)
    evaluated = proof_trial(trials, QUALITY, _BASELINE)
    if soak is not None and (against := _soak_problem(soak, proof_trial(trials, "baseline", _BASELINE))):
        return against
    if against := _left_behind(winner, trials):
        return against
    if restart is not None and not restart.ok:
        return f"did not stand its second start, with the code that the first one compiled: {_ended(restart)}"
    if soak and soak.quality and evaluated and evaluated.quality:
        return quality_problem(evaluated.quality, soak.quality, tolerance)
    return ""


def remarks(winner: Candidate, trials: Sequence[Trial]) -> list[str]:
    """What the proof could not show, and should be said beside the verdict."""
    soak, found = proof_trial(trials, SOAK, winner), _not_evaluated(trials)
    if soak and soak.memory_free is None:
        found.append("free GPU memory was not looked at: NVML does not tell")
    return found


def _not_evaluated(trials: Sequence[Trial]) -> list[str]:
    """Why the quality command, if there is one, judged nobody."""
    evaluated = proof_trial(trials, QUALITY, _BASELINE)
    if evaluated and not evaluated.ok:
        return [f"the quality command judged nothing, since the default's launch for it ended as {_ended(evaluated)}"]
    own = baseline_problem(evaluated.quality) if evaluated and evaluated.quality else ""
    return [own] if own else []


def proof_trial(trials: Sequence[Trial], phase: str, candidate: Candidate) -> Trial | None:
    """The latest launch of that phase and candidate that was not interrupted."""
    found = (
        trial
        for trial in reversed(trials)
        if trial.phase == phase and trial.candidate.key == candidate.key and trial.outcome is not Outcome.INTERRUPTED
    )
    return next(found, None)


def _left_behind(winner: Candidate, trials: Sequence[Trial]) -> str:
    """A server that leaves processes behind blocks its own restart with their memory. Once is chance; often, unlike the
    default, is the candidate's doing."""
    theirs, own = (
        [trial for trial in trials if trial.candidate.key == candidate.key and trial.ok] for candidate in (winner, _BASELINE)
    )
    left = [trial.leftovers for trial in theirs if trial.leftovers]
    if len(left) < max(2, len(theirs) / 2) or any(trial.leftovers for trial in own):
        return ""
    return f"left processes behind at {len(left)} of {len(theirs)} stops, which had to be killed: {left[-1][0]}"


def _soak_problem(soak: Trial, baseline: Trial | None) -> str:
    if not soak.ok:
        return f"did not stand the soak: {_ended(soak)}"
    if len(soak.samples) > 1 and (faded := _faded(soak.samples)):
        return f"faded during the soak: {faded} from its first to its last quarter"
    usual = baseline.memory_free if baseline else None
    if soak.memory_free is not None and soak.memory_free < LEAST_FREE and (usual is None or usual >= LEAST_FREE):
        return f"left only {soak.memory_free:.1%} of the memory free"
    return ""


def _faded(samples: Sequence[Sample]) -> str:
    """By how much, or nothing. As many tokens a second as arrive come out of a slower server too, as long as it keeps up."""
    rates = _ends([sample.output_tok_s for sample in samples])
    if rates < 1 - FADING:
        return f"{percent(rates)} output tok/s"
    times = _ends([sample.e2el_ms["p50"] for sample in samples])
    return f"{percent(times)} E2EL p50" if all(s.in_flight for s in samples) and times > 1 + FADING_TIME else ""


def _ends(values: Sequence[float]) -> float:
    """The mean of the last quarter over that of the first."""
    quarter = max(1, len(values) // 4)
    return sum(values[-quarter:]) / sum(values[:quarter])


def _ended(trial: Trial) -> str:
    return f"{trial.outcome.value}: {trial.reason}"
