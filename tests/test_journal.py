"""The journal: the only state of a study."""

import json

import pytest

from advisor.errors import InputError
from advisor.journal import Study, write_atomically
from advisor.records import Candidate, Command, Outcome
from tests.study_help import trial

IDENTITY = {"model": "m", "samples": 2, "serve_args": ("--a", "1")}


def test_trials_come_back_as_they_were(tmp_path):
    first = trial(0, {}, 100.0, phase="baseline")
    second = trial(1, {"cudagraph_capture_sizes": [1, 2]}, outcome=Outcome.OUT_OF_MEMORY, reason="x")
    with Study(tmp_path / "s", "s", IDENTITY) as study:
        assert not study.resumed and study.next_number == 0
        study.append(first)
        study.append(second)
    with Study(tmp_path / "s", "s", IDENTITY) as study:
        assert study.trials == [first, second]
        assert study.next_number == 2 and study.spent_s == 120.0
        assert study.trials[1].command == Command(()) and isinstance(study.trials[0].candidate, Candidate)


def test_half_a_last_line_is_dropped(tmp_path):
    with Study(tmp_path / "s", "s", IDENTITY) as study:
        study.append(trial(0, {}, 100.0))
    journal = tmp_path / "s" / "trials.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole + whole[:40])
    with Study(tmp_path / "s", "s", IDENTITY) as study:
        assert len(study.trials) == 1
        study.append(trial(1, {}, 90.0))
    assert [json.loads(line)["trial"]["number"] for line in journal.read_text().splitlines()] == [0, 1]


def test_a_broken_line_in_the_middle_is_told(tmp_path):
    with Study(tmp_path / "s", "s", IDENTITY):
        pass
    (tmp_path / "s" / "trials.jsonl").write_text('{"event": "trial"}\n')
    with pytest.raises(InputError, match="line 1: not an event"):
        Study(tmp_path / "s", "s", IDENTITY)


def test_other_conditions_are_never_mixed(tmp_path):
    with Study(tmp_path / "s", "s", IDENTITY) as study:
        study.append(trial(0, {}, 100.0))
    with pytest.raises(InputError, match="measured with samples 2, now it is 3"):
        Study(tmp_path / "s", "s", {**IDENTITY, "samples": 3})


def test_one_run_at_a_time(tmp_path):
    with Study(tmp_path / "s", "s", IDENTITY), pytest.raises(InputError, match="in use by another advisor"):
        Study(tmp_path / "s", "s", IDENTITY)
    with Study(tmp_path / "s", "s", IDENTITY):
        pass


def test_a_file_in_the_way_is_a_clear_error(tmp_path):
    (tmp_path / "s").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        Study(tmp_path / "s", "s", IDENTITY)


def test_atomic_write_leaves_the_old_file_when_it_fails(tmp_path, monkeypatch):
    path = tmp_path / "f"
    write_atomically(path, "old")
    monkeypatch.setattr("os.fsync", lambda fd: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, "new")
    assert path.read_text() == "old" and [item.name for item in tmp_path.iterdir()] == ["f"]


def test_a_full_disk_leaves_no_half_line(tmp_path, monkeypatch):
    with Study(tmp_path / "s", "s", IDENTITY) as study:
        study.append(trial(0, {}, 100.0))
        monkeypatch.setattr("os.fsync", lambda fd: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            study.append(trial(1, {}, 100.0))
        monkeypatch.undo()
        assert len(study.trials) == 1
        study.append(trial(1, {}, 90.0))
    with Study(tmp_path / "s", "s", IDENTITY) as study:
        assert [item.number for item in study.trials] == [0, 1]


def test_a_study_that_measured_nothing_gives_way(tmp_path):
    failed = trial(0, {}, outcome=Outcome.FAILED_TO_START, reason="a wrong argument")
    with Study(tmp_path / "s", "s", IDENTITY) as study:
        study.append(failed)
    with Study(tmp_path / "s", "s", {**IDENTITY, "samples": 3}) as study:
        assert study.trials == [] and not study.resumed
        study.append(trial(0, {}, 100.0))
    assert "a wrong argument" in (tmp_path / "s" / "trials-1.jsonl").read_text()
    assert json.loads((tmp_path / "s" / "study-1.json").read_text())["identity"]["samples"] == 2
    with pytest.raises(InputError, match="measured with samples 3, now it is 2"):
        Study(tmp_path / "s", "s", IDENTITY)
