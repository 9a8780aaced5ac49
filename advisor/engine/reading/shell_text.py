"""A pasted text as a shell would take it apart: line continuations, quotes, exports, and what follows `;`, `&&` or `|`. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from advisor.errors import InputError

ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_ENDS = re.compile(r"[;&|<>\n]+")


def command_texts(given: Sequence[str]) -> tuple[list[str], dict[str, str], str | None]:
    """(words of the vLLM command, exported variables before it, the operator that ended it)."""
    if len(given) == 1 and re.search(r"\s", given[0].strip()):
        return last_command(given[0])
    return [text for text in given if text.strip("\\\r\n\t ") or text == ""], {}, None


def split_text(text: str) -> list[str]:
    """Words as a shell makes them, operators such as `;` and `&&` as words of their own. Raises InputError with the position."""
    joined = re.sub(r"\\[ \t]*\r?\n", " ", text.strip())
    lexer = shlex.shlex(
        re.sub(r"\r?\n", " ; ", joined) if "'" not in joined and '"' not in joined else joined,
        posix=True,
        punctuation_chars=";&|<>",
    )
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        for word in lexer:
            words.append(word)
    except ValueError as error:
        start = str(lexer.token)[:40]
        raise InputError(
            f"the command cannot be split into words: {str(error).lower()} in word {len(words) + 1}, {start!r}",
            "close the quote, or give the words themselves after --",
        ) from None
    return words


def last_command(text: str) -> tuple[list[str], dict[str, str], str | None]:
    """The first command that is more than exports, the variables exported before it, and what cut it off."""
    exports: dict[str, str] = {}
    current: list[str] = []
    for word in [*split_text(text), ";"]:
        if not _ENDS.fullmatch(word):
            current.append(_expanded(word, exports))
            continue
        if _exported(current, exports):
            current = []
        elif current:
            return current, exports, None if word == ";" else word
    return current, exports, None


def _exported(words: list[str], exports: dict[str, str]) -> bool:
    """Whether the words only set variables (or are `cd`, `source`, `set`), which are then in `exports`."""
    if words and words[0] in ("cd", "source", ".", "set", "ulimit"):
        return True
    pairs = [ASSIGNMENT.fullmatch(word) for word in (words[1:] if words[:1] == ["export"] else words)]
    if not words or not all(pairs):
        return False
    exports.update({pair[1]: pair[2] for pair in pairs if pair})
    return True


def _expanded(word: str, exports: dict[str, str]) -> str:
    return re.sub(r"\$\{?([A-Za-z_]\w*)\}?", lambda found: exports.get(found[1], found[0]), word)
