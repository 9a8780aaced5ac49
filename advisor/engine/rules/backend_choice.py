"""Which attention backend a request gets: from the flag, the config key, the environment variable or vLLM's own choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from advisor.engine.options import ATTENTION, ServeOptions
from advisor.engine.rules import legality
from advisor.engine.rules.backend_table import Version
from advisor.engine.rules.legality import Surroundings
from advisor.engine.versions import version_text
from advisor.records import Finding

ENV = "VLLM_ATTENTION_BACKEND"
FLAG = "--attention-backend"
FLAG_SINCE = (0, 13, 0)
ENV_IGNORED_SINCE = (0, 15, 0)
_REFUSES_UNKNOWN_SINCE = (0, 10, 2)
_AUTO_SINCE = (0, 18, 1)  # the value auto for the flag and the key


@dataclass(frozen=True)
class Choice:
    """The backend asked for (None: vLLM chooses), where it was asked, what is to be said, and whether vLLM refuses it."""

    name: str | None
    origin: str
    findings: tuple[Finding, ...] = ()
    refused: bool = False


def asked_backend(options: ServeOptions, env: Mapping[str, str], version: Version) -> Choice:
    """The backend that this version would take from the command line and the environment."""
    flag = options.values.get(FLAG) if version >= FLAG_SINCE else None
    attention = options.values.get(ATTENTION)
    key = attention.get("backend") if isinstance(attention, Mapping) and version >= FLAG_SINCE else None
    variable = env.get(ENV) or None
    if version < FLAG_SINCE:
        return _checked(variable, "env", version)
    if variable and version >= ENV_IGNORED_SINCE:
        choice = _flag_or_key(flag, key, version)
        return Choice(choice.name, choice.origin, (_ignored(variable, version), *choice.findings), choice.refused)
    if variable and flag:
        message = f"vLLM {version_text(version)} refuses {ENV} together with {FLAG}, even with the same value"
        return Choice(
            str(flag).upper(), "flag", (Finding("error", "env-backend-clash", message, f"unset {ENV}"),), True
        )
    if variable and key and str(key).upper() != variable.upper():
        message = f"{ENV}={variable} beats the key backend={key} of {ATTENTION} in vLLM {version_text(version)}"
        finding = Finding("warning", "env-backend-beats-config", message, f"unset {ENV}, or give one of them only")
        choice = _checked(variable, "env", version)
        return Choice(choice.name, choice.origin, (finding, *choice.findings), choice.refused)
    if variable:
        return _checked(variable, "env", version)
    return _flag_or_key(flag, key, version)


def _flag_or_key(flag: object, key: object, version: Version) -> Choice:
    if flag and key:
        message = f"{FLAG} and the key backend of {ATTENTION} exclude each other"
        return Choice(str(flag).upper(), "flag", (Finding("error", "backend-set-twice", message, "give one"),), True)
    given = flag or key
    return _checked(str(given) if given else None, "flag" if given else "default", version)


def _ignored(variable: str, version: Version) -> Finding:
    message = f"vLLM {version_text(version)} does not read {ENV}={variable}"
    return Finding("error", "env-backend-ignored", message, f"{FLAG} {variable}")


def _checked(name: str | None, origin: str, version: Version) -> Choice:
    if name is None or (name.lower() == "auto" and version >= _AUTO_SINCE):
        return Choice(None, "default")
    if legality.is_backend(name, version):
        return Choice(legality.plain_name(name), origin)
    refused = version >= _REFUSES_UNKNOWN_SINCE
    effect = "refuses it" if refused else "chooses one itself, without a word"
    message = f"vLLM {version_text(version)} has no attention backend {name} and {effect}"
    return Choice(None, "default", (Finding("error", "backend-unknown", message, "leave the backend to vLLM"),), refused)


# What people choose from; others fit single GPUs or models.
_COMMON = (
    "FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "FLASHMLA", "TRITON_MLA", "FLASH_ATTN_MLA", "FLASHINFER_MLA",
    "CUTLASS_MLA",
)  # fmt: skip


def with_fitting_names(findings: tuple[Finding, ...], around: Surroundings) -> tuple[Finding, ...]:
    """For a name that does not exist those that do, and to which this GPU, model and cache have no objection."""
    if not any(finding.code == "backend-unknown" for finding in findings):
        return findings
    names = legality.backend_names(around.version)
    fitting = [name for name in names if legality.plain_name(name) in _COMMON and not legality.objections(name, around)]
    fix = f"one of {', '.join(fitting)}, or leave it to vLLM" if fitting else "leave the backend to vLLM"
    return tuple(replace(finding, fix=fix) if finding.code == "backend-unknown" else finding for finding in findings)


def checked_against(choice: Choice, around: Surroundings) -> Choice:
    """A backend that was asked for, with what this version would object to; the automatic one where none was."""
    if choice.name is None:
        chosen = legality.automatic_backend(around)
        return Choice(chosen, choice.origin, with_fitting_names(choice.findings, around), choice.refused)
    spelled = choice.name if legality.is_backend(choice.name, around.version) else f"{choice.name}_VLLM_V1"
    reasons = legality.objections(spelled, around)
    if not reasons:
        return choice
    return Choice(
        choice.name, choice.origin, (*choice.findings, _invalid(choice.name, reasons, around)), choice.refused
    )


def _invalid(name: str, reasons: tuple[str, ...], around: Surroundings) -> Finding:
    refuses = around.version >= legality.CHECKED_SINCE
    effect = "refuses it when it loads the model" if refuses else "warns and takes another, or fails later"
    message = f"{name} does not fit here and vLLM {version_text(around.version)} {effect}: {'; '.join(reasons)}"
    return Finding(
        "error" if refuses else "warning", "backend-invalid", message, "leave the backend to vLLM, or choose another"
    )
