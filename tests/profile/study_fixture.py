"""A study's result as the pipeline hands it over. EVERY NUMBER HERE IS SYNTHETIC: made up, measured nowhere."""

from __future__ import annotations

from dataclasses import replace

from advisor.records import (
    Active,
    Candidate,
    Command,
    Decision,
    EngineFacts,
    Facts,
    GpuFacts,
    Interval,
    ModelFacts,
    Objective,
    Outcome,
    Rejection,
    Sample,
    StudyResult,
    Trial,
    Verdict,
    Workload,
)

MODEL = "/data/models/Synthetic-8B"
PYTHON = "/opt/engine/bin/python"
SECRET = "hf_synthetic0123456789"
API_KEY = "sk-synthetic-abcdef"

DEFAULT = Candidate()
EAGER = Candidate({"enforce_eager": True})
TUNED = Candidate({"attention_backend": "TRITON_ATTN", "cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32, 64, 128, 256]})
BROKEN = [Candidate({"attention_backend": "FLASHINFER", "cudagraph_capture_sizes": [n]}) for n in (64, 128, 256, 512)]

SERVE_ARGS = ("--load-format", "dummy", "--max-num-seqs", "512", "--no-enable-prefix-caching", "--api-key", API_KEY)
SERVE_ENV = {"HF_TOKEN": SECRET, "VLLM_LOGGING_LEVEL": "INFO", "TOKENIZERS_PARALLELISM": "false"}


def command(*words: str) -> Command:
    return Command((PYTHON, "-m", "vllm.entrypoints.cli.main", "serve", MODEL, *words), SERVE_ENV)


BASELINE_COMMAND = command(*SERVE_ARGS)
TUNED_COMMAND = command(
    *SERVE_ARGS,
    "--attention-backend",
    "TRITON_ATTN",
    "--compilation-config",
    '{"cudagraph_capture_sizes":[1,2,4,8,16,32,64,128,256]}',
)


def sample(seed: int, tok_s: float, **changes) -> Sample:
    latency = 40_000 / tok_s
    figures = {"mean": latency, "p50": latency, "p90": latency * 1.5, "p99": latency * 2}
    return replace(
        Sample(
            seed=seed,
            duration_s=30.0,
            requests=256,
            failed=0,
            input_tokens=256 * 1024,
            output_tokens=256 * 128,
            output_tok_s=tok_s,
            input_tok_s=tok_s * 8,
            requests_s=tok_s / 128,
            ttft_ms={name: value * 10 for name, value in figures.items()},
            tpot_ms=figures,
            itl_ms=figures,
            e2el_ms={name: value * 130 for name, value in figures.items()},
            prefix_hit_ratio=0.0,
        ),
        **changes,
    )


DEFAULT_ACTIVE = Active(
    attention_backends=("FLASH_ATTN",),
    flash_attention_version=3,
    compilation_mode="VLLM_COMPILE",
    cudagraph_mode="FULL_AND_PIECEWISE",
    capture_sizes=(1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)),
    enforce_eager=False,
    kv_cache_tokens=919_824,
    graph_memory_gib=0.98,
)
TUNED_ACTIVE = replace(
    DEFAULT_ACTIVE,
    attention_backends=("TRITON_ATTN",),
    flash_attention_version=None,
    capture_sizes=(1, 2, 4, 8, 16, 32, 64, 128, 256),
    graph_memory_gib=0.31,
    rewrites=(f"Overriding compile cache of {MODEL} at /root/.cache/vllm/synthetic",),
)


def trial(
    number: int, phase: str, candidate: Candidate, tok_s: tuple[float, ...], active: Active, start_s: float, **more
) -> Trial:
    return Trial(
        number=number,
        phase=phase,
        candidate=candidate,
        outcome=Outcome.OK,
        samples=tuple(sample(seed, value) for seed, value in enumerate(tok_s)),
        active=active,
        command=BASELINE_COMMAND,
        folder=f"launches/{number:03}",
        start_s=start_s,
        total_s=90.0,
        **more,
    )


def failure(number: int, candidate: Candidate, outcome: Outcome, reason: str) -> Trial:
    return Trial(number, "search", candidate, outcome, reason, command=BASELINE_COMMAND, total_s=45.0)


TRIALS = (
    trial(0, "baseline", DEFAULT, (4790.0, 4830.0), DEFAULT_ACTIVE, 80.0),
    trial(1, "search", TUNED, (5120.0, 5160.0), TUNED_ACTIVE, 61.0),
    trial(2, "search", EAGER, (2410.0, 2420.0), Active(enforce_eager=True), 55.0),
    *(
        failure(
            3 + i,
            candidate,
            Outcome.OUT_OF_MEMORY,
            f"CUDA out of memory: tried to allocate {i + 2}.50 GiB with {SECRET}",
        )
        for i, candidate in enumerate(BROKEN)
    ),
    failure(
        7, Candidate({"cudagraph_mode": "FULL"}), Outcome.CRASHED, f"Traceback: {PYTHON[:-7]}/lib/engine.py\n  died"
    ),
    *(
        trial(8 + 2 * i, "confirm", DEFAULT, (v, v + 20), DEFAULT_ACTIVE, 80.0 + i, round=i)
        for i, v in enumerate((4800.0, 4812.0, 4790.0))
    ),
    *(
        trial(9 + 2 * i, "confirm", TUNED, (v, v + 20), TUNED_ACTIVE, 60.0 + i, round=i)
        for i, v in enumerate((5080.0, 5110.0, 5095.0))
    ),
)

RESULT = StudyResult(
    name="synthetic-8b-chat",
    advisor_version="0.1.0",
    created_at="2026-11-29T10:00:00Z",
    facts=Facts(
        gpu=GpuFacts("cuda", "NVIDIA H200", "h200", 1, 139.8, "9.0", "580.1"),
        engine=EngineFacts(PYTHON, "3.12.3", "0.26.0", "2.11.0", "cuda", "13.0", "0.6.1"),
        model=ModelFacts(
            MODEL,
            "LlamaForCausalLM",
            "0123456789abcdef",
            32,
            4096,
            32,
            8,
            128,
            128_256,
            131_072,
            "bfloat16",
            has_weights=False,
        ),
    ),
    workload=Workload("chat", 1024, 128, 256, concurrency=64, length_spread=0.2, source="synthetic"),
    objective=Objective(),
    serve_args=SERVE_ARGS,
    serve_env=SERVE_ENV,
    random_weights=True,
    trials=TRIALS,
    verdict=Verdict(
        decision=Decision.IMPROVED,
        reason=f"{TUNED.label} gave +6.1% (95% interval +5.4% to +6.8%, 3 fresh launches each)",
        objective="output_tok_s",
        winner=TUNED,
        challenger=TUNED,
        ratio=Interval(1.06123, 1.05411, 1.06834),
        launches=3,
        noise=0.0023,
    ),
    baseline_command=BASELINE_COMMAND,
    tuned_command=TUNED_COMMAND,
    rejections=(
        Rejection(Candidate({"attention_backend": "FLASHMLA"}), "vLLM refuses it here: the model has no MLA"),
        Rejection(
            Candidate({"cudagraph_mode": "PIECEWISE", "compilation_mode": "NONE"}), "resolves to the same as eager"
        ),
    ),
    elapsed_s=1260.0,
)


def keep_defaults() -> StudyResult:
    """The same launches, but a verdict against the challenger."""
    verdict = replace(
        RESULT.verdict,
        decision=Decision.KEEP_DEFAULTS,
        winner=DEFAULT,
        reason="synthetic: no gain",
        ratio=Interval(1.001, 0.99, 1.01),
    )
    return replace(RESULT, verdict=verdict, tuned_command=BASELINE_COMMAND)
