"""What a person reads while a study runs and when it ends."""

import dataclasses

import pytest

from advisor.records import (
    Candidate,
    Command,
    Compared,
    Decision,
    Interval,
    Objective,
    Outcome,
    Rejection,
    SloLimit,
    Verdict,
)
from advisor.report.plan import plan_lines
from advisor.report.summary import headline, launches, unit
from advisor.report.terminal import Lines, trial_line
from advisor.verdict.words import figure
from tests.study_help import trial

THROUGHPUT = Objective()


def test_lines_of_trials():
    ok = trial_line(trial(3, {"enforce_eager": True}, 50.0), 50.0, 100.0, THROUGHPUT)
    assert ok == "     3 search   50.00 output tok/s -50.0%  [1m00s]  enforce_eager"
    latency = trial_line(trial(4, {"--a": 1}, 50.0), 8.0, 10.0, Objective("tpot_ms.p50"))
    assert "8.00 ms TPOT p50 -20.0%" in latency
    failed = trial(5, {"--a": 1}, outcome=Outcome.OUT_OF_MEMORY, reason="during graph capture")
    assert "out_of_memory: during graph capture" in trial_line(failed, None, 100.0, THROUGHPUT)


FALLEN_BACK = dataclasses.replace(
    trial(6, {"attention_backend": "X"}, 120.0, outcome=Outcome.NOT_AS_REQUESTED, reason="X was asked for, Y runs"),
    credited_to=Candidate({"attention_backend": "Y"}),
    notes=("attention backend: resolved X, active Y", "seed 0 was not valid: why", "3", "4"),
)


def test_a_launch_with_other_settings_is_named_with_whose_figure_it_is():
    line = trial_line(FALLEN_BACK, None, 100.0, THROUGHPUT)
    told = (
        "not_as_requested: X was asked for, Y runs; 120.0 output tok/s +20.0% count for attention_backend=Y, which ran"
    )
    assert told in line and line.endswith("  attention_backend=X")
    back = dataclasses.replace(FALLEN_BACK, credited_to=Candidate())
    assert "; 120.0 output tok/s count for default, which ran" in trial_line(back, None, 100.0, THROUGHPUT)
    nobody = dataclasses.replace(FALLEN_BACK, credited_to=None)
    assert "Y runs  [" in trial_line(nobody, None, 100.0, THROUGHPUT)


def test_its_figure_can_be_the_best_and_its_notes_are_told():
    told = []
    lines = Lines(told.append, THROUGHPUT, 600)
    lines.trial_ended(FALLEN_BACK, None, 100.0)
    assert lines.best == (120.0, "attention_backend=Y")
    assert told[1:] == [
        "       note: attention backend: resolved X, active Y", "       note: seed 0 was not valid: why", "       note: 3",
    ]  # fmt: skip


def test_it_is_no_failure_in_the_end():
    done = [trial(0, {}, 1.0), FALLEN_BACK, trial(2, {}, outcome=Outcome.CRASHED)]
    assert launches(done, 75) == "3 launches in 1m15s, 1 of them failed, 1 ran with other settings than asked for"


def test_status_tells_budget_wait_and_best():
    clock = iter([0.0, 5.0, 63.0, 75.0, 80.0])
    lines = Lines(lambda text: None, THROUGHPUT, 600, lambda: next(clock))
    lines.stage("inspect")
    assert lines.status() == [
        "elapsed 5.0s, 10m00s of 10m00s budget left",
        "inspect",
        "best so far: nothing measured yet",
    ]
    lines.resumed(120.0)
    lines.trial_started(1, "search", Candidate({"--a": 1}))
    lines.waiting("loading the model", 12.0)
    assert lines.status()[:2] == [
        "elapsed 1m15s, 7m48s of 10m00s budget left",
        "trial 1 (search), loading the model (12s): --a=1",
    ]
    lines.trial_ended(trial(1, {"--a": 1}, 110.0), 110.0, 100.0)
    assert lines.status() == [
        "elapsed 1m20s, 7m00s of 10m00s budget left",
        "inspect",
        "best so far: 110.0 output tok/s (+10.0%) with --a=1",
    ]


def test_a_confirmation_launch_is_not_the_best_of_the_search():
    lines = Lines(lambda text: None, THROUGHPUT, 600)
    lines.trial_ended(trial(9, {}, 500.0, phase="confirm"), 500.0, 100.0)
    assert lines.best is None


def test_requests_in_flight_are_counted():
    assert figure("max_concurrency", 12.0) == "12 requests in flight within the SLO"
    assert figure("max_concurrency", 12.5) == "12.50 requests in flight within the SLO"
    assert figure("max_rate", 12.0) == "12.00 requests/s arriving within the SLO"


def test_headlines():
    candidate = Candidate({"--a": 1})
    gain = Verdict(Decision.IMPROVED, "r", "output_tok_s", candidate, candidate, Interval(1.2, 1.1, 1.3), launches=3)
    assert headline(gain) == (
        "improved: --a=1 gives +20.0% output tok/s against the default (95% interval +10.0% to +30.0%, 3 fresh launches each)"
    )
    assert headline(Verdict(Decision.KEEP_DEFAULTS, "why", "x", Candidate())) == "keep-defaults: why"
    assert "keep the defaults for now: why" in headline(Verdict(Decision.INCONCLUSIVE, "why", "x", Candidate()))
    assert unit("e2el_ms.mean") == "ms E2EL mean"


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("goodput", "requests/s within the SLO"),
        ("start_s", "s to start"),
        ("max_concurrency", "requests in flight within the SLO"),
        ("max_rate", "requests/s arriving within the SLO"),
        ("itl_ms.p90", "ms ITL p90"),
    ],
)
def test_units(metric, words):
    assert unit(metric) == words


def test_an_improvement_by_more_than_the_first_figure_is_told_by_its_reason():
    candidate = Candidate({"--a": 1})
    by_slo = Verdict(
        Decision.IMPROVED, "meets the SLO", "output_tok_s", candidate, candidate, Interval(0.97, 0.96, 0.98)
    )
    assert headline(by_slo) == "improved: meets the SLO"
    both = Verdict(
        Decision.IMPROVED, "gave both", "output_tok_s", candidate, candidate, Interval(1.2, 1.1, 1.3),
        others=(Compared("ttft_ms.p99", "same", Interval(1.0, 0.9, 1.1)),),
    )  # fmt: skip
    assert headline(both) == "improved: gave both"


def test_a_launch_that_a_person_stopped_is_no_failure():
    done = [trial(0, {}, 1.0), trial(1, {}, outcome=Outcome.CRASHED), trial(2, {}, outcome=Outcome.INTERRUPTED)]
    assert launches(done, 75) == "3 launches in 1m15s, 1 of them failed, 1 interrupted"
    assert launches(done[:1], 9) == "1 launch in 9.0s"


def test_plan_tells_commands_and_reasons():
    commands = [(Candidate(), Command(("py", "-m", "x", "serve", "m", "--a", "b c"), {"V": "1 2"}))]
    dropped = [Rejection(Candidate(), "why"), Rejection(Candidate(), "why"), Rejection(Candidate(), "other")]
    assert plan_lines(commands, dropped) == [
        "   0  V='1 2' vllm serve m --a 'b c'",
        "dropped   2  why",
        "dropped   1  other",
    ]


def test_what_breaks_the_slo_says_so_and_is_not_the_best_so_far():
    objective = Objective("output_tok_s", ("tpot_ms.p50",), (SloLimit("ttft_ms", 500, 0.99),))

    def launch(number, settings, tok_s, within):
        made = trial(number, settings, tok_s)
        samples = [dataclasses.replace(item, slo_within={"ttft_p99<500ms": within}) for item in made.samples]
        return dataclasses.replace(made, samples=tuple(samples))

    told = []
    lines = Lines(told.append, objective, 600)
    lines.trial_ended(launch(1, {"--a": 1}, 200.0, 0.9), 200.0, 100.0)
    assert lines.best is None and "(breaks the SLO: ttft_p99<500ms: 90.0% of the requests are within 500 ms)" in told[0]
    assert "200.0 output tok/s +100.0%, 10.00 ms TPOT p50" in told[0]
    lines.trial_ended(launch(2, {"--a": 2}, 110.0, 1.0), 110.0, 100.0)
    assert lines.best == (110.0, "--a=2") and "breaks" not in told[1]
