"""Where the wall time of a tune went: every second in one place, and what is nobody else's is our own."""

import pytest

from advisor.records import Candidate, Outcome, StartUp, Trial
from advisor.report.time_account import NAMES, OWN, own_share, time_account, time_line

START = StartUp("warm", imports_s=45.0, load_s=3.0, compile_s=4.0, capture_s=2.0, kernels_s=1.0, rest_s=5.0)


def trial(**fields):
    known = {
        "start_s": 60.0, "start_up": START, "warmup_s": 5.0, "measure_s": 12.0, "checks_s": 1.0, "stop_s": 2.0, "total_s": 80.5,
    }  # fmt: skip
    return Trial(0, "search", Candidate(), Outcome.OK, **{**known, **fields})


def test_every_second_is_in_one_place():
    account = time_account([trial(), trial()], 200.0)
    assert tuple(account) == NAMES
    assert sum(account.values()) == pytest.approx(200.0)
    assert account["imports"] == 90.0 and account["kernel builds"] == 2.0 and account["other start-up"] == 10.0
    assert account["measuring"] == 26.0  # the fixed prompts are part of it
    assert account[OWN] == pytest.approx(200.0 - 2 * 80.0)
    assert own_share(account) == pytest.approx(0.2)


def test_a_forked_launch_has_the_launchers_imports_only():
    forked = trial(launcher="warm", launcher_s=30.0, start_s=15.0, start_up=StartUp(None, load_s=3.0, rest_s=12.0), total_s=66.0)
    account = time_account([forked], 66.0)
    assert account["imports"] == 30.0
    assert account["load"] == 3.0 and account["other start-up"] == 12.0
    assert account[OWN] == pytest.approx(1.0)


def test_imports_that_went_on_beside_the_inspection_are_counted_once():
    """The launcher's 30 s began in the inspection; the launch waited for the last 4 of them. Wall time has no more than that."""
    forked = trial(
        launcher="warm", launcher_s=4.0, launcher_import_s=30.0, start_s=15.0, start_up=StartUp(None, load_s=3.0, rest_s=12.0),
        total_s=40.0,
    )  # fmt: skip
    account = time_account([forked], 72.0, inspection_s=25.0)
    assert account["imports"] == 25.0 + 4.0
    assert account[OWN] == pytest.approx(72.0 - 25.0 - 39.0) and sum(account.values()) == pytest.approx(72.0)


def test_imports_of_the_inspection_are_imports():
    account = time_account([trial()], 110.0, inspection_s=25.0)
    assert account["imports"] == 25.0 + 45.0 and account[OWN] == pytest.approx(5.0)
    assert sum(account.values()) == pytest.approx(110.0)


def test_a_launch_that_never_answered_is_one_sum():
    failed = Trial(1, "search", Candidate(), Outcome.TIMED_OUT, "no sign of life", total_s=50.0, launcher_s=20.0)
    account = time_account([failed], 51.0)
    assert account["failed starts"] == 30.0 and account["imports"] == 20.0
    assert account[OWN] == pytest.approx(1.0)


def test_a_start_that_failed_before_the_one_that_counts_is_not_our_own():
    account = time_account([trial(lost_s=30.0, total_s=110.5)], 110.5)
    assert account["failed starts"] == 30.0 and account[OWN] == pytest.approx(0.5)


def test_parts_that_a_log_rounds_up_do_not_make_more_than_the_start_was():
    account = time_account([trial(start_s=50.0, total_s=70.0)], 70.0)
    assert sum(seconds for name, seconds in account.items() if name in NAMES[:6]) == pytest.approx(50.0)
    assert account[OWN] == pytest.approx(0.0)


def test_an_older_journal_has_no_parts():
    """Its starts were the servers' all the same, not our own."""
    account = time_account([trial(start_up=None, checks_s=None, warmup_s=None)], 80.0)
    assert account["measuring"] == 12.0 and account["other start-up"] == 60.0
    assert account[OWN] == pytest.approx(80.0 - 60.0 - 12.0 - 2.0)


def test_the_line_is_one_and_leaves_out_what_took_no_time():
    line = time_line(time_account([trial(start_up=StartUp(None, imports_s=45.0, rest_s=15.0))], 81.0))
    assert line == (
        "time: 1m21s of wall: imports 45s, other start-up 15s, warm-up 5.0s, measuring 13s, stopping 2.0s, own overhead 1.0s (1.2%)"
    )
