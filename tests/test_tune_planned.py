"""A whole tune in which the search's capture lists are planned from the baseline's own count of its steps."""

from __future__ import annotations

import dataclasses

import pytest
import yaml

from advisor import tune as pipeline
from advisor.report.terminal import Lines
from advisor.space.capture_lists import NAMES, named_list
from tests.test_tune import fakes, request_for  # noqa: F401

pytestmark = pytest.mark.slow

SPACE = "settings: {cudagraph_capture_sizes: {values: [default, operating-point, powers-of-two, every-batch]}}"
SIZES = "cudagraph_capture_sizes"


def tuned(request):
    told: list[str] = []
    answer = pipeline.tune(request, Lines(told.append, request.objective, request.budget.total_s))
    return answer, told


def lists(result):
    return [tuple(trial.candidate.settings[SIZES]) for trial in result.trials if trial.phase == "search"]


def test_the_search_launches_planned_lists_and_a_study_that_goes_on_has_the_same(request_for):  # noqa: F811
    request = request_for(SPACE, serve_args="--cudagraph-metrics", trials=1)
    answer, told = tuned(request)
    assert any("capture lists planned from" in line and "(counted by the server)" in line for line in told)
    named = {tuple(named_list(name, request.workload.concurrency, 256, 8192)) for name in NAMES}
    (first,) = lists(answer.result)
    assert first not in named and first[-1] < 64  # the fake engine's batches are small
    text = answer.profile_path.read_text()
    again, _ = tuned(request)
    assert len(again.result.trials) == len(answer.result.trials) and answer.profile_path.read_text() == text
    rejected = yaml.safe_load(text)["study"]["rejected"]
    assert all(entry["state"] == "not_launched" for entry in rejected)
    more, _ = tuned(dataclasses.replace(request, budget=dataclasses.replace(request.budget, trials=2)))
    assert lists(more.result)[0] == first
