"""A person's own evaluation as a real process: its number, its failures, its end."""

from __future__ import annotations

import os
import stat
import sys
import time
from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.measure.quality import STDERR, STDOUT, parse_command, read_score, run_quality
from advisor.records import QualityScore
from advisor.verdict.quality import quality_problem

URL, NAME = "http://127.0.0.1:1", "served-name"


@pytest.fixture
def script(tmp_path: Path):
    """script(text) -> path of an executable Python script."""

    def make(text: str) -> str:
        path = tmp_path / "evaluate.py"
        path.write_text(f"#!{sys.executable}\nimport os, sys, time, json, subprocess\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return make


def run(words: str, folder: Path, timeout_s: float = 60.0) -> QualityScore:
    return run_quality(parse_command(words), URL, NAME, folder / "launch", timeout_s)


def test_it_is_told_where_the_server_is_and_its_last_number_is_the_score(script, tmp_path):
    path = script(
        'print("asking", os.environ["ADVISOR_BASE_URL"], os.environ["ADVISOR_MODEL"], sys.argv[1])\n'
        'print("accuracy: 0.918")'
    )
    result = run(f"{path} 'two words'", tmp_path)
    assert (result.score, result.exit_code, result.problem) == (0.918, 0, "")
    assert (tmp_path / "launch" / STDOUT).read_text().startswith(f"asking {URL}/v1 {NAME} two words")


def test_no_shell_reads_the_command(script, tmp_path):
    path = script("print(len(sys.argv))\nprint(sys.argv[1:])\nprint(1)")
    run(f"{path} '$HOME' ; touch {tmp_path}/made", tmp_path)
    assert "['$HOME', ';', 'touch'" in (tmp_path / "launch" / STDOUT).read_text()
    assert not (tmp_path / "made").exists()


def test_a_failing_one_says_how_and_with_which_words(script, tmp_path):
    result = run(script('print(0.99)\nsys.exit("no dataset here")'), tmp_path)
    assert result.score is None and result.exit_code == 1
    assert result.problem == "exit code 1: no dataset here"
    assert "no dataset here" in (tmp_path / "launch" / STDERR).read_text()


def test_it_is_ended_with_its_children_when_its_time_is_over(script, tmp_path):
    pid_file = tmp_path / "child"
    path = script(
        'child = subprocess.Popen(["sleep", "600"])\n'
        f'open({str(pid_file)!r}, "w").write(str(child.pid))\nprint(0.5, flush=True)\ntime.sleep(600)'
    )
    for limit_s in (1.5, 6.0, 24.0):  # on a busy machine its interpreter may not be up when a short one is over
        begun = time.monotonic()
        result = run(path, tmp_path, timeout_s=limit_s)
        assert time.monotonic() - begun < limit_s + 30
        if pid_file.exists() and pid_file.read_text():
            break
    assert result.score is None and result.problem == f"no end within {limit_s:g} s"
    assert ended(int(pid_file.read_text()))


def test_children_that_outlive_it_are_ended(script, tmp_path):
    pid_file = tmp_path / "child"
    path = script(
        f'child = subprocess.Popen(["sleep", "600"])\nopen({str(pid_file)!r}, "w").write(str(child.pid))\nprint(0.5)'
    )
    assert run(path, tmp_path).score == 0.5
    assert ended(int(pid_file.read_text()))


def ended(pid: int) -> bool:
    """Gone, or a zombie that only waits for its parent."""
    for _ in range(1000):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
            os.kill(pid, 0)
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize(
    ("stdout", "score"),
    [
        ("0.5\n", 0.5),
        ("exact match 91.25% of 200\n", 200.0),  # the last number: a script that prints more should print JSON
        ('{"score": 0.75, "n": 200}\ndone in 12 s\n', 0.75),
        ('{"score": 1}\n{"score": 2}\n', 2.0),
        ("-1.5e-3", -0.0015),
        ("model v2beta7 passed", None),
        ("", None),
        ('{"score": NaN}\n', None),
        ('{"score": "high"}', None),
        ('{"score": NaN, "n": 200}', None),  # not the 200
        ('{"score": null, "n": 200}\n', None),
        ('{"score": 0.8}\n{"score": NaN}\n', None),
        ('{"n": 200}\n{"score": 0.5}\n{"seconds": 12}\n', 0.5),
        ("asking 200 questions\naccuracy: nan\n", None),
        ("accuracy: inf", None),
    ],
)
def test_score(stdout, score):
    assert read_score(stdout) == score


@pytest.mark.parametrize(
    ("words", "problem"),
    [("", "is empty"), ("./no-such-script 1", "no program that can be run"), ("echo 'open", "cannot be split")],
)
def test_a_wrong_command_is_told_before_anything_starts(words, problem):
    with pytest.raises(InputError, match=problem):
        parse_command(words)


OK90 = QualityScore(0.90, 0)


@pytest.mark.parametrize(
    ("baseline", "winner", "tolerance", "problem"),
    [
        (OK90, QualityScore(0.90, 0), 0.0, ""),
        (OK90, QualityScore(0.95, 0), 0.0, ""),
        (OK90, QualityScore(0.895, 0), 0.01, ""),
        (OK90, QualityScore(0.88, 0), 0.01, "scores 0.88, the baseline 0.9"),
        (QualityScore(-2.0, 0), QualityScore(-2.5, 0), 0.1, "scores -2.5, the baseline -2"),
        (OK90, QualityScore(exit_code=3, problem="exit code 3: broken"), 0.01, "fails on it (exit code 3: broken)"),
        (OK90, QualityScore(None, 0), 0.01, "names no score for it"),
        (QualityScore(None, 0), QualityScore(None, 0), 0.01, ""),
        (QualityScore(exit_code=1, problem="exit code 1"), QualityScore(0.9, 0), 0.01, ""),  # that judges nobody
    ],
)
def test_a_winner_that_scores_worse_is_wrong(baseline, winner, tolerance, problem):
    found = quality_problem(baseline, winner, tolerance)
    assert problem in found and bool(problem) == bool(found)
