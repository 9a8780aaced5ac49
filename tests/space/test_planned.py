"""Planned lists among the values of a space."""

from advisor.space.capture_lists import NAMES, named_list
from advisor.space.choices import Limits, SettingChoices
from advisor.space.planned import with_planned_lists

LIMITS = Limits(256, 8192)
LISTS = ((8, 48), (48,))


def capture(*values):
    return SettingChoices("cudagraph_capture_sizes", values, {"enforce_eager": (None,)})


def named(chat):
    return [tuple(named_list(name, chat.concurrency, 256, 8192)) for name in NAMES]


def test_they_take_the_place_of_the_named_lists(chat):
    eager = SettingChoices("enforce_eager", (None, True))
    settings = (eager, capture(None, *named(chat), (1, 2, 3)))
    assert with_planned_lists(settings, LISTS, chat, LIMITS) == (eager, capture(None, (8, 48), (48,), (1, 2, 3)))


def test_a_list_that_a_person_wrote_down_is_not_replaced(chat):
    settings = (capture(None, (1, 2, 3)),)
    assert with_planned_lists(settings, LISTS, chat, LIMITS) == settings


def test_without_a_plan_or_without_the_setting_nothing_changes(chat):
    settings = (capture(None, *named(chat)),)
    assert with_planned_lists(settings, (), chat, LIMITS) == settings
    other = (SettingChoices("enforce_eager", (None, True)),)
    assert with_planned_lists(other, LISTS, chat, LIMITS) == other
