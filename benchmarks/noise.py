"""How far launches of one configuration, and seeds on one launch, lie apart: `python -m benchmarks.noise --help`.

Each launch is a fresh `vllm serve` of the default with what --serve-args gives; each is measured with the same seeds. Writes
JSON after every launch, so that an interrupted run keeps what it has, and prints a table at the end. benchmarks/verdict.py
simulates verdicts from such files.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from advisor.journal import now
from advisor.measure.client import BenchClient
from advisor.records import Candidate, Facts, Trial, to_json
from advisor.report.terminal import Lines
from advisor.request import TuneRequest, request_from_words
from advisor.runner.base import Job
from advisor.runner.real import RealRunner
from advisor.study import setup

FIGURES = ("output_tok_s", "requests_s", "ttft_ms.p50", "ttft_ms.p99", "tpot_ms.p50", "tpot_ms.p99", "e2el_ms.p50")


def figure(sample: dict[str, Any], name: str) -> float:
    """`ttft_ms.p99` of a sample in JSON form."""
    key, _, percentile = name.partition(".")
    return float(sample[key][percentile] if percentile else sample[key])


def spread(launches: Sequence[Sequence[float]]) -> dict[str, float]:
    """Launches x seeds of one figure: mean, and relative standard deviations in percent.

    `launch_percent`: between the launches' means. `same_seed_percent`: between launches at one seed, which is what a
    comparison paired by seed has to bear. `seed_percent`: between seeds on one launch.
    """
    mean = statistics.fmean(value for launch in launches for value in launch)
    by_seed = list(zip(*launches, strict=True))
    return {
        "mean": mean,
        "launch_percent": 100 * _deviation([statistics.fmean(launch) for launch in launches]) / mean,
        "same_seed_percent": 100 * statistics.fmean(_deviation(values) for values in by_seed) / mean,
        "seed_percent": 100 * statistics.fmean(_deviation(launch) for launch in launches) / mean,
    }


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def record(request: TuneRequest, launches: int, command: str, output: Path, wrap: Any = None) -> dict[str, Any]:
    """Launch and measure; the file grows by one launch at a time. Launches that failed are kept with their reason.

    `wrap` makes another client of the benchmark client, for whoever wants to ask the running server more.
    """
    progress = Lines(_print, request.objective, 0.0)
    facts = setup.inspect(request, progress)
    folder = request.runs / f"noise-{request.study or request.workload.name}"
    folder.mkdir(parents=True, exist_ok=True)
    result = _head(request, facts, command)
    with BenchClient(
        facts.engine.python, facts.model.model, root=folder, log=folder / "bench.log", vocabulary=facts.model.vocab_size
    ) as client:
        runner = RealRunner(
            facts,
            request.workload,
            request.serve_args,
            request.serve_env,
            folder.resolve(),
            wrap(client) if wrap else client,
        )
        for number in range(launches):
            trial = runner.run(Job(number, "noise", Candidate(), tuple(range(request.samples))))
            result["launches"].append(_launch(trial))
            result["figures"] = _figures(result["launches"])
            output.write_text(json.dumps(result, indent=1) + "\n")
            _print(f"launch {number}: {trial.outcome.value} {trial.reason} " + _shown(trial))
    return result


def _head(request: TuneRequest, facts: Facts, command: str) -> dict[str, Any]:
    return {
        "date": now(),
        "command": command,
        "gpu": to_json(facts.gpu) | {"uuids": []},
        "engine": {
            name: getattr(facts.engine, name)
            for name in ("vllm_version", "torch_version", "cuda_version", "python_version")
        },
        "model": {
            "name": Path(facts.model.model).name,
            "architecture": facts.model.architecture,
            "config": facts.model.config_hash,
        },
        "random_weights": setup.random_weights(request),
        "workload": to_json(request.workload),
        "serve_args": list(request.serve_args),
        "serve_env": dict(request.serve_env),
        "launches": [],
    }


def _launch(trial: Trial) -> dict[str, Any]:
    samples = [{k: v for k, v in to_json(sample).items() if k != "raw"} for sample in trial.samples]
    names = ("start_s", "warmup_s", "measure_s", "stop_s", "total_s")
    return {
        "outcome": trial.outcome.value,
        "reason": trial.reason,
        "started_at": trial.started_at,
        **{name: getattr(trial, name) for name in names},
        "samples": samples,
    }


def _figures(launches: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    good = [launch["samples"] for launch in launches if launch["outcome"] == "ok"]
    if not good:
        return {}
    return {name: spread([[figure(sample, name) for sample in samples] for samples in good]) for name in FIGURES}


def _shown(trial: Trial) -> str:
    return " ".join(f"{sample.output_tok_s:.1f}" for sample in trial.samples) + " output tok/s"


def _print(text: str) -> None:
    print(text, flush=True)


def table(result: dict[str, Any]) -> list[str]:
    """The deviations as a Markdown table."""
    rows = ["| figure | mean | between launches | the same seed | between seeds |", "|---|---|---|---|---|"]
    for name, item in result["figures"].items():
        rows.append(
            f"| {name} | {item['mean']:,.1f} | {item['launch_percent']:.2f}% | {item['same_seed_percent']:.2f}% "
            f"| {item['seed_percent']:.2f}% |"
        )
    return rows


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.noise", description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="model folder or hub id")
    parser.add_argument("--gpu", default="auto")
    parser.add_argument("--workload", default="chat")
    parser.add_argument("--launches", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--serve-args", default="")
    parser.add_argument("--env", action="append", default=[], help="NAME=VALUE for the server; may be repeated")
    parser.add_argument("--engine-python", default=sys.executable)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--output", type=Path, required=True, help="JSON file")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> None:
    given = _arguments(words)
    request = request_from_words(
        model=given.model, gpu=given.gpu, workload=given.workload, overrides={}, budget="1h", trials=None,
        confirm_launches=3, serve_args=given.serve_args, env=given.env, space=None, objective="output_tok_s",
        samples=given.seeds, engine_python=given.engine_python, runs=given.runs, study=given.output.stem,
    )  # fmt: skip
    shown = [f"{Path(word).name}" if word == given.model else word for word in words]
    result = record(request, given.launches, f"python -m benchmarks.noise {shlex.join(shown)}", given.output)
    print("\n".join(table(result)))


if __name__ == "__main__":
    main(sys.argv[1:])
