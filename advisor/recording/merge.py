"""Several parts of one grid, recorded at the same time or one after the other, as one file. Pure but for reading them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from advisor.errors import InputError
from advisor.journal import read_events
from advisor.recording.grid import Recorded, check_same, head_line, line, read_grid
from advisor.records import Outcome, Trial, to_json


def merged(paths: Sequence[Path]) -> tuple[str, int]:
    """The text of one grid with the launches of all files, each once, numbered anew, and their number.

    Raises InputError where the files do not belong together.

    The head is that of the first file. Launches that were interrupted are left out, and so are the paths to logs and raw
    results, which lie in several folders. Merging a merged file with its parts again changes nothing.
    """
    grids = [(path, read_grid(path)) for path in paths]
    first_path, first = grids[0]
    for path, grid in grids[1:]:
        check_same(first_path, first.head, grid.head.identity)
        if [item.key for item in grid.head.candidates] != [item.key for item in first.head.candidates]:
            raise InputError(
                f"{str(first_path)!r} and {str(path)!r} have other candidates: two versions of the advisor?"
            )
    _check_comparable(grids)
    lines, seen = [head_line(first.head)], set()
    number = 0
    for path in paths:
        for event in read_events(path):
            if event["event"] == "session":
                text = line("session", event["session"])
            elif event["event"] == "trial" and event["trial"].outcome is not Outcome.INTERRUPTED:
                text = line("trial", to_json(_moved(event["trial"], 0)))
            else:
                continue
            if text in seen:
                continue
            seen.add(text)
            if event["event"] == "trial":
                text = line("trial", to_json(_moved(event["trial"], number)))
                number += 1
            lines.append(text)
    return "".join(lines), number


def _moved(trial: Trial, number: int) -> Trial:
    samples = tuple(dataclasses.replace(sample, raw=None) for sample in trial.samples)
    return dataclasses.replace(trial, number=number, folder=None, answers=None, samples=samples)


def _check_comparable(grids: Sequence[tuple[Path, Recorded]]) -> None:
    """All launches must have had the same prompts, as many of them, sent by as many processes."""
    digests: dict[tuple[int, int], str] = {}
    plans: dict[tuple[int, int], Path] = {}
    for path, grid in grids:
        for trial in grid.trials:
            if trial.plan is not None and trial.ok:
                plans.setdefault((trial.plan.num_prompts, trial.plan.client_processes), path)
            for sample in trial.samples:
                key = (sample.seed, sample.requests + sample.failed)
                if sample.prompts and not sample.problems and digests.setdefault(key, sample.prompts) != sample.prompts:
                    raise InputError(
                        f"{str(path)!r}: the prompts of seed {sample.seed} are not those of the other files"
                    )
    if len(plans) > 1:
        told = ", ".join(
            f"{prompts} from {processes} processes in {str(path)!r}" for (prompts, processes), path in plans.items()
        )
        raise InputError(
            f"samples have different prompts: {told}",
            "record all parts with the same --num-prompts and --client-processes",
        )
