"""Whole tunes with a `vllm` that can be forked and is the fake engine: what is forked, what never is, and what is told of it."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path

import pytest

from advisor import tune as pipeline
from advisor.progress import Silent
from advisor.report.summary import summary
from advisor.report.time_account import NAMES, OWN, time_account
from advisor.study import cold_start

from .test_tune import EAGER, SITE, children, install_fakes, request_for  # noqa: F401

pytestmark = pytest.mark.slow

WARM_SITE = Path(__file__).parent / "fakes" / "warm_site"


class Told(Silent):
    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


@pytest.fixture(autouse=True)
def fakes(monkeypatch):
    install_fakes(monkeypatch)


@pytest.fixture
def request_with(request_for):  # noqa: F811
    def make(site=WARM_SITE, **changes):
        request = request_for(EAGER, **{"trials": 1, **changes})
        return dataclasses.replace(request, serve_env={**request.serve_env, "PYTHONPATH": str(site)})

    return make


def launched(answer) -> dict[str, set[str]]:
    """Phase -> how its trials were launched, from the journal itself."""
    found: dict[str, set[str]] = {}
    for line in (answer.study_folder / "trials.jsonl").read_text().splitlines():
        trial = json.loads(line)["trial"]
        found.setdefault(trial["phase"], set()).add(trial["launcher"])
    return found


def accounts(study: Path) -> list[dict[str, float]]:
    return [json.loads(line)["seconds"] for line in (study / "time.jsonl").read_text().splitlines()]


def test_baseline_and_search_are_forked_and_all_that_is_reported_is_not(request_with):
    told = Told()
    answer = pipeline.tune(request_with(measure_all=True), told)
    assert launched(answer) == {"baseline": {"warm"}, "search": {"warm"}, "confirm": {"cold"}}
    waited = [trial.launcher_s for trial in answer.result.trials]
    assert waited[0] > 0 and not any(waited[1:])
    assert told.notes[-1].startswith("time: ") and "own overhead" in told.notes[-1]
    (account,) = accounts(answer.study_folder)
    assert tuple(account) == NAMES and account["measuring"] > 0 and account["stopping"] > 0
    assert sum(account.values()) > sum(trial.total_s for trial in answer.result.trials)  # it is the wall time
    # What each launch costs beside server and client; 2% of the 30 s that a forked trial of an 8B takes on an H200 are 0.6 s.
    own = statistics.median(time_account([trial], trial.total_s)[OWN] for trial in answer.result.trials)
    assert own < 0.3, own
    assert children() == []
    assert (answer.study_folder / "launcher.log").exists()


def compiling(request):
    return dataclasses.replace(request, serve_env={**request.serve_env, "FAKE_COMPILES": "1"})


def test_a_default_that_was_forked_is_started_once_from_empty_caches(request_with):
    """Its baseline compiled in a fork, its fresh launches found that code: neither is the cold start of a person's server."""
    answer = pipeline.tune(compiling(request_with(measure_all=True)), Silent())
    assert launched(answer)["baseline"] == {"warm"} and launched(answer)["cold-start"] == {"cold"}
    last = answer.result.trials[-1]
    assert last.candidate.is_baseline and last.ok and last.samples == () and last.start_up.cache == "cold"
    assert not (answer.study_folder / "cache-proof").exists()
    text = answer.profile_path.read_text()
    assert "cold-start: 1" in text and "start_cold: {launches: 1," in text
    (line,) = [line for line in summary(answer.result, answer.profile_path) if line.startswith("start: default ")]
    assert " cold, " in line and "only as a fork" not in line
    again = pipeline.tune(compiling(request_with(measure_all=True)), Silent())
    assert len(again.result.trials) == len(answer.result.trials)


def test_a_budget_without_room_for_it_leaves_the_cold_start_out_and_says_so(request_with, monkeypatch):
    told = Told()
    monkeypatch.setattr(cold_start, "cold_start_s", lambda trials: 1e6)
    answer = pipeline.tune(compiling(request_with()), told)
    assert "cold-start" not in launched(answer)
    assert any(note.startswith("the default's cold start was not measured: it takes about") for note in told.notes)


def test_cold_means_cold(request_with):
    answer = pipeline.tune(request_with(launcher="cold"), Silent())
    assert set().union(*launched(answer).values()) == {"cold"}
    assert not (answer.study_folder / "launcher.log").exists()


def test_where_starts_are_compared_nothing_is_forked(request_with):
    answer = pipeline.tune(request_with(objective="output_tok_s,start_s"), Silent())
    assert set().union(*launched(answer).values()) == {"cold"}


def test_a_study_goes_on_as_its_baseline_was_launched(request_with):
    pipeline.tune(request_with(trials=0, budget="0.1s"), Silent())
    answer = pipeline.tune(request_with(trials=1, launcher="cold"), Silent())
    assert launched(answer)["baseline"] == {"warm"} and launched(answer).get("search", {"warm"}) == {"warm"}


def test_a_vllm_that_cannot_be_forked_is_launched_cold_and_that_is_told_once(request_with):
    answer = pipeline.tune(request_with(site=SITE), Silent())
    assert set().union(*launched(answer).values()) == {"cold"}
    told = [note for trial in answer.result.trials for note in trial.notes if "launched cold" in note]
    assert len(told) == 1 and "vLLM cannot be imported" in told[0]
