"""`advisor tune --dry-run`: what would be launched, and what was dropped for which reason. Pure."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence

from advisor.records import Candidate, Command, Rejection


def plan_lines(commands: Sequence[tuple[Candidate, Command]], rejections: Sequence[Rejection]) -> list[str]:
    """One line a launch, as it would be typed, then one line a reason for dropping."""
    lines = [f"{number:>4}  {display(command)}" for number, (_, command) in enumerate(commands)]
    reasons = Counter(item.reason for item in rejections)
    return lines + [f"dropped {count:>3}  {reason}" for reason, count in reasons.most_common()]


def display(command: Command) -> str:
    """`NAME=value vllm serve MODEL ...`, quoted for a shell."""
    env = [f"{name}={shlex.quote(value)}" for name, value in command.env.items()]
    return " ".join([*env, "vllm", "serve", *(shlex.quote(word) for word in command.argv[4:])])
