"""A person's own evaluation (`--quality-command`), run against a live server: exit code and a number.

The command sees ADVISOR_BASE_URL (with /v1, as OpenAI clients expect it) and ADVISOR_MODEL beside the person's own environment.
It runs without a shell, in a process group that is ended with it, for a limited time. Its output stays in the launch's folder.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from advisor.errors import InputError
from advisor.records import QualityScore

STDOUT, STDERR = "quality.out", "quality.err"
TIMEOUT_S = 1800.0
TERM_GRACE_S = 5.0
POLL_S = 0.05
TAIL_BYTES = 64 * 1024  # of the output, where the score is looked for
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|NaN|inf(?:inity)?)(?![\w])")


def parse_command(text: str) -> tuple[str, ...]:
    """The words of `--quality-command`, split as a shell would, the program found. Raises InputError."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise InputError(
            f"--quality-command {text!r} cannot be split into words: {error}", "are all quotes closed?"
        ) from None
    if not words:
        raise InputError("--quality-command is empty", "for example --quality-command './evaluate.py --limit 200'")
    found = shutil.which(words[0])
    if found is None:
        raise InputError(
            f"--quality-command: {words[0]} is no program that can be run here",
            "it is started without a shell: for pipes or variables give a script",
        )
    return (str(Path(found).absolute()), *words[1:])


def run_quality(
    command: Sequence[str],
    server_url: str,
    served_name: str,
    folder: Path,
    timeout_s: float = TIMEOUT_S,
    api_key: str | None = None,
) -> QualityScore:
    """Run it to its end, or for `timeout_s` at most. Ctrl-C ends it and goes on; nothing else raises."""
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with (folder / STDOUT).open("wb") as out, (folder / STDERR).open("wb") as err:
        try:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **variables(server_url, served_name, api_key)},
                start_new_session=True,
            )
        except OSError as error:
            return QualityScore(problem=f"{command[0]} could not be started: {error.strerror}")
        try:
            code = _wait(process, begun + timeout_s)
        finally:
            _end_group(process)
    seconds = round(time.monotonic() - begun, 3)
    if code is None:
        return QualityScore(seconds=seconds, problem=f"no end within {timeout_s:g} s")
    return judged(code, _tail(folder / STDOUT), _tail(folder / STDERR), seconds)


def variables(server_url: str, served_name: str, api_key: str | None = None) -> dict[str, str]:
    key = {"ADVISOR_API_KEY": api_key} if api_key else {}
    return {"ADVISOR_BASE_URL": f"{server_url}/v1", "ADVISOR_MODEL": served_name, **key}


# ---------------------------------------------------------------- what it said (pure)


def judged(code: int, stdout: str, stderr: str, seconds: float) -> QualityScore:
    if code != 0:
        how = f"exit code {code}" if code > 0 else f"signal {-code}"
        said = [line.strip() for line in (*stdout.splitlines(), *stderr.splitlines()) if line.strip()]
        return QualityScore(exit_code=code, seconds=seconds, problem=how + (f": {said[-1][:200]}" if said else ""))
    return QualityScore(read_score(stdout), code, seconds)


def read_score(stdout: str) -> float | None:
    """`score` of the last JSON object that has one; else the last number of all. None where there is neither, or it is NaN.

    An evaluation of garbage may well end with a score of NaN, which no other number of its output may stand for.
    """
    for line in reversed(stdout.splitlines()):
        with contextlib.suppress(ValueError):
            told = json.loads(line)
            if isinstance(told, Mapping) and "score" in told:
                score = told["score"]
                return float(score) if isinstance(score, int | float) and math.isfinite(score) else None
    numbers = _NUMBER.findall(stdout)
    score = float(numbers[-1]) if numbers else math.nan
    return score if math.isfinite(score) else None


# ---------------------------------------------------------------- the process


def _wait(process: subprocess.Popen[bytes], deadline: float) -> int | None:
    """Exit status without reaping: while the leader is not reaped its group's id cannot become another's."""
    while time.monotonic() < deadline:
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None:
            return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        time.sleep(POLL_S)
    return None


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM and SIGKILL for all that is left of the group, then the leader is reaped."""
    _signal(process.pid, signal.SIGTERM)
    _wait(process, time.monotonic() + TERM_GRACE_S)
    _signal(process.pid, signal.SIGKILL)
    process.wait()


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        return file.read().decode(errors="replace")
