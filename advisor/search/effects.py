"""What each value of each setting does to a figure, estimated from a few trials of many settings. Pure.

A small Bayesian model of logarithms: a figure is the sum of what its values do, of what pairs of them do together, and noise.
Three things that hold for most systems are in it (Wu and Hamada, Experiments: effect sparsity, hierarchy, heredity): most values
do little and a few do much (each has its own scale, pulled towards the typical one); single values matter more than pairs; and
pairs matter where their members do. Values of one setting share what leaving its default does; those of an amount share a slope:
if half of vLLM's own loses, twice as much may well gain.

Figures are natural logarithms: 0.01 is about 1%.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.records import Candidate
from advisor.search.words import Vocabulary

# Choices. Of the eight single values that the H200's 8B ran with (table in docs/evidence/tunes.md) two are within 1% of the
# default, three lost 3 to 7% and three 35 to 71%.
LEAN, TYPICAL = -0.02, 0.044
# A pair does up to about half of what its members do alone (their geometric mean). A choice; `doubt` mends it where it is wrong.
_TOGETHER = 0.5
_LARGEST = 0.5  # of a value, as far as its pairs go
_OWN = 0.002  # what a candidate has that none of its values and pairs explain
_LEVEL = 1.0  # variance of the default's own figure: as good as unknown before it is measured
_ROUNDS = 8  # of fitting scales; they hardly move after that


@dataclass(frozen=True)
class Point:
    """A figure of one candidate. `sd`: by which another launch of it would differ.

    `hint`: it only says what is tried before what; its values still have to be tried.
    """

    candidate: Candidate
    value: float
    sd: float
    hint: bool = False


class Effects:
    """The model, fitted. `lean`: what a value that nobody tried is expected to do; 0 for figures that nobody optimises.

    `own`: vLLM's own amounts of ordered settings; without them their values are names like others. `octaves`: how far from it the
    values of such a setting go at most. There they do as much as values of other settings do: so steep a slope is typical.
    """

    def __init__(
        self,
        points: Sequence[Point],
        lean: float = LEAN,
        typical: float = TYPICAL,
        own: Mapping[str, float] | None = None,
        octaves: Mapping[str, float] | None = None,
    ):
        self._lean, self._typical = lean, typical
        self._words, self._octaves = Vocabulary(own), octaves or {}
        self._keys = np.array([point.candidate.key for point in points], dtype=str)
        self._values = np.array([point.value for point in points], dtype=float)
        self._noise = np.array([point.sd**2 for point in points], dtype=float)
        self._seen = self._words.matrix([point.candidate for point in points])
        # Of each word: the variance of its effect before any figure, the effect, the variance that is left. Scales are fitted from
        # above: from below a large effect that is known with a large error would be taken for noise.
        squares = (self._seen**2).T @ self._values**2 / np.maximum((self._seen**4).sum(axis=0), 1e-9)
        self._scale = np.maximum(squares, self._usual)
        self._effect, self._left = np.zeros(len(self._words)), self._scale.copy()
        self._least = self._alone()
        self._fit()

    # ------------------------------------------------------------ what it says

    def means(self, candidates: Sequence[Candidate]) -> np.ndarray:
        """Expected figures, one each."""
        matrix = self._matrix(candidates)
        return self._leaning(matrix) + self._shared(matrix, candidates) @ self._weights

    def against(self, candidates: Sequence[Candidate], reference: Candidate) -> tuple[np.ndarray, np.ndarray]:
        """(mean, standard deviation) of each figure minus that of `reference`, without the noise of a launch."""
        every = [*candidates, reference]
        matrix = self._matrix(every)
        known = self._shared(matrix, every)
        means = self._leaning(matrix) + known @ self._weights
        apart = known[:-1] - known[-1]
        spread = self._variances(matrix[:-1]) + self._variances(matrix[-1:])
        spread += np.array([item.key != reference.key for item in candidates]) * 2 * _OWN**2
        spread -= 2 * self._kernel(matrix[:-1], matrix[-1:])[:, 0]
        spread -= np.einsum("ij,jk,ik->i", apart, self._inverse, apart)
        return means[:-1] - means[-1], self.doubt * np.sqrt(np.maximum(spread, 0.0))

    @functools.cached_property
    def doubt(self) -> float:
        """By how much its errors are larger than it says, each figure foretold from the others; 1 at least."""
        squares = self._weights**2 / np.diag(self._inverse)
        return float(np.sqrt(max(1.0, (3.0 + squares.sum()) / (3.0 + len(squares)))))

    # ------------------------------------------------------------ fitting

    def _fit(self) -> None:
        for _ in range(_ROUNDS):
            self._solve()
            scaled = self._seen * self._scale
            self._effect = scaled.T @ self._weights
            self._left = self._scale - np.einsum("ji,jk,ki->i", scaled, self._inverse, scaled)
            # The scale under which effects follow Student's t with one degree of freedom: many small ones, a few large ones.
            self._scale = (self._usual + self._effect**2 + self._left) / 2
            self._scale = np.where(self._words.is_common, np.minimum(self._scale, self._typical**2), self._scale)
            self._scale = np.maximum(self._scale, self._least)
        self._solve()

    def _alone(self) -> np.ndarray:
        """Of each value, the least variance of its effect: of a figure from elsewhere that has no other value, the square without
        the noise. A large figure that is known with a large error is none for that, and it is the value's own: siblings that
        leave the default too, or an amount on the other side of it, share little of what is known so roughly.
        """
        least = np.zeros(len(self._words))
        alone = (self._noise > self._typical**2) & (self._seen.sum(axis=1) == 2)  # the value, and its setting's common part
        for row in np.flatnonzero(alone):
            column = int(np.argmax(self._seen[row] * self._words.is_value))
            if self._words.is_common[self._words.setting[column]]:
                least[column] = max(least[column], self._values[row] ** 2 - self._noise[row])
        return least

    def _solve(self) -> None:
        covariance = self._kernel(self._seen, self._seen) + self._same(self._keys)
        self._inverse = np.linalg.inv(covariance + np.diag(self._noise + 1e-10))
        self._weights = self._inverse @ (self._values - self._leaning(self._seen))

    def _kernel(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Prior covariance of the figures of two lists of candidates."""
        reach = self._reach
        together = ((one * reach) @ other.T) ** 2 - (one * reach**2) @ other.T
        return _LEVEL + (one * self._scale) @ other.T + _TOGETHER**2 / 2 * together

    def _variances(self, matrix: np.ndarray) -> np.ndarray:
        """The diagonal of `_kernel(matrix, matrix)`."""
        reach = self._reach
        together = (matrix @ reach) ** 2 - matrix @ reach**2
        return _LEVEL + matrix**2 @ self._scale + _TOGETHER**2 / 2 * together

    @property
    def _usual(self) -> np.ndarray:
        """Of each word, the variance of what such words do."""
        found = np.full(len(self._words), self._typical**2 / 2)
        for name, column in self._words.slopes.items():
            found[column] /= self._octaves.get(name, 1.0) ** 2
        return found

    @property
    def _reach(self) -> np.ndarray:
        """How much pairs with each value may do: what the value does, as far as it is known."""
        setting, share = self._words.setting, self._words.share
        effect = self._effect + share * self._effect[setting] + self._lean
        left = self._left + share**2 * self._left[setting]
        return self._words.is_value * np.minimum(np.sqrt(effect**2 + left), _LARGEST)

    def _leaning(self, matrix: np.ndarray) -> np.ndarray:
        return self._lean * (matrix @ self._words.is_value)

    def _shared(self, matrix: np.ndarray, candidates: Sequence[Candidate]) -> np.ndarray:
        """Prior covariance of candidates with the figures that there are."""
        return self._kernel(matrix, self._seen) + self._same(np.array([item.key for item in candidates], dtype=str))

    def _same(self, keys: np.ndarray) -> np.ndarray:
        return (keys[:, None] == self._keys[None, :]) * _OWN**2

    def _matrix(self, candidates: Sequence[Candidate]) -> np.ndarray:
        """Rows of the candidates; words that no figure has keep what was taken for granted."""
        matrix = self._words.matrix(candidates)
        if new := len(self._words) - len(self._scale):
            usual = self._usual[-new:]
            self._scale, self._left = np.append(self._scale, usual), np.append(self._left, usual)
            self._effect = np.append(self._effect, np.zeros(new))
            self._seen = np.pad(self._seen, ((0, 0), (0, new)))
        return matrix
