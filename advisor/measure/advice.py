"""What a person can do about a measurement that does not count. Pure; the table in docs/measuring.md says the same."""

from __future__ import annotations

from advisor.records import Invalid, Trial

_ADVICE = {
    Invalid.FAILED_REQUESTS: "the server's log says why requests failed",
    Invalid.WRONG_LENGTH: "compare --max-model-len and the model's tokenizer with the workload's lengths",
    Invalid.NOT_A_NUMBER: "the raw result in the launch's folder shows which figure; the same command measures it again",
    Invalid.IMPOSSIBLE_TIMES: "did this machine's clock or processor stand still? the same command measures it again",
    Invalid.LOAD_NOT_REACHED: "give a lower --concurrency or --rate, or more client processes (--client-processes)",
    Invalid.TOO_SHORT: "give more requests: --num-prompts",
    Invalid.CLIENT_BOUND: "give the client more: --client-processes, or a machine with free cores; or lower the load",
    Invalid.CLIENT_DIED: "bench.log in the study's folder has the client's last words",
    Invalid.CACHED_PROMPTS: "does something else send requests to this server? the same command measures it again",
    Invalid.OTHER_PROMPTS: "was the tokenizer or vLLM changed meanwhile? begin anew: another --study, in `record` another --output",
    Invalid.PREEMPTIONS: "lower the load or give more KV cache; `preemptions: allowed` in the workload file if it is meant",
    Invalid.JIT_COMPILED: "the same command measures it again, with more kernels in the server's caches",
    Invalid.ANOTHER_SERVER: "does something else send requests to this server? the same command measures it again",
}
_UNKNOWN = "is this machine busy with something else? the same command measures it again"


def advice(trial: Trial) -> str:
    """One line for a trial whose measurement is invalid."""
    kinds = [sample.classes[0] for sample in trial.samples if sample.classes]
    return _ADVICE[kinds[0]] if kinds else _UNKNOWN
