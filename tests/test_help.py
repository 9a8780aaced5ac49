"""What `--help` says."""

import sys

import pytest
from typer.testing import CliRunner

from advisor.cli import app


@pytest.mark.parametrize("command", ["tune", "record", "anatomy", "attention", "explain", "verify"])
def test_no_path_of_this_machine_is_shown(command):
    said = " ".join(CliRunner().invoke(app, [command, "--help"]).output.split())
    assert "default: this one." in said and sys.executable not in said
