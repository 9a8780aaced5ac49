"""A profile as YAML text made for review in git: fixed key order, comments, short lists on one line. Pure.

PyYAML writes no comments, so the sections are walked here and PyYAML writes only what is below them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml
from pydantic.fields import FieldInfo

from advisor.records import Decision, Interval, Objective, Tradeoff
from advisor.serving_profile.args import format_lines, quoted
from advisor.serving_profile.schema import (
    Cost,
    DecisionPart,
    Figure,
    LeftBehind,
    Profile,
    Rejected,
    Serve,
    StartParts,
    Workload,
)
from advisor.serving_profile.values import Part, Ratio
from advisor.units import changes, number
from advisor.verdict.sequential import EACH
from advisor.verdict.words import told_costs

_WIDTH = 120
_DEFAULT_SAMPLES = 2  # of a launch: --samples
# A reason (advisor/verdict/goals.py) that has these is no good news, whoever serves best.
_SLO_IS_MISSED = ("the default breaks the SLO", "not one request of the default")
_SHORT_COMMAND = 100  # characters; a longer command is broken, one option a line
_ON_ONE_LINE = (Figure, LeftBehind, Ratio, StartParts)
# What the head shows beside the objective: enough to judge the decision by.
_HEAD_FIGURES = {
    "output_tok_s": "output tokens/s",
    "ttft_p99_ms": "TTFT p99, ms",
    "tpot_p50_ms": "TPOT p50, ms",
    "start_s": "start, s",
}


def profile_text(profile: Profile) -> str:
    """The file's text. The same profile gives the same bytes, and reading them gives the profile back."""
    # A line break in a name must not end the comment.
    lines = [("# " + " ".join(line.splitlines())).rstrip() for line in _head(profile)]
    for name, info in Profile.model_fields.items():
        value = getattr(profile, name)
        if value is None:
            continue
        if isinstance(value, Part):
            lines += ["", f"# {info.description}"]
        else:
            lines.append("")
        lines += _entry(info.alias or name, value, info)
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- head


def _head(profile: Profile) -> Iterator[str]:
    model, gpu = profile.model, profile.gpu
    yield f"Serving profile of {model.id} for the workload {profile.workload.name!r} on {gpu.name}."
    date, software = profile.study.created_at[:10], profile.software
    yield f"Measured with vLLM {software.vllm} on {date}; written by advisor {software.advisor}."
    if model.random_weights:
        yield "RANDOM WEIGHTS: see model.note."
    yield ""
    yield f"Decision: {profile.decision.outcome.value}. {_advice(profile.decision)}"
    yield from _wrapped(_reason(profile.decision))
    yield from _compared(profile)
    yield ""
    own = profile.study.space if (profile.study.space or "").endswith(".yaml") else None
    yield f"Measure it again{f', with the search space of your own file {own}' if own else ''}:"
    yield f"  {_again(profile)}"


def _advice(decision: DecisionPart) -> str:
    if decision.outcome is Decision.IMPROVED:
        return "Serve with the settings under `serve`: fresh launches prove them better than the default."
    if decision.outcome is Decision.KEEP_DEFAULTS and any(words in decision.reason for words in _SLO_IS_MISSED):
        return "Nothing that was tried is better than the default, which does not keep the SLO either."
    if decision.outcome is Decision.KEEP_DEFAULTS:
        return "Serve with the default: nothing that was tried is better, and that is a good result."
    if decision.challenger is None:
        return "Serve with the default: nothing was compared with it."
    return "Serve with the default: the fresh launches do not settle whether the challenger is better."


def _reason(decision: DecisionPart) -> str:
    """With what a recommended gain costs beside it."""
    if decision.outcome is not Decision.IMPROVED:
        return decision.reason
    gain, each, more = decision.reason.partition(EACH)
    return gain + each + told_costs([_tradeoff(cost) for cost in decision.costs or ()]) + more


def _tradeoff(cost: Cost) -> Tradeoff:
    ratio = Interval(cost.ratio.value, cost.ratio.low, cost.ratio.high)
    return Tradeoff(cost.metric, ratio, cost.proven is not False, cost.load)


def _wrapped(text: str) -> list[str]:
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + len(word) + 1 > _WIDTH - 2:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return [*lines, line] if line else lines


def _compared(profile: Profile) -> Iterator[str]:
    """The decision's ratio and a few figures of both sides; nothing where only one side was measured."""
    name, other = profile.other_side()
    default, ratio = profile.measured.default, profile.decision.ratio
    if ratio:
        value, low, high = changes(ratio.value, ratio.low, ratio.high, profile.objective.better == "more")
        yield f"  {profile.objective.metric}, {name} against default: {value}, 95% interval {low} to {high}"
    if default is None or other is None:
        return
    for metric, title in _HEAD_FIGURES.items():
        ours, theirs = getattr(default, metric), getattr(other, metric)
        if ours is not None and theirs is not None:
            yield f"  {title:<16} default {number(ours.mean):>9}   {name} {number(theirs.mean):>9}"
    yield f"  (means of {default.launches} and {other.launches} launches)"


def _again(profile: Profile) -> str:
    """The `advisor tune` command that measures the same model, workload and objective from the same default."""
    model = f"./{profile.model.id}" if profile.model.local_folder else profile.model.id
    words = ["advisor", "tune", "--model", model, "--gpu", profile.gpu.slug, *_load_words(profile.workload)]
    goal = profile.objective
    if goal.metric != Objective().metric or goal.secondary or goal.slo:
        words += ["--objective", ",".join([goal.metric, *(goal.secondary or [])])]
    words += ["--slo", ",".join(goal.slo)] if goal.slo else []
    words += ["--find-load", goal.find_load] if goal.find_load else []
    space = profile.study.space
    words += ["--space", space] if space not in (None, "cpu" if profile.gpu.slug == "cpu" else "default") else []
    side = profile.measured.default
    if side and side.launches and side.samples // side.launches != _DEFAULT_SAMPLES:
        words += ["--samples", str(max(1, side.samples // side.launches))]
    if profile.study.serve_args:
        words += ["--serve-args", profile.study.serve_args]
    for name, value in profile.study.serve_env.items():
        words += ["--env", f"{name}={value}"]
    return " ".join(map(quoted, words))


def _load_words(load: Workload) -> list[str]:
    """`chat-c8-in512` is the preset `chat` with another load and other lengths: they are given as options again."""
    base = re.sub(r"(-(c|r|in|out)\d[\d.e+-]*)+$", "", load.name)
    words = ["--workload", base, "--num-prompts", str(load.num_prompts)]
    if base != load.name:
        words += ["--input-tokens", str(load.input_tokens), "--output-tokens", str(load.output_tokens)]
        rate = ["--rate", f"{load.rate_requests_s:g}"] if load.rate_requests_s is not None else []
        words += ["--concurrency", str(load.concurrency)] if load.concurrency is not None else rate
    return words


# ---------------------------------------------------------------- body


def _entry(name: str, value: Any, info: FieldInfo | None = None, indent: int = 0) -> list[str]:
    """Lines of `name: value`; nothing for a value that is not there."""
    if value is None:
        return []
    pad = "  " * indent
    comment = [f"{pad}# {info.description}"] if info and (info.json_schema_extra or {}).get("comment") else []  # type: ignore[union-attr]
    if isinstance(value, Part) and not isinstance(value, _ON_ONE_LINE):
        return [*comment, f"{pad}{name}:", *_section(value, indent + 1)]
    if isinstance(value, list) and value and isinstance(value[0], Part):
        items = [line for item in value for line in _item(item, indent + 1)]
        return [*comment, f"{pad}{name}:", *items]
    return [*comment, *(pad + line for line in _dump({name: _plain(value)}))]


def _section(part: Part, indent: int) -> list[str]:
    lines: list[str] = []
    for name, info in type(part).model_fields.items():
        value = getattr(part, name)
        if isinstance(part, Serve) and name == "command" and len(value) > _SHORT_COMMAND:
            value = _Block(format_lines(part.line()))
        lines += _entry(name, value, info, indent)
    return lines or ["  " * indent + "{}"]


def _item(part: Part, indent: int) -> list[str]:
    """A list item: on one line, however long, because a line is the unit of review; with long texts, one line a field."""
    pad = "  " * indent + "- "
    if not isinstance(part, Rejected):
        return [pad + _flow(part)]
    first, *rest = _section(part, indent + 1)
    return [pad + first.lstrip(), *rest]


def _flow(part: Part) -> str:
    text = yaml.dump(_Flow(_plain(part)), Dumper=_Dumper, sort_keys=False, width=float("inf"), allow_unicode=True)
    return text.rstrip("\n")


def _dump(data: dict[str, Any]) -> list[str]:
    text = yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=_WIDTH - 2, allow_unicode=True, indent=2)
    return text.rstrip("\n").split("\n")


class _Flow(dict):  # type: ignore[type-arg]
    """A mapping written as {a: 1, b: 2}."""


class _FlowList(list):  # type: ignore[type-arg]
    """A list written as [1, 2]."""


class _Block(str):
    """A text written as a block, line by line."""


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


_Dumper.add_representer(_Flow, lambda dumper, data: dumper.represent_mapping(_MAP, data.items(), flow_style=True))
_Dumper.add_representer(_FlowList, lambda dumper, data: dumper.represent_sequence(_SEQ, data, flow_style=True))
_Dumper.add_representer(_Block, lambda dumper, data: dumper.represent_scalar(_STR, str(data), style="|"))
_MAP, _SEQ, _STR = "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:str"


def _plain(value: Any) -> Any:
    """Values as PyYAML is to write them: enums by value, whole floats without a point, one-line figures and lists."""
    if isinstance(value, Part):
        items = {n: getattr(value, n) for n in type(value).model_fields}
        return _Flow({n: _plain(v) for n, v in items.items() if v is not None})
    if isinstance(value, _Block):
        return value
    if isinstance(value, dict):
        # An option's 1.0 is somebody's spelling: only measured floats lose their point.
        return {_plain(name): item if isinstance(item, float) else _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        kept = [item if isinstance(item, float) else _plain(item) for item in value]
        return kept if any(isinstance(item, str) and " " in item for item in value) else _FlowList(kept)
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    return str(getattr(value, "value", value)) if isinstance(value, str) else value
