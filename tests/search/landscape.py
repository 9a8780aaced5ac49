"""A made-up server: what it gives and what a launch costs follows a formula, with noise; for whole searches in milliseconds."""

from __future__ import annotations

import dataclasses
import random

from advisor.records import Active, Candidate, EngineFacts, Objective, Outcome
from advisor.search.budget import Budget
from advisor.search.loop import search
from advisor.search.sampler import Sampler
from advisor.space.candidates import SettingChoices, build_space
from tests.study_help import sample, trial

THROUGHPUT = Objective()
ENGINE = EngineFacts("py", "3.12", "0.26.0", "2.11", "cuda")
LISTS = ((1, 8, 64), (1, 2, 4, 8, 16, 32, 64), tuple(range(1, 1025, 16)))
SETTINGS = (
    SettingChoices("enforce_eager", (None, True)),
    SettingChoices("attention_backend", (None, "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION")),
    SettingChoices("compilation_mode", (None, "NONE"), {"enforce_eager": (None,)}),
    SettingChoices(
        "cudagraph_mode", (None, "FULL", "FULL_DECODE_ONLY", "PIECEWISE", "NONE"), {"enforce_eager": (None,)}
    ),
    SettingChoices(
        "cudagraph_capture_sizes", (None, *LISTS),
        {"enforce_eager": (None,), "cudagraph_mode": (None, "FULL", "FULL_DECODE_ONLY", "PIECEWISE")},
    ),
)  # fmt: skip
# An 8B on an H200 at 64 requests in flight (docs/evidence): output tokens a second over the default's.
FLAT = {
    "enforce_eager": {True: 0.52},
    "attention_backend": {"FLASHINFER": 0.966, "TRITON_ATTN": 0.935, "FLEX_ATTENTION": 0.287},
    "compilation_mode": {"NONE": 0.987},
    "cudagraph_mode": {"FULL": 1.002, "FULL_DECODE_ONLY": 0.991, "PIECEWISE": 0.948, "NONE": 0.655},
    "cudagraph_capture_sizes": {LISTS[0]: 1.0, LISTS[1]: 1.002, LISTS[2]: 1.003},
}
# A load above the largest captured size: the long list wins, and another backend beside it.
STEEP = {
    **FLAT,
    "attention_backend": {"FLASHINFER": 1.05, "TRITON_ATTN": 0.935, "FLEX_ATTENTION": 0.287},
    "cudagraph_capture_sizes": {LISTS[0]: 0.95, LISTS[1]: 0.96, LISTS[2]: 1.2},
}


def space(settings=SETTINGS, at_once=600):
    def resolve(items):
        return [{"ok": True, "resolved": {"fingerprint": item.key}} for item in items]

    return build_space(settings, ENGINE, resolve, at_once=at_once)


class Server:
    """`worth(candidate)` is the truth; a launch adds noise. Keeps the trials."""

    def __init__(self, effects, seed=0, noise=0.006, fails=lambda settings: False, seeds=1):
        self.effects, self.noise, self.fails, self.seeds = effects, noise, fails, seeds
        self.rng, self.done, self.notes = random.Random(seed), [], []
        self("baseline", Candidate())

    def worth(self, candidate):
        found = 1.0
        for name, value in candidate.settings.items():
            found *= self.effects[name][value]
        return found

    def __call__(self, phase, candidate):
        settings, number = candidate.settings, len(self.done)
        eager = bool(settings.get("enforce_eager"))
        compile_s = None if eager or settings.get("compilation_mode") == "NONE" else 23.0
        sizes = settings.get("cudagraph_capture_sizes") or tuple(range(51))
        graphs = 0 if eager or settings.get("cudagraph_mode") == "NONE" else len(sizes)
        start_s = 58.0 + (compile_s or 0.0) + 0.14 * graphs
        load_s = 8.0 + 14.0 / self.worth(candidate)
        if self.fails(settings):
            made = trial(number, settings, phase=phase, outcome=Outcome.CRASHED, reason="died", total_s=40.0)
        else:
            samples = [
                sample(seed, 1000.0 * self.worth(candidate) * max(0.1, self.rng.gauss(1, self.noise)))
                for seed in range(self.seeds)
            ]
            made = trial(number, settings, 1.0, phase=phase, total_s=start_s + load_s)
            active = Active(
                compile_s=compile_s, capture_s=0.14 * graphs or None, capture_sizes=sizes[:graphs] or None
            )
            made = dataclasses.replace(made, start_s=start_s, active=active, samples=tuple(samples))
        self.done.append(made)
        return made

    @property
    def spent_s(self):
        return sum(item.total_s for item in self.done)


PLENTY = Budget(1e9)


def run(server, budget=PLENTY, seed=0, settings=SETTINGS, at_once=600, known=()):
    """(why the search ended, its sampler)."""
    sampler = Sampler(space(settings, at_once), THROUGHPUT, seed)
    reason = search(
        lambda candidate: server("search", candidate), sampler, budget, THROUGHPUT, lambda: server.done,
        server.notes.append, known=known,
    )  # fmt: skip
    return reason, sampler
