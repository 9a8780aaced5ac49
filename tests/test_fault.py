"""A fault of the advisor itself: its exit code is none of the answers that scripts act on."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

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
