"""Named capture lists."""

import pytest

from advisor.space.capture_lists import NAMES, named_list, padded


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("load", [1, 3, 64, 600])
@pytest.mark.parametrize("most", [1, 7, 256, 1024])
def test_lists_are_ascending_within_the_scheduler(name, load, most):
    sizes = named_list(name, load, most, 8192)
    assert sizes == sorted(set(sizes)) and sizes[0] >= 1 and sizes[-1] <= most
    if name != "operating-point":
        assert sizes[-1] == most
    assert padded(min(load, most), sizes) is not None


def test_operating_point_ends_on_the_load():
    assert named_list("operating-point", 48, 1024, 8192) == [1, 2, 4, 8, 16, 32, 36, 48]


def test_batched_tokens_bound_the_list():
    assert named_list("powers-of-two", 8, 256, 100) == [1, 2, 4, 8, 16, 32, 64, 100]


def test_padding():
    assert [padded(batch, [1, 2, 4]) for batch in (1, 3, 4, 5)] == [1, 4, 4, None]


def test_unknown_name():
    with pytest.raises(ValueError, match="nope"):
        named_list("nope", 1, 1, 1)
