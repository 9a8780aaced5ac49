"""Signals that end a study as Ctrl-C does, and those that whoever started the advisor ignores."""

from __future__ import annotations

import os
import signal

import pytest

from advisor.study.endings import termination_is_ctrl_c


@pytest.fixture(params=[signal.SIGTERM, signal.SIGHUP])
def number(request):
    before = signal.getsignal(request.param)
    yield request.param
    signal.signal(request.param, before)


def test_it_ends_as_ctrl_c_does_and_only_meanwhile(number):
    signal.signal(number, signal.SIG_DFL)
    with pytest.raises(KeyboardInterrupt), termination_is_ctrl_c():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is signal.SIG_DFL


def test_what_nohup_ignores_stays_ignored(number):
    """`nohup advisor tune ... &`: the terminal is closed, and the study goes on."""
    signal.signal(number, signal.SIG_IGN)
    with termination_is_ctrl_c():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is signal.SIG_IGN
