"""Recording against the fake engine: real processes and files; only vLLM itself is missing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from advisor.errors import InputError, Interrupted, LaunchesFailed
from advisor.progress import Silent
from advisor.recording import record as recording
from advisor.recording.files import parse_shard
from advisor.recording.grid import portable, read_grid
from advisor.recording.merge import merged
from advisor.recording.record import Todo, Wish, expected_s, record
from advisor.recording.space import recorded_space
from advisor.records import Candidate, Foreign, Invalid, Outcome, Telemetry
from advisor.study import setup
from tests.study_help import sample, trial
from tests.test_tune import FACTS, FakeClient, FakeResolution, children, fakes, request_for  # noqa: F401

pytestmark = pytest.mark.slow

SPACE = "settings: {FAKE_TOK_S: {values: [default, 300, 1000]}, FAKE_FAULT: {values: [default, silent_exit]}}"
KEYS = [{}, {"FAKE_TOK_S": 300}, {"FAKE_TOK_S": 1000}, {"FAKE_FAULT": "silent_exit"}]


@pytest.fixture(autouse=True)
def resolution(monkeypatch):
    monkeypatch.setattr(recording, "Resolution", FakeResolution)


@pytest.fixture
def go(request_for, tmp_path):  # noqa: F811
    def run(space=SPACE, configs=None, launches=1, shard=None, fixed=False, name="grid.jsonl", **changes):
        if fixed:
            changes |= {"client_processes": 1}
        wish = Wish(tmp_path / "recorded" / name, configs, launches, shard, fixed, "advisor record --model fake-model")
        request = request_for(space, **{"objective": None, "budget": "1h", **changes})
        return record(request, wish, Silent())

    return run


def settings(grid):
    return [item.candidate.settings for item in grid.trials]


def test_every_distinct_candidate_is_launched_once_with_its_samples_costs_and_failures(go):
    answer = go(samples=2)
    grid = read_grid(answer.path)
    assert (answer.recorded, answer.wanted) == (6, 6) and answer.ended == "everything is recorded"
    assert [settings(grid)[0], *sorted(settings(grid)[1:4], key=str)] == [{}, *sorted(KEYS[1:], key=str)]
    assert len({item.candidate.key for item in grid.trials}) == 6
    for item in grid.trials:
        faulty = "FAKE_FAULT" in item.candidate.settings
        assert item.outcome is (Outcome.FAILED_TO_START if faulty else Outcome.OK) and item.total_s > 0
        assert [one.seed for one in item.samples] == ([] if faulty else [0, 1])
        assert faulty or None not in (item.start_s, item.warmup_s, item.measure_s, item.stop_s)
    assert [session.command for session in grid.sessions] == ["advisor record --model fake-model"]
    assert grid.head.workload.name == "tiny" and grid.head.facts.engine.vllm_version == "0.26.0"
    assert children() == []


def test_the_head_names_no_folder_of_the_machine(go, monkeypatch):
    """What vLLM says of a library that it cannot import ends with the file's path."""
    refused = {"2": "no _vllm_fa2_C (/opt/site/vllm/fa.py)"}
    facts = dataclasses.replace(FACTS, engine=dataclasses.replace(FACTS.engine, flash_attention_refusals=refused))
    monkeypatch.setattr(setup, "inspect_all", lambda *_, **__: facts)
    head = read_grid(go(configs=1).path).head
    assert head.facts.engine.flash_attention_refusals == {"2": "no _vllm_fa2_C (fa.py)"}
    assert "/opt/" not in json.dumps(dataclasses.asdict(head.facts))


def test_a_chosen_number_and_a_larger_one_later_are_one_grid(go):
    first = go(configs=2)
    assert (first.recorded, first.wanted) == (2, 2) and len(read_grid(first.path).trials) == 2
    again = go(configs=2)
    assert len(read_grid(again.path).trials) == 2  # nothing is launched again, the default neither
    more = read_grid(go(configs=4).path)
    assert len(more.trials) == 4 and len({item.candidate.key for item in more.trials}) == 4
    assert [item.number for item in more.trials] == [0, 1, 2, 3] and len(more.sessions) == 2


def test_repeated_launches_come_after_all_have_had_one(go):
    grid = read_grid(go("settings: {FAKE_TOK_S: {values: [default, 300]}}", launches=2).path)
    assert settings(grid) == [{}, {"FAKE_TOK_S": 300}, {}, {"FAKE_TOK_S": 300}]


def test_another_machine_begins_with_the_default(go, tmp_path):
    """Without the answers of the baseline no other launch could be judged; and two launches tell how machines differ."""
    go(configs=2)
    grid = read_grid(go(configs=3, runs=tmp_path / "elsewhere").path)
    assert [bool(item) for item in settings(grid)] == [False, True, False, True]


def test_the_budget_begins_no_launch_that_would_not_fit(go, monkeypatch):
    monkeypatch.setattr(recording, "expected_s", lambda trials: 1e6 if len(trials) == 3 else 0.0)
    answer = go()
    assert answer.recorded == 3 and answer.ended.startswith("budget:")
    monkeypatch.undo()


def test_ctrl_c_keeps_what_is_whole_and_the_same_command_goes_on(go, monkeypatch, tmp_path):
    calls = []

    def stopped(self, server_url, served_name, workload, seed, folder):
        calls.append(seed)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return sample(seed, 100.0)

    with monkeypatch.context() as patch:
        patch.setattr(FakeClient, "sample", stopped)
        with pytest.raises(Interrupted) as stopped_early:
            go(configs=3)
    assert children() == []
    path = tmp_path / "recorded" / "grid.jsonl"
    assert stopped_early.value.hint == f"finished trials kept in {path}: 1; the same command goes on from there"
    assert [item.outcome for item in read_grid(path).trials] == [Outcome.OK, Outcome.INTERRUPTED]
    with path.open("a") as file:
        file.write('{"event":"trial","trial":{"number":')  # and the machine was cut off in the middle of a line
    go(configs=3)
    assert [item.outcome.value for item in read_grid(path).trials] == ["ok", "interrupted", "ok", "failed_to_start"]


def test_a_default_that_cannot_be_measured_ends_it_and_is_launched_again(go, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(FakeClient, "sample", lambda *_: sample(0, 100.0, problems=["the client was starved"]))
        with pytest.raises(LaunchesFailed, match="the client was starved"):
            go(configs=1)
    answer = go(configs=1)
    outcomes = [item.outcome for item in read_grid(answer.path).trials]
    assert outcomes == [Outcome.INVALID_MEASUREMENT, Outcome.OK] and answer.recorded == 1


@pytest.mark.parametrize(("bad", "told"), [(1, Outcome.OK), (9, Outcome.INVALID_MEASUREMENT)])
def test_an_invalid_measurement_has_one_more_try_after_the_others(go, monkeypatch, bad, told):
    real, launched = FakeClient.sample, []

    def disturbed(self, server_url, served_name, workload, seed, folder):
        taken = real(self, server_url, served_name, workload, seed, folder)
        if taken.output_tok_s > 900:  # only FAKE_TOK_S=1000 is as fast
            launched.append(folder)
            if len(set(launched)) <= bad:
                return dataclasses.replace(taken, problems=("disturbed",), classes=(Invalid.CACHED_PROMPTS,))
        return taken

    monkeypatch.setattr(FakeClient, "sample", disturbed)
    answer = go("settings: {FAKE_TOK_S: {values: [default, 300, 1000, 400]}}")
    assert (answer.recorded, answer.wanted) == (4, 4)
    trials = read_grid(answer.path).trials
    fast = {"FAKE_TOK_S": 1000}
    assert [item.outcome for item in trials if item.candidate.settings == fast] == [Outcome.INVALID_MEASUREMENT, told]
    assert trials[-1].candidate.settings == fast and len(trials) == 5
    assert len(read_grid(go("settings: {FAKE_TOK_S: {values: [default, 300, 1000, 400]}}").path).trials) == 5


class Scripted:
    """Launches and the grid's file at once: `outcome(candidate, number)` says how a launch ends."""

    folder = Path("unused")

    def __init__(self, outcome):
        self.outcome, self.trials = outcome, []

    def __call__(self, phase, candidate):
        number = len(self.trials)
        assert number < 60  # and not for ever
        ended, reason = self.outcome(candidate, number)
        made = trial(number, candidate.settings, 100.0 if ended is Outcome.OK else None, outcome=ended, reason=reason, phase=phase)
        self.trials.append(made)
        return made


def scripted(monkeypatch, outcome, launches):
    """(its launches, why it ended) of a default and ten values."""
    monkeypatch.setattr(recording, "baseline_answers", lambda trials, folder: trials)
    made = Scripted(outcome)
    todo = Todo([Candidate(), *(Candidate({"x": number}) for number in range(10))], launches)
    return made.trials, lambda: recording._launches(made, made, todo, [], 1e18)


def test_second_tries_that_end_like_the_first_are_no_common_failure(monkeypatch):
    """They come one after the other, whatever lay between the first ones."""

    def small_cache(candidate, _number):
        bad = candidate.settings.get("x") in (1, 3, 5, 7, 9)
        return (Outcome.INVALID_MEASUREMENT, "preemptions: 70") if bad else (Outcome.OK, "")

    trials, go_on = scripted(monkeypatch, small_cache, 1)
    assert go_on() == "everything is recorded" and len(trials) == 11 + 5
    trials, go_on = scripted(monkeypatch, lambda candidate, number: (Outcome.INVALID_MEASUREMENT if number else Outcome.OK, ""), 1)
    with pytest.raises(LaunchesFailed, match="the first 4 candidates all"):
        go_on()  # first tries are


def test_a_default_that_fails_later_ends_it_too(monkeypatch):
    """Not counted as launched, it would be the next one again; by reasons in turn for ever."""
    reasons = ((Outcome.CRASHED, "it died"), (Outcome.INVALID_MEASUREMENT, "late"))
    trials, go_on = scripted(
        monkeypatch, lambda candidate, number: reasons[number % 2] if number > 9 and candidate.is_baseline else (Outcome.OK, ""), 2
    )
    with pytest.raises(LaunchesFailed, match="the baseline ended as"):
        go_on()
    assert [item.candidate.is_baseline for item in trials[10:]] == [False, True]


def test_other_conditions_are_refused_before_anything_is_launched(go, monkeypatch):
    go(configs=1)
    with pytest.raises(InputError, match="recorded with samples 1, now it is 2"):
        go(samples=2)
    other = setup.inspect_all()
    other = dataclasses.replace(other, gpu=dataclasses.replace(other.gpu, driver="999.1"))
    monkeypatch.setattr(setup, "inspect_all", lambda *_, **__: other)
    with pytest.raises(InputError, match="driver null, now it is"):
        go()


def test_two_parts_make_the_whole(go, tmp_path):
    parts = [go(shard=(index, 2), fixed=True) for index in range(2)]
    paths = [answer.path for answer in parts]
    assert [path.name for path in paths] == ["grid.0of2.jsonl", "grid.1of2.jsonl"]
    assert not (tmp_path / "recorded" / "grid.jsonl").exists()
    text, launches = merged(paths)
    whole = tmp_path / "recorded" / "grid.jsonl"
    whole.write_text(text)
    grid = read_grid(whole)
    assert launches == len(grid.trials) == 7  # the default in both
    assert len({item.candidate.key for item in grid.trials}) == 6 and len(grid.sessions) == 2
    assert [item.number for item in grid.trials] == list(range(7))
    assert merged([whole, *paths]) == (text, 7)
    assert go().ended == "everything is recorded" and len(read_grid(whole).trials) == 7
    plain = json.loads(text.splitlines()[0])["grid"]
    assert plain["schema"] == "advisor.grid/1" and plain["random_weights"] is False


def test_parts_must_send_one_load(go):
    with pytest.raises(InputError, match="must send the same load"):
        go(shard=(0, 2))
    go(configs=1)
    assert go(shard=(1, 2), configs=2).recorded == 1


def test_parts_that_sent_different_loads_are_not_merged(go, tmp_path):
    path = go(configs=1, fixed=True).path
    changed = path.with_name("other.jsonl")
    count = read_grid(path).trials[0].plan.num_prompts
    changed.write_text(path.read_text().replace(f'"plan":{{"num_prompts":{count}', '"plan":{"num_prompts":999'))
    with pytest.raises(InputError, match=f"different prompts: {count} from 1 processes.*999 from 1"):
        merged([path, changed])
    changed.write_text(path.read_text().replace('"vllm":"0.26.0"', '"vllm":"0.27.0"'))
    with pytest.raises(InputError, match="vllm"):
        merged([path, changed])


def test_the_file_holds_no_path_and_no_secret_of_the_machine(go, tmp_path, request_for):  # noqa: F811
    path = go(configs=2, env=["HF_TOKEN=hf_abcdefgh"]).path
    text = path.read_text()
    assert "hf_abcdefgh" not in text and str(tmp_path) not in text and "pid" not in json.loads(text.splitlines()[2])
    assert str(Path(recording.__file__).parents[2]) not in text.replace(str(Path(setup.__file__).parents[2] / "tests"), "")


def test_a_launch_is_kept_without_the_machines_processes():
    seen = Telemetry(cores=2, cpu_processes=(Foreign(7, "browser"),), gpu_processes=(Foreign(8, "game"),))
    taint = "other programs used 1 of 2 cores: browser (pid 7) 0.9"
    disturbed = dataclasses.replace(sample(0, 1.0), telemetry=seen, taints=(taint,))
    kept = portable(dataclasses.replace(trial(0, {}, 1.0), samples=(disturbed,), notes=(taint,)))
    assert kept.notes == kept.samples[0].taints == ("other programs used 1 of 2 cores: browser 0.9",)
    assert kept.samples[0].telemetry == Telemetry(cores=2)


def test_the_recorded_space_is_the_one_that_was_searched(go):
    grid = read_grid(go(configs=3).path)
    space = recorded_space(grid.head)
    assert {item.key for item in space.candidates} == {item.key for item in grid.head.candidates[1:]}
    known = {item.candidate.key for item in grid.trials}
    part = recorded_space(grid.head, known)
    assert {item.key for item in part.candidates} == known - {Candidate().key}
    assert all("was not recorded" in item.reason for item in part.rejections)


def test_what_is_left_to_do():
    one, two, bad = Candidate({"--a": 1}), Candidate({"--a": 2}), Candidate({"--a": 3})
    todo = Todo([one, two, bad], 2)
    done = [
        trial(0, one.settings, 1.0), trial(1, two.settings, 1.0), trial(2, one.settings, 1.0),
        trial(3, bad.settings, outcome=Outcome.CRASHED), trial(4, two.settings, outcome=Outcome.INTERRUPTED),
    ]  # fmt: skip
    assert todo.next([]) == one and todo.next(done[:1]) == two and todo.next(done) == two
    assert todo.finished(done) == 2 and todo.told(done) == "2 of 3 configurations recorded, 1 of them as failures"
    assert todo.next([*done, done[1]]) is None


def test_a_launch_is_taken_to_last_as_long_as_three_of_four_did():
    assert expected_s([]) == 0.0
    costs = [trial(n, {}, 1.0, total_s=cost) for n, cost in enumerate((10, 20, 30, 40, 50))]
    assert expected_s(costs) == 40.0
    assert expected_s([*costs, trial(9, {}, outcome=Outcome.INTERRUPTED, total_s=900)]) == 40.0


@pytest.mark.parametrize("text", ["2/2", "1", "a/b", "-1/2", ""])
def test_a_wrong_shard_is_told(text):
    assert parse_shard("1/2") == (1, 2)
    with pytest.raises(InputError, match="--shard"):
        parse_shard(text)


def test_what_is_no_grid_is_named_with_what_would_be_one(tmp_path):
    (tmp_path / "notes.md").write_text("# Notes\n")
    with pytest.raises(InputError, match=r"notes\.md' is not a recorded grid") as caught:
        merged([tmp_path / "notes.md"])
    assert "that `advisor record` wrote" in caught.value.hint
    with pytest.raises(InputError, match=r"^grid '.*none.jsonl' cannot be read: No such file or directory$"):
        merged([tmp_path / "none.jsonl"])
