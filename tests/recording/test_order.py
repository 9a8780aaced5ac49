"""The order of recording: default, every value once, then pairs, farthest first."""

import itertools
import random

import pytest

from advisor.recording.order import part, spread
from advisor.records import Candidate
from advisor.space.candidates import SettingChoices
from advisor.space.design import combinations

SETTINGS = (
    SettingChoices("--a", (None, 1, 2, 3)),
    SettingChoices("--b", (None, "x", "y")),
    SettingChoices("--c", (None, (1, 2)), {"--a": (None, 1)}),
    SettingChoices("--d", (None, True)),
)
ALL = [item for item in combinations(SETTINGS) if not item.is_baseline]


def pairs(items):
    values = [[str(item.settings.get(choice.name)) for choice in SETTINGS] for item in items]
    return {pair for row in values for pair in itertools.combinations(enumerate(row), 2)}


def test_it_is_the_whole_space_once_and_begins_with_the_default_and_each_value_alone():
    order = spread(ALL, SETTINGS)
    assert len(order) == len(ALL) + 1 and {item.key for item in order} == {Candidate().key, *(item.key for item in ALL)}
    assert order[0].is_baseline
    assert [item.overrides for item in order[1:8]] == [1] * 7 and order[8].overrides > 1


def test_pairs_are_covered_far_sooner_than_by_chance():
    order = spread(ALL, SETTINGS)
    whole, covered = pairs(ALL), pairs(order[:14])
    chance = [len(pairs(random.Random(seed).sample(ALL, 14))) for seed in range(50)]
    assert len(covered) >= len(whole) - 2 and len(covered) > max(chance)


@pytest.mark.parametrize("seed", range(3))
def test_it_does_not_depend_on_the_order_that_candidates_come_in_beyond_ties(seed):
    shuffled = random.Random(seed).sample(ALL, len(ALL))
    assert [item.overrides for item in spread(shuffled, SETTINGS)[:8]] == [0, *[1] * 7]
    assert spread(ALL, SETTINGS) == spread(list(ALL), SETTINGS)


def test_parts_are_disjoint_and_make_the_whole():
    order = spread(ALL, SETTINGS)
    parts = [part(order, (index, 3)) for index in range(3)]
    assert sorted(item.key for row in parts for item in row) == sorted(item.key for item in order)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1 and parts[0][0].is_baseline
