"""Which trials belong to the sitting that goes on."""

from __future__ import annotations

import dataclasses

import pytest

from advisor.study.sitting import first_of_sitting
from tests.study_help import trial


def at(number: int, time: str, total_s: float = 60.0):
    return dataclasses.replace(trial(number, {}, 100.0, total_s=total_s), started_at=f"2026-11-30T{time}+00:00")


MORNING = [at(0, "08:00:00"), at(1, "08:01:00")]


@pytest.mark.parametrize(
    ("trials", "now", "first"),
    [
        ([], "08:00:00", 0),
        (MORNING, "08:02:05", 0),
        (MORNING, "08:11:59", 0),  # within ten minutes of its end
        (MORNING, "08:12:01", 2),
        ([*MORNING, at(2, "09:00:00"), at(3, "09:01:00")], "09:02:00", 2),
        ([*MORNING, at(2, "08:02:00", total_s=3000.0)], "08:55:00", 0),  # a long launch is no break
        ([dataclasses.replace(MORNING[0], started_at=""), MORNING[1]], "08:02:00", 1),
        ([dataclasses.replace(MORNING[0], started_at="2026-11-30T08:00:00")], "08:02:00", 1),  # without a zone
    ],
)
def test_a_sitting_ends_with_a_break(trials, now, first):
    assert first_of_sitting(trials, f"2026-11-30T{now}+00:00") == first
