"""How many tokens of speculative decoding's drafts a server accepted, by the counters of its /metrics page. Pure.

`vllm:spec_decode_num_drafts`, `_draft_tokens` and `_accepted_tokens` (v1/spec_decode/metrics.py in 0.9.0 to 0.33.0), since the
start: warm-up and fixed prompts are in them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_COUNTER = re.compile(r"^vllm:spec_decode_num_(drafts|draft_tokens|accepted_tokens)_total(?:\{.*\})? (\S+)$", re.MULTILINE)
RANDOM = "with random weights that is how often noise repeats itself, and no figure of your model's"


def told_drafts(page: str, argv: Sequence[str] = ()) -> str | None:
    """A note on what speculation rests on; None without drafts. `argv`: of the server, which may load random weights."""
    counted = {"drafts": 0.0, "draft_tokens": 0.0, "accepted_tokens": 0.0}
    for name, value in _COUNTER.findall(page):  # one line an engine
        counted[name] += float(value)
    if not counted["drafts"] or not counted["draft_tokens"]:
        return None
    share = counted["accepted_tokens"] / counted["draft_tokens"]
    length = 1 + counted["accepted_tokens"] / counted["drafts"]
    told = f"speculative decoding: {share:.0%} of the drafted tokens were accepted, {length:.1f} tokens came of a step with a draft"
    return f"{told}; {RANDOM}" if "dummy" in argv or "--load-format=dummy" in argv else told
