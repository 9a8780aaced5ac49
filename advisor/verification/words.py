"""A verification in a few lines, what differs in the machine first. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.records import Compared, Interval, Objective, Trial
from advisor.serving_profile.schema import OtherObjective, Profile
from advisor.units import duration, number
from advisor.verdict.fresh import BASELINE, fresh
from advisor.verdict.words import changed, unit
from advisor.verification.checks import FigureCheck
from advisor.verification.differences import Difference
from advisor.verification.figure import Held
from advisor.verification.judgement import Judgement, VerdictCheck, gain_told
from advisor.verification.slo import SloCheck

Further = Compared | OtherObjective  # as of now, and as a profile holds it

_END = {
    Held.HOLDS: "holds",
    Held.FAILS: "does not hold",
    Held.UNCLEAR: "inconclusive: these launches neither confirm the profile nor refute it",
}

_WIDE = 10.0  # an interval that reaches so many times as far tells nothing


def lines(
    profile: Profile,
    found: Sequence[Difference],
    judgement: Judgement,
    trials: Sequence[Trial],
    tolerance: float,
    ended: str = "",
) -> list[str]:
    """Differences, figures, SLO, verdict, output, notes, result: one line each."""
    told = [machine(profile, found)]
    told += [figure(check, tolerance) for check in judgement.figures]
    told += [slo(judgement.slo)] if judgement.slo else []
    told.append(verdict(judgement.verdict, profile.objective.better == "more", profile.decision.others or ()))
    told += [text for text in (output(profile, trials), *judgement.notes, ended) if text]
    spent = sum(trial.total_s for trial in trials)
    told.append(f"{_END[judgement.held]} ({len(trials)} launches in {duration(spent)})")
    return [" ".join(text.split()) for text in told]


def machine(profile: Profile, found: Sequence[Difference]) -> str:
    if found:
        return f"differs from the profile: {'; '.join(item.told for item in found)}"
    gpu, software = profile.gpu, profile.software
    driver = f", driver {gpu.driver}" if gpu.driver else ""
    return f"as in the profile: {gpu.name}{driver}, vLLM {software.vllm}, torch {software.torch}, the same config.json"


def figure(check: FigureCheck, tolerance: float) -> str:
    name = unit(check.metric)
    if not check.before.launches:
        return f"{check.side}: the profile has no figure of it"
    was = f"{check.side}: {number(check.before.mean)} {name} in the profile"
    if not check.now:
        return f"{was}, nothing measured here"
    mean = sum(check.now) / len(check.now)
    launches = f"{len(check.now)} launch{'es' if len(check.now) != 1 else ''}"
    if check.ratio is None:
        ends = {Held.HOLDS: "zero in both", Held.FAILS: "no longer zero", Held.UNCLEAR: "whether it is still zero is open"}
        end = "too few for an interval" if check.before.mean else ends[check.held]
        return f"{was}, {number(mean)} here ({launches}): {end}"
    if check.ratio.high > _WIDE * check.ratio.value:
        return f"{was}, {number(mean)} here ({launches}): too few and too scattered for an interval"
    limit = _limit(check.tolerance or tolerance, tolerance)
    ends = {Held.HOLDS: f"agrees within {limit}", Held.FAILS: f"differs by more than {limit}"}
    end = ends.get(check.held) or f"whether it agrees within {limit} is open{_more(check)}"
    return f"{was}, {number(mean)} here ({launches}): {gain_told(check.ratio)}, {end}"


def _limit(tolerance: float, asked: float) -> str:
    """`5%`, or `10% (5%, and a step of the load search)`."""
    own = f"{tolerance * 100:.3g}%"
    return own if tolerance == asked else f"{own} ({asked * 100:.3g}%, and a step of the load search)"


def slo(check: SloCheck) -> str:
    """`SLO: met by the default in all 3 launches; in the profile 99.8% of the requests were within every limit`."""
    was = "" if check.percent is None else f"; in the profile {check.percent:.4g}% of the requests were within every limit"
    if not check.launches:
        return f"SLO: nothing measured here{was}"
    if not check.broken:
        return f"SLO: met by {_served(check)} in all {check.launches} launches{was}"
    missed = f"missed by {_served(check)} in {len(check.broken)} of {check.launches} launches ({check.broken[0]})"
    ends = {Held.FAILS: "no longer met", Held.UNCLEAR: "whether it is still met is open", None: "not claimed"}
    then = {True: "met then", False: "missed then, too", None: "whether that met it is not known"}[check.before]
    return f"SLO: {missed}{was}, {then}: {ends[check.held]}" if was else f"SLO: {missed}"


def _served(check: SloCheck) -> str:
    return "the default" if check.side == "default" else "the recommendation"


def _more(check: FigureCheck) -> str:
    return f"; about {check.needed} launches would tell" if check.needed else ""


def verdict(check: VerdictCheck, maximise: bool = True, others: Sequence[Further] = ()) -> str:
    """`others`: the profile's objectives after the first, of which one may be all that gained."""
    was = check.before.value
    was += f", {_gains(check.ratio_before, others, maximise)} in the profile" if check.ratio_before else ""
    if check.verdict is None:
        return f"verdict: {was}; {check.why}"
    now = check.verdict
    gains = _gains(now.ratio, now.others, maximise) if now.ratio else ""
    here = f"here {gains}, {now.launches} fresh launches each" if gains else f"here: {now.reason}"
    return f"verdict: {was}; {here}: {check.why}"


def _gains(first: Interval, others: Sequence[Further], maximise: bool) -> str:
    further = [f"{changed(item.metric)} {gain_told(item.ratio, Objective(item.metric).maximise)}" for item in others if item.ratio]
    return ", ".join([gain_told(first, maximise), *further])


def output(profile: Profile, trials: Sequence[Trial]) -> str:
    """What is known of the answers to the fixed prompts."""
    weights = "random weights; " if profile.model.random_weights else ""
    gates = [trial.gate for trial in trials if trial.gate and not trial.candidate.is_baseline]
    if gates and all(gate.passed for gate in gates):
        return f"output: {weights}answers to fixed prompts agree with the default's"
    wrong = [gate.reason for gate in gates if gate.passed is False]
    if wrong:
        return f"output: {weights}wrong: {wrong[0]}"
    own = [trial.gate for trial in fresh(trials, BASELINE).values() if trial.gate]
    if gates or not own:
        return f"output: {weights}not judged{f': {gates[-1].reason}' if gates else ''}"
    good = "the default's answers to fixed prompts agree among its launches" if all(g.passed for g in own) else ""
    return f"output: {weights}{good}" if good else ""
