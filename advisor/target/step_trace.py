"""What torch.profiler saw while steps ran. Loaded by anatomy.py and attention.py by its path.

Once a trace was made, CUPTI stays in the process and slows the host: whoever times steps does so before.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable


def traced(work: Callable[[], object], drain: Callable[[], None] | None) -> tuple:
    """(events of a trace of `work`, as exported, microseconds; its wall seconds).

    `drain` waits for the GPU; None on a processor, whose operators are traced instead. On a GPU only what CUPTI sees, which costs
    the host less. It is drained before and after, so that all that `work` launches is in the trace and nothing of earlier steps.
    """
    from torch.profiler import ProfilerActivity, profile

    # As torch itself sets them where it knows of graphs: CUPTI must not be taken down and set up again.
    os.environ.update(TEARDOWN_CUPTI="0", DISABLE_CUPTI_LAZY_REINIT="1")
    wait = drain or (lambda: None)
    wait()
    with profile(activities=[ProfilerActivity.CUDA if drain else ProfilerActivity.CPU]) as profiler:
        begun = time.perf_counter()
        work()
        wait()
        wall = time.perf_counter() - begun
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profiler.export_chrome_trace(path)
        with open(path) as file:
            return json.load(file)["traceEvents"], wall
