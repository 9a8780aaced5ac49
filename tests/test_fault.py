"""A fault of the advisor itself: its exit code is none of the answers that scripts act on."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
import typer

from advisor import cli

HOLDS_NOT = 1  # of `advisor verify`, and of `explain` and `migrate` with findings: python's own exit code after a traceback


@pytest.mark.parametrize("error", [RuntimeError("boom"), OSError("no such device")])
def test_a_traceback_has_an_exit_code_of_its_own(monkeypatch, capsys, error):
    def broken():
        raise error

    monkeypatch.setattr(cli, "app", broken)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == cli.FAULT != HOLDS_NOT
    said = capsys.readouterr().err
    assert "Traceback" in said and str(error) in said and said.endswith("advisor: a fault of the advisor itself, and no answer\n")


def test_how_children_end_is_known_where_whoever_started_us_ignored_that(monkeypatch):
    """An ignored SIGCHLD is inherited. The kernel collects all children then, and each seems to have ended well."""
    codes = []
    monkeypatch.setattr(cli, "app", lambda: codes.append(subprocess.run([sys.executable, "-c", "raise SystemExit(3)"]).returncode))
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        cli.main()
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert codes == [3]


def test_ctrl_c_inside_of_a_command_is_told(monkeypatch, capsys):
    def stopped():
        raise KeyboardInterrupt

    app = typer.Typer()
    app.command()(stopped)
    monkeypatch.setattr(cli, "app", lambda: app([]))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130 and capsys.readouterr().err.endswith("advisor: stopped\n")


@pytest.mark.parametrize("words", [["anatomy"], ["attention"]])
def test_ctrl_c_while_steps_are_timed_says_how_to_go_on(monkeypatch, capsys, words):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"advisor.{words[0]}.run.{words[0]}", stopped)
    monkeypatch.setattr(sys, "argv", ["advisor", *words, "--model", "m", "--gpu", "cpu"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().err
    assert ended.value.code == 130
    assert said.endswith("advisor: stopped; no engine is running\n  the same command goes on from what was measured\n")
