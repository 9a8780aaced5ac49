"""The list of commands behind docs/evidence, and how `python -m benchmarks.evidence` runs one."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer

from advisor import cli
from advisor.attention import grid
from advisor.engine.options import parse_options, split_serve_args
from benchmarks import evidence, launcher, leaks, timed_runs
from benchmarks.evidence import read_runs

ROOT = Path(__file__).resolve().parents[2]
PARSERS = {"benchmarks.launcher": launcher._arguments, "benchmarks.leaks": leaks._arguments}
STAND_IN = """
import pathlib, signal, sys, time
pathlib.Path("words").write_text("\\n".join(sys.argv[1:]))
print("it goes")
if "--slow" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path("ended").touch(), sys.exit(130)))
    pathlib.Path("begun").touch()
    time.sleep(60)
sys.exit(3 if "--broken" in sys.argv else 0)
"""


def options_of(name: str) -> tuple[list[str], dict[str, Any]]:
    """The words of a command on the list, and its options as the command reads them."""
    words = read_runs()[name].words(600.0, "python3")
    if words[0] == "advisor":
        command = typer.main.get_command(cli.app).commands[words[1]]
        return words, command.make_context(words[1], words[2:]).params
    assert words[:2] == ["python", "-m"]
    return words, vars(PARSERS[words[2]](words[3:]))


def stepped(kind: str) -> list[str]:
    return [name for name, run in read_runs().items() if run.command.startswith(f"advisor {kind} ")]


@pytest.mark.parametrize("name", list(read_runs()))
def test_the_list_asks_for_what_the_commands_understand(name: str, tmp_path: Path):
    words, given = options_of(name)
    assert str(given["model"]) in [f"models/{model}" for model in read_runs()[name].models]
    assert given["engine_python"] == "python3" and "--output" in words
    assert "--load-format dummy" in given["serve_args"] or words[0] == "python"  # benchmarks.launcher adds it itself


@pytest.mark.parametrize("name", [*stepped("anatomy"), *stepped("attention")])
def test_a_file_that_is_there_was_measured_with_the_same_arguments(name: str):
    """Otherwise the command would be refused: it continues its file."""
    _, given = options_of(name)
    path = ROOT / given["output"]
    if path.exists():
        found = json.loads(path.read_text())
        assert (found["serve_args"], found["steps"]) == (split_serve_args(given["serve_args"]), given["steps"])


@pytest.mark.parametrize("name", stepped("attention"))
def test_every_context_fits_in_every_phase(name: str):
    """What does not fit is several long prompts in one step."""
    _, given = options_of(name)
    options = parse_options(split_serve_args(given["serve_args"])).values
    limits = grid.Limits(1024, int(options["--max-num-batched-tokens"]), int(options["--max-model-len"]))
    batches, contexts = (grid.parse_numbers("", given[option]) for option in ("batch_sizes", "contexts"))
    kept, left_out = grid.cells(grid.Wanted(batch_sizes=batches, contexts=contexts, steps=given["steps"]), limits)
    assert {(cell.phase, cell.context) for cell in kept} == {(phase, size) for phase in grid.PHASES for size in contexts}
    assert {(cell.phase, cell.batch > 1) for cell, _ in left_out} == {(grid.PREFILL, True)}


@pytest.mark.parametrize("name", stepped("anatomy"))
def test_an_anatomy_takes_all_batch_sizes(name: str):
    _, given = options_of(name)
    assert given["batch_sizes"] is None and "--max-num-seqs" not in given["serve_args"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a model that is there already and a stand-in for the advisor."""
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    monkeypatch.setattr(timed_runs, "ADVISOR", (sys.executable, str(tmp_path / "stand_in.py")))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    (tmp_path / "models" / "tiny" / "config.json").write_text("{}")
    return tmp_path


def main(*words: str, **runs: str) -> int:
    fields = "models: [tiny], minutes: 2, why: a test"
    listed = "".join(f"  {name}: {{command: '{command}', {fields}}}\n" for name, command in runs.items())
    Path("list.yaml").write_text(f"schema: advisor.evidence/1\nruns:\n{listed}")
    return evidence.main(["--list", "list.yaml", *words])


def test_a_command_is_told_the_time_that_is_left(place: Path):
    assert main("one", "--stop", "3m", one="advisor record --budget {left}") == 0
    words = (place / "words").read_text().split("\n")
    left = float(words[2].removesuffix("s"))
    assert words[:2] == ["record", "--budget"] and 3 * 60 - 30 - 20 < left <= 3 * 60 - 30
    assert "it goes" in (place / "runs" / "evidence-logs" / "one-1.log").read_text()


def test_what_is_not_expected_to_fit_is_left_out(place: Path, capsys: pytest.CaptureFixture[str]):
    assert main("one", "--stop", "1m", one="advisor record") == 0
    assert not (place / "words").exists()
    assert "one: no time: about 2m00s needed" in capsys.readouterr().out


def test_what_still_runs_when_the_time_is_over_gets_ctrl_c(place: Path, capsys: pytest.CaptureFixture[str]):
    one = "{command: advisor record --slow, models: [tiny], minutes: 9, least: 0.01, why: a test}"
    Path("other.yaml").write_text(f"schema: advisor.evidence/1\nruns:\n  one: {one}\n")
    begun = time.monotonic()
    assert evidence.main(["--list", "other.yaml", "one", "--stop", "5s"]) == 0
    assert time.monotonic() - begun < 60  # it would sleep for a minute
    assert (place / "begun").exists() == (place / "ended").exists()  # a busy machine may not have come so far
    assert "one: stopped" in capsys.readouterr().out


def test_a_failed_one_ends_nothing(place: Path, capsys: pytest.CaptureFixture[str]):
    assert main("one", "two", one="advisor record --broken", two="advisor record") == 1
    out = capsys.readouterr().out
    assert "one: failed" in out and "two: done" in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"one": "rm -r models"}, "it begins with 'rm'"),
        ({"two": "advisor record"}, "one: no such run"),
    ],
)
def test_mistakes_are_named(place: Path, capsys: pytest.CaptureFixture[str], words: dict[str, str], told: str):
    assert main("one", **words) == 2
    assert told in capsys.readouterr().err
