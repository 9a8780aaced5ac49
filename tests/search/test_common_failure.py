"""Which failures in a row end a study, and with which words; and which do not."""

from __future__ import annotations

import dataclasses

import pytest

from advisor.errors import LaunchesFailed
from advisor.records import Invalid, Outcome
from advisor.search.common_failure import check_common_failure
from tests.study_help import sample, trial


def failed(number, reason="port 8000 refused", settings=None, outcome=Outcome.FAILED_TO_START):
    return trial(number, settings or {"a": number}, outcome=outcome, reason=reason)


def invalid(number, kind, text, settings=None):
    bad = dataclasses.replace(sample(0, 100.0, problems=(text,)), classes=(kind,))
    done = failed(number, f"{kind.value}: {text}", settings, Outcome.INVALID_MEASUREMENT)
    return dataclasses.replace(done, samples=(bad,))


GOOD = [trial(1, {"a": 1}, 100.0)]


def test_four_in_a_row_end_the_study_although_others_worked():
    with pytest.raises(LaunchesFailed, match="4 candidates in a row ended as failed_to_start: port 12 refused"):
        check_common_failure([*GOOD, *(failed(n, f"port {n}2 refused") for n in (1, 2, 3, 4))])


def test_invalid_measurements_of_one_class_end_it_with_that_class():
    row = [invalid(n, Invalid.JIT_COMPILED, f"Triton kernel k{n} was compiled") for n in range(4)]
    with pytest.raises(LaunchesFailed, match="in a row ended as invalid_measurement: jit-compiled: Triton kernel k0"):
        check_common_failure([*GOOD, *row])


@pytest.mark.parametrize(
    "row",
    [
        [failed(n) for n in range(3)],
        [failed(0), failed(1), *GOOD, failed(2), failed(3)],
        [failed(0), failed(1, "CUDA out of memory"), failed(2), failed(3)],
        [invalid(0, Invalid.TOO_SHORT, "short"), *(invalid(n, Invalid.PREEMPTIONS, "storm") for n in (1, 2, 3))],
        [failed(n, settings={"a": n, "backend": "X"}) for n in range(7)],  # the setting that they share may be the cause
    ],
)
def test_fewer_mixed_or_explained_failures_do_not(row):
    check_common_failure([*GOOD, *row])


def test_a_shared_setting_only_buys_patience():
    with pytest.raises(LaunchesFailed, match="8 candidates in a row"):
        check_common_failure([*GOOD, *(failed(n, settings={"a": n, "backend": "X"}) for n in range(8))])


def test_interrupted_trials_neither_count_nor_break_the_row():
    stopped = failed(9, "stopped by the person", outcome=Outcome.INTERRUPTED)
    with pytest.raises(LaunchesFailed, match="the first 4 candidates all ended"):
        check_common_failure([failed(0), failed(1), stopped, failed(2), failed(3), stopped])
