"""benchmarks/launcher.py: its file grows launch by launch, and a configuration that fails costs nobody else anything."""

from __future__ import annotations

import json
import os
import signal
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from advisor.launch.failure import LaunchFailed
from advisor.records import Outcome
from benchmarks import launcher
from benchmarks.launcher import Bench, NotForked, Results, Start, run, table

from .conftest import CPU


class Stub:
    """Launches that take as long as `seconds` says; an exception there is raised, of a list the next one counts."""

    def __init__(self, path: Path, seconds):
        self.path, self.seconds, self.seen = path, seconds, []
        self.warm = SimpleNamespace(import_s=0.0)

    def launch(self, config, how):
        self.seen.append((config, how, json.loads(self.path.read_text()) if self.path.exists() else None))
        answer = self.seconds[config, how]
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer if isinstance(answer, Start) else Start(answer)


SECONDS = {("default", "cold"): 80.0, ("default", "warm"): 30.0, ("eager", "cold"): 55.0, ("eager", "warm"): 7.5}


def test_the_file_is_there_after_each_launch_and_the_first_of_each_configuration_does_not_count(tmp_path):
    path = tmp_path / "starts.json"
    bench = Stub(path, SECONDS)
    run(bench, ["eager", "default"], 2, True, Results(path, "M"))
    turns = ["warm", "cold", "warm", "cold", "warm"]
    assert [seen[:2] for seen in bench.seen] == [(config, how) for config in ("eager", "default") for how in turns]
    assert bench.seen[1][2] is None and bench.seen[2][2] == {"M": {"eager": {"cold_s": [55.0], "warm_s": []}}}
    assert json.loads(path.read_text()) == {
        "M": {"eager": {"cold_s": [55.0] * 2, "warm_s": [7.5] * 2}, "default": {"cold_s": [80.0] * 2, "warm_s": [30.0] * 2}}
    }


def test_a_failing_configuration_is_left_and_the_others_go_on(tmp_path, capsys):
    path = tmp_path / "starts.json"
    failing = LaunchFailed(Outcome.FAILED_TO_START, "no such backend")
    seconds = {**SECONDS, ("default", "cold"): failing, ("default", "warm"): NotForked("launched cold: CUDA")}
    bench = Stub(path, seconds)
    run(bench, ["default", "eager"], 3, False, Results(path, "M"))
    assert json.loads(path.read_text()) == {"M": {"eager": {"cold_s": [55.0] * 3, "warm_s": [7.5] * 3}}}
    told = capsys.readouterr().err
    assert "M default cold: failed_to_start: no such backend" in told and "M default warm: launched cold: CUDA" in told
    assert len(bench.seen) == 2 + 6


def test_a_start_that_compiled_anew_is_none_on_filled_caches(tmp_path, capsys):
    path = tmp_path / "starts.json"
    compiling = Start(211.0, compiled=True)
    bench = Stub(path, {**SECONDS, ("default", "cold"): [compiling, Start(80.0)]})
    run(bench, ["default"], 2, False, Results(path, "M"))
    assert json.loads(path.read_text())["M"]["default"] == {"cold_s": [80.0] * 2, "warm_s": [30.0] * 2}
    assert "M default cold: 211.00 s (compiled anew: does not count)" in capsys.readouterr().err


def test_cold_and_forked_may_each_compile_once(tmp_path):
    """On the CPU build they share no compiled code."""
    path = tmp_path / "starts.json"
    seconds = {("default", how): [Start(90.0, compiled=True), Start(15.0)] for how in ("cold", "warm")}
    run(Stub(path, seconds), ["default"], 1, False, Results(path, "M"))
    assert json.loads(path.read_text())["M"]["default"] == {"cold_s": [15.0], "warm_s": [15.0]}


def test_a_configuration_that_always_compiles_anew_ends(tmp_path):
    path = tmp_path / "starts.json"
    bench = Stub(path, {**SECONDS, ("default", "cold"): Start(211.0, compiled=True)})
    run(bench, ["default"], 3, False, Results(path, "M"))
    assert [seen[1] for seen in bench.seen].count("cold") == 3


def test_models_are_added_to_what_is_there(tmp_path):
    path = tmp_path / "starts.json"
    for model in ("small", "large"):
        run(Stub(path, SECONDS), ["eager"], 1, False, Results(path, model))
    found = json.loads(path.read_text())
    assert list(found) == ["small", "large"]
    assert table(found)[2:] == [f"| {model} | eager | 55.0 | 7.5 | 0.14 | 0.25 |" for model in found]


def test_it_goes_on_from_what_is_in_the_file_and_anew_only_if_asked(tmp_path):
    path = tmp_path / "starts.json"
    path.write_text(json.dumps({"M": {"eager": {"cold_s": [50.0, 51.0, 52.0], "warm_s": [7.0]}}}))
    bench = Stub(path, SECONDS)
    run(bench, ["eager"], 3, True, Results(path, "M"))
    assert [seen[1] for seen in bench.seen] == ["warm"] * 3  # one that does not count, and two that lack
    assert json.loads(path.read_text())["M"]["eager"] == {"cold_s": [50.0, 51.0, 52.0], "warm_s": [7.0, 7.5, 7.5]}
    bench = Stub(path, SECONDS)
    run(bench, ["eager"], 3, True, Results(path, "M"))
    assert bench.seen == []
    run(bench, ["eager"], 1, False, Results(path, "M", anew=True))
    assert json.loads(path.read_text())["M"]["eager"] == {"cold_s": [55.0], "warm_s": [7.5]}


def test_an_end_by_sigterm_keeps_the_figures_and_ends_what_runs(tmp_path, monkeypatch, capsys):
    path, closed = tmp_path / "starts.json", []

    class Ending(Stub):
        facts = SimpleNamespace(engine=SimpleNamespace(platform="cuda"))

        def launch(self, config, how):
            if len(self.seen) == 3:
                os.kill(os.getpid(), signal.SIGTERM)  # as `timeout` does
            return super().launch(config, how)

    @contextmanager
    def benches(given):
        try:
            yield Ending(path, SECONDS)
        finally:
            closed.append(True)

    monkeypatch.setattr(launcher, "benches", benches)
    with pytest.raises(SystemExit) as caught:
        launcher.main(["--model", "M", "--output", str(path), "--configs", "eager", "--json"])
    assert caught.value.code == 130 and closed == [True]
    kept = {"M": {"eager": {"cold_s": [55.0], "warm_s": [7.5]}}}
    assert json.loads(path.read_text()) == kept and json.loads(capsys.readouterr().out) == kept


def test_a_second_run_in_the_same_folder_has_launch_folders_of_its_own(tmp_path):
    """A log that is added to would tell of the earlier server."""
    (tmp_path / "007-eager-cold").mkdir()
    bench = Bench(SimpleNamespace(gpu=CPU), (), {}, tmp_path, SimpleNamespace())
    assert bench._count == 7
