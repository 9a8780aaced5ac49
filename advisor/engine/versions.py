"""The vLLM releases whose source was read, and which of them stands for any other version.

Versions are tuples of whole numbers, (0, 26, 0), so that they compare. A build of a release counts as that release
(`0.26.0+cu130`, `0.26.0.post1`); a pre-release (`0.26.0rc1`, `0.26.0.dev7`) comes before it, as in PEP 440.
"""

from __future__ import annotations

import re

from advisor.errors import InputError

RELEASES: tuple[tuple[int, ...], ...] = (
    (0, 9, 0),
    (0, 9, 2),
    (0, 10, 0),
    (0, 10, 2),
    (0, 11, 0),
    (0, 11, 2),
    (0, 12, 0),
    (0, 13, 0),
    (0, 14, 1),
    (0, 15, 1),
    (0, 16, 0),
    (0, 17, 1),
    (0, 18, 1),
    (0, 19, 1),
    (0, 20, 2),
    (0, 21, 0),
    (0, 22, 1),
    (0, 23, 0),
    (0, 24, 0),
    (0, 25, 1),
    (0, 26, 0),
    (0, 27, 1),
    (0, 28, 0),
    (0, 29, 0),
    (0, 30, 0),
    (0, 31, 0),
    (0, 32, 0),
    (0, 33, 0),
)
OLDEST, NEWEST = RELEASES[0], RELEASES[-1]

_VERSION = re.compile(
    r"v?(?P<numbers>\d+(?:\.\d+)*)"
    r"(?P<before>[._-]?(?:a|b|c|rc|alpha|beta|pre|preview)[._-]?\d*)?"
    r"(?P<after>[._-]?post[._-]?\d*)?"
    r"(?P<development>[._-]?dev[._-]?\d*)?"
    r"(?:\+[a-z0-9]+(?:[._-][a-z0-9]+)*)?",
    re.IGNORECASE,
)


def version_text(version: tuple[int, ...]) -> str:
    """(0, 26, 0) -> "0.26.0"."""
    return ".".join(map(str, version))


def seen_in(version: tuple[int, ...]) -> str:
    """`0.21.0` for a change, or `0.20.2 (first seen)` where releases just before were not read and may have it already."""
    at = RELEASES.index(version) if version in RELEASES else 0
    read = not at or version[2] == 0 or RELEASES[at - 1] == (*version[:2], version[2] - 1)
    return version_text(version) + ("" if read else " (first seen)")


def known_version(text: str) -> tuple[tuple[int, ...], str | None]:
    """The release read that stands for `text`, and a sentence for people where that is another one.

    That is the one below of its minor, else the one above of its minor (0.20.2 for 0.20.0), else the nearest below; for a
    pre-release of a minor (0.26.0rc1) the nearest below. Raises InputError for text that is no version and before 0.9.0.
    """
    found = _VERSION.fullmatch(text.strip())
    if found is None:
        raise InputError(f"{text!r} is not a vLLM version", f"write it as {version_text(NEWEST)}")
    numbers = _three_numbers(found["numbers"])
    early = bool(found["before"] or (found["development"] and not found["after"]))
    below = [release for release in RELEASES if (release < numbers if early else release <= numbers)]
    if not below:
        raise InputError(f"vLLM {text} is too old: {version_text(OLDEST)} or newer is needed")
    above = [release for release in RELEASES if release[:2] == numbers[:2] and release not in below]
    first_of_minor = early and numbers[2:] == (0,)
    used = above[0] if above and below[-1][:2] != numbers[:2] and not first_of_minor else below[-1]
    return used, _note(text.strip(), used, numbers, above) if used != numbers or early else None


def same_release(one: str, other: str) -> bool:
    """Whether two spellings mean one release; builds of it count (`0.26.0+cu130`), pre-releases and nightlies do not."""
    found = [_VERSION.fullmatch(text.strip()) for text in (one, other)]
    if not all(match and not match["before"] and not match["development"] for match in found):
        return False
    return len({_three_numbers(match["numbers"]) for match in found if match}) == 1


def _three_numbers(text: str) -> tuple[int, ...]:
    """At least three numbers, so that `0.26` is 0.26.0; further ones count only where they are not zero."""
    numbers = [int(part) for part in text.split(".")]
    while len(numbers) > 3 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers + [0] * (3 - len(numbers)))


def _note(text: str, used: tuple[int, ...], numbers: tuple[int, ...], above: list[tuple[int, ...]]) -> str | None:
    if used == NEWEST:
        return f"vLLM {text} is newer than what is known here; the rules of {version_text(used)} are used"
    which = "the release itself" if used == numbers else "the nearest release read of its minor"
    which = "the nearest release read before it" if used < numbers else which
    also = ""
    if above and used[:2] == numbers[:2] and used < numbers:
        also = f"; {version_text(above[0])}, which was read too, may be closer"
    return f"vLLM {text} was not read; the rules of {version_text(used)}, {which}, are used{also}"
