"""benchmarks/launcher.py: its file grows launch by launch, and a configuration that fails costs nobody else anything."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

from advisor.launch.failure import LaunchFailed
from advisor.records import Outcome
from benchmarks.launcher import NotForked, Results, run, table


class Stub:
    """Launches that take as long as `seconds` says; an exception there is raised."""

    def __init__(self, path: Path, seconds):
        self.path, self.seconds, self.seen = path, seconds, []
        self.warm = SimpleNamespace(import_s=0.0)

    def launch(self, config, how):
        self.seen.append((config, how, json.loads(self.path.read_text()) if self.path.exists() else None))
        answer = self.seconds[config, how]
        if isinstance(answer, Exception):
            raise answer
        return answer, None


SECONDS = {("default", "cold"): 80.0, ("default", "warm"): 30.0, ("eager", "cold"): 55.0, ("eager", "warm"): 7.5}


def test_the_file_is_there_after_each_launch_and_the_first_one_does_not_count(tmp_path):
    path = tmp_path / "starts.json"
    bench = Stub(path, SECONDS)
    run(bench, ["default", "eager"], 2, True, Results(path, "M"))
    assert [seen[:2] for seen in bench.seen[:4]] == [("default", how) for how in ("cold", "cold", "warm", "cold")]
    assert bench.seen[1][2] is None and bench.seen[2][2] == {"M": {"default": {"cold_s": [80.0], "warm_s": []}}}
    assert json.loads(path.read_text()) == {
        "M": {"default": {"cold_s": [80.0] * 2, "warm_s": [30.0] * 2}, "eager": {"cold_s": [55.0] * 2, "warm_s": [7.5] * 2}}
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


def test_models_are_added_to_what_is_there(tmp_path):
    path = tmp_path / "starts.json"
    for model in ("small", "large"):
        run(Stub(path, SECONDS), ["eager"], 1, False, Results(path, model))
    found = json.loads(path.read_text())
    assert list(found) == ["small", "large"]
    assert table(found)[2:] == [f"| {model} | eager | 55.0 | 7.5 | 0.14 | 0.25 |" for model in found]
