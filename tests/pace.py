"""How much slower this machine is than the one on which a bound in seconds is stated: a core of an AMD EPYC.

Beside what a test measures it measures a piece of work that no change of the advisor makes longer. On that core and on faster ones
a bound holds as it stands; elsewhere both are as much slower. Neighbours on the same core or cache delay both alike too.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

# Processor seconds there. Two cores, both busy: a higher figure here makes a bound stricter elsewhere.
ARRAYS_S, START_S = 0.0085, 0.075
START = (sys.executable, "-c", "import numpy, json, argparse, dataclasses, pathlib")


def best_s(measure: Callable[[], float], beside: Callable[[], float], there_s: float, limit_s: float, most: int = 7) -> float:
    """The least of up to `most` measurements in seconds, as it would be there; no more of them than the limit needs.

    `beside` is measured in turn with it, and takes `there_s` there. Both have their best: what disturbs one of them does not count.
    """
    beside()  # the first one is longer
    taken, known = [], []
    while len(taken) < most and (not taken or min(taken) / max(1.0, min(known) / there_s) >= limit_s):
        known += [beside() for _ in range(3)]
        taken.append(measure())
    return min(taken) / max(1.0, min(known) / there_s)


def spent_s(work: Callable[[], object]) -> float:
    """Processor seconds of this process."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def child_s(run: Callable[[], object]) -> float:
    """Processor seconds of the processes that it starts and waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def arrays_s() -> float:
    """400 rounds of small vectors, which is mostly numpy's own cost of a call."""

    def rounds() -> None:
        x = np.arange(1024, dtype=float)
        for _ in range(400):
            summed = np.cumsum(x)
            found = summed.searchsorted(x)
            slopes = (summed[1:] - summed[:-1]) / (x[1:] - x[:-1] + 1)
            rising = slopes[1:] > slopes[:-1]
            (x[found % 1024] + slopes.min() + rising.sum()).argmin()

    return spent_s(rounds)


def start_s() -> float:
    """An interpreter that imports numpy and some of the standard library, without numpy's idle threads."""
    return child_s(lambda: subprocess.run(START, check=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}))
