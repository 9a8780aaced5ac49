"""A candidate's one line, read back: profiles name candidates so. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from advisor.records import Candidate
from advisor.space.choices import SettingChoices

_WORD = re.compile(r"(?P<name>[A-Za-z-][\w-]*)(?:=(?P<value>\S*(?: \(\d+\))?))?(?: |$)")


def candidate_of(label: str, settings: Sequence[SettingChoices] = ()) -> Candidate | None:
    """The candidate that `label` names, None where it cannot be read.

    A value gets its form from the space's settings where one of their values is written so. One that is not among them keeps
    its text (a long list is cut in a label): a value that nothing else has, though of a setting that others have.
    """
    if label == "default":
        return Candidate()
    forms = {
        Candidate({choice.name: value}).label: value
        for choice in settings
        for value in choice.values
        if value is not None
    }
    found: dict[str, Any] = {}
    place = 0
    while place < len(label):
        match = _WORD.match(label, place)
        if match is None or match["name"] in found:
            return None
        word = match[0].rstrip(" ")
        found[match["name"]] = forms[word] if word in forms else _plain(match["value"])
        place = match.end()
    return Candidate(found)


def _plain(text: str | None) -> Any:
    if text is None:
        return True
    if text == "false":
        return False
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return [int(part) for part in text.split(",")] if re.fullmatch(r"\d+(,\d+)+", text) else text
