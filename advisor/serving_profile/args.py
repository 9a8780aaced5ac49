"""The served command as a value: environment, model and words; read from a shell line, written as one, seen as options.

A `${NAME}` in a word or value stands for a secret: the shell that runs the line puts it in.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from advisor.engine.options import ServeOptions, parse_options
from advisor.errors import InputError

_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class ServeLine:
    """`NAME=VALUE ... vllm serve MODEL WORDS...`"""

    model: str
    words: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def options(self) -> dict[str, Any]:
        """Option name without dashes -> value, alphabetically. Raises ValueError for words that vLLM would refuse."""
        try:
            values = parse_options(self.words).values
        except InputError as error:
            raise ValueError(error.problem.removeprefix("--serve-args: ")) from None
        # A short option that the parser does not know, such as -dcp, keeps its dash.
        return dict(sorted((name.removeprefix("--"), _typed(value)) for name, value in values.items()))


def normal_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The same options after a trip over the command line: two spellings of one setting become equal."""
    dashed = {name if name.startswith("-") else "--" + name: value for name, value in options.items()}
    return ServeLine("", tuple(ServeOptions(dashed).argv())).options()


def _typed(value: Any) -> Any:
    """Usual spellings of numbers become numbers; `0.90` and `1e5` stay words, so that nothing is lost."""
    if isinstance(value, list):
        return [_typed(item) for item in value]
    if not isinstance(value, str):
        return value
    for kind in (int, float):
        try:
            number = kind(value)
        except ValueError:
            continue
        if str(number) == value and value not in ("inf", "-inf", "nan"):
            return number
    return value


def parse_line(text: str) -> ServeLine:
    """Read a shell line, broken by backslashes or not. Raises ValueError unless it is plain `vllm serve`."""
    # shlex reads a backslash before a line's end as a word of its own.
    words = [word for word in shlex.split(text) if word != "\n"]
    env: dict[str, str] = {}
    while words and (match := _ASSIGNMENT.fullmatch(words[0])):
        env[match[1]] = match[2]
        del words[0]
    if words[:2] != ["vllm", "serve"] or len(words) < 3 or words[2].startswith("-"):
        raise ValueError("command must be `vllm serve MODEL ...`, with NAME=VALUE words in front at most")
    return ServeLine(words[2], tuple(words[3:]), env)


def line_of(argv: Sequence[str], env: Mapping[str, str]) -> ServeLine:
    """The line for what was executed: everything up to `serve` (an interpreter and a module) is `vllm` for people."""
    argv = list(argv)
    if "serve" not in argv or argv.index("serve") + 1 >= len(argv):
        raise ValueError(f"not a `serve` command with a model: {argv}")
    start = argv.index("serve") + 1
    return ServeLine(argv[start], tuple(argv[start + 1 :]), dict(env))


def format_line(line: ServeLine) -> str:
    """One line that a POSIX shell runs as it stands."""
    return " ".join(_pieces(line))


def format_lines(line: ServeLine) -> str:
    """The same broken for reading, one option a line, with a backslash at each line's end."""
    pieces = _pieces(line)
    first = len(line.env) + 1
    return " \\\n  ".join([" ".join(pieces[:first]), *pieces[first:]])


def _pieces(line: ServeLine) -> list[str]:
    pieces = [f"{name}={quoted(value)}" for name, value in sorted(line.env.items())]
    pieces.append(f"vllm serve {quoted(line.model)}")
    return pieces + [" ".join(quoted(word) for word in group) for group in groups(line.words)]


def groups(words: Sequence[str]) -> list[list[str]]:
    """Words in groups: an option and the values after it."""
    found: list[list[str]] = []
    for word in words:
        if re.match(r"-{1,2}[A-Za-z]", word) or not found:
            found.append([word])
        else:
            found[-1].append(word)
    return found


def quoted(word: str) -> str:
    """Quoted for a POSIX shell. Only `${NAME}` keeps its meaning; any other dollar, backtick or quote is literal."""
    if not _REFERENCE.search(word):
        return shlex.quote(word)
    parts = _REFERENCE.split(word)
    references = _REFERENCE.findall(word)
    escaped = [re.sub(r'([$`"\\])', r"\\\1", part) for part in parts]
    return '"' + "".join(a + b for a, b in zip(escaped, [*references, ""], strict=True)) + '"'
