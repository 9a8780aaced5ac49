"""Which release stands for a version, and what is said about it."""

from __future__ import annotations

import pytest

from advisor.engine.versions import NEWEST, OLDEST, RELEASES, known_version, seen_in, version_text
from advisor.errors import InputError


def test_releases_ascend_and_each_stands_for_itself():
    assert sorted(set(RELEASES)) == list(RELEASES)
    assert (OLDEST, NEWEST) == ((0, 9, 0), (0, 33, 0))
    for release in RELEASES:
        assert known_version(version_text(release)) == (release, None)


@pytest.mark.parametrize(
    "text", ["0.26.0", "v0.26.0", " 0.26 ", "0.26.0+cu130", "0.26.0.post1", "0.26.0.post1+cpu", "0.26.0.0"]
)
def test_builds_of_a_release_are_that_release(text):
    assert known_version(text) == ((0, 26, 0), None)


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("0.9.1", (0, 9, 0)),
        ("0.10.1.1", (0, 10, 0)),
        ("0.11.1", (0, 11, 0)),
        ("0.14.0", (0, 14, 1)),
        ("0.20.0", (0, 20, 2)),
        ("0.20.1", (0, 20, 2)),
        ("0.20.3", (0, 20, 2)),
        ("0.20.0rc1", (0, 19, 1)),
        ("0.20.2rc1", (0, 20, 2)),
        ("0.10.1", (0, 10, 0)),
        ("0.26.0rc1", (0, 25, 1)),
        ("0.26.0rc1.dev12+g0a1b2c3", (0, 25, 1)),
        ("0.26.0.dev3", (0, 25, 1)),
        ("0.26.1", (0, 26, 0)),
        ("0.26.0.1", (0, 26, 0)),
    ],
)
def test_a_version_between_uses_a_release_of_its_minor_or_the_one_before_and_says_so(text, used):
    version, note = known_version(text)
    assert version == used
    assert text in note
    assert version_text(used) in note


def test_where_two_of_its_minor_were_read_the_other_one_is_named():
    assert "0.11.2, which was read too" in str(known_version("0.11.1")[1])
    assert "read too" not in str(known_version("0.26.1")[1])


@pytest.mark.parametrize(
    ("version", "text"),
    [((0, 20, 2), "0.20.2 (first seen)"), ((0, 21, 0), "0.21.0"), ((0, 9, 0), "0.9.0"), ((0, 11, 2), "0.11.2 (first seen)"),
     ((0, 14, 1), "0.14.1 (first seen)")],
)  # fmt: skip
def test_a_change_is_dated_as_far_as_it_was_read(version, text):
    assert seen_in(version) == text


@pytest.mark.parametrize("text", ["0.33.1", "0.34.0", "1.0.0"])
def test_a_newer_version_is_called_newer(text):
    version, note = known_version(text)
    assert version == NEWEST
    assert "newer" in note
    assert text in note


@pytest.mark.parametrize("text", ["0.8.5", "0.9.0rc1", "0.9.0.dev1", "0.1", "0"])
def test_too_old_is_refused(text):
    with pytest.raises(InputError, match=r"too old: 0\.9\.0 or newer"):
        known_version(text)


@pytest.mark.parametrize("text", ["", "latest", "0.x", "0.26.", "0..26", "0.26.0 beta", "0.26.0+", "-0.26"])
def test_no_version_is_refused_with_the_text(text):
    with pytest.raises(InputError, match="is not a vLLM version") as caught:
        known_version(text)
    assert repr(text) in str(caught.value)
