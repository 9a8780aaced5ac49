"""What commands print, so that a full disk or a closed pipe is told and not lost."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys

from advisor.errors import AdvisorError, EnvironmentMismatch


def note(line: str) -> None:
    """What happens meanwhile, on standard error: standard output has the answer alone."""
    print(line, file=sys.stderr, flush=True)


def say(text: str = "", end: str = "\n") -> None:
    """Print, and have it written when this returns. Raises EnvironmentMismatch where it cannot be, such as on a full disk.

    BrokenPipeError passes: a reader that has seen enough (`| head`) ends the command without a word.
    """
    try:
        print(text, end=end, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise output_lost(error) from None


def columns() -> int | None:
    """Width of the terminal that is printed to; None for a file or a pipe, whose lines are never broken."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def output_lost(error: OSError) -> AdvisorError:
    """Nothing more goes to standard output: Python would try once more at its end, and fail once more."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    return EnvironmentMismatch(f"standard output cannot be written: {error.strerror}")
