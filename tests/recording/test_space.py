"""The space that a grid's head gives back to a search."""

from __future__ import annotations

import dataclasses
import json

from advisor.recording.grid import Equal, Head, read_head
from advisor.recording.space import equal_ones, recorded_space
from advisor.records import Candidate, from_json, to_json
from advisor.space.design import combinations
from tests.recording import synthetic

SAME, KEPT = Candidate({"--backend": "B1", "--graphs": "G3"}), Candidate({"--graphs": "G3"})


def head_with_equals(tmp_path):
    head = read_head(synthetic.write_grid(tmp_path / "grid.jsonl"))
    left = [
        (item, found) for item, found in zip(head.candidates, head.resolved, strict=True) if item.key != SAME.key
    ]
    return dataclasses.replace(
        head, candidates=tuple(item for item, _ in left), resolved=tuple(found for _, found in left), equal=(Equal(SAME, KEPT),)
    )  # fmt: skip


def test_what_runs_alike_is_answered_by_the_one_that_was_recorded(tmp_path):
    head = head_with_equals(tmp_path)
    space = recorded_space(head)
    assert space.stands_for(SAME).key == KEPT.key and SAME.key not in {item.key for item in space.candidates}
    assert {item.key for item in space.candidates} == {item.key for item in head.candidates[1:]}
    assert equal_ones(space, list(combinations(space.settings))) == (Equal(SAME, KEPT),)


def test_what_was_not_recorded_may_not_be_proposed(tmp_path):
    head = head_with_equals(tmp_path)
    keys = {item.key for item in head.candidates if item.key != KEPT.key}
    space = recorded_space(head, keys)
    assert space.stands_for(KEPT) is None and space.stands_for(SAME) is None
    assert KEPT.key not in {item.key for item in space.candidates}


def test_a_head_comes_back_as_it_was_written(tmp_path):
    head = head_with_equals(tmp_path)
    again = from_json(Head, json.loads(json.dumps(to_json(head))))
    assert to_json(again) == to_json(head) and again.candidates == head.candidates
    assert recorded_space(again).settings == synthetic.SETTINGS
