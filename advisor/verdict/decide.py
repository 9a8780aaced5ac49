"""The verdict, from fresh launches of the baseline and one challenger. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.records import Candidate, Decision, Interval, Objective, Outcome, Trial, Verdict
from advisor.search.scores import score
from advisor.units import percent
from advisor.verdict.statistics import mean_interval, paired_ratio, relative_deviation

MIN_GAIN = 0.02  # a gain that is proven but smaller is not worth an override that has to be kept for years


def decide(
    trials: Sequence[Trial], challenger: Candidate | None, objective: Objective, min_launches: int = 3
) -> Verdict:
    """`improved` when the whole 95% interval of the ratio is above 1 and the gain is at least 2%.

    `keep-defaults` when the measured gain is below 2%, or nothing was there to confirm; `inconclusive` when a larger gain was
    seen but the interval holds 1, launches are missing, or no other setting was tried. Failures of the challenger count against it.
    """
    if challenger is None and not any(_was_tried(trial) for trial in trials):
        reason = "no other setting was tried, the budget or --trials ended the search before"
        return Verdict(Decision.INCONCLUSIVE, reason, objective.metric, winner=Candidate())
    if challenger is None:
        return _keep(objective, "no other setting started and measured well")
    rounds = {trial.round for trial in trials if trial.phase == "confirm"} - {None}
    arms = [_arm(trials, Candidate(), rounds), _arm(trials, challenger, rounds)]
    broken = next(
        (trial for trial in arms[1].values() if not trial.ok and trial.outcome is not Outcome.INTERRUPTED), None
    )
    if broken is not None:
        return _keep(
            objective,
            f"{challenger.label} failed when launched afresh: {broken.outcome.value}: {broken.reason}",
            challenger,
        )
    both = [number for number in sorted(rounds) if all(number in arm and arm[number].ok for arm in arms)]
    values = [[score(arm[number], objective) for number in both] for arm in arms]
    facts = {
        "objective": objective.metric,
        "challenger": challenger,
        "launches": len(both),
        "noise": relative_deviation(values[0]),
        "baseline": _named(objective, values[0]),
        "tuned": _named(objective, values[1]),
    }
    ratio = paired_ratio(values[0], values[1], objective.maximise)
    if ratio is None or len(both) < min_launches:
        reason = f"{len(both)} of {min_launches} pairs of fresh launches were measured"
        return Verdict(Decision.INCONCLUSIVE, reason, winner=Candidate(), ratio=ratio, **facts)
    decision, reason = _judge(ratio, challenger, len(both))
    winner = challenger if decision is Decision.IMPROVED else Candidate()
    return Verdict(decision, reason, winner=winner, ratio=ratio, **facts)


def _judge(ratio: Interval, challenger: Candidate, launches: int) -> tuple[Decision, str]:
    seen = f"{percent(ratio.value)} (95% interval {percent(ratio.low)} to {percent(ratio.high)}, {launches} fresh launches each)"
    if ratio.value < 1 + MIN_GAIN:
        return Decision.KEEP_DEFAULTS, f"the best candidate, {challenger.label}, gave {seen}: not worth an override"
    if ratio.low > 1:
        return Decision.IMPROVED, f"{challenger.label} gave {seen}"
    return (
        Decision.INCONCLUSIVE,
        f"{challenger.label} gave {seen}: the interval holds zero gain, more launches are needed",
    )


def _keep(objective: Objective, reason: str, challenger: Candidate | None = None) -> Verdict:
    return Verdict(Decision.KEEP_DEFAULTS, reason, objective.metric, winner=Candidate(), challenger=challenger)


def _was_tried(trial: Trial) -> bool:
    return trial.phase == "search" and trial.outcome is not Outcome.INTERRUPTED


def _arm(trials: Sequence[Trial], candidate: Candidate, rounds: set) -> dict[int, Trial]:
    """round -> the latest trial of this candidate in the confirmation."""
    return {
        trial.round: trial
        for trial in trials
        if trial.phase == "confirm" and trial.candidate.key == candidate.key and trial.round in rounds
    }


def _named(objective: Objective, values: Sequence[float]) -> dict[str, Interval]:
    interval = mean_interval(values)
    return {objective.metric: interval} if interval else {}
