"""Trials made by hand, for tests that need no server; and profiles read back."""

from pathlib import Path
from typing import Any

import yaml

from advisor.records import Candidate, Outcome, Sample, Trial


def sample(seed, tok_s, tpot_ms=10.0, problems=()):
    figures = {"mean": tpot_ms, "p50": tpot_ms, "p90": tpot_ms * 1.2, "p99": tpot_ms * 1.5}
    return Sample(
        seed=seed, duration_s=10.0, requests=64, failed=0, input_tokens=6400, output_tokens=int(tok_s * 10),
        output_tok_s=tok_s, input_tok_s=640.0, requests_s=6.4, ttft_ms=figures, tpot_ms=figures, itl_ms=figures,
        e2el_ms=figures, problems=tuple(problems),
    )  # fmt: skip


def trial(number, settings, tok_s=None, phase="search", outcome=Outcome.OK, reason="", round=None, total_s=60.0, seeds=(0, 1)):
    samples = tuple(sample(seed, tok_s) for seed in seeds) if tok_s is not None else ()
    return Trial(number, phase, Candidate(settings), outcome, reason, samples, total_s=total_s, round=round)


def yaml_of(path: Path) -> Any:
    """A file's data, by libyaml where it is there: reading a profile without it takes as long as a launch of the fake engine."""
    return yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
