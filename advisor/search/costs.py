"""What a launch and its measurement will cost, estimated from what launches of the study cost. Pure: seconds.

A start is what every start takes (imports, weights, memory profiling), and what its settings add: compiling, anew or from the
study's cache, and a graph for each captured size. The rest of a trial is the load, which a slow candidate needs longer for.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from advisor.records import Candidate, Trial
from advisor.search.budget import COLD_PART
from advisor.search.effects import Effects, Point

# The compiler's seconds with its code at hand over those without: 8B on an H200 3.4 to 4.9 of 23.5 (journal in docs/evidence).
WARM_COMPILE = 0.18
# Settings that are not in the key of vLLM's compile cache (sources of 0.26: the hash holds the whole compilation configuration, the
# capture sizes with it, the attention configuration, the cache's format and block size, and of the scheduler only its tokens).
_NOT_IN_KEY = {"max_num_seqs", "async_scheduling", "performance_mode", "prefix_caching", "--max-num-seqs"}
_LOAD_TYPICAL = 0.1  # by which loads of two settings differ, before any is known
_LOAD_NOISE = 0.05
_SIZES = "cudagraph_capture_sizes"

Resolved = Mapping[str, Mapping[str, Any]]  # candidate's key -> what vLLM makes of it


class Costs:
    """The estimates after the trials so far."""

    def __init__(self, trials: Sequence[Trial], resolved: Resolved | None = None):
        self._resolved = resolved or {}
        self._baseline = next((trial for trial in trials if trial.candidate.is_baseline and trial.ok), None)
        # Forked servers start in other times than executed ones; the search launches as the baseline was.
        alike = [trial for trial in trials if self._baseline and trial.launcher == self._baseline.launcher]
        started = [trial for trial in alike if trial.start_s is not None]
        self._compiled = {self._compile_key(trial.candidate) for trial in started}
        self._cold = _median((_compile_s(trial) for trial in started if _is_cold(trial)), None)
        self._warm = _median((_compile_s(trial) for trial in started if _is_warm(trial)), None)
        self._graph = _graph_s(started)
        self._kernels = _kernels_s(started)
        self._base = _median((self._base_s(trial) for trial in started), 0.0)
        self._load = Effects(
            [
                Point(trial.candidate, math.log(max(_load_s(trial), 0.1)), _LOAD_NOISE)
                for trial in alike
                if trial.ok and not trial.dropped
            ],
            lean=0.0,
            typical=_LOAD_TYPICAL,
        )

    def of(self, candidates: Sequence[Candidate]) -> np.ndarray:
        """Seconds of one launch of each, with everything that is in its trial; zeros before anything was launched."""
        if not candidates or self._baseline is None:
            return np.zeros(len(candidates))
        return np.exp(self._load.means(candidates)) + np.array([self.start_s(item) for item in candidates])

    def start_s(self, candidate: Candidate) -> float:
        """From exec to the first token."""
        compile_s = 0.0
        if self._compiles(candidate):
            at_hand = self._compile_key(candidate) in self._compiled
            cold = self._cold if self._cold is not None else 0.0
            compile_s = (self._warm if self._warm is not None else WARM_COMPILE * cold) if at_hand else cold
        backend = str(candidate.settings.get("attention_backend"))
        return self._base + compile_s + self._graph * self._graphs(candidate) + self._kernels.get(backend, 0.0)

    def _base_s(self, trial: Trial) -> float:
        return max(0.0, (trial.start_s or 0.0) - (_compile_s(trial) or 0.0) - _capture_s(trial) - _kernel_s(trial))

    def _compiles(self, candidate: Candidate) -> bool:
        settings = candidate.settings
        if (
            settings.get("enforce_eager")
            or settings.get("compilation_mode") == "NONE"
            or settings.get("optimization_level") == 0
        ):
            return False
        mode = self._value(candidate, "compilation_mode")
        return mode not in ("NONE", 0)

    def _graphs(self, candidate: Candidate) -> int:
        settings = candidate.settings
        if settings.get("enforce_eager") or settings.get("cudagraph_mode") == "NONE":
            return 0
        sizes = settings.get(_SIZES) or self._value(candidate, _SIZES)
        if not sizes and self._baseline is not None:
            sizes = self._baseline.active.capture_sizes
        return len(sizes or ())

    def _compile_key(self, candidate: Candidate) -> str:
        settings = {name: value for name, value in candidate.settings.items() if name not in _NOT_IN_KEY}
        values = {name: self._value(candidate, name) for name in (_SIZES, "max_num_batched_tokens")}
        return json.dumps([settings, values], sort_keys=True, default=str)

    def _value(self, candidate: Candidate, name: str) -> Any:
        return self._resolved.get(candidate.key, {}).get(name)


# ---------------------------------------------------------------- parts of a start


def _is_cold(trial: Trial) -> bool:
    """That it compiled anew; taken for granted of the search's trials where nobody told, since each has settings of its own."""
    if trial.start_up is not None and trial.start_up.cache is not None:
        return trial.start_up.cache == "cold"
    return trial.phase in ("baseline", "search") and _compile_s(trial) is not None


def _is_warm(trial: Trial) -> bool:
    return _compile_s(trial) is not None and not _is_cold(trial)


def _compile_s(trial: Trial) -> float | None:
    """The compiler's seconds; None where nothing was compiled. By COLD_PART where the log says that it was and not for how long."""
    told = trial.start_up.compile_s if trial.start_up else None
    told = told if told is not None else trial.active.compile_s
    if told is not None or trial.start_up is None or trial.start_up.cache != "cold":
        return told
    return COLD_PART * (trial.start_s or 0.0)


def _capture_s(trial: Trial) -> float:
    told = trial.start_up.capture_s if trial.start_up else None
    return (told if told is not None else trial.active.capture_s) or 0.0


def _kernel_s(trial: Trial) -> float:
    return (trial.start_up.kernels_s if trial.start_up else None) or 0.0


def _graph_s(trials: Sequence[Trial]) -> float:
    """Seconds to capture one size, over all launches that say it."""
    told = [(_capture_s(trial), len(trial.active.capture_sizes or ())) for trial in trials if _capture_s(trial)]
    sizes = sum(count for _, count in told)
    return sum(seconds for seconds, _ in told) / sizes if sizes else 0.0


def _kernels_s(trials: Sequence[Trial]) -> dict[str, float]:
    """Attention backend as asked for -> seconds in which kernels were built and warmed up, the last time."""
    return {str(trial.candidate.settings.get("attention_backend")): _kernel_s(trial) for trial in trials}


def _load_s(trial: Trial) -> float:
    """All that is not the start: warm-up, samples, fixed prompts, the stop. The launcher's imports are made once."""
    return trial.total_s - (trial.start_s or 0.0) - (trial.launcher_s or 0.0)


def _median(values: Iterable[float | None], otherwise: Any) -> Any:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else otherwise
