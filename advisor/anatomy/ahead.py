"""The process of the next mode's engine: it imports vLLM while the present one is traced, which saves its half minute.

Only the imports: nothing of the next engine is on the GPU yet, and what a trace tells of one is the GPU's own time. On a
processor a trace tells host times, which a second process would lengthen: nothing is begun ahead there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from advisor.errors import AdvisorError
from advisor.target_process import TargetProcess

_IMPORTS_S = 300.0


class Ahead:
    """At most one process that waits. `make`: one for the mode of this name, not started yet. `wanted`: see above."""

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

    @contextlib.contextmanager
    def engine(self, name: str) -> Iterator[TargetProcess]:
        """The process of this mode, ended with the block. Raises TargetDied and TargetTimeout of its imports."""
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
