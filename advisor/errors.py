"""Mistakes that a person can mend, and the exit code of each family.

Only the command line prints these; everything below raises them. An error states the problem in one line (with the offending
value and what is allowed) and, where there is one, the next thing to try.
"""

from __future__ import annotations


class AdvisorError(Exception):
    """A problem that ends the command. `exit_code` tells scripts which family it belongs to."""

    exit_code = 1

    def __init__(self, problem: str, hint: str | None = None):
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


class InputError(AdvisorError):
    """The command line or a file it names is wrong: found before any server starts."""

    exit_code = 2


class EnvironmentMismatch(AdvisorError):
    """The request is sound but this machine does not suit it: other GPU, no vLLM, model neither cached nor reachable."""

    exit_code = 3


class LaunchesFailed(AdvisorError):
    """No server came up: the baseline, or every candidate tried so far, failed."""

    exit_code = 4


class Interrupted(AdvisorError):
    """The person pressed Ctrl-C; what was measured is kept and the study can go on."""

    exit_code = 130
