"""The launcher of a recording is begun with the inspection, where a launch is lacking."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from advisor.progress import Silent
from advisor.recording import record as recording
from advisor.recording.grid import read_grid
from advisor.recording.record import Wish, record
from advisor.records import FirstFacts
from advisor.study import ahead, setup
from tests.test_tune import FACTS, FakeResolution, children, fakes, request_for  # noqa: F401

pytestmark = pytest.mark.slow

WARM_SITE = Path(__file__).parents[1] / "fakes" / "warm_site"


@pytest.fixture
def go(request_for, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(recording, "Resolution", FakeResolution)
    monkeypatch.setattr(ahead, "usable_cores", lambda: 16)
    begun = []

    def inspect(*arguments):
        arguments[-1](FirstFacts(FACTS.gpu, FACTS.model))
        begun.append([process.pid for process in children()])
        return FACTS

    monkeypatch.setattr(setup, "inspect_all", inspect)

    def run(configs=None, shard=None):
        space = "settings: {enforce_eager: {values: [default, true]}}"
        request = request_for(space, objective=None, budget="1h", client_processes=1)
        more = {"PYTHONPATH": str(WARM_SITE), "FAKE_IMPORTS": str(tmp_path / "imports")}
        request = dataclasses.replace(request, serve_env={**request.serve_env, **more})
        grid = read_grid(record(request, Wish(tmp_path / "grid.jsonl", configs, 1, shard, True), Silent()).path)
        return grid.trials, begun.pop()

    return run


def test_it_imports_once_and_beside_the_inspection(go, tmp_path):
    trials, begun = go()
    assert [trial.launcher for trial in trials] == ["warm", "warm"]
    assert (tmp_path / "imports").read_text().split() == [str(pid) for pid in begun] and len(begun) == 1
    assert [trial.launcher_import_s is not None for trial in trials] == [True, False]
    assert children() == []


def test_a_grid_that_lacks_nothing_begins_none(go, monkeypatch):
    assert len(go(configs=1)[1]) == 1
    with monkeypatch.context() as patch:
        patch.setattr(ahead, "Launcher", None)  # which cannot be called
        assert len(go(configs=1)[0]) == 1
    assert len(go()[1]) == 1  # and one that lacks some does


def test_the_launcher_of_a_part_is_the_one_that_it_uses(go, tmp_path):
    """A part has a folder, and so caches, of its own."""
    trials, begun = go(shard=(1, 2))
    assert [trial.launcher for trial in trials][-1] == "warm"
    assert (tmp_path / "imports").read_text().split() == [str(pid) for pid in begun]
