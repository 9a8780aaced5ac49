"""Candidates as rows of words, for models over settings. Pure."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from advisor.records import Candidate

_SIZES = "cudagraph_capture_sizes"
# Amounts, of which less on one side of vLLM's own tells of more on the other. max_num_seqs is none, though a number: it does
# nothing down to the load and much below; nor are versions, counts of kernels, or block sizes, of which vLLM's own is the smallest.
ORDERED = ("max_num_batched_tokens",)

Word = tuple[str, str]


def words(candidate: Candidate) -> tuple[Word, ...]:
    """(setting, value) of each override; and, with no value, what it shares with others: that the setting is not left to
    vLLM, and of capture sizes the largest one."""
    return _words(candidate.key)


def values_of(candidate: Candidate) -> frozenset[Word]:
    """(setting, value) of each override."""
    return frozenset(word for word in words(candidate) if word[1])


def own_amounts(resolved: Mapping[str, Any]) -> dict[str, float]:
    """Of the ordered settings, what vLLM takes by itself: `resolved` is its configuration of the default."""
    return {name: float(value) for name in ORDERED if isinstance(value := resolved.get(name), int) and value > 0}


def largest_octaves(resolved: Iterable[Mapping[str, Any]], own: Mapping[str, float]) -> dict[str, float]:
    """Of each ordered setting, how far from vLLM's own amount the candidates go at most, in octaves; 1 at least."""
    found = dict.fromkeys(own, 1.0)
    for settings in resolved:
        for name, amount in own_amounts(settings).items():
            if name in own:
                found[name] = max(found[name], abs(math.log2(amount / own[name])))
    return found


class Vocabulary:
    """Grows by the candidates that it is shown; columns keep their place. `own`: vLLM's amounts, by setting."""

    def __init__(self, own: Mapping[str, float] | None = None) -> None:
        self._own = own or {}
        self._column: dict[Word, int] = {}
        self.setting = np.zeros(0, dtype=int)  # of each column, the column of what its setting's values share
        self.share = np.zeros(0)  # of each column, how much of that it has: 1, or octaves from vLLM's own amount
        self.is_value = np.zeros(0)  # 1 where a column is a value, 0 where it is shared
        self.is_common = np.zeros(0, dtype=bool)  # whether it is what the values of a setting share, and no slope

    @property
    def slopes(self) -> dict[str, int]:
        """The column of each ordered setting's slope."""
        return {name: self._column[name, ""] for name in self._own if (name, "") in self._column}

    def __len__(self) -> int:
        return len(self._column)

    def matrix(self, candidates: Sequence[Candidate]) -> np.ndarray:
        """One row a candidate, one column a word known so far: 1 where it has it. What values of an ordered setting share is
        a slope: their octaves from vLLM's own amount, below it less than zero."""
        rows = [words(item) for item in candidates]
        self._learn({word: None for row in rows for word in row})
        matrix = np.zeros((len(rows), len(self)))
        for number, row in enumerate(rows):
            columns = np.array([self._column[word] for word in row], dtype=int)
            matrix[number, columns] = 1.0
            values = columns[self.is_value[columns] > 0]
            matrix[number, self.setting[values]] = self.share[values]
        return matrix

    def _learn(self, found: dict[Word, None]) -> None:
        new = [word for word in found if word not in self._column]
        if not new:
            return
        for word in new:
            self._column[word] = len(self._column)
        names = list(self._column)
        self.setting = np.array([self._column.get((name, ""), own) for own, (name, _) in enumerate(names)], dtype=int)
        self.share = np.array([self._octaves(name, text) for name, text in names])
        self.is_value = np.array([bool(text) for _, text in names], dtype=float)
        settings = {name for name, text in names if text}
        self.is_common = np.array([not text and name in settings and name not in self._own for name, text in names])

    def _octaves(self, name: str, text: str) -> float:
        own, amount = self._own.get(name), _amount(text)
        return math.log2(amount / own) if own and amount else 1.0


def _amount(text: str) -> float | None:
    value = json.loads(text) if text else None
    return float(value) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


@functools.lru_cache(maxsize=65536)
def _words(key: str) -> tuple[Word, ...]:
    found: list[Word] = []
    for name, value in json.loads(key).items():
        found += [(name, ""), (name, json.dumps(value, sort_keys=True))]
        if name == _SIZES and isinstance(value, list) and value:
            found.append((f"largest of {name}: {max(value)}", ""))
    return tuple(found)
