"""A pasted text or script, down to the one command that serves: variables followed, everything around it named. Pure.

Nothing is run. Assignments before the command count, exported ones for its environment too; what else the text does is passed
over and said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from advisor.engine.reading.shell_variables import APPENDED, ASSIGNMENT, Value, Variables
from advisor.engine.reading.shell_words import ShellCommand, ShellWord, split_commands
from advisor.records import Finding

_OPENING, _CLOSING = ("if", "for", "while", "until", "case", "select"), ("fi", "done", "esac")
_BETWEEN = ("then", "else", "do", "{", "}", "!", "elif")
_TESTS = ("[", "[[", "test", "command", "which", "grep")
_DECLARING = ("export", "declare", "typeset", "readonly", "local")
_LONGEST = 60  # characters of a command that is passed over


@dataclass(frozen=True)
class Script:
    """The words of the command that serves, after expansion, and what the text says around them."""

    words: tuple[str, ...]
    env: Mapping[str, str]
    references: Mapping[str, bool] = field(default_factory=dict)  # as in Variables
    findings: tuple[Finding, ...] = ()


def without_comments(text: str) -> str:
    """A file's text without the lines that are comments, which may also stand between lines that go on."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def read_script(text: str, serves: Callable[[list[str]], bool], env: Mapping[str, str] | None = None) -> Script:
    """The first command of the text for which `serves` says so; without one, the first that does anything.

    `env` is the environment that the shell is started in. Raises InputError for a quote that is never closed.
    """
    walk = _Walk(Variables.of(env or {}), serves)
    for command in split_commands(text):
        walk.take(command)
    chosen = walk.chosen or walk.first
    if chosen is None:
        return Script((), walk.variables.env())
    return chosen


class _Walk:
    """One pass over the commands. `depth` counts conditions and loops that are open."""

    def __init__(self, variables: Variables, serves: Callable[[list[str]], bool]):
        self.variables, self.serves = variables, serves
        self.depth = 0
        self.tested = False  # the command before was a test, or may have failed
        self.passed: list[str] = []
        self.chosen: Script | None = None
        self.first: Script | None = None

    def take(self, command: ShellCommand) -> None:
        words = self._without_keywords(command)
        if self.chosen:
            self._after(command)
            return
        if not words:
            return
        sure = self.depth == 0 and not (command.before == "||" or (command.before == "&&" and self.tested))
        self.tested = words[0].raw in _TESTS
        if self._assigns(words, sure):
            return
        variables = self.variables
        before = list(variables.findings)
        texts = [text for word in words for text in variables.words(word)]
        if not texts:
            return
        script = self._script(texts, command)
        if self.serves(texts):
            self.chosen = script
        else:
            self.first = self.first or script
            if texts[0] != ":":  # which is there for nothing but defaults
                variables.findings = before
            self._pass_over(command)

    def _script(self, texts: list[str], command: ShellCommand) -> Script:
        findings = [*self.variables.findings, *self._passed_findings(), *_shell_words(command)]
        return Script(tuple(texts), self.variables.env(), dict(self.variables.references), tuple(findings))

    # ------------------------------------------------------------ conditions

    def _without_keywords(self, command: ShellCommand) -> list[ShellWord]:
        words = list(command.words)
        while words:
            first = words[0].raw
            if first in _OPENING:
                self.depth += 1
                if first in ("for", "case", "select"):
                    self._loop_variable(words)
                    return []
            elif first in _CLOSING:
                self.depth = max(0, self.depth - 1)
            elif first not in _BETWEEN and not first.endswith("()") and not (self.depth and first.endswith(")")):
                return words
            words = words[1:]
        return words

    def _loop_variable(self, words: list[ShellWord]) -> None:
        if words[0].raw in ("for", "select") and len(words) > 1:
            self.variables.set(words[1].raw, "", sure=False)

    # ------------------------------------------------------------ assignments

    def _assigns(self, words: list[ShellWord], sure: bool) -> bool:
        """Whether the command does nothing but set variables, which are then known."""
        name = words[0].raw
        if name == "set":
            self._set_options([word.raw for word in words[1:]])
            return False
        if name == "unset":
            for word in words[1:]:
                self.variables.forget(word.raw)
            return True
        if name == "read":
            for word in words[1:]:
                self.variables.set(word.raw, "", sure=False)
            return False
        declared = name in _DECLARING
        pairs = words[1:] if declared else words
        if declared:
            flags = "".join(_flags(word.raw) for word in pairs)
            pairs = [word for word in pairs if not word.raw.startswith("-")]
            exports = name == "export" or "x" in flags
        elif not all(_is_assignment(word) for word in pairs):
            return False
        else:
            exports = False
        for word in pairs:
            target = self._assign(word, sure) if _is_assignment(word) else word.raw
            if exports:
                self.variables.export(target)
        return True

    def _set_options(self, words: list[str]) -> None:
        for index, word in enumerate(words):
            if re.fullmatch(r"[-+][A-Za-z]*a[A-Za-z]*", word) or words[index + 1 : index + 2] == ["allexport"]:
                self.variables.export_all = word.startswith("-")

    def _assign(self, word: ShellWord, sure: bool) -> str:
        """Set what `NAME=value`, `NAME+=value` or `NAME=(words)` sets; its name."""
        variables = self.variables
        whole = variables.text(word.parts)
        appended = APPENDED.fullmatch(whole)
        found = appended or ASSIGNMENT.fullmatch(whole)
        assert found is not None
        name = found[1]
        value: Value = found[2]
        if word.array is not None:
            value = tuple(text for item in word.array for text in variables.words(item))
        if appended:
            old = variables.values.get(name, () if word.array is not None else "")
            if not sure and name in variables.values:
                variables.findings.append(_under_condition(word.raw, word.array))
                return name
            sure = sure and name not in variables.unsure
            value = _joined(old, value)
        variables.set(name, value, sure)
        return name

    # ------------------------------------------------------------ the rest

    def _pass_over(self, command: ShellCommand) -> None:
        self.passed.append(_short(" ".join([command.raw, *command.redirections])))

    def _passed_findings(self) -> list[Finding]:
        if not self.passed:
            return []
        message = f"passed over, not vLLM: {'; '.join(self.passed)}"
        found = [Finding("info", "commands-passed-over", message)]
        if sourced := [text for text in self.passed if re.match(r"(source|\.)\s", text)]:
            message = f"variables that {sourced[0].split()[-1]} sets are not read"
            found.append(Finding("warning", "env-file-not-read", message, "write them as NAME=value in front of the command"))
        return found

    def _after(self, command: ShellCommand) -> None:
        """What follows the command that serves."""
        assert self.chosen is not None
        raw = " ".join([command.raw, *command.redirections]).strip()
        if not raw or all(word.raw in (*_CLOSING, *_BETWEEN) for word in command.words):
            return
        if command.before in ("|", "|&"):
            finding = _left_out(f"{command.before} {_short(raw)}")
        elif raw.startswith("-"):
            message = f"the line {_short(raw)!r} after the command is not part of it: is a backslash missing before it?"
            finding = Finding("warning", "line-not-continued", message, "end the line before it with a backslash")
        elif self.serves([text for word in command.words for text in self.variables.words(word)]):
            message = f"another vLLM command follows and is not read: {_short(raw)}"
            finding = Finding("warning", "second-command-not-read", message, "give it alone")
        else:
            finding = Finding("info", "commands-passed-over", f"what follows vLLM is passed over: {_short(raw)}")
        self.chosen = Script(self.chosen.words, self.chosen.env, self.chosen.references, (*self.chosen.findings, finding))


def _under_condition(raw: str, array: tuple[ShellWord, ...] | None) -> Finding:
    shown = f"{raw}({' '.join(item.raw for item in array)})" if array is not None else raw
    message = f"{_short(shown)} stands under a condition and is not counted"
    return Finding("warning", "set-under-condition", message, "write it where it always counts, to see what it does")


def _shell_words(command: ShellCommand) -> list[Finding]:
    said = [*command.redirections, *(["&"] if command.end == "&" else [])]
    return [_left_out(" ".join(said))] if said else []


def _left_out(text: str) -> Finding:
    return Finding("info", "shell-words-left-out", f"{text!r} belongs to the shell and is left out")


def _is_assignment(word: ShellWord) -> bool:
    return bool(re.match(r"[A-Za-z_]\w*\+?=", word.raw))


def _flags(text: str) -> str:
    return text[1:] if re.fullmatch(r"-[A-Za-z]+", text) else ""


def _joined(old: Value, new: Value) -> Value:
    if isinstance(old, str) and isinstance(new, str):
        return old + new
    return (*((old,) if isinstance(old, str) else old), *((new,) if isinstance(new, str) else new))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
