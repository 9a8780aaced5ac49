"""Shell variables that a text sets itself, put in where they are used; all others stay as they are written. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.engine.reading.shell_words import LITERAL, QUOTED_VARIABLE, Part, ShellWord, parts_in_quotes
from advisor.records import Finding

ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
APPENDED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+=(.*)", re.DOTALL)
_PLAIN = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
_ALL = re.compile(r"\$\{([A-Za-z_]\w*)\[[@*]\]\}")
_WITH_DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*|\d+)(:?)([-=?+])(.*)\}", re.DOTALL)

Value = str | tuple[str, ...]


@dataclass
class Variables:
    """What is known at a place of the text. `unsure` are names that are set under a condition: they count as not known."""

    values: dict[str, Value] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)
    # Written variables that stayed, in order; True for those that stand in double quotes wherever they do.
    references: dict[str, bool] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    export_all: bool = False

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Variables:
        """With an environment that the shell is started in."""
        return cls(dict(env), set(env))

    def env(self) -> dict[str, str]:
        """What a command's environment has beyond that of the shell."""
        return {name: value for name, value in self.values.items() if name in self.exported and isinstance(value, str)}

    def set(self, name: str, value: Value, sure: bool = True) -> None:
        self.unsure.discard(name)
        if sure:
            self.values[name] = value
        else:
            self.values.pop(name, None)
            self.unsure.add(name)
        if self.export_all:
            self.exported.add(name)

    def export(self, name: str) -> None:
        self.exported.add(name)

    def forget(self, name: str) -> None:
        self.values.pop(name, None)
        self.exported.discard(name)

    # ------------------------------------------------------------ words

    def words(self, word: ShellWord) -> list[str]:
        """The arguments that a word becomes: none, one, or several where an unquoted variable holds several words."""
        fields: list[str] = []
        open_field = False  # whether the last field may still grow

        def add(text: str) -> None:
            nonlocal open_field
            if open_field:
                fields[-1] += text
            else:
                fields.append(text)
            open_field = True

        for part in word.parts:
            value = part.text if part.kind == LITERAL else self._value(part.text)
            if isinstance(value, tuple):
                items = value if part.kind == QUOTED_VARIABLE else tuple(one for item in value for one in self._split(item))
                for index, item in enumerate(items):
                    open_field = open_field and index == 0
                    add(item)
            elif part.kind in (LITERAL, QUOTED_VARIABLE) or value is None:
                add(self._kept(part.text, part.kind) if value is None else value)
            else:
                pieces = self._split(value)
                if value[:1].isspace():
                    open_field = False
                for index, piece in enumerate(pieces):
                    open_field = open_field and index == 0
                    add(piece)
                if value[-1:].isspace():
                    open_field = False
        return fields

    def text(self, parts: tuple[Part, ...]) -> str:
        """The same without taking apart: the value of an assignment."""
        found = []
        for part in parts:
            value = part.text if part.kind == LITERAL else self._value(part.text)
            value = self._kept(part.text, QUOTED_VARIABLE) if value is None else value
            found.append(" ".join(value) if isinstance(value, tuple) else value)
        return "".join(found)

    def _split(self, value: str) -> list[str]:
        """At blanks, but for those inside a variable that stayed; such a one may become several words."""
        held = [reference for reference in self.references if reference in value]
        if not held:
            return value.split()
        self.references.update(dict.fromkeys(held, False))
        longest_first = sorted(held, key=len, reverse=True)
        return re.findall(rf"(?:{'|'.join(map(re.escape, longest_first))}|\S)+", value)

    def _kept(self, written: str, kind: str) -> str:
        self.references[written] = self.references.get(written, True) and kind == QUOTED_VARIABLE
        return written

    def _value(self, written: str) -> Value | None:
        """What a variable stands for; None where the text does not say."""
        if plain := _PLAIN.fullmatch(written):
            value = self.values.get(plain[1] or plain[2])
            return value[0] if isinstance(value, tuple) and value else value  # bash: the first of an array
        if every := _ALL.fullmatch(written):
            value = self.values.get(every[1])
            return (value,) if isinstance(value, str) else value
        if default := _WITH_DEFAULT.fullmatch(written):
            return self._with_default(written, *default.groups())
        return None

    def _with_default(self, written: str, name: str, colon: str, operator: str, other: str) -> Value | None:
        value = self.values.get(name)
        if name in self.unsure:
            return None
        usable = value is not None and (bool(value) or not colon)
        if operator == "+":
            return self.text(parts_in_quotes(other)) if usable else "" if value is not None else None
        if usable:
            return value
        if operator == "?":
            return None
        found = self.text(parts_in_quotes(other))
        if value is None:
            message = f"{name} is not set in the text: {written} counts as its default {found!r}"
            self.findings.append(Finding("info", "variable-default-taken", message, f"{name}=VALUE in front, if it is another"))
        if operator == "=":
            self.values[name] = found
        return found
