"""Candidates as rows of words, for models over settings. Pure."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence

import numpy as np

from advisor.records import Candidate

_SIZES = "cudagraph_capture_sizes"

Word = tuple[str, str]


def words(candidate: Candidate) -> tuple[Word, ...]:
    """(setting, value) of each override; and, with no value, what it shares with others: that the setting is not left to
    vLLM, and of capture sizes the largest one."""
    return _words(candidate.key)


def values_of(candidate: Candidate) -> frozenset[Word]:
    """(setting, value) of each override."""
    return frozenset(word for word in words(candidate) if word[1])


class Vocabulary:
    """Grows by the candidates that it is shown; columns keep their place."""

    def __init__(self) -> None:
        self._column: dict[Word, int] = {}
        self.setting = np.zeros(0, dtype=int)  # of each column, the column of what its setting's values share
        self.is_value = np.zeros(0)  # 1 where a column is a value, 0 where it is shared

    def __len__(self) -> int:
        return len(self._column)

    def matrix(self, candidates: Sequence[Candidate]) -> np.ndarray:
        """One row a candidate, one column a word known so far: 1 where it has it."""
        rows = [words(item) for item in candidates]
        self._learn({word: None for row in rows for word in row})
        matrix = np.zeros((len(rows), len(self)))
        for number, row in enumerate(rows):
            matrix[number, [self._column[word] for word in row]] = 1.0
        return matrix

    def _learn(self, found: dict[Word, None]) -> None:
        new = [word for word in found if word not in self._column]
        if not new:
            return
        for word in new:
            self._column[word] = len(self._column)
        names = list(self._column)
        self.setting = np.array([self._column.get((name, ""), own) for own, (name, _) in enumerate(names)], dtype=int)
        self.is_value = np.array([bool(text) for _, text in names], dtype=float)


@functools.lru_cache(maxsize=65536)
def _words(key: str) -> tuple[Word, ...]:
    found: list[Word] = []
    for name, value in json.loads(key).items():
        found += [(name, ""), (name, json.dumps(value, sort_keys=True))]
        if name == _SIZES and isinstance(value, list) and value:
            found.append((f"largest of {name}: {max(value)}", ""))
    return tuple(found)
