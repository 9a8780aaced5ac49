"""The last lines of a tune: seven at most, and nothing that a busy person needs is missing."""

from __future__ import annotations

import dataclasses

import pytest

from advisor.records import (
    Candidate,
    Command,
    Compared,
    Decision,
    Finalist,
    GateResult,
    Interval,
    Outcome,
    StartUp,
    Tradeoff,
    Verdict,
)
from advisor.report.summary import headline, summary
from advisor.verdict.sequential import EACH
from tests.profile.study_fixture import RESULT, keep_defaults
from tests.study_help import trial

GAIN = Interval(1.08, 1.06, 1.1)
FAST = Candidate({"x": "1"})
VERDICT = Verdict(
    Decision.IMPROVED, "x=1 gave +8%", "output_tok_s", FAST, FAST, GAIN, launches=3, noise=0.006, smallest_gain=0.019,
    baseline={"output_tok_s": Interval(100.0, 99.0, 101.0)}, tuned={"output_tok_s": Interval(108.0, 107.0, 109.0)},
)  # fmt: skip


def started(number, settings, phase, start_s, cache, passed=True):
    made = trial(number, settings, 100.0, phase=phase)
    return dataclasses.replace(made, start_s=start_s, start_up=StartUp(cache=cache), gate=GateResult(passed=passed))


TRIALS = (
    started(0, {}, "baseline", 99.0, "cold"), started(1, {}, "confirm", 55.0, "warm"),
    started(2, FAST.settings, "search", 120.0, "cold"), started(3, FAST.settings, "confirm", 60.0, "warm"),
)  # fmt: skip


def result(verdict=VERDICT, trials=TRIALS, **changes):
    return dataclasses.replace(RESULT, verdict=verdict, trials=trials, **changes)


def test_seven_lines_with_everything(tmp_path):
    lines = summary(result(random_weights=False), tmp_path / "p.yaml")
    assert len(lines) == 7
    assert lines[1] == (
        "output tok/s: default 100.0 ± 1.00, candidate 108.0 ± 1.00; launches of the default differ by 0.6%, "
        "a gain of 1.9% would have shown"
    )
    assert lines[2] == "start: default 1m39s cold, 55s warm; candidate 2m00s cold, 1m00s warm"
    assert lines[3] == "the candidate's answers to fixed prompts agree with the default's"
    assert "vllm serve" in lines[4] and lines[5].startswith("profile: ")
    assert lines[6].startswith("4 launches")


def test_a_gain_that_costs_says_so_in_the_same_line():
    worse = Tradeoff("tpot_ms.p50", Interval(1.27, 1.2, 1.3))
    line = headline(dataclasses.replace(VERDICT, tradeoffs=(worse,)))
    assert line.startswith("improved: x=1 gives +8.0% output tok/s") and line.endswith(", but TPOT p50 +27.0%")


def test_a_cost_that_is_not_proven_is_told_as_such():
    worse = (Tradeoff("tpot_ms.p50", Interval(1.27, 1.2, 1.3)), Tradeoff("output_tok_s", Interval(0.84, 0.7, 1.02), proven=False))
    line = headline(dataclasses.replace(VERDICT, tradeoffs=worse))
    assert line.endswith(", but TPOT p50 +27.0%, perhaps output tok/s -16.0%")


def test_a_time_that_got_shorter_has_a_minus():
    verdict = dataclasses.replace(VERDICT, objective="start_s", ratio=Interval(1.25, 1.0 / 0.9, 1.0 / 0.7))
    assert "gives -20.0% start-up time against the default (95% interval -30.0% to -10.0%, " in headline(verdict)
    assert "gives -20.0% TTFT p99 against" in headline(dataclasses.replace(verdict, objective="ttft_ms.p99"))


def test_a_change_of_a_time_that_would_have_shown_is_no_gain(tmp_path):
    """A quarter more of the speed is a fifth less of the time: both lines of an answer tell the same change."""
    verdict = dataclasses.replace(VERDICT, objective="ttft_ms.p50", baseline={}, tuned={}, smallest_gain=0.25)
    lines = summary(result(verdict), tmp_path / "p.yaml")
    assert lines[1] == "ms TTFT p50: launches of the default differ by 0.6%, a change of -20.0% would have shown"


def test_a_longer_start_is_a_cost_in_words():
    line = headline(dataclasses.replace(VERDICT, tradeoffs=(Tradeoff("start_s", Interval(4.0, 3.0, 5.0)),)))
    assert line.endswith(", but start-up time +300.0%")


def test_the_larger_of_two_costs_of_a_kind_is_named():
    """A small one that is proven does not hide a large one that is not."""
    worse = (Tradeoff("ttft_ms.p50", Interval(1.03, 1.02, 1.04)), Tradeoff("ttft_ms.p99", Interval(1.8, 0.9, 3.0), proven=False))
    assert headline(dataclasses.replace(VERDICT, tradeoffs=worse)).endswith(", but perhaps TTFT p99 +80.0%")


def test_many_costs_are_counted():
    """Once each: two percentiles of one figure, and TPOT and ITL, are one cost, named by the worst."""
    figures = ("ttft_ms.p99", "ttft_ms.p50", "tpot_ms.p50", "itl_ms.p50", "e2el_ms.p50", "start_s")
    worse = tuple(Tradeoff(name, Interval(1.2, 1.1, 1.3)) for name in figures)
    line = headline(dataclasses.replace(VERDICT, tradeoffs=worse))
    assert line.endswith(", but TTFT p99 +20.0%, TPOT p50 +20.0%, E2EL p50 +20.0% and 1 more")


def test_a_start_with_nothing_to_compile_is_neither_cold_nor_warm(tmp_path):
    trials = tuple(dataclasses.replace(t, start_up=StartUp(cache=None)) if t.candidate == FAST else t for t in TRIALS)
    assert "start: default 1m39s cold, 55s warm; candidate 1m30s" in summary(result(trials=trials), tmp_path / "p.yaml")


def test_a_cold_start_that_was_only_seen_as_a_fork_is_said_to_be_missing(tmp_path):
    """Beside a candidate's cold start the reader looks for the default's: its warm one must not be taken for it."""
    trials = (dataclasses.replace(TRIALS[0], launcher="warm"), *TRIALS[1:])
    told = "start: default 55s warm, cold only as a fork; candidate 2m00s cold, 1m00s warm"
    assert told in summary(result(trials=trials), tmp_path / "p.yaml")


def test_a_default_whose_own_answers_are_wrong_is_named(tmp_path):
    own = "the baseline's own output is one token repeated"
    bad = dataclasses.replace(TRIALS[0], gate=GateResult(passed=False, reason=own))
    lines = summary(result(trials=(bad, *TRIALS[1:])), tmp_path / "p.yaml")
    assert any(own in line and "nothing was judged" in line for line in lines)


def test_wrong_answers_are_not_called_unjudged(tmp_path):
    """A candidate that fell by its answers was judged, and the two lines of an answer must not say otherwise."""
    far = "log-probabilities while decoding are 0.7 of their spread away"
    fell = dataclasses.replace(TRIALS[3], outcome=Outcome.WRONG_OUTPUT, gate=GateResult(passed=False, reason=far))
    lines = summary(result(trials=(*TRIALS[:3], fell), random_weights=False), tmp_path / "p.yaml")
    assert f"the candidate's answers to fixed prompts are not the default's: {far}" in lines


def test_answers_that_tell_little_are_not_called_equal_without_a_word(tmp_path):
    blind = GateResult(passed=True, notes=("rounding hides what the context does to these answers: an error ...",))
    trials = tuple(dataclasses.replace(item, gate=blind) for item in TRIALS)
    lines = summary(result(trials=trials, random_weights=False), tmp_path / "p.yaml")
    told = "agree with the default's, as far as they tell: rounding hides what the context does to these answers"
    assert f"the candidate's answers to fixed prompts {told}" in lines


def test_what_else_is_known_of_a_gain_is_in_its_line():
    more = "2 of 6 fresh launches were disturbed (steal)"
    line = headline(dataclasses.replace(VERDICT, reason=f"x=1 gave +8.0% (95% interval a to b, 3 {EACH}; {more}"))
    assert line.endswith(f"3 {EACH}; {more}") and line.count(EACH) == 1


def test_the_noise_is_told_where_the_candidate_failed(tmp_path):
    verdict = dataclasses.replace(
        VERDICT, decision=Decision.KEEP_DEFAULTS, winner=Candidate(), ratio=None, baseline={}, tuned={}, smallest_gain=None
    )
    lines = summary(result(verdict), tmp_path / "p.yaml")
    assert lines[1] == "output tok/s: launches of the default differ by 0.6%"


def test_a_noise_that_was_not_measured_is_said(tmp_path):
    """Every candidate was dropped: the default was launched once, and nobody knows how lucky that was."""
    kept = Verdict(Decision.KEEP_DEFAULTS, "no candidate could win: x=1 was dropped", "output_tok_s", Candidate())
    lines = summary(result(kept), tmp_path / "p.yaml")
    assert lines[1] == "output tok/s: what launches of the default differ by was not measured"


LONG = "x=1 failed when launched afresh: crashed: Traceback\n  File a\r\n" + "line of a log, " * 100
ENDINGS = {
    "improved": VERDICT,
    "several objectives": dataclasses.replace(
        VERDICT, others=(Compared("ttft_ms.p99", "same", GAIN), Compared("start_s", "unclear")), reason=LONG
    ),
    "costs": dataclasses.replace(
        VERDICT, tradeoffs=tuple(Tradeoff(f"ttft_ms.p{n}", Interval(1.2, 1.1, 1.3)) for n in range(9))
    ),
    "a candidate that fails": dataclasses.replace(
        VERDICT, decision=Decision.KEEP_DEFAULTS, winner=Candidate(), ratio=None, reason=LONG
    ),
    "open": dataclasses.replace(VERDICT, decision=Decision.INCONCLUSIVE, winner=Candidate(), reason=LONG),
    "ties": dataclasses.replace(
        VERDICT, finalists=tuple(Finalist(Candidate({"x": n}), Decision.IMPROVED, LONG, 3, GAIN) for n in range(3))
    ),
    "nothing tried": Verdict(Decision.INCONCLUSIVE, "no other setting was tried", "output_tok_s", Candidate()),
}
BROKEN_LINES = Command(("python", "-m", "vllm", "vllm", "serve", "m", "--chat-template", "a\nb"), {"X": "1\n2"})


@pytest.mark.parametrize("name", ENDINGS)
@pytest.mark.parametrize("command", [RESULT.tuned_command, BROKEN_LINES], ids=["plain", "with line breaks"])
@pytest.mark.parametrize("trials", [TRIALS, ()], ids=["launches", "none"])
def test_every_ending_has_seven_lines_at_most(tmp_path, name, command, trials):
    lines = summary(result(ENDINGS[name], trials, tuned_command=command), tmp_path / "p.yaml")
    assert len(lines) <= 7 and not any(len(line.splitlines()) != 1 for line in lines)
    assert len(lines[0]) < 700 and lines[0].startswith(("improved", "keep-defaults", "inconclusive"))
    (served,) = [line for line in lines if line.startswith("serve with: ")]
    assert ("vllm serve" in served) != ("advisor export" in served)


def test_the_study_fixtures_have_seven_lines_at_most(tmp_path):
    for made in (RESULT, keep_defaults()):
        assert len(summary(made, tmp_path / "p.yaml")) <= 7
