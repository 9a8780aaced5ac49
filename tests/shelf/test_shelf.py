"""benchmarks/shelf.py with a stand-in for `advisor`: what is begun, how it ends, what is left for the next time."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from advisor.engine.options import parse_options, split_serve_args
from advisor.engine.rules.legality import Surroundings, objections
from advisor.errors import InputError
from advisor.inspection.model import facts_from_config
from advisor.inspection.serve_command import Question, answer
from advisor.records import Candidate, Objective, Outcome, StartUp, Trial
from advisor.request import request_from_words
from advisor.search.budget import Budget
from advisor.serving_profile.store import read_profile
from advisor.serving_profile.values import Figure
from advisor.units import parse_duration_s
from benchmarks import shelf, shelf_table, timed_runs
from benchmarks.model_folders import ARCHITECTURES, COMMON
from benchmarks.shelf_entries import chosen, read_shelf, tune_words
from benchmarks.shelf_table import read_verified, with_table
from tests.shelf_help import LLAMA, ROOT, main, write_list
from tests.study_help import sample
from tests.verification.profiles import alone, improved, kept

# ---------------------------------------------------------------- the list


def test_the_list_asks_for_what_the_advisor_understands():
    """Every entry's words are a request that the advisor takes; the model folder can be made; random weights are in each."""
    whole = read_shelf()
    assert len(whole.entries) >= 8
    for name, entry in whole.entries.items():
        words = tune_words(name, whole, Path("models") / entry.model, Path("p.yaml"), Path("runs"), "python", "study")[1:]
        given = dict(zip(words[1::2], words[2::2], strict=False))
        load = {
            option: int(given[f"--{option.replace('_', '-')}"])
            for option in ("concurrency", "input_tokens", "output_tokens", "num_prompts")
            if f"--{option.replace('_', '-')}" in given
        }
        request = request_from_words(
            model=given["--model"], gpu=given["--gpu"], workload=given["--workload"], overrides=load,
            budget=given["--budget"], trials=None, confirm_launches=3, serve_args=given["--serve-args"], env=[],
            space=given.get("--space"), objective=given.get("--objective"), engine_python="python",
        )  # fmt: skip
        options = parse_options(request.serve_args).values
        assert options["--load-format"] == "dummy", name
        longest = request.workload.shared_prefix_tokens + (1 + request.workload.length_spread) * (
            request.workload.input_tokens + request.workload.output_tokens
        )
        assert longest <= int(options["--max-model-len"]), name
        assert entry.minutes <= 20 and abs(request.budget.total_s / 60 - entry.minutes) <= 1, name


# Seconds of a forked start that compiles anew, and of the load, fixed prompts and the stop of a baseline beside its slices. Those
# of the dense models are near what docs/evidence has (forked: 19 s with compiled code; whole trials of the 8B 68 to 79 s); the
# rest is assumed.
STARTS = {"Qwen3-0.6B": 35.0, "Llama-3.1-8B": 45.0, "DeepSeek-V2-Lite": 60.0, "Qwen3-30B-A3B": 90.0}
LOADS = {"chat": 25.0, "rag": 35.0, "batch": 45.0}
IMPORTS = 29.0  # of the launcher


@pytest.mark.parametrize("name", read_shelf().entries)
def test_a_budget_leaves_room_for_two_tries(name):
    """The confirmation's share is kept back by what the baseline cost: a budget that is too small would compare nothing."""
    entry = read_shelf().entries[name]
    start, load = STARTS[entry.model], LOADS[entry.workload]
    baseline = Trial(
        0, "baseline", Candidate(), Outcome.OK, samples=(sample(0, 100.0),), start_s=start, launcher="warm", launcher_s=IMPORTS,
        start_up=StartUp(cache="cold"), total_s=IMPORTS + start + load,
    )  # fmt: skip
    budget = Budget(parse_duration_s(entry.budget), soak_s=30.0)
    assert budget.search_s([baseline], Objective()) >= 2 * (start + load) * 0.8  # most candidates need no kernels of their own


def test_the_list_has_what_the_shelf_is_for():
    entries = read_shelf().entries
    models = {"Qwen3-0.6B", "Llama-3.1-8B", "Qwen3-30B-A3B", "DeepSeek-V2-Lite"}
    for model in models:
        assert {entry.workload for entry in entries.values() if entry.model == model} == {"chat", "rag", "batch"}, model
    beyond = [entry for entry in entries.values() if entry.concurrency == 1024]
    assert [(entry.workload, entry.model) for entry in beyond] == [("batch", "Llama-3.1-8B")]
    speculative = [entry for entry in entries.values() if "ngram" in entry.serve_args]
    (config,) = [parse_options(tuple(split_serve_args(entry.serve_args))).values["--speculative-config"] for entry in speculative]
    assert json.loads(config)["method"] == "ngram"


def test_no_entry_asks_for_what_vllm_0_26_would_refuse_on_an_h200(tmp_path):
    whole = read_shelf()
    for name, entry in whole.entries.items():
        folder = tmp_path / entry.model
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps({**COMMON, **ARCHITECTURES[entry.model]}))
        words = split_serve_args(f"{whole.serve_args} {entry.serve_args}")
        found = answer(Question(("vllm", "serve", str(folder), *words), vllm_version="0.26.0", gpu="H200"))
        assert not [item for item in found["findings"] if item["severity"] == "error"], name
        assert found["resolved"]["max_num_seqs"] >= (entry.concurrency or 256), name
        mla = entry.model.startswith("DeepSeek")
        assert found["resolved"]["attention_backend"] == ("FLASH_ATTN_MLA" if mla else "FLASH_ATTN"), name


def test_the_mla_model_has_backends_to_choose_from_on_an_h200():
    """By the rules of 0.26: what the entry's own words name."""
    facts = facts_from_config("m", {**COMMON, **ARCHITECTURES["DeepSeek-V2-Lite"]})
    around = Surroundings((0, 26, 0), (9, 0), dtype="bfloat16", head_size=facts.head_size, mla=True, sparse=False)
    dense = ("FLASH_ATTN_MLA", "FLASHMLA", "FLASHINFER_MLA", "TRITON_MLA", "CUTLASS_MLA", "FLASH_ATTN", "FLASHINFER")
    legal = [name for name in dense if not objections(name, around)]
    assert legal == ["FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA"]
    why = read_shelf().entries["DeepSeek-V2-Lite-chat"].why
    assert all(name in why for name in legal)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("model: nobody", "'nobody' is none of"),
        ("budget: soon", "not a duration"),
        ("colour: red", "colour"),
        ("minutes: 0", "minutes"),
    ],
)
def test_mistakes_in_a_list_are_told(tmp_path, change, said):
    path = Path(write_list(tmp_path, one=1))
    key = change.split(":")[0]
    lines = [line for line in path.read_text().splitlines() if not line.strip().startswith(f"{key}:")]
    path.write_text("\n".join([*lines, f"    {change}"]) + "\n")
    with pytest.raises(InputError, match=said):
        read_shelf(path)


def test_names_choose_in_the_list_s_order():
    whole = read_shelf()
    first, second = list(whole.entries)[:2]
    assert list(chosen(whole, [second, first])) == [first, second]
    with pytest.raises(InputError, match="nobody: no such entry"):
        chosen(whole, ["nobody"])


# ---------------------------------------------------------------- runs


def test_missing_profiles_are_made_in_turn_and_a_failure_ends_nothing(place, capsys):
    path = write_list(place, first=1, broken=1, second=1)
    assert main("--shelf", path) == 1
    said = capsys.readouterr().out
    assert (place / "profiles/h200/first.yaml").exists() and (place / "profiles/h200/second.yaml").exists()
    assert "broken: failed in" in said and "advisor: vLLM refuses the baseline (runs/shelf-logs/broken-1.log)" in said
    assert "2 done, 1 failed" in said
    # Only what is missing, the next time, with another log.
    assert main("--shelf", path) == 1
    assert sorted(item.name for item in (place / "runs/shelf-logs").iterdir()) == [
        "broken-1.log", "broken-2.log", "first-1.log", "second-1.log"
    ]  # fmt: skip


def test_a_shelf_that_is_full_does_nothing(place, capsys):
    path = write_list(place, first=1)
    assert main("--shelf", path) == 0 and main("--shelf", path) == 0
    assert "nothing to do: every profile is there" in capsys.readouterr().out


def test_what_a_study_needs_to_go_on_elsewhere_is_packed(place):
    """Unpacked in another folder, the same command finds profile and study there."""
    path = write_list(place, first=1)
    assert main("--shelf", path) == 0
    study = place / "runs/shelf/first-h200"
    for folder, names in {"0000-baseline": ("bench-seed0", "answers"), "0001-search": ("bench-seed0", "answers")}.items():
        (study / "launches" / folder).mkdir(parents=True)
        for name in names:
            (study / "launches" / folder / f"{name}.json").write_text("{}")
    (study / "cache").mkdir()
    (study / "cache" / "compiled").write_text("much")
    assert main("--shelf", path, "--pack", "all.tar.gz") == 0
    elsewhere = place / "elsewhere"
    with tarfile.open(place / "all.tar.gz") as archive:
        archive.extractall(elsewhere, filter="data")
    packed = {str(file.relative_to(elsewhere)) for file in elsewhere.rglob("*") if file.is_file()}
    launches = "runs/shelf/first-h200/launches"
    assert packed == {
        "profiles/h200/first.yaml", "runs/shelf-logs/first-1.log",
        "runs/shelf/first-h200/study.json", "runs/shelf/first-h200/trials.jsonl",
        f"{launches}/0000-baseline/bench-seed0.json", f"{launches}/0000-baseline/answers.json",
        f"{launches}/0001-search/answers.json",
    }  # fmt: skip
    with tarfile.open(place / "all-raw.tar.gz") as archive:
        assert archive.getnames() == [f"{launches}/0001-search/bench-seed0.json"]


def test_nothing_begins_that_is_not_expected_to_fit(place, capsys):
    path = write_list(place, long=30, short=2)
    assert main("--shelf", path, "--budget", "5m") == 0
    said = capsys.readouterr().out
    assert "long: no time: about 30m00s needed, 5m00s left" in said
    assert not (place / "profiles/h200/long.yaml").exists() and (place / "profiles/h200/short.yaml").exists()


def test_what_still_runs_at_the_stop_gets_ctrl_c_and_goes_on_the_next_time(place, capsys):
    path = write_list(place, slow=1, after=1)
    for stop_s in (2, 8, 32):  # on a busy machine the stand-in may not be up when a short time is over
        begun = time.monotonic()
        code, took_s = main("--shelf", path, "--stop", f"{stop_s}s"), time.monotonic() - begun
        said = capsys.readouterr().out
        if (place / "runs/shelf/slow-h200/begun").exists():
            break
    assert code == 0 and took_s < stop_s + 18
    assert "slow: stopped in" in said and "after: no time: the time is over" in said
    assert (place / "runs/shelf/slow-h200/interrupted").exists()
    assert main("--shelf", path) == 0
    assert (place / "profiles/h200/slow.yaml").exists() and (place / "profiles/h200/after.yaml").exists()


def test_ctrl_c_ends_the_tune_that_runs(place):
    path = write_list(place, slow=1)
    code = (
        "import sys; from benchmarks import shelf, timed_runs\n"
        f"timed_runs.ADVISOR = ({sys.executable!r}, {str(place / 'stand_in.py')!r})\n"
        f"sys.exit(shelf.main(['--shelf', {path!r}]))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE)
    for _ in range(600):
        if (place / "runs/shelf/slow-h200/begun").exists():
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and b"the same command goes on" in said
    assert (place / "runs/shelf/slow-h200/interrupted").exists()


def test_a_profile_that_compares_nothing_is_not_kept(place, monkeypatch, capsys):
    text = LLAMA.read_text()
    decision = text.index("\ndecision:"), text.index("\n# What to serve with.")
    empty = "\ndecision:\n  outcome: inconclusive\n  reason: no other setting was tried\n  launches_per_arm: 0\n"
    text = text[: decision[0]] + empty + text[decision[1] :]
    (place / "empty.yaml").write_text(text)
    monkeypatch.setenv("PROFILE", str(place / "empty.yaml"))
    path = write_list(place, first=1)
    assert main("--shelf", path) == 1
    said = capsys.readouterr().out
    assert "first: failed" in said and "nothing was compared with the default: no other setting was tried" in said
    assert not (place / "profiles/h200/first.yaml").exists()
    monkeypatch.setenv("PROFILE", str(LLAMA))
    assert main("--shelf", path) == 0


def test_a_study_of_another_machine_is_left_as_it_is(place, capsys):
    path = write_list(place, other=1)
    assert main("--shelf", path) == 0
    assert (place / "runs/shelf/other-h200").exists() and (place / "runs/shelf/other-h200-2").exists()
    assert "a study of another machine or version is left as it is" in capsys.readouterr().out


def test_a_study_that_goes_on_is_expected_to_take_the_rest(tmp_path):
    folder = ROOT / "docs/evidence/studies/Llama-3.1-8B-h200-chat"
    spent = timed_runs.spent_s(folder)
    assert spent == pytest.approx(29.8 * 60, rel=0.01)  # as docs/evidence says
    assert timed_runs.remaining_s(40, folder) == pytest.approx(40 * 60 - spent)
    assert timed_runs.remaining_s(10, folder) == 180.0
    assert timed_runs.remaining_s(10, tmp_path) == 600.0


# ---------------------------------------------------------------- verifications


def aged(folder: Path, name: str, hours: float) -> None:
    when = (datetime.now(timezone.utc) - timedelta(hours=hours)).isoformat(timespec="seconds")
    target = folder / "profiles" / "h200" / f"{name}.yaml"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(LLAMA.read_text().replace("2026-11-29T23:52:16+00:00", when))


def test_profiles_older_than_a_day_are_verified_and_recorded(place, monkeypatch, capsys):
    aged(place, "old", 30)
    aged(place, "unclear-old", 30)
    aged(place, "new", 3)
    monkeypatch.setenv("TODAY", datetime.now(timezone.utc).isoformat(timespec="seconds"))
    assert main("--verify") == 0
    records = read_verified(place / "verified.json")
    assert [record["profile"] for record in records] == ["old.yaml", "unclear-old.yaml"]
    assert json.loads((place / "verified.json").read_text())["schema"] == "advisor.reverified/1"
    said = capsys.readouterr().out
    assert "old: done in" in said and "holds (3 launches" in said
    log = (place / "runs/shelf-logs/verify-old-1.log").read_text()
    assert "--model models/Llama-3.1-8B" in log
    # Verified today: not due again. Named: verified anyhow, in the place of today's record.
    assert main("--verify") == 0 and "no profile is due" in capsys.readouterr().out
    assert main("--verify", "new", "--budget", "1h") == 0
    assert [record["profile"] for record in read_verified(place / "verified.json")] == ["old.yaml", "unclear-old.yaml", "new.yaml"]


def test_a_verification_that_goes_on_replaces_its_record(tmp_path):
    path = tmp_path / "verified.json"
    one = {"profile": "a.yaml", "verified_at": "2026-12-01T10:00:00+00:00", "verdict": {"here": None}, "result": "inconclusive"}
    shelf.add_record(path, one)
    shelf.add_record(path, {**one, "result": "holds"})
    shelf.add_record(path, {**one, "verified_at": "2026-12-02T10:00:00+00:00"})
    assert [(item["verified_at"][:10], item["result"]) for item in read_verified(path)] == [
        ("2026-12-01", "holds"), ("2026-12-02", "inconclusive")
    ]  # fmt: skip


def test_what_a_verification_is_expected_to_take():
    """The committed profile: confirmation launches of 68 to 86 s, the first start 44 s longer (docs/evidence)."""
    profile = read_profile(LLAMA)
    given = shelf._arguments(["--verify"])
    assert 3 * 68 < shelf.verify_s(profile, given) - 60 < 3 * 90 + 60
    more = shelf.verify_s(profile, shelf._arguments(["--verify", "--challenger"]))
    assert more - 60 == pytest.approx(2 * (shelf.verify_s(profile, given) - 60))


def test_a_verification_that_ends_in_a_traceback_is_no_answer(place, capsys):
    """Python exits with 1 then, which is the exit code of `does not hold`."""
    aged(place, "crash", 30)
    assert main("--verify") == 1
    assert "crash: failed in" in (said := capsys.readouterr().out) and "without an answer: RuntimeError: boom" in said
    assert read_verified(place / "verified.json") == []


def test_a_challenger_is_launched_where_there_is_one(place):
    """`advisor verify --challenger` refuses a profile that compared nothing."""
    given = shelf._arguments(["--verify", "--challenger"])
    assert shelf._has_challenger(given, kept({"enforce_eager": True}))
    assert not shelf._has_challenger(given, alone()) and not shelf._has_challenger(given, improved({"enforce_eager": True}))
    aged(place, "old", 30)
    assert main("--verify", "--challenger") == 0
    assert " --challenger" in (place / "runs/shelf-logs/verify-old-1.log").read_text().splitlines()[0]


def searched(profile, found: float):
    """The profile as one of `--find-load concurrency`."""
    goal = profile.objective.model_copy(update={"find_load": "concurrency", "slo": ["ttft_p99<500ms"], "metric": "max_concurrency"})
    side = profile.measured.default.model_copy(update={"load": Figure(mean=found)})
    measured = profile.measured.model_copy(update={"default": side})
    return profile.model_copy(update={"objective": goal, "measured": measured})


def test_a_load_that_is_searched_for_takes_many_samples():
    profile, given = read_profile(LLAMA), shelf._arguments(["--verify"])
    sample_s = profile.workload.num_prompts * profile.workload.output_tokens / profile.measured.default.output_tok_s.mean
    once = shelf.verify_s(profile, given)
    assert shelf.verify_s(searched(profile, 64.0), given) - once == pytest.approx(3 * 2 * 9 * sample_s)
    assert shelf.verify_s(searched(profile, 128.0), given) - once == pytest.approx(3 * 2 * 19 * sample_s)


def test_an_unknown_profile_is_told(place, capsys):
    aged(place, "old", 30)
    assert main("--verify", "nobody") == 2
    assert "nobody: no such profile in profiles/h200\nthere is: old" in capsys.readouterr().err


# ---------------------------------------------------------------- the table


def test_the_table_of_the_profiles_is_up_to_date():
    assert shelf.main(["--table", "--check", "--profiles", str(ROOT / "profiles")]) == 0


def test_the_table_is_written_and_checked(place, capsys):
    aged(place, "old", 30)
    readme = place / "profiles" / "README.md"
    readme.write_text("# Profiles\n\n| profile | x |\n|---|---|\n| gone | y |\n\nThe end.\n")
    assert main("--table", "--check") == 1 and "gone" in readme.read_text()
    assert main("--table") == 0 and main("--table", "--check") == 0
    text = readme.read_text()
    assert "| [h200/old.yaml](h200/old.yaml) | NVIDIA H200, vLLM 0.26.0 | 1024 in, 128 out, 64 in flight | random, " in text
    assert "| random, [earlier folder](#earlier-model-folders) | keep-defaults, " in text
    assert "| keep-defaults, -0.4% (-2.7% to +2.0%) | 3,281 | not yet |" in text
    assert "gone" not in text and text.startswith("# Profiles\n\n|") and text.endswith("|\n\nThe end.\n")
    main("--verify", "old")
    assert main("--table", "--check") == 1 and main("--table") == 0
    assert "| 2026-12-01: holds, default +1.0% (+0.0% to +2.0%) |" in readme.read_text()


def test_a_profile_that_was_tuned_anew_is_not_verified_yet(place):
    aged(place, "old", 30)
    (place / "profiles" / "README.md").write_text("| profile | x |\n|---|---|\n")
    main("--verify", "old")
    assert main("--table") == 0 and "2026-12-01: holds" in (place / "profiles" / "README.md").read_text()
    aged(place, "old", 20)
    assert main("--table") == 0 and "2026-12-01: holds" not in (place / "profiles" / "README.md").read_text()


def test_a_load_that_was_found_is_told_as_that():
    row = shelf_table._load(searched(read_profile(LLAMA), 96.0))
    assert row == "1024 in, 128 out, 96 in flight, found within ttft_p99<500ms"


def test_a_file_without_a_table_is_left_alone():
    with pytest.raises(InputError, match="no table"):
        with_table("# Profiles\n", [])


def test_a_model_folder_that_cannot_be_made_fails_its_entry_alone(place, capsys):
    shutil.rmtree(place / "models" / "tiny")
    path = write_list(place, first=1)
    assert main("--shelf", path, "--engine-python", shutil.which("false") or "/bin/false") == 1
    assert "first: failed: the model folder models/tiny could not be made" in capsys.readouterr().out
