"""The parts of a profile that say why its verdict can be trusted: finalists, costs, the output gate, the proof. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from advisor.records import Decision, GateResult, Interval, StudyResult, Trial, Verdict
from advisor.serving_profile.schema import Cost, FinalistEntry, OtherObjective, Output, OutputSides, Proof
from advisor.serving_profile.values import Ratio
from advisor.verdict.proof import QUALITY, RESTART, SOAK, proof_trial

Clean = Callable[[str], str]


def costs(verdict: Verdict) -> list[Cost]:
    return [
        Cost(metric=item.metric, ratio=_ratio(item.ratio), proven=None if item.proven else False, load=item.load)
        for item in verdict.tradeoffs
    ]


def finalists(verdict: Verdict, clean: Clean) -> list[FinalistEntry]:
    return [
        FinalistEntry(
            candidate=clean(item.candidate.label),
            outcome=item.decision,
            launches=item.launches,
            ratio=_ratio(item.ratio) if item.ratio else None,
            failed=clean(item.failed) or None,
        )
        for item in verdict.finalists
    ]


def others(verdict: Verdict) -> list[OtherObjective]:
    """The objectives after the first, in their order."""
    return [
        OtherObjective(
            metric=item.metric, standing=item.standing, ratio=_ratio(item.ratio) if item.ratio else None
        )
        for item in verdict.others
    ]


def output_sides(launches: Mapping[str, Sequence[Trial]], clean: Clean) -> OutputSides | None:
    """The latest judgement of each side: the baseline's was then known best. None where nothing was asked."""
    judged = {name: next((trial.gate for trial in reversed(arm) if trial.gate), None) for name, arm in launches.items()}
    found = {name: _output(gate, clean) for name, gate in judged.items() if gate}
    return OutputSides(**found) if found else None


def _output(gate: GateResult, clean: Clean) -> Output:
    return Output(
        passed=gate.passed,
        reason=clean(gate.reason) or None,
        distance=dict(gate.distance) or None,
        limit=dict(gate.limit) or None,
        noise=dict(gate.noise) or None,
        equal_text=gate.agreement,
        notes=[clean(note) for note in gate.notes] or None,
    )


def proof_part(result: StudyResult) -> Proof | None:
    """Of a winner that was proven; None where nothing new is recommended."""
    winner = result.verdict.winner
    soak, restart = (proof_trial(result.trials, phase, winner) for phase in (SOAK, RESTART))
    if result.verdict.decision is not Decision.IMPROVED or soak is None or not soak.samples:
        return None
    evaluated = proof_trial(result.trials, QUALITY, type(winner)())
    return Proof(
        soak_s=sum(sample.duration_s for sample in soak.samples),
        soak_samples=len(soak.samples),
        output_tok_s_first=soak.samples[0].output_tok_s,
        output_tok_s_last=soak.samples[-1].output_tok_s,
        memory_free_percent=None if soak.memory_free is None else soak.memory_free * 100,
        cold_start_s=soak.start_s,
        second_start_s=restart.start_s if restart else None,
        quality=soak.quality.score if soak.quality else None,
        quality_default=evaluated.quality.score if evaluated and evaluated.quality else None,
    )


def _ratio(interval: Interval) -> Ratio:
    return Ratio(value=interval.value, low=interval.low, high=interval.high)
