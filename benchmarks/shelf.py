"""The shelf of profiles: `python -m benchmarks.shelf [NAME ...]` makes those that are missing, one after the other.

    python -m benchmarks.shelf --list                            # what is on it, and what is there
    python -m benchmarks.shelf --budget 24m                      # begins nothing that is not expected to fit
    python -m benchmarks.shelf --budget 24m --stop 9m30s         # what runs then gets Ctrl-C; the same command goes on
    python -m benchmarks.shelf --anew                            # also those that an earlier model folder was measured for
    python -m benchmarks.shelf --verify [PROFILE ...]            # `advisor verify` for profiles older than a day
    python -m benchmarks.shelf --table [--check]                 # the table of profiles/README.md

Exit code: 0 when nothing failed, 1 when something did (the rest was run all the same), 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from advisor.errors import AdvisorError, InputError
from advisor.journal import now, write_atomically
from advisor.measure.load_search import MOST_LOADS
from advisor.records import Decision
from advisor.serving_profile.schema import Profile
from advisor.serving_profile.store import read_profile
from advisor.study.endings import termination_is_ctrl_c
from advisor.units import parse_duration_s
from benchmarks.shelf_anew import has_earlier_folder
from benchmarks.shelf_entries import LIST, MODELS, Shelf, chosen, read_shelf, study_names, told, tune_words
from benchmarks.shelf_pack import pack
from benchmarks.shelf_table import read_verified, table, with_table
from benchmarks.timed_runs import DONE, FAILED, Clock, Ended, model_folder, remaining_s, run_all, run_logged

ROOT = Path(__file__).resolve().parents[1]
EVIDENCE = ROOT / "docs" / "evidence"
_VERIFIED = (0, 1, 5)  # exit codes of `advisor verify` that are answers: holds, does not hold, inconclusive
_WRONG, _OF_ANOTHER = 2, " was measured with "  # how `advisor tune` refuses a study of another driver, vLLM or torch
# Of a verification, generously: imports and inspection before the first launch, what an empty compile cache costs, fixed prompts
# and the stop. On an H200 an 8B's first start took 44 s longer than those that followed (docs/evidence: 99 and 55 s).
_IMPORTS_S, _COMPILE_S, _QUESTIONS_S = 60.0, 45.0, 10.0


def tune_missing(given: argparse.Namespace, shelf: Shelf, clock: Clock) -> list[Ended]:
    """Entries without a profile, in the list's order; a study that is there goes on.

    With --anew also those whose model folder has changed. Their profile stays until the new one is written, and launches of the
    earlier folder are in a study that `advisor tune` refuses, as it does one of another machine.
    """
    paths = {name: profile_path(given, shelf, name) for name in chosen(shelf, given.names)}
    earlier = [name for name in paths if given.anew and is_earlier(given, shelf, name)]
    before = {name: paths[name].read_text(encoding="utf-8") for name in earlier}
    wanted = [name for name, path in paths.items() if name in before or not path.exists()]
    runs = given.runs

    def run(name: str) -> Ended:
        model = model_folder(shelf.entries[name].model, given.models, given.engine_python)
        profile = profile_path(given, shelf, name)
        for study in study_names(name, shelf):
            words = tune_words(name, shelf, model, profile, runs, given.engine_python, study)
            ended = run_logged(name, words, given.logs, clock)
            if not (ended.exit_code == _WRONG and _OF_ANOTHER in ended.told):
                break
            say(f"{name}: a study of another machine or version is left as it is: {ended.told}")
        return _without_an_empty_one(ended, profile, before.get(name))

    def expected_s(name: str) -> float:
        if name in before:  # the study that is there may be the earlier one's
            return 60 * shelf.entries[name].minutes
        there = [runs / study for study in study_names(name, shelf) if (runs / study).exists()]
        return remaining_s(shelf.entries[name].minutes, there[-1]) if there else 60 * shelf.entries[name].minutes

    return run_all(wanted, expected_s, run, clock, say)


def is_earlier(given: argparse.Namespace, shelf: Shelf, name: str) -> bool:
    """Whether the entry has a profile, but one of an earlier model folder."""
    path = profile_path(given, shelf, name)
    return path.exists() and has_earlier_folder(read_profile(path), given.models)


def _without_an_empty_one(ended: Ended, path: Path, before: str | None) -> Ended:
    """A tune whose budget let it try nothing leaves a profile that says so: it is removed, so that the next run goes on.

    `before`: the text of the profile that it was to replace, which comes back.
    """
    if ended.state != DONE or not path.exists():
        return ended
    decision = read_profile(path).decision
    if decision.outcome is not Decision.INCONCLUSIVE or decision.challenger is not None:
        return ended
    if before is None:
        path.unlink()
    else:
        write_atomically(path, before)
    told = f"nothing was compared with the default: {decision.reason}; raise its budget"
    return dataclasses.replace(ended, state=FAILED, told=told)


def verify_old(given: argparse.Namespace, shelf: Shelf, clock: Clock) -> list[Ended]:
    """Profiles of the shelf's GPU that are older than --older and were not verified since; named ones whatever their age."""
    folder = given.profiles / shelf.gpu
    paths = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    unknown = [name for name in given.names if name not in paths]
    if unknown:
        raise InputError(f"{', '.join(unknown)}: no such profile in {folder}", f"there is: {', '.join(paths) or 'none'}")
    profiles = {name: read_profile(path) for name, path in paths.items()}
    had = read_verified(given.verified)
    due = given.names or [name for name, profile in profiles.items() if _is_due(profile, name, had, given)]

    def run(name: str) -> Ended:
        return _verify(given, paths[name], profiles[name], clock)

    return run_all(due, lambda name: verify_s(profiles[name], given), run, clock, say)


def _verify(given: argparse.Namespace, path: Path, profile: Profile, clock: Clock) -> Ended:
    words = ["advisor", "verify", str(path), "--runs", str(given.runs), "--engine-python", given.engine_python]
    words += ["--launches", str(given.launches)] if given.launches else []
    words += ["--challenger"] if _has_challenger(given, profile) else []
    if profile.model.local_folder:
        if profile.model.id not in MODELS:
            raise InputError(f"{path.name}: {profile.model.id} is no folder that can be made here", "verify it by hand")
        words += ["--model", str(model_folder(profile.model.id, given.models, given.engine_python))]
    with tempfile.TemporaryDirectory(prefix="shelf-") as scratch:
        record = Path(scratch) / "record.json"
        ended = run_logged(f"verify-{path.stem}", [*words, "--output", str(record)], given.logs, clock, _VERIFIED)
        if record.exists():
            add_record(given.verified, json.loads(record.read_text(encoding="utf-8")))
        elif ended.state == DONE:  # python's own exit code after a traceback is 1, too
            return dataclasses.replace(ended, state=FAILED, told=f"it ended without an answer: {ended.told}")
    return ended


def _has_challenger(given: argparse.Namespace, profile: Profile) -> bool:
    """Whether the candidate that was not chosen is to be launched, and there is one."""
    decision = profile.decision
    return given.challenger and decision.outcome is not Decision.IMPROVED and decision.challenger is not None


def add_record(path: Path, record: dict[str, Any]) -> None:
    """To those that are there; one of the same profile and day takes the place of the earlier one, which it goes on from."""
    same = (record["profile"], record["verified_at"], record["verdict"]["here"] is None)
    kept = [
        item
        for item in read_verified(path)
        if (item["profile"], item["verified_at"], item["verdict"]["here"] is None) != same
    ]
    document = {
        "schema": "advisor.reverified/1",
        "what": "profiles launched afresh on another day: `python -m benchmarks.shelf --verify`",
        "verifications": [*kept, record],
    }
    write_atomically(path, json.dumps(document, indent=1) + "\n")


def verify_s(profile: Profile, given: argparse.Namespace) -> float:
    """Imports, then each side's launches: start, warm-up and samples at the profile's pace, fixed prompts; one compiles anew."""
    sides = 2 if profile.decision.outcome is Decision.IMPROVED or _has_challenger(given, profile) else 1
    side, load = profile.measured.default, profile.workload
    if side is None:
        return _IMPORTS_S
    sample_s = _requests(profile) * load.output_tokens / side.output_tok_s.mean
    start_s = side.start_s.mean if side.start_s else 0.0
    each = start_s + sample_s * (1 + side.samples / max(1, side.launches)) + _QUESTIONS_S
    return _IMPORTS_S + sides * ((given.launches or 3) * each + _COMPILE_S)


def _requests(profile: Profile) -> float:
    """Of one seed on one launch. A load that is searched for takes up to MOST_LOADS samples, whose sizes go with the load."""
    load, side = profile.workload, profile.measured.default
    if profile.objective.find_load is None or side is None or side.load is None:
        return load.num_prompts * len(load.loads or [0])
    begun = load.concurrency or load.rate_requests_s or 1.0
    return load.num_prompts * MOST_LOADS * max(1.0, side.load.mean / begun)


def _is_due(profile: Profile, name: str, had: Iterable[dict[str, Any]], given: argparse.Namespace) -> bool:
    dates = [item["verified_at"] for item in had if item["profile"] == f"{name}.yaml"]
    last = datetime.fromisoformat(max([profile.study.created_at, *dates]))
    return (datetime.now(timezone.utc) - last).total_seconds() >= parse_duration_s(given.older, "--older")


def write_table(given: argparse.Namespace) -> int:
    """0; with --check 1 where the file is not as it would be written."""
    path = given.profiles / "README.md"
    old = path.read_text(encoding="utf-8")
    new = with_table(old, table(given.profiles, read_verified(given.verified)))
    if given.check:
        if new != old:
            say(f"{path} is not what the profiles say: python -m benchmarks.shelf --table")
        return int(new != old)
    if new != old:
        write_atomically(path, new)
    return 0


def profile_path(given: argparse.Namespace, shelf: Shelf, name: str) -> Path:
    return given.profiles / shelf.gpu / f"{name}.yaml"


def say(text: str) -> None:
    print(text, flush=True)


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.shelf", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="entries, or with --verify profiles; default: all")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--verify", action="store_true", help="launch profiles afresh instead of making missing ones")
    what.add_argument("--table", action="store_true", help="write the table of profiles/README.md")
    what.add_argument("--list", action="store_true", help="print the entries and whether their profiles are there")
    parser.add_argument("--anew", action="store_true", help="tune also what was measured with an earlier model folder")
    parser.add_argument("--check", action="store_true", help="with --table: change nothing, exit code 1 if it would")
    parser.add_argument("--budget", help="begin nothing that is expected to end later: 24m")
    parser.add_argument("--stop", help="Ctrl-C for what still runs then: 9m30s; the same command goes on")
    parser.add_argument("--older", default="24h", help="with --verify: profiles of at least this age")
    parser.add_argument("--launches", type=int, help="with --verify: fresh launches of each side")
    parser.add_argument("--challenger", action="store_true", help="with --verify: candidates that were not chosen, too")
    parser.add_argument("--pack", type=Path, help="at the end: what was made, and what studies need to go on, as .tar.gz")
    parser.add_argument("--shelf", type=Path, default=LIST, help="list of entries")
    parser.add_argument("--models", type=Path, default=Path("models"), help="folder of model folders")
    parser.add_argument("--profiles", type=Path, default=Path("profiles"))
    parser.add_argument("--verified", type=Path, help="file that --verify adds to; default: docs/evidence/reverified-GPU.json")
    parser.add_argument("--runs", type=Path, default=Path("runs/shelf"))
    parser.add_argument("--logs", type=Path, default=Path("runs/shelf-logs"))
    parser.add_argument("--engine-python", default=sys.executable, help="python of the environment that holds vLLM")
    return parser.parse_args(words)


def run(given: argparse.Namespace) -> int:
    shelf = read_shelf(given.shelf)
    given.verified = given.verified or EVIDENCE / f"reverified-{shelf.gpu}.json"
    if given.table:
        return write_table(given)
    if given.list:
        for name in chosen(shelf, given.names):
            there = "profile is there" if profile_path(given, shelf, name).exists() else "missing"
            earlier = ", measured with an earlier model folder: --anew" if is_earlier(given, shelf, name) else ""
            say(f"{told(name, shelf)}; {there}{earlier}")
        return 0
    clock = Clock(*(parse_duration_s(text, option) if text else None for text, option in _limits(given)))
    begun = now()
    try:
        with termination_is_ctrl_c():
            ended = (verify_old if given.verify else tune_missing)(given, shelf, clock)
    finally:
        if given.pack:
            made = [*(given.profiles / shelf.gpu).glob("*.yaml"), *given.logs.glob("*.log"), given.verified]
            say(pack(given.pack, made, given.runs))
    if not ended:
        say("nothing to do: " + ("no profile is due" if given.verify else "every profile is there"))
    counted = {state: sum(item.state == state for item in ended) for state in dict.fromkeys(item.state for item in ended)}
    say(f"since {begun}: " + ", ".join(f"{count} {state}" for state, count in counted.items()) if ended else f"since {begun}")
    return int(any(item.state == FAILED for item in ended))


def _limits(given: argparse.Namespace) -> list[tuple[str | None, str]]:
    return [(given.budget, "--budget"), (given.stop, "--stop")]


def main(words: Sequence[str]) -> int:
    try:
        return run(_arguments(words))
    except AdvisorError as error:
        print("\n".join(filter(None, (f"shelf: {error.problem}", error.hint))), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("shelf: stopped; the same command goes on", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
