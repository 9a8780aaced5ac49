"""What `--help` says."""

import sys

import pytest
from typer.testing import CliRunner

from advisor.cli import app


@pytest.mark.parametrize("command", ["tune", "record", "anatomy", "attention", "explain", "verify"])
def test_no_path_of_this_machine_is_shown(command):
    said = " ".join(CliRunner().invoke(app, [command, "--help"]).output.split())
    assert "default: this one." in said and sys.executable not in said


def test_every_command_says_what_it_is_for_on_one_line_of_a_narrow_terminal():
    said = CliRunner().invoke(app, ["--help"], terminal_width=80).output
    lines = said.split("Commands:\n")[1].splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["tune", "export", "verify"]  # the usual way comes first
    assert len(lines) == len(app.registered_commands)
    assert all(line.endswith((".", "?")) for line in lines) and "..." not in said.split("Commands:")[1]
