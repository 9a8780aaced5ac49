"""Values that the sections of a profile are made of: rounded numbers, figures with intervals, options, variables."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def rounded(value: float, digits: int = 4) -> float:
    """Significant digits, and never fewer than the whole part: what a measurement can claim, and diffs stay small."""
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return 0.0 if value == 0 else round(value, max(0, digits - 1 - math.floor(math.log10(abs(value)))))


def _env_names(env: dict[str, str]) -> dict[str, str]:
    for name in env:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"{name!r} is not the name of an environment variable")
    return env


def _option(value: Any) -> Any:
    """Raises ValueError for what a command line and JSON cannot hold, such as a date; null is good inside JSON only."""
    if value is None or not _json_shaped(value):
        raise ValueError("an option's value must be a word, a number, true, false, a list or a map")
    return value


def _json_shaped(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(name, str) and _json_shaped(item) for name, item in value.items())
    if isinstance(value, list):
        return all(_json_shaped(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)


Number = Annotated[float, AfterValidator(rounded)]
# A ratio's last digits tell whether its interval leaves 1 out, and in tenths of a percent it must read like the reason beside it.
RatioNumber = Annotated[float, AfterValidator(lambda value: rounded(value, 6))]
Count = Annotated[int, Field(ge=0)]
Env = Annotated[dict[str, str], AfterValidator(_env_names)]
Options = dict[str, Annotated[Any, AfterValidator(_option)]]


def commented(text: str) -> Any:
    """An optional field whose description is also written into the file."""
    return Field(default=None, description=text, json_schema_extra={"comment": True})


class Part(BaseModel):
    """Base of every section: unknown keys are errors, values are fixed once read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Figure(Part):
    """Mean over fresh launches and its two-sided 95% interval, which needs two launches."""

    mean: Number
    low: Number | None = None
    high: Number | None = None


class Ratio(Part):
    """A ratio and its two-sided 95% interval."""

    value: RatioNumber
    low: RatioNumber
    high: RatioNumber
