"""What is rendered for a release is read by that release's own parser, executed from its Python files.

The installed vLLM is always run. Set ADVISOR_VLLM_RELEASES to a folder that holds unpacked releases, one folder a version
(`0.13.0/vllm/...`, from wheels, without their requirements), to run those too. Each takes about 20 s.
"""

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import pytest

from advisor.engine.versions import known_version, version_text
from advisor.engine.writing.spelling import spell
from advisor.engine.writing.spelling_files import vllm_config_yaml
from advisor.errors import InputError
from tests.engine.recorded_parser import objections, table
from tests.engine.spelling_cases import mixtures

SCRIPT = Path(__file__).parents[2] / "tools" / "release_parser.py"
# Words that a parser should refuse, in some versions or all: the recorded tables must say the same as the parser.
DOUBTFUL = [
    ["--cuda-graph-sizes", "8"],
    ["--cudagraph-capture-sizes", "1", "2"],
    ["--cudagraph-capture-sizes", "1,2"],
    ["--enforce-eager=false"],
    ["--enforce-eager", "false"],
    ["--performance-mode", "fast"],
    ["--performance-mode", "throughput"],
    ["--attention-backend", "TRITON_ATTN"],
    ["--moe-backend", "triton"],
    ["--max-num-seqs", "many"],
    ["--compilation-config", "'{}'"],
    ["--compilation-config", '{"level": 3}'],
    ["--compilation-config", '{"mode": "NONE"}'],
    ["--compilation-config", '{"bogus": 3}'],
    ["--task", "generate"],
    ["--swap-space", "4"],
    ["--seed", "1"],
    ["--no-enable-prefix-caching"],
    ["--bogus"],
]


def installed() -> list[tuple[str, Path]]:
    try:
        return [(version("vllm").split("+")[0], Path(find_spec("vllm").origin).parents[1])]
    except (PackageNotFoundError, AttributeError):
        return []


def unpacked() -> list[tuple[str, Path]]:
    root = os.environ.get("ADVISOR_VLLM_RELEASES")
    return [(path.name, path) for path in sorted(Path(root).iterdir()) if (path / "vllm").is_dir()] if root else []


FOLDERS = [*installed(), *unpacked()]


def ask(folder: Path, release: str, lines: list[list[str]]) -> list[dict]:
    words = [sys.executable, str(SCRIPT), str(folder), "--version", release, "--parse"]
    text = "".join(json.dumps(["serve", *line]) + "\n" for line in lines)
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "VLLM_LOGGING_LEVEL": "CRITICAL"}
    done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=600, env=env, check=False)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(lines), done.stderr[-2000:]
    return answers


def rendered(release: tuple[int, ...]) -> list[dict]:
    found = []
    for settings in mixtures(release):
        try:
            spell(settings, release)
        except InputError:
            continue
        found.append(settings)
    return found


def key_ignored(ours: list[str], release: tuple[int, ...]) -> bool:
    """Unknown keys of --compilation-config are ignored without a word from 0.9.2 to 0.14.1, and refused since."""
    return (0, 9, 2) <= release < (0, 15) and ours != [] and all("has no key" in text for text in ours)


@pytest.mark.engine
@pytest.mark.skipif(not FOLDERS, reason="no vLLM installed and ADVISOR_VLLM_RELEASES not set")
@pytest.mark.parametrize(("release", "folder"), FOLDERS, ids=[name for name, _ in FOLDERS])
def test_a_releases_own_parser_reads_what_is_rendered_for_it(release, folder, tmp_path):
    known, _ = known_version(release)
    cases = rendered(known)
    lines = [["model", *spell(settings, known).argv()] for settings in cases]
    files = []
    for number, settings in enumerate(cases[-20:]):
        path = tmp_path / f"{number}.yaml"
        options = spell(settings, known).options
        try:
            path.write_text(vllm_config_yaml("model", options, known))
        except InputError:
            continue
        files.append((["--config", str(path)], ["model", *options.argv()]))
    answers = ask(
        folder, release, [*lines, *(line for pair in files for line in pair), *(["model", *w] for w in DOUBTFUL)]
    )
    for line, answer in zip(lines, answers, strict=False):
        assert "error" not in answer, line
    from_files = answers[len(lines) : len(lines) + 2 * len(files)]
    for (config, line), by_file, by_words in zip(files, from_files[::2], from_files[1::2], strict=True):
        assert "error" not in by_file, Path(config[1]).read_text()
        assert settings_of(by_file) == settings_of(by_words), line
    recorded = table(version_text(known))
    for words, answer in zip(DOUBTFUL, answers[-len(DOUBTFUL) :], strict=True):
        ours = objections(_two_words(words), recorded)
        assert bool(ours) == ("error" in answer) or key_ignored(ours, known), (words, ours, answer)
    assert len(lines) > 30


def settings_of(answer: dict) -> dict:
    """Without the words that say where the model and the options came from."""
    return {name: value for name, value in answer["values"].items() if name not in ("model", "model_tag", "config")}


def _two_words(words: list[str]) -> list[str]:
    return [part for word in words for part in (word.split("=", 1) if word.startswith("--enforce-eager=") else [word])]
