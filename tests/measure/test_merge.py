"""Several client processes: their parts become one load again, and how busy they were is known."""

from __future__ import annotations

import dataclasses
import json

import pytest

from advisor.measure.client_load import client_load, client_problem, most_processes
from advisor.measure.merge import client_parts, merged, prompts_digest
from advisor.measure.summary import summarise
from advisor.measure.validity import judge
from advisor.measure.workload import load_workload
from advisor.records import ClientLoad
from tests.measure.raw_results import WORKLOAD, made, recorded
from tests.study_help import sample


def watched(raw, began=100.0, ended=104.0, cpu_s=1.0, prompts="p", lags=(0.001, 0.003)):
    client = {"prompts": prompts, "cpu_s": cpu_s, "wall_s": ended - began, "began": began, "ended": ended}
    return {**raw, "advisor_client": {**client, "loop_lags_s": list(lags), "send_lags_s": [0.002]}}


def divided(raw, count, **words):
    """The raw result as `count` processes would have left it, each with its share of the requests."""
    parts = []
    for index in range(count):
        part = {name: value[index::count] if isinstance(value, list) else value for name, value in raw.items()}
        parts.append(watched(part, **words))
    return parts


@pytest.mark.parametrize("name", ["closed_loop", "shared_prefix"])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_load_that_was_divided_has_the_figures_of_the_whole(name: str, count: int):
    raw = recorded(name)
    whole = summarise(raw, seed=0)
    again = summarise(merged(divided(raw, count, began=100.0, ended=100.0 + raw["duration"])), seed=0)
    for field in dataclasses.fields(whole):
        assert getattr(again, field.name) == pytest.approx(getattr(whole, field.name)), field.name
    assert merged(divided(raw, count))["errors"] == raw["errors"]


def test_one_process_is_left_as_it_is():
    raw = watched(made())
    assert merged([raw]) == raw


def test_the_duration_is_from_the_first_request_to_the_last_answer_of_any_process():
    first, second = divided(made(), 2)
    first["advisor_client"] |= {"began": 10.0, "ended": 13.5}
    second["advisor_client"] |= {"began": 10.25, "ended": 14.0}
    whole = merged([first, second])
    assert whole["duration"] == 4.0 and "output_throughput" not in whole
    assert judge(whole, summarise(whole, 0), WORKLOAD, None) == ()
    assert json.loads(json.dumps(whole)) == whole


def test_parts_that_do_not_belong_together_are_refused():
    first, second = divided(made(), 2)
    with pytest.raises(ValueError, match="different prompts"):
        merged([first, {**second, "advisor_client": {**second["advisor_client"], "prompts": "q"}}])
    with pytest.raises(ValueError, match="do not make up one load"):
        merged([first, {**second, "errors": ["", ""]}])
    with pytest.raises(ValueError, match="sent no request"):
        merged([first, {**second, "advisor_client": {"prompts": "p"}}])


def test_the_busiest_process_counts_and_lags_are_of_all():
    parts = divided(made(), 2)
    parts[1]["advisor_client"] |= {"cpu_s": 3.0, "loop_lags_s": [0.010]}
    load = client_load(merged(parts))
    assert (load.processes, load.cpu_share) == (2, 0.75)
    assert load.loop_lag_ms["max"] == 10.0 and load.loop_lag_ms["mean"] == pytest.approx(14 / 3, abs=0.001)
    assert load.send_lag_ms["mean"] == 2.0
    assert prompts_digest(merged(parts)) == "p"


def test_a_client_that_was_not_watched_has_no_load():
    assert client_load(made()) is None and client_parts(made()) == () and prompts_digest(made()) is None
    assert client_load({**made(), "advisor_client": {"prompts": "p"}}) is None


def test_processes_are_limited_by_cores_and_by_the_load():
    chat, tiny = load_workload("chat"), load_workload("tiny")
    assert [most_processes(cores, chat) for cores in (1, 2, 3, 16, 128)] == [1, 1, 1, 8, 16]
    assert most_processes(64, tiny) == 4


def with_client(cpu_share: float, lag_ms: float = 0.0, processes: int = 1):
    return dataclasses.replace(sample(0, 100.0), client=ClientLoad(processes, cpu_share, {"mean": lag_ms}))


def test_a_client_without_room_sets_the_pace():
    assert client_problem(with_client(0.9)) is None
    assert "used 95% of a core with 1 client process:" in client_problem(with_client(0.95), most=8)
    assert "2 client processes (no more fit on this machine's cores)" in client_problem(with_client(0.95, 0, 2), most=2)


def test_lateness_counts_where_it_is_the_clients_own_and_large_against_a_token():
    assert "6.0 ms late on average, a token takes 10.0 ms" in client_problem(with_client(0.5, 6.0))
    assert client_problem(with_client(0.5, 4.0)) is None
    assert client_problem(with_client(0.05, 6.0)) is None  # the machine's doing: taints tell that
