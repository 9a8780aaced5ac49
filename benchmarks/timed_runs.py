"""Commands of the advisor and of `benchmarks`, one after the other, each a process with a log of its own, within a time budget."""

from __future__ import annotations

import contextlib
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from advisor.errors import AdvisorError
from advisor.journal import read_events
from advisor.units import duration
from benchmarks.model_folders import ARCHITECTURES

ROOT = Path(__file__).resolve().parents[1]
ADVISOR = (sys.executable, "-m", "advisor")
_LEAST_S = 180.0  # of a study that goes on, however much of its budget is spent: its imports, a round, a proof
_GRACE_S = 120.0  # from Ctrl-C until a tune has ended its server; vLLM takes up to 15 s
_TAIL = 4000  # characters of a log, for its last line
DONE, STOPPED, FAILED, LEFT = "done", "stopped", "failed", "no time"


@dataclass(frozen=True)
class Clock:
    """`budget_s`: nothing begins that is expected to end later. `stop_s`: what runs then gets Ctrl-C. None: no such limit."""

    budget_s: float | None = None
    stop_s: float | None = None
    begun: float = field(default_factory=time.monotonic)

    def left_s(self) -> float:
        """For beginning something."""
        return float("inf") if self.budget_s is None else self.begun + self.budget_s - time.monotonic()

    def until_stop_s(self) -> float | None:
        return None if self.stop_s is None else max(0.0, self.begun + self.stop_s - time.monotonic())

    @property
    def over(self) -> bool:
        return self.until_stop_s() == 0.0


@dataclass(frozen=True)
class Ended:
    name: str
    state: str  # DONE, STOPPED, FAILED or LEFT
    told: str
    exit_code: int | None = None
    seconds: float = 0.0


def run_all(
    names: Sequence[str],
    expected_s: Callable[[str], float],
    run: Callable[[str], Ended],
    clock: Clock,
    say: Callable[[str], None],
) -> list[Ended]:
    """Each in turn. One that is not expected to fit is left out, a shorter one after it may begin; a failed one ends nothing."""
    ended: list[Ended] = []
    for name in names:
        needed, left = expected_s(name), clock.left_s()
        if clock.over or needed > left:
            told = "the time is over" if clock.over else f"about {duration(needed)} needed, {duration(max(left, 0.0))} left"
            ended.append(Ended(name, LEFT, told))
        else:
            say(f"{name}: begins, about {duration(needed)}")
            try:
                ended.append(run(name))
            except AdvisorError as error:
                ended.append(Ended(name, FAILED, error.problem))
        last = ended[-1]
        took = f" in {duration(last.seconds)}" if last.seconds else ""
        say(f"{name}: {last.state}{took}: {last.told}")
    return ended


def run_logged(name: str, words: Sequence[str], logs: Path, clock: Clock, good: Sequence[int] = (0,)) -> Ended:
    """`advisor ...` or `python ...`, its output in a log file of its own. `good`: exit codes that are answers.

    What still runs when the clock stops gets Ctrl-C, as it does when this process gets one, and ends its server itself.
    """
    program = ADVISOR if words[0] == "advisor" else (sys.executable,)
    log = free_log(logs, name)
    begun = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        file.write(f"{shlex.join(words)}\n")
        file.flush()
        # A session of its own: Ctrl-C at a terminal comes once, from here.
        process = subprocess.Popen([*program, *words[1:]], stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(clock.until_stop_s())
        except subprocess.TimeoutExpired:
            _interrupt(process)
            return Ended(name, STOPPED, f"the time is over; the same command goes on; {log}", None, time.monotonic() - begun)
        except BaseException:
            _interrupt(process)
            raise
    seconds = time.monotonic() - begun
    return Ended(name, DONE if code in good else FAILED, f"{last_line(log)} ({log})", code, seconds)


def _interrupt(process: subprocess.Popen) -> None:
    # The advisor takes it as Ctrl-C. SIGINT itself is ignored by what a shell started in the background, and by its children.
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(KeyboardInterrupt):
        try:
            process.wait(_GRACE_S)
            return
        except subprocess.TimeoutExpired:
            pass
    process.kill()  # its servers' guards end them when it is gone
    process.wait()


def free_log(logs: Path, name: str) -> Path:
    """`NAME-1.log`, `NAME-2.log` for the next run."""
    logs.mkdir(parents=True, exist_ok=True)
    numbers = [int(text) for path in logs.glob(f"{name}-*.log") if (text := path.stem[len(name) + 1 :]).isdigit()]
    return logs / f"{name}-{max(numbers, default=0) + 1}.log"


def last_line(log: Path) -> str:
    """What a command said last, or its error with `advisor:` before it."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL))
        lines = [line.strip() for line in file.read().decode("utf-8", errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("advisor: ")]
    return (errors or lines or ["it said nothing"])[-1]


def spent_s(folder: Path) -> float:
    """Seconds that the launches of a study took so far; 0 where there is none, or its journal cannot be read."""
    try:
        events = read_events(folder / "trials.jsonl")
    except AdvisorError:
        return 0.0
    return sum(event["trial"].total_s for event in events if event["event"] == "trial")


def remaining_s(minutes: float, folder: Path) -> float:
    """What is expected of a study that is there in part."""
    return max(_LEAST_S, minutes * 60 - spent) if (spent := spent_s(folder)) else minutes * 60


def model_folder(name: str, models: Path, engine_python: str) -> Path:
    """The folder, made by the target interpreter where it is missing. Raises AdvisorError where that fails."""
    folder = models / name
    if (folder / "config.json").exists():
        return folder
    script = "benchmarks/model_folders.py" if name in ARCHITECTURES else "advisor/target/demo_model.py"
    given = [str(models), name] if name in ARCHITECTURES else [str(folder), "--size", name]
    done = subprocess.run([engine_python, str(ROOT / script), *given], capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise AdvisorError(f"the model folder {folder} could not be made: {said[-1]}", f"it needs tokenizers in {engine_python}")
    return folder
