"""Logs that a person has formatted otherwise: each says the same as the log that vLLM writes by default."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from advisor.engine.compiling import compiled
from advisor.engine.log_lines import plain_log
from advisor.engine.logs import parse_active
from advisor.engine.startup import parse_startup
from advisor.launch.failure import classify
from advisor.launch.readiness import phase

LOGS = Path(__file__).resolve().parent.parent / "data" / "logs"
LINE = re.compile(r"^((?:\([^()]*pid=\d+[^()]*\) )*)(INFO|WARNING|ERROR) (\d\d-\d\d \d\d:\d\d:\d\d) \[([\w.]+):(\d+)\] (.*)$")
NAMES = [path.stem for path in sorted(LOGS.glob("*.log"))]


def rewritten(log: str, write) -> str:
    """Each line of vLLM's logger in another form; what was written past it (uvicorn, progress bars, tracebacks) as it was."""
    return "\n".join(write(*found.groups()) if (found := LINE.match(line)) else line for line in log.splitlines())


def own_json(processes, level, stamp, file, line, text):
    """`--logging-config.formatter json` of 0.32 and 0.33: JSON_FORMAT of vllm/logging_utils/formatter.py."""
    record = {"asctime": f"2026-{stamp},123", "levelname": level, "name": f"vllm.somewhere.{file.removesuffix('.py')}"}
    return processes + json.dumps({**record, "processName": "EngineCore", "process": 310, "message": text})


def custom_json(processes, level, stamp, file, line, text):
    """A file of VLLM_LOGGING_CONFIG_PATH with pythonjsonlogger's usual renaming, without the prefix of the process."""
    place = {"filename": file, "lineno": int(line)}
    when = f"2026-{stamp.replace(' ', 'T')}.123Z"
    name, pid = re.search(r"\((\w+)[^()]*pid=(\d+)", processes or "(MainProcess pid=1)").groups()
    return json.dumps({"timestamp": when, "severity": level, **place, "processName": name, "process": int(pid), "message": text})


def prefixed(processes, level, stamp, file, line, text):
    """VLLM_LOGGING_PREFIX in 0.9 to 0.31, where the process's own prefix stands in front of it."""
    return f"{processes}[replica-3] {level} {stamp} [{file}:{line}] {text}"


def prefixed_first(processes, level, stamp, file, line, text):
    """The same from 0.32 on, and the name that docker compose puts in front of each line."""
    return f"vllm-1  | [replica-3]{processes}{level} {stamp} [{file}:{line}] {text}"


def coloured(processes, level, stamp, file, line, text):
    """VLLM_LOGGING_COLOR=1: ColoredFormatter."""
    return f"\x1b[0;36m{processes}\x1b[0;0m\x1b[32m{level}\x1b[0m \x1b[90m{stamp}\x1b[0m \x1b[90m[{file}:{line}]\x1b[0m {text}"


FORMS = [own_json, custom_json, prefixed, prefixed_first, coloured]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_other_forms_say_the_same(name, form):
    log = (LOGS / f"{name}.log").read_text()
    other = rewritten(log, form)
    assert other != log and parse_active(log).vllm_version == parse_active(other).vllm_version
    assert parse_active(other) == parse_active(log)
    assert parse_startup(other, 60.0, parse_active(other)) == parse_startup(log, 60.0, parse_active(log))
    assert classify(1, other) == classify(1, log)
    assert phase(other) == phase(log)


def test_a_kernel_that_is_compiled_while_serving_is_seen_in_json_too():
    text = "Triton kernel JIT compilation during inference: _fused_moe_kernel. This causes a latency spike"
    assert compiled(own_json("", "WARNING", "11-30 10:00:00", "jit_monitor.py", "1", text)) == ("Triton kernel _fused_moe_kernel",)


def test_a_traceback_in_a_record_is_read_line_by_line():
    trace = (
        'Traceback (most recent call last):\n  File "/x/gpu_model_runner.py", line 1, in capture_model\n    run()\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    )
    record = {"asctime": "2026-11-30 10:00:00,1", "levelname": "ERROR", "name": "vllm.v1.engine.core", "process": 7,
              "processName": "EngineCore", "message": "EngineCore failed to start.", "exc_info": trace}  # fmt: skip
    outcome, reason = classify(1, json.dumps(record))
    assert outcome.value == "out_of_memory" and reason.startswith("out of memory while capturing CUDA graphs")


@pytest.mark.parametrize(
    "line",
    [
        "INFO:     Application startup complete.",
        '{"error": {"message": "The model does not exist."}}',  # an answer, not a record: nothing at its own top
        '(APIServer pid=1) INFO 11-30 10:00:00 [serving.py:1] body was {"message": "hello"}',
        '{"message": "cut off',
        "{not json}",
        "",
    ],
)
def test_what_is_no_record_stays_as_it_is(line):
    assert plain_log(line) == line


def test_a_line_that_quotes_another_one_far_inside_keeps_its_text():
    line = "x" * 250 + " INFO 11-30 10:00:00 [core.py:1] text"
    assert plain_log(line) == line


def test_a_record_without_a_time_keeps_what_it_has():
    text = "Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN']."
    record = {"message": text, "logger": "vllm.platforms.cuda"}
    assert plain_log(json.dumps(record)).startswith("[cuda.py:0] Using FLASH_ATTN")
    assert parse_active(json.dumps(record)).attention_backends == ("FLASH_ATTN",)


def test_the_table_of_counted_steps_is_one_record_of_many_lines():
    """`logger.info` gets the table as one text (compilation/cuda_graph.py), which the text formatter cuts into lines."""
    table = (
        "**CUDAGraph Config Settings:**\n\n| Unpadded Tokens | Padded Tokens | Num Paddings | Runtime Mode | Count |\n"
        "|-----------------|---------------|--------------|--------------|-------|\n"
        "| 3               | 4             | 1            | FULL         | 17    |\n"
    )
    record = own_json("(APIServer pid=1) ", "INFO", "11-30 10:00:00", "cuda_graph.py", "123", table)
    (steps,) = parse_active(record).graph_steps
    assert (steps.tokens, steps.padded, steps.mode, steps.count) == (3, 4, "FULL", 17)
