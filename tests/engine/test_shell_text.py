"""Scripts and pasted texts: what of them reaches vLLM. bash itself is the judge of what a text means; the advisor runs none."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys

import pytest

from advisor.engine.reading.command_line import read_command
from advisor.engine.reading.pasted import unwrap
from advisor.errors import InputError

NEW = (0, 26, 0)
_BASH = shutil.which("bash")
_PROGRAM = "import json, os, sys; json.dump([sys.argv[1:], dict(os.environ)], open(os.environ['ANSWER'], 'w'))"

SCRIPTS = {
    "plain": 'PORT=8000\nMODEL="org/m"\nvllm serve $MODEL --port "$PORT"',
    "default": "PORT=${PORT:-8000}\nvllm serve m --port $PORT --host ${HOST-::} --seed ${SEED:=7} --x $SEED",
    "default of a set one": "PORT=9; E=\nvllm serve m --port ${PORT:-8000} --a ${E:-full} --b \"${E-full}\" --c ${PORT:+yes}",
    "split": 'ARGS="--max-num-seqs 64  --swap-space 4"; vllm serve "org/m" $ARGS',
    "not split": 'NAME="my model"; vllm serve m --served-model-name "$NAME" --x="$NAME"',
    "split inside": 'A="1 2"; vllm serve m --x=${A}3 a$A',
    "blanks at the ends": 'A=" 1 "; vllm serve m a${A}b',
    "empty": 'A=; vllm serve m $A "$A" ""',
    "single quotes": "A=1; vllm serve m '$A' \"\\$A\" \\$A 'it'\"'\"'s'",
    "quotes in a value stay": """ARGS="--cc '{}' --x"; vllm serve m $ARGS""",
    "json": """vllm serve m --compilation-config '{"level": 3, "x": [1, 2]}' -cc "{\\"a\\": \\"b;c\\"}" """,
    "array": 'A=(--seed 1 "two words")\nA+=(--x)\nvllm serve m "${A[@]}" ${A[@]} $A "${A}"',
    "array over lines": "A=(\n  --seed 1  # why\n  --max-num-seqs 2\n)\nvllm serve m ${A[@]}",
    "appended": 'A="--a"; A="$A --b"; A+=" --c"; vllm serve m $A',
    "comments": "# vllm serve other\nvllm serve m --a#b \\\n  --seed 1 # --port 2",
    "nested": "A=1; B=${C:-$A}; vllm serve m --x ${D:-${B}2}",
    "substring names": "A=1; AB=2; vllm serve m $AB ${A}B $A",
    "exports": "export A=1 B=2\nC=3\nexport C\nD=4\nE=5 vllm serve m $D",
    "export of all": "set -a\nA=1\nset +a\nB=2\nvllm serve m",
    "declared": 'declare -x A=1\nreadonly B=2\ntypeset C=3\nvllm serve m $A $B $C',
    "unset": "A=1; unset A; export B=2; unset B; vllm serve m ${A:-gone}",
    "in front": "A=0; A=1 vllm serve m $A",
    "after a test": "A=1\n[ 1 = 1 ] && true\nexport B=2 && vllm serve m $A",
    "wrappers": "env A=1 nice -n 5 vllm serve m --seed 1",
    "sh": "A=1; export B=2; sh -c \"vllm serve m --x $A --y \\$B\"",
    "exec": "set -euo pipefail; cd / && exec vllm serve m >> /dev/null 2>&1",
    "pipe": "vllm serve m 2>&1 | cat",
    "condition": "if true; then\n  vllm serve m --seed 1\nfi",
    "function": "go() {\n  A=1\n  vllm serve m --x $A\n}\ngo",
    "subshell": "(A=1; vllm serve m --x $A)",
    "document": "cat > /dev/null <<EOF\nvllm serve other\nEOF\nvllm serve m",
    "process substitution": "vllm serve m --seed 1 > >(cat -n) 2> /dev/null",
    "colon": ': "${M:=m}"; vllm serve $M',
    "not this branch": "A=(--seed 1)\nA+=(--x)\ncase 1 in\n  2|3) :;;\nesac\nvllm serve m ${A[@]}",
    "loop variable": "A=1\nfor i in 1; do\n  vllm serve m --x $A\ndone",
}


@pytest.fixture(scope="module")
def bash(tmp_path_factory):
    """(text) -> arguments and environment that bash gives a program called vllm."""
    if _BASH is None:
        pytest.skip("no bash here")
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "vllm"
    program.write_text(f"#!{sys.executable}\n{_PROGRAM}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def run(text: str) -> tuple[list[str], dict[str, str]]:
        answer = folder / "answer.json"
        answer.unlink(missing_ok=True)
        env = {"PATH": f"{folder}{os.pathsep}{os.defpath}", "ANSWER": str(answer), "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run([_BASH, "-c", text], env=env, timeout=30, check=False, capture_output=True)
        words, there = json.loads(answer.read_text())
        return words, {name: value for name, value in there.items() if len(name) == 1 and name != "_"}

    return run


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_means_what_bash_makes_of_it(bash, name):
    words, env = bash(SCRIPTS[name])
    pasted = unwrap([SCRIPTS[name]])
    assert ["serve", *(word.text for word in pasted.words)] == words
    assert pasted.env == env
    assert not any(finding.code == "variable-not-expanded" for finding in read_command([SCRIPTS[name]], NEW).findings)


# ---------------------------------------------------------------- what is not known


def read(text: str):
    return read_command([text], NEW)


def said(text: str, code: str) -> list[str]:
    return [finding.message for finding in read(text).findings if finding.code == code]


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("vllm serve m --port $PORT", "$PORT"),
        ('vllm serve m --port "${PORT%%:*}"', "${PORT%%:*}"),
        ("vllm serve m --port $(cat port)", "$(cat port)"),
        ("vllm serve m --port `cat port`", "`cat port`"),
        ("vllm serve m --port ${PORT:?is needed}", "${PORT:?is needed}"),
        ("vllm serve m --port $1", "$1"),
        ("if [ -n $X ]; then PORT=1; fi; vllm serve m --port $PORT", "$PORT"),
        ("[ -n $X ] && PORT=1; vllm serve m --port $PORT", "$PORT"),
        ("PORT=1; test -n $X || PORT=2; vllm serve m --port $PORT", "$PORT"),
        ("read PORT; vllm serve m --port $PORT", "$PORT"),
        ("for PORT in 1 2; do vllm serve m --port $PORT; done", "$PORT"),
        ("PORT=1 vllm serve m --port $PORT", "$PORT"),  # bash expands before it assigns
    ],
)
def test_a_value_that_is_not_known_is_neither_refused_nor_used(text, reference):
    found = read(text)
    assert said(text, "variable-not-expanded") == [f"{reference} at word {5 if text[:6] != 'PORT=1' or ';' in text else 6}: "
                                                   "shell variable, not expanded"]  # fmt: skip
    assert (found.model, found.options.values, found.unknown) == ("m", {}, {"--port": reference})
    assert not [finding for finding in found.findings if finding.severity == "error"]


def test_a_variable_that_stands_alone_is_no_refused_word():
    found = read('vllm serve m --enforce-eager $MORE "$@"')
    assert (found.model, found.extra, found.options.values) == ("m", ("$MORE", '"$@"'), {"--enforce-eager": True})
    assert not [finding for finding in found.findings if finding.severity == "error"]
    named = read("python -m vllm.entrypoints.openai.api_server --model m $MORE")
    assert (named.model, named.extra) == ("m", ("$MORE",))


def test_of_an_object_the_known_keys_stay():
    found = read("vllm serve m -cc.mode=3 -cc.cudagraph_mode=$MODE")
    assert found.options.values == {"--compilation-config": {"mode": 3}}
    assert found.unknown == {"--compilation-config": {"mode": 3, "cudagraph_mode": "$MODE"}}
    assert read("""vllm serve m -cc "{\\"mode\\": $X}" """).unknown == {"--compilation-config": '{"mode": $X}'}


def test_a_default_that_is_taken_is_said_and_a_value_is_not():
    assert said("PORT=${PORT:-80}; vllm serve m --port $PORT", "variable-default-taken") == [
        "PORT is not set in the text: ${PORT:-80} counts as its default '80'"
    ]
    assert said("PORT=1; PORT=${PORT:-80}; vllm serve m --port $PORT", "variable-default-taken") == []


@pytest.mark.parametrize(
    "line",
    [
        "[[ -n $T ]] && A+=(--x $T)",
        "if [ -n $T ]; then A+=(--x $T); fi",
        "case $T in\n  a|b) A+=(--x $T);;\nesac",
        "test -z $T || A+=(--x $T)",
    ],
)
def test_what_is_added_under_a_condition_is_said_and_not_counted(line):
    found = read(f'A=(--seed 1)\n{line}\nvllm serve m "${{A[@]}}"')
    assert (found.model, found.options.values, found.extra) == ("m", {"--seed": "1"}, ())
    (finding,) = [one for one in found.findings if one.code == "set-under-condition"]
    assert finding.message == "A+=(--x $T) stands under a condition and is not counted"


def test_what_is_set_in_a_branch_is_not_known():
    found = read("P=1; case $T in\n  a) P=2;;\n  *) ;;\nesac\nvllm serve m --port $P")
    assert found.unknown == {"--port": "$P"}


def test_variables_of_the_script_are_not_the_servers():
    found = read("A=1; VLLM_X=2; export B=3; C=4 vllm serve m")
    assert found.env == {"B": "3", "C": "4"}


# ---------------------------------------------------------------- what is passed over


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        ("vllm serve m >> /var/log/vllm.log 2>&1", "shell-words-left-out", "'>> /var/log/vllm.log 2>&1'"),
        ("vllm serve m | tee x.log", "shell-words-left-out", "'| tee x.log'"),
        ("vllm serve m &", "shell-words-left-out", "'&'"),
        ("ray start --head && vllm serve m", "commands-passed-over", "not vLLM: ray start --head"),
        ("set -e; echo starting; vllm serve m", "commands-passed-over", "set -e; echo starting"),
        ("echo vllm serve x; vllm serve m", "commands-passed-over", "echo vllm serve x"),
        ("vllm --version; vllm serve m", "commands-passed-over", "vllm --version"),
        ("vllm serve m & sleep 5", "commands-passed-over", "what follows vLLM is passed over: sleep 5"),
        ("numactl -N 0 vllm serve m", "words-passed-over", "'numactl -N 0' in front of vLLM"),
        ("$PYTHON -m vllm.entrypoints.openai.api_server --model m", "words-passed-over", "'$PYTHON'"),
        ("source .env; vllm serve m", "env-file-not-read", ".env sets are not read"),
        ("vllm serve m\n  --seed 1", "line-not-continued", "'--seed 1'"),
        ("vllm serve m; vllm serve n", "second-command-not-read", "vllm serve n"),
        ("export VLLM_X=1; docker run vllm/vllm-openai:v0.11.0 --model m", "env-not-in-container", "VLLM_X=1"),
    ],
)
def test_what_is_passed_over_is_said(text, code, part):
    messages = said(text, code)
    assert len(messages) == 1 and part in messages[0]
    assert read(text).model == "m"


def test_words_in_front_are_found_in_a_list_too():
    found = read_command(["taskset", "-c", "0-3", "vllm", "serve", "m", "--seed", "1"], NEW)
    assert (found.model, found.options.values) == ("m", {"--seed": "1"})
    assert [finding.code for finding in found.findings] == ["words-passed-over"]


def test_docker_hands_on_what_the_shell_has():
    found = read("export VLLM_X=1; docker run -e VLLM_X vllm/vllm-openai:v0.11.0 --model m")
    assert found.env == {"VLLM_X": "1"}
    assert not {"env-not-in-container", "env-value-not-known"} & {finding.code for finding in found.findings}


@pytest.mark.parametrize("text", ["echo vllm serve m", "pip install vllm", "ls -l; cat vllm.log", "vllm bench serve x"])
def test_nothing_that_only_looks_like_it_is_taken(text):
    with pytest.raises(InputError):
        read(text)
