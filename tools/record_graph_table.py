"""Writes the log of --cudagraph-metrics with a release's own code, for tests/data/graph_steps.

    python tools/record_graph_table.py SOURCE_OF_VLLM tests/data/graph_steps/steps.json > tests/data/graph_steps/VERSION.log

SOURCE_OF_VLLM is the folder `vllm` of an unpacked wheel. Only the classes that count and print (compilation/cuda_graph.py) and
the log's formatter (logging_utils/formatter.py) are executed, so neither torch nor vLLM's dependencies are needed.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import logging
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

FORMAT = "(APIServer pid=1) %(levelname)s %(asctime)s [%(fileinfo)s:118] %(message)s"
INTERVALS = 2  # the same steps are counted in two tables, as in a log of twenty seconds


def classes(path: Path, *names: str, **known: Any) -> SimpleNamespace:
    """The named classes of a source file, executed in a namespace that holds `known`."""
    kept = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef) and node.name in names]
    namespace = {"__name__": __name__, "__file__": str(path), **known}
    code = ast.Module([*ast.parse("from __future__ import annotations").body, *kept], type_ignores=[])
    exec(compile(code, str(path), "exec"), namespace)
    return SimpleNamespace(**{name: namespace[name] for name in names})


def main(source: Path, steps_file: Path) -> None:
    case = json.loads(steps_file.read_text())
    logger = logging.getLogger("release")
    known = {"dataclasses": dataclasses, "Counter": Counter, "Callable": Callable, "Any": Any, "logger": logger}
    found = classes(source / "compilation" / "cuda_graph.py", "CUDAGraphStat", "CUDAGraphLogging", **known)
    envs = SimpleNamespace(VLLM_LOGGING_LEVEL="INFO")
    formatter = classes(
        source / "logging_utils" / "formatter.py", "NewLineFormatter", logging=logging, Path=Path, envs=envs
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(formatter.NewLineFormatter(FORMAT, datefmt="%m-%d %H:%M:%S"))
    handler.addFilter(in_its_file)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    table = found.CUDAGraphLogging(case["mode"], case["sizes"])
    for _ in range(INTERVALS):
        for tokens, padded, mode, count in case["steps"]:
            for _ in range(count // INTERVALS):
                table.observe(found.CUDAGraphStat(tokens, padded, padded - tokens, mode))
        table.log(logger.info)


def in_its_file(record: logging.LogRecord) -> bool:
    """The file's name and the time as a server would write them."""
    record.filename, record.created, record.msecs = "cuda_graph.py", 1764460800.0, 0.0
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
