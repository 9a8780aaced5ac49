"""Runs another file as a program that ends with whoever started it: `python begin.py FD SCRIPT [ARGUMENTS]`.

FD is one end of a socket whose other end the starter keeps: nothing is sent on it, and the kernel closes it with the starter. The
advisor starts its scripts for the target interpreter so (advisor/target_process.py). Imports the standard library only.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import runpy
import signal
import sys


def end_with_starter() -> None:
    """Linux kills this process when the one that started it dies: busy with imports, it would see the end of its input too late."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


def group_ends_with_starter(fd: int) -> None:
    """The same for all processes of this group, by SIGIO: what vLLM starts to look at a model's class imports for half a minute."""
    if sys.platform.startswith("linux") and os.getpgrp() == os.getpid():
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpid())
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)


def forget_own_folder() -> None:
    """Python puts this file's folder first on the path, where its neighbours could hide installed modules."""
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != own]


if __name__ == "__main__":
    end_with_starter()
    group_ends_with_starter(int(sys.argv[1]))
    forget_own_folder()
    del sys.argv[:2]
    runpy.run_path(sys.argv[0], run_name="__main__")
