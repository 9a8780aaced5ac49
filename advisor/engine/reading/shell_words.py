"""A shell text taken apart: commands, their words, and in each word what is quoted and what is a variable. Pure; nothing is run.

POSIX quoting, comments, continued lines, redirections, here-documents and bash's arrays are known. What a variable stands for is
decided later (shell_variables.py), because that depends on the commands before it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from advisor.errors import InputError

LITERAL, VARIABLE, QUOTED_VARIABLE = "literal", "variable", "quoted-variable"

_REDIRECTION = re.compile(r"&>>?|\d*(?:>>|>\||>&|<<<|<<-?|<&|<>|>|<)")
_CONTROL = re.compile(r"&&|\|\||;;|;|\|&|\||&")
_CONTINUED = re.compile(r"\\[ \t]*\r?\n")
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=")
_NAME = re.compile(r"\w+|[@*#?$!-]")


@dataclass(frozen=True)
class Part:
    """A piece of a word: text as it counts, or a variable as it is written (`$NAME`, `${NAME:-8}`, `$(command)`)."""

    text: str
    kind: str = LITERAL


@dataclass(frozen=True)
class ShellWord:
    """`raw` is how it is written. `array` holds the words of `NAME=(...)`, and `parts` then is `NAME=`."""

    parts: tuple[Part, ...]
    raw: str
    array: tuple[ShellWord, ...] | None = None


@dataclass
class ShellCommand:
    """One simple command. `before` and `end` are the operators around it: `&&`, `|`, `;`, a line's end ..."""

    words: list[ShellWord] = field(default_factory=list)
    redirections: list[str] = field(default_factory=list)
    before: str = ";"
    end: str = ";"

    @property
    def raw(self) -> str:
        return " ".join(word.raw for word in self.words)


def split_commands(text: str) -> list[ShellCommand]:
    """The commands of a text, in order. Raises InputError for a quote that is never closed, with the word that it starts."""
    return _Scanner(text).commands()


def parts_in_quotes(text: str) -> tuple[Part, ...]:
    """A text as between double quotes, for the default of `${NAME:-default}`."""
    return _Scanner(text + '"').quoted_parts()


class _Scanner:
    def __init__(self, text: str):
        self.text = text
        self.at = 0
        self.found: list[ShellCommand] = []
        self.current = ShellCommand()
        self.documents: list[str] = []  # ends of the here-documents that follow the line
        self.brackets = 0

    def commands(self) -> list[ShellCommand]:
        while self.at < len(self.text):
            self._step()
        self._end(";")
        return self.found

    def _step(self) -> None:
        here, rest = self.text[self.at], self.text[self.at : self.at + 3]
        if continued := _CONTINUED.match(self.text, self.at):
            self.at = continued.end()
        elif here == "\n":
            self.at += 1
            self._skip_documents()
            self._end("\n")
        elif here.isspace():
            self.at += 1
        elif here == "#":
            self._to_line_end()
        elif rest[:2] in ("<(", ">("):
            self.current.words.append(self._substitution())
        elif redirection := _REDIRECTION.match(self.text, self.at):
            self._redirect(redirection)
        elif control := _CONTROL.match(self.text, self.at):
            self.at = control.end()
            self._end(control[0])
        elif here == "(" and not self.current.words and not rest.startswith("(("):
            self._bracket(1)
        elif here == ")" and self.brackets:
            self._bracket(-1)
        else:
            self.current.words.append(self._word())

    def _bracket(self, change: int) -> None:
        """A subshell's commands count as any others."""
        self.at += 1
        self.brackets += change
        self._end("(" if change > 0 else ")")

    def _end(self, operator: str) -> None:
        if self.current.words or self.current.redirections:
            self.current.end = operator
            self.found.append(self.current)
        self.current = ShellCommand(before=operator)

    def _to_line_end(self) -> None:
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    # ------------------------------------------------------------ redirections

    def _redirect(self, operator: re.Match[str]) -> None:
        begun, self.at = self.at, operator.end()
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        if self.text[self.at : self.at + 2] in ("<(", ">("):
            target = self._substitution()
        else:
            target = self._word() if self.at < len(self.text) and not self.text[self.at].isspace() else None
        self.current.redirections.append(self.text[begun : self.at].strip())
        if operator[0].lstrip("0123456789") in ("<<", "<<-") and target:
            self.documents.append("".join(part.text for part in target.parts))

    def _skip_documents(self) -> None:
        for end in self.documents:
            while self.at < len(self.text):
                line, _, _ = self.text[self.at :].partition("\n")
                self.at += len(line) + 1
                if line.strip() == end:
                    break
        self.documents = []

    # ------------------------------------------------------------ words

    def _substitution(self) -> ShellWord:
        """`<(command)`: a file that is not known."""
        begun, self.at = self.at, _closing(self.text, self.at + 1) or len(self.text)
        written = self.text[begun : self.at]
        return ShellWord((Part(written, VARIABLE),), written)

    def _word(self) -> ShellWord:
        begun = self.at
        parts: list[Part] = []
        while self.at < len(self.text):
            here = self.text[self.at]
            if _CONTINUED.match(self.text, self.at) or here.isspace() or here in ";&|<>":
                break
            if here == ")" and self.brackets:
                break
            if here == "(" and _ARRAY.fullmatch(self.text[begun : self.at]):
                return ShellWord(tuple(parts), self.text[begun : self.at], self._array())
            self._piece(here, begun, parts)
        return ShellWord(tuple(parts), self.text[begun : self.at])

    def _piece(self, here: str, begun: int, parts: list[Part]) -> None:
        """One quoted stretch, variable or character."""
        if here == "'":
            end = self.text.find("'", self.at + 1)
            if end < 0:
                raise self._unclosed(begun)
            parts.append(Part(self.text[self.at + 1 : end]))
            self.at = end + 1
        elif here == '"':
            self.at += 1
            parts += self.quoted_parts(begun)
        elif here == "\\":
            parts.append(Part(self.text[self.at + 1 : self.at + 2]))
            self.at += 2
        elif here in "$`" and (variable := self._variable(begun)):
            parts.append(Part(variable, VARIABLE))
        else:
            parts.append(Part(here))
            self.at += 1

    def quoted_parts(self, begun: int = 0) -> tuple[Part, ...]:
        """Up to the closing double quote, which is read too. An empty one is a part, so that `""` is a word."""
        parts = [Part("")]
        while self.at < len(self.text):
            here = self.text[self.at]
            if here == '"':
                self.at += 1
                return tuple(parts)
            if here == "\\" and (after := self.text[self.at + 1 : self.at + 2]) in ("$", "`", '"', "\\", "\n"):
                parts.append(Part("" if after == "\n" else after))
                self.at += 2
            elif here in "$`" and (variable := self._variable(begun)):
                parts.append(Part(variable, QUOTED_VARIABLE))
            else:
                parts.append(Part(here))
                self.at += 1
        raise self._unclosed(begun)

    def _variable(self, begun: int) -> str | None:
        """The variable or command that starts here, as it is written; None for a mere dollar."""
        start = self.at
        if self.text[start] == "`":
            end = self.text.find("`", start + 1) + 1
        elif self.text[start + 1 : start + 2] in ("{", "("):
            end = _closing(self.text, start + 1)
        else:
            name = _NAME.match(self.text, start + 1)
            if name is None:
                return None
            end = name.end() if not name[0][0].isdigit() else start + 2
        if not end:
            raise self._unclosed(begun)
        self.at = end
        return self.text[start:end]

    def _array(self) -> tuple[ShellWord, ...]:
        self.at += 1
        words: list[ShellWord] = []
        self.brackets += 1
        while self.at < len(self.text) and self.text[self.at] != ")":
            if self.text[self.at] == "#":
                self._to_line_end()
            elif self.text[self.at].isspace():
                self.at += 1
            elif continued := _CONTINUED.match(self.text, self.at):
                self.at = continued.end()
            elif self.text[self.at] in ";&|<>":
                self.at += 1
            else:
                words.append(self._word())
        self.brackets -= 1
        self.at += 1
        return tuple(words)

    def _unclosed(self, begun: int) -> InputError:
        start = self.text[begun : begun + 40].split("\n")[0]
        return InputError(
            f"the command cannot be split into words: no closing quotation in word {len(self.current.words) + 1}, {start!r}",
            "close the quote, or give the words themselves after --",
        )


def _closing(text: str, at: int) -> int:
    """Position behind the bracket that closes the one at `at`; 0 where none does."""
    opening, depth = text[at], 0
    closing = {"{": "}", "(": ")"}[opening]
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] == opening:
            depth += 1
        elif text[at] == closing:
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return 0
