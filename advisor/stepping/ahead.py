"""The process of the next engine: it imports vLLM beside the present one, while no step is timed, which saves its half minute.

Only the imports: nothing of the next engine is on the GPU yet. On a processor even they would lengthen what is told of the
present one: nothing is begun ahead there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from advisor.errors import AdvisorError
from advisor.records import Facts, FirstFacts, GpuFacts, ModelFacts
from advisor.target_process import TargetProcess

_IMPORTS_S = 300.0


class Ahead:
    """At most one process that waits. `make`: one of this name, not started yet. `wanted`: see above."""

    def __init__(self, make: Callable[[str], TargetProcess], wanted: bool):
        self._make, self._wanted = make, wanted
        self._waiting: dict[str, TargetProcess] = {}

    def begin(self, name: str | None) -> None:
        """Raises nothing: a process that cannot be begun now says why when it is its turn."""
        if name is None or not self._wanted or self._waiting:
            return
        with contextlib.suppress(AdvisorError):
            process = self._make(name).__enter__()
            self._waiting[name] = process
            process.send({"do": "import"})

    def only(self, name: str | None) -> None:
        """End what waits for another one than this."""
        if name not in self._waiting:
            self.close()

    def wait(self, limit_s: float) -> None:
        """Until what waits has imported everything, or has ended: it says so when it is its turn."""
        for process in self._waiting.values():
            process.speaks(limit_s)

    @contextlib.contextmanager
    def engine(self, name: str) -> Iterator[TargetProcess]:
        """The process of this name, ended with the block. Raises TargetDied and TargetTimeout of its imports."""
        self.only(name)  # the turn of another did not come
        process = self._waiting.pop(name, None)
        if process is None:
            with self._make(name) as made:
                yield made
            return
        with contextlib.closing(process):
            process.receive(_IMPORTS_S)
            yield process

    def close(self) -> None:
        while self._waiting:
            self._waiting.popitem()[1].close()


class Early:
    """The first engine's process, which imports vLLM while the installed one is inspected, as soon as GPU and model are known.

    `make`: what goes on with it. `first`: the name of that process.
    """

    def __init__(self, make: Callable[[GpuFacts, ModelFacts], Ahead], first: str):
        self._make, self._first = make, first
        self._ahead: Ahead | None = None

    def first_known(self, found: FirstFacts) -> None:
        self._ahead = self._make(found.gpu, found.model)
        self._ahead.begin(self._first)

    def ahead(self, facts: Facts) -> Ahead:
        if self._ahead is None:
            self._ahead = self._make(facts.gpu, facts.model)
        return self._ahead

    def close(self) -> None:
        """Ends what waits, whatever ended the command."""
        if self._ahead is not None:
            self._ahead.close()
