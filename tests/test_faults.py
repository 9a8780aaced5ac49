"""Engines that are fast but wrong: each is caught, named, and never wins. The table of docs/faults.md, row by row.

A whole tune for each: real processes, HTTP, probe, output gate and journal. Rows that serve the same go on from one launch of
the default. The candidate's only setting gives the fake engine one fault and makes it several times as fast as the default, so that
it would win if nobody looked. The figures of most rows are the engine's own formula (SteadyClient); where the fault is in what is
measured, a load is sent and measured by the real client code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import re
import shlex
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from advisor import nvml
from advisor import tune as pipeline
from advisor.errors import EnvironmentMismatch
from advisor.launch import gpu_memory, ports, server
from advisor.launch.process import Grace
from advisor.launch.readiness import LaunchLimits
from advisor.measure import length, warmup
from advisor.measure.client import BenchClient
from advisor.progress import Silent
from advisor.records import Decision, GpuFacts, Invalid, Outcome, Trial, Workload
from advisor.report.terminal import Lines
from advisor.request import TuneRequest
from advisor.runner import window
from advisor.study import setup
from advisor.verdict import noise_floor
from tests import test_tune
from tests.fakes.fake_bench import FakeBench
from tests.fakes.fake_gpu_memory import FolderNvml
from tests.study_help import sample, yaml_of
from tests.test_tune import children, fakes, request_for  # noqa: F401

SPEEDUP = 4
WORKLOAD = Workload("fake", input_tokens=32, output_tokens=8, num_prompts=16, concurrency=4)
GPU = GpuFacts("cuda", "NVIDIA H200", "h200", 1, 140.0, uuids=("GPU-a",))
# Log-probabilities of 111 tokens of a long prompt instead of 1,200: what a vocabulary of that size allows.
FACTS = dataclasses.replace(test_tune.FACTS, model=dataclasses.replace(test_tune.FACTS.model, vocab_size=600_000))
# Each with one limit that is soon reached, so that a slow start of an interpreter does not reach the other one first.
IMPATIENT = LaunchLimits(stall_s=1.5, quiet_cpu_s=60.0, hard_s=60.0, first_token_s=10.0)
IMPATIENT_WITH_CPU = dataclasses.replace(IMPATIENT, stall_s=60.0, quiet_cpu_s=2.5)
LONG_SOAK = {"soak": "1s"}
# Completions of a launch that does not soak: 1 until ready, 2 waves, a sample of 4, 41 of the output gate.
LATE = 55


@dataclasses.dataclass(frozen=True)
class Row:
    """`fault` as FAKE_FAULT names it; `outcome` and `words` of the launch that is caught; `phase` in which that happens.

    `outcome` OK: no launch fails, and the verdict's reason has the words. `kind`: the class of an invalid measurement.
    """

    fault: str
    outcome: Outcome
    words: str
    phase: str = "search"
    kind: Invalid | None = None
    measured: bool = False  # with a load that is sent, and figures from it
    scale: float = 0.6  # of the engine's times, where it is measured
    gpu: bool = False  # with GPU memory, as NVML tells of it
    space: str | None = None  # the candidate, where it is another setting that brings the fault out
    asked: Mapping[str, object] = dataclasses.field(default_factory=dict)  # of the tune


def failing_start(fault: str, outcome: Outcome, words: str, **more) -> Row:
    return Row(fault, outcome, words, **more)


def wrong_text(fault: str, words: str, **more) -> Row:
    return Row(fault, Outcome.WRONG_OUTPUT, words, **more)


def bad_measure(fault: str, kind: Invalid, words: str, **more) -> Row:
    return Row(fault, Outcome.INVALID_MEASUREMENT, words, kind=kind, measured=True, **more)


def other_settings(fault: str, space: str, words: str, **more) -> Row:
    return Row(fault, Outcome.NOT_AS_REQUESTED, words, space=f"settings: {{{space}}}", **more)


def lost_proof(fault: str, words: str, outcome: Outcome = Outcome.OK, phase: str = "soak", **more) -> Row:
    return Row(fault, outcome, words, phase=phase, **more)


STARTS = [
    failing_start("exit_at_start", Outcome.FAILED_TO_START, "the fake engine was told to fail"),
    failing_start("oom_at_load", Outcome.OUT_OF_MEMORY, "out of memory while loading the model"),
    failing_start("oom_at_capture", Outcome.OUT_OF_MEMORY, "out of memory while capturing CUDA graphs"),
    failing_start("kv_too_small", Outcome.OUT_OF_MEMORY, "no memory for the KV cache"),
    failing_start("gpu_in_use", Outcome.FAILED_TO_START, "less than desired GPU memory utilization"),
    failing_start("unsupported", Outcome.UNSUPPORTED, "FLASHMLA is not valid for this configuration"),
    failing_start("illegal_memory", Outcome.CRASHED, "while capturing CUDA graphs: AcceleratorError"),
    failing_start("bad_option", Outcome.UNSUPPORTED, "unrecognized arguments: --no-such-option"),
    failing_start("silent_exit", Outcome.FAILED_TO_START, "ended without a word (exit code 3)"),
    failing_start("killed", Outcome.CRASHED, "ended by SIGKILL"),
    failing_start("failed_but_alive", Outcome.FAILED_TO_START, "the fake engine was told to fail"),
    failing_start("hang", Outcome.TIMED_OUT, "no sign of life", asked={"limits": IMPATIENT}),
    failing_start("spin", Outcome.TIMED_OUT, "it uses CPU time, but log and GPU memory",
                  asked={"limits": IMPATIENT_WITH_CPU}),
    failing_start("mumble", Outcome.TIMED_OUT, "no sign of life", asked={"limits": IMPATIENT}),
    failing_start("no_tokens", Outcome.FAILED_TO_START, "the completion has no token"),
    failing_start("http_500", Outcome.FAILED_TO_START, "answered with HTTP 500"),
    failing_start("wrong_name", Outcome.FAILED_TO_START, "it answers for the model 'somebody-else'"),
    failing_start("wrong_port", Outcome.TIMED_OUT, "no sign of life", asked={"limits": IMPATIENT}),
]
TEXTS = [
    wrong_text("repeat_token", "one token repeated"),
    wrong_text("loop_text", "a loop of 3 tokens"),
    wrong_text("empty_text", "an empty text"),
    wrong_text("broken_utf8", "not valid UTF-8"),
    wrong_text("nan_logprobs", "no finite number"),
    wrong_text("null_logprobs", "no finite number"),
    wrong_text("nan_500", "HTTP 500: Out of range float values"),
    wrong_text("positive_logprobs", "a log-probability above 0"),
    wrong_text("short_answers", "24 tokens instead of 48"),
    wrong_text("another_token", "another token than the only one allowed"),
    wrong_text("other_weights", "log-probabilities while decoding"),
    wrong_text("stale_kv", "log-probabilities while decoding"),
    wrong_text("wrong_positions", "log-probabilities while decoding"),
    wrong_text("wrong_scale", "log-probabilities while decoding"),
    wrong_text("shuffled", "log-probabilities while decoding"),
    wrong_text("shifted", "log-probabilities while decoding"),
    wrong_text("layer_skipped", "log-probabilities while decoding"),
    wrong_text("wrong_together", "log-probabilities while decoding"),
    wrong_text("wrong_long", "log-probabilities while decoding"),
    wrong_text("wrong_mixed", "log-probabilities while decoding"),
    wrong_text("wrong_prefill", "log-probabilities of the prompts"),
]
MEASURES = [
    bad_measure("fail_every_n:7", Invalid.FAILED_REQUESTS, "requests failed"),
    bad_measure("empty_streams", Invalid.FAILED_REQUESTS, "no token came back"),
    bad_measure("cut_streams", Invalid.FAILED_REQUESTS, "requests failed"),
    bad_measure("one_token", Invalid.WRONG_LENGTH, "answers have 1 tokens or so instead of 8"),
    bad_measure("early_end", Invalid.WRONG_LENGTH, "answers have 4 tokens or so instead of 8"),
    bad_measure("all_cached", Invalid.CACHED_PROMPTS, "of the prompt tokens came from the prefix cache"),
    bad_measure("preempts", Invalid.PREEMPTIONS, "the KV cache is too small for this load"),
    bad_measure("jit_again:3", Invalid.JIT_COMPILED, "was compiled during the sample"),
    bad_measure("counts_double", Invalid.ANOTHER_SERVER, "the server counts"),
    bad_measure("counts_half", Invalid.ANOTHER_SERVER, "the server counts"),
]
DEATHS = [
    Row("die_after_n:12", Outcome.CRASHED, "ended by SIGKILL", measured=True),
    Row("engine_dies:12", Outcome.CRASHED, "the server still runs, but its engine does not answer", measured=True),
    Row("stalls_after_n:12", Outcome.CRASHED, "the server still runs, but its engine does not answer", measured=True),
    Row("die_after_n:5", Outcome.CRASHED, "ended by SIGKILL"),  # by the questions of the gate
    Row("dies_on_launch_n", Outcome.CRASHED, "failed when launched afresh: crashed: ended by SIGKILL", phase="confirm"),
    Row("stale_compile", Outcome.FAILED_TO_START, "failed to get the hash of the compiled graph", phase="confirm"),
]
SETTINGS = [
    other_settings("other_backend", "attention_backend: {values: [default, FLASHINFER]}",
                   "attention backend FLASHINFER was asked for, TRITON_ATTN runs"),
    other_settings("other_block_size", "--block-size: {values: [default, 32]}", "--block-size 32 was asked for, 64 runs"),
    other_settings("no_graphs", "cudagraph_mode: {values: [default, FULL_DECODE_ONLY]}",
                   "decode steps of captured sizes ran in a FULL graph (100% without a graph)",
                   asked={"serve_args": "--cudagraph-metrics", "samples": 4}),
]  # fmt: skip
PROOFS = [
    lost_proof(f"die_after_n:{LATE}", "did not stand the soak: crashed: ended by SIGKILL", Outcome.CRASHED,
               asked=LONG_SOAK),
    lost_proof(f"engine_dies:{LATE}", "its engine does not answer", Outcome.CRASHED, asked=LONG_SOAK),
    lost_proof(f"wrong_after_n:{LATE}", "did not stand the soak: wrong_output", Outcome.WRONG_OUTPUT,
               asked=LONG_SOAK),
    lost_proof("fades_after_n:8", "faded during the soak", asked=LONG_SOAK),  # from the second sample on
    lost_proof("stale_kernels", "did not stand its second start, with the code that the first one compiled",
               Outcome.FAILED_TO_START, "restart"),
    lost_proof("hangs_again", "did not stand its second start, with the code that the first one compiled: timed_out: no sign",
               Outcome.TIMED_OUT, "restart", asked={"limits": IMPATIENT}),
    lost_proof("memory_hog", "left only 0.1% of the memory free", gpu=True),
    lost_proof("orphan_child", "left processes behind at 2 of 2 stops, which had to be killed: pid", phase="confirm", gpu=True),
    lost_proof("plain_words", "the quality command scores 0, the baseline 1"),
]  # fmt: skip
ROWS = [*STARTS, *TEXTS, *MEASURES, *SETTINGS, *DEATHS, *PROOFS]


# ---------------------------------------------------------------- the set-up


class SteadyClient(test_tune.FakeClient):
    """Sends real requests, but the figure is what the engine says of its own pace, with a little noise."""

    def warm_up(self, server_url, served_name, workload):
        self._ask(server_url, served_name, 1)
        return sample(2_000_000_000, 100.0)

    def sample(self, server_url, served_name, workload, seed, folder):
        answers = self._ask(server_url, served_name, 4)
        bad = [] if all(answers) else [f"{answers.count(None)} of 4 requests failed"]
        slowest = max((seconds for seconds in answers if seconds), default=1.0)
        tok_s = random.Random(f"{seed} {folder.name}").gauss(1, 0.005) / slowest
        return sample(seed, tok_s, 1000 / tok_s, bad)

    def _ask(self, url, name, requests):
        """Seconds a token takes, for each request; None where it failed."""
        body = {"model": name, "prompt": "a b c", "max_tokens": 3, "ignore_eos": True}
        with httpx.Client(base_url=url, timeout=20, trust_env=False, verify=False) as http:
            return [_token_s(http, body) for _ in range(requests)]


def _token_s(http: httpx.Client, body: dict) -> float | None:
    with contextlib.suppress(httpx.HTTPError, KeyError):
        return http.post("/v1/completions", json=body).json()["fake_token_s"]
    return None


def sending_client(python: str, model: str, *, root: Path, **_) -> BenchClient:
    return BenchClient(python, model, root=root, timeout_s=5.0, process=FakeBench)


@pytest.fixture(autouse=True)
def quick(monkeypatch, fakes):  # noqa: F811
    """Waits that are seconds on a real server; and what a sample has to last, so that short ones are like long ones."""
    monkeypatch.setattr(setup, "inspect_all", lambda *_, **__: FACTS)
    monkeypatch.setattr(setup, "BenchClient", SteadyClient)
    monkeypatch.setattr(server, "Grace", lambda: Grace(leader_s=0.3, group_s=0.2))
    monkeypatch.setattr(server, "SIGNS_EVERY_S", 0.2)
    monkeypatch.setattr(server, "LAST_WORDS_GRACE_S", 0.2)
    monkeypatch.setattr(server, "ALIVE_TIMEOUT_S", 2.0)
    monkeypatch.setattr(gpu_memory, "RELEASE_TIMEOUT_S", 1.0)
    monkeypatch.setattr(gpu_memory, "CLEAN_TIMEOUT_S", 1.0)
    monkeypatch.setattr(length, "WANTED_S", 0.06)
    monkeypatch.setattr(length, "SECONDS_A_REQUEST_IN_FLIGHT", 0.0)
    monkeypatch.setattr(warmup, "CLOSE", 0.5)
    monkeypatch.setattr(window, "POLL_S", 0.05)


@pytest.fixture(scope="module")
def known_default(tmp_path_factory) -> Path:
    """Where the default of the rows that share it is launched, by the first of them."""
    return tmp_path_factory.mktemp("default")


def go_on_from_the_default(request: TuneRequest, folder: Path) -> None:
    """Put a study into the request's folder that has launched its default; it is this row's by the name of its space."""
    if not (folder / "runs").exists():
        budget = dataclasses.replace(request.budget, trials=0, total_s=1.0)  # and no more than that
        pipeline.tune(dataclasses.replace(request, runs=folder / "runs", output=folder, budget=budget, limits=None), Silent())
    (study,) = (file.parent for file in folder.glob("runs/*/study.json"))
    shutil.copytree(study, request.runs / study.name)
    path = request.runs / study.name / "study.json"
    description = json.loads(path.read_text())
    description["identity"]["space"] = request.space.model_dump(mode="json", by_alias=True)
    path.write_text(json.dumps(description))


@pytest.fixture
def tuned(request_for, monkeypatch, tmp_path, known_default) -> Iterator[Callable[[Row], SimpleNamespace]]:  # noqa: F811
    """Runs the tune of a row; gives its answer, the profile as read back, and the lines that a person saw."""
    # What the default differs by once a candidate has failed is another test's matter (test_tune_noise.py).
    monkeypatch.setattr(noise_floor, "is_due", lambda *_: False)

    def run(row: Row) -> SimpleNamespace:
        if row.fault == "orphan_child":  # what is killed because others held it up is no orphan
            monkeypatch.setattr(server, "Grace", lambda: Grace(leader_s=20.0, group_s=1.0))
        if row.gpu:
            on_a_gpu(monkeypatch, tmp_path / "gpu")
        if row.measured:
            monkeypatch.setattr(setup, "BenchClient", sending_client)
        request = request_of(row)
        if not (row.gpu or row.measured or row.space):
            go_on_from_the_default(request, known_default)
        told: list[str] = []
        answer = pipeline.tune(request, Lines(told.append, request.objective, request.budget.total_s))
        return SimpleNamespace(answer=answer, told=told, profile=yaml_of(answer.profile_path))

    def request_of(row: Row):
        scale = row.scale if row.measured else 0.01
        env = [f"FAKE_TIME_SCALE={scale}", f"FAKE_FAULT_SPEEDUP={SPEEDUP}"]
        if row.gpu:
            (tmp_path / "gpu").mkdir()
            env.append(f"FAKE_GPU_FOLDER={tmp_path / 'gpu'}")
        if row.space:
            env.append(f"FAKE_FAULT={row.fault}")
        space = row.space or f"settings: {{FAKE_FAULT: {{values: [default, {json.dumps(row.fault)}]}}}}"
        asked = {"confirm_launches": 2, "env": [f"PYTHONPATH={test_tune.SITE}", *env], **row.asked}
        if row.fault == "plain_words":
            asked["quality_command"] = shlex.join([sys.executable, str(quality_script(tmp_path))])
        made = request_for(space, **asked)
        if not row.measured:
            return made
        once = dataclasses.replace(made.budget, confirm_rounds=1, confirm_most=1)
        return dataclasses.replace(made, workload=WORKLOAD, budget=once)

    yield run
    assert children() == [], "a process was left behind"


def on_a_gpu(monkeypatch, folder: Path) -> None:
    """One H200, in which the fake engine's processes have memory as long as they live."""
    monkeypatch.setattr(setup, "inspect_all", lambda *_, **__: dataclasses.replace(FACTS, gpu=GPU))
    library = FolderNvml(folder)
    monkeypatch.setattr(nvml, "library", lambda: library)
    monkeypatch.setattr(nvml, "pids_are_ours", lambda listed, ours: True)
    monkeypatch.setattr(nvml, "has_gpu_open", lambda pid: True)


def quality_script(folder: Path) -> Path:
    """A person's evaluation: 1 if the server answers as it should, else 0."""
    script = folder / "evaluate.py"
    script.write_text(
        "import json, os, urllib.request\n"
        "body = {'model': os.environ['ADVISOR_MODEL'], 'prompt': 'a b', 'max_tokens': 4}\n"
        "address = os.environ['ADVISOR_BASE_URL'] + '/completions'\n"
        "asked = urllib.request.Request(address, json.dumps(body).encode(), {'Content-Type': 'application/json'})\n"
        "answer = json.load(urllib.request.urlopen(asked, timeout=20))\n"
        "print(int(answer['choices'][0]['text'] == 'red green blue grey'))\n"
    )
    return script


# ---------------------------------------------------------------- the table


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.fault}-{row.phase}")
def test_a_fault_is_caught_and_named_and_never_wins(row, tuned):
    done = tuned(row)
    result = done.answer.result
    assert result.verdict.decision is Decision.KEEP_DEFAULTS, result.verdict.reason
    assert result.verdict.winner.is_baseline and result.tuned_command == result.baseline_command
    assert all(trial.ok for trial in result.trials if trial.candidate.is_baseline)
    assert done.profile["decision"]["outcome"] == "keep-defaults"
    failed = [trial for trial in result.trials if not trial.ok]
    if row.outcome is Outcome.OK:
        assert failed == [] and row.phase in done.profile["study"]["launches_by_phase"]
    else:
        (caught,) = failed
        assert (caught.phase, caught.outcome) == (row.phase, row.outcome), caught.reason
        assert (caught.stop_s is None) == (caught.start_s is None)  # one that died while it was measured was stopped, too
        told_of(caught, done)
    if row.kind:
        sample = caught.samples[-1]  # a busy machine may add a class of its own
        texts = [text for kind, text in zip(sample.classes, sample.problems, strict=True) if kind is row.kind]
        assert any(row.words in text for text in texts), caught.reason
        assert caught.reason == f"{sample.classes[0].value}: {sample.problems[0]}"
    elif row.phase == "search":
        assert row.words in caught.reason
    else:
        assert row.words in result.verdict.reason and row.words in done.profile["decision"]["reason"]


def told_of(caught: Trial, done: SimpleNamespace) -> None:
    """The launch's end stands in what a person sees, and in the profile."""
    state, study = caught.outcome.value, done.profile["study"]
    line = next(line for line in done.told if line.startswith(f"   {caught.number:>3} "))
    assert f"{state}: {caught.reason}" in line
    assert study["outcomes"][state] == 1
    (rejected,) = [item for item in study["rejected"] if item["state"] == state]
    assert rejected["examples"] == [caught.candidate.label]
    assert rejected["reason"].split("/")[0][:60] in caught.reason  # shortened, and without this machine's paths


def test_every_fault_of_the_table_is_tried_and_every_one_tried_is_in_the_table():
    text = (Path(__file__).parents[1] / "docs" / "faults.md").read_text()
    candidates, _, others = text.partition("## No candidate's doing")
    tried = {row.fault.partition(":")[0] for row in ROWS}
    assert set(re.findall(r"^\| `(\w+)`", candidates, re.MULTILINE)) == tried and len(tried) >= 60
    assert set(re.findall(r"^\| `(\w+)`", others, re.MULTILINE)) == {*SURROUNDINGS, "reuse_port", "repeat_token"}




# ---------------------------------------------------------------- the same set-up, and nothing wrong


@pytest.mark.slow
@pytest.mark.parametrize(
    "row",
    [
        Row("none", Outcome.OK, ""),
        Row("ignore_sigterm", Outcome.OK, ""),  # it is killed, and that is all that a stopped server can cost
    ],
    ids=lambda row: row.fault,
)
def test_a_sound_engine_that_is_as_fast_wins(row, tuned):
    done = tuned(row)
    verdict = done.answer.result.verdict
    assert verdict.decision is Decision.IMPROVED, verdict.reason
    assert verdict.winner.settings == {"FAKE_FAULT": row.fault} and verdict.ratio.low > 1.02
    assert all(trial.ok and not trial.leftovers for trial in done.answer.result.trials)
    assert [trial.phase for trial in done.answer.result.trials][-2:] == ["soak", "restart"]


@pytest.mark.slow
def test_a_sound_engine_that_is_measured_is_faster_by_what_it_is(tuned):
    """The counterpart of the rows with a load that is sent; the machine's noise is too large for a verdict in seconds."""
    trials = tuned(Row("none", Outcome.OK, "", measured=True, scale=3.0)).answer.result.trials
    baseline, found = trials[:2]
    assert baseline.ok and found.ok, found.reason
    assert found.samples[0].output_tok_s > 1.3 * baseline.samples[0].output_tok_s


# ---------------------------------------------------------------- no candidate's fault, or the default's own


SURROUNDINGS = {
    "memory_stays": "GPU memory was not given back after the server ended: 29.3 GiB on GPU-a, held by a process outside",
    "memory_moves": "GPU memory is in use by others: 29.3 GiB on GPU-a, held by pid 1 (",
    "memory_profiling": "no server can be started here: AssertionError: Error in memory profiling",
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", SURROUNDINGS)
def test_what_would_spoil_every_further_launch_ends_the_study(fault, tuned, tmp_path):
    with pytest.raises(EnvironmentMismatch) as caught:
        tuned(Row(fault, Outcome.OK, "", gpu=fault != "memory_profiling"))
    assert caught.value.problem.startswith(SURROUNDINGS[fault]) and caught.value.exit_code == 3
    assert not list((tmp_path / "profiles").rglob("*.yaml"))
    events = map(json.loads, next((tmp_path / "runs").rglob("trials.jsonl")).read_text().splitlines())
    outcomes = [event["trial"]["outcome"] for event in events if event["event"] == "trial"]
    assert outcomes and set(outcomes) == {"ok"}  # nobody is blamed, and the candidate is tried again


@pytest.mark.slow
def test_a_port_that_somebody_else_answers_on_too_is_no_measurement(tuned, monkeypatch, tmp_path):
    """The other server is fast and answers well, under the name that it is asked for."""
    with stranger() as port:
        offered = iter([ports.free_port()])
        monkeypatch.setattr(ports, "free_port", lambda avoid=(): next(offered, port))
        with pytest.raises(EnvironmentMismatch, match=rf"port {port} is in use by pid \d+ \(.*not by the launched server"):
            tuned(Row("reuse_port", Outcome.OK, ""))
    assert not list((tmp_path / "profiles").rglob("*.yaml"))


@pytest.mark.slow
def test_a_default_that_is_wrong_itself_is_named_and_nothing_wins(tuned):
    row = Row("repeat_token", Outcome.OK, "", space="settings: {attention_backend: {values: [default, FLASHINFER]}}")
    done = tuned(row)
    verdict = done.answer.result.verdict
    assert verdict.decision is Decision.INCONCLUSIVE and verdict.winner.is_baseline
    words = "its output could not be judged: the baseline's own output is degenerate"
    assert words in verdict.reason and words in done.profile["decision"]["reason"]


class Impostor(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps({"model": body["model"], "usage": {"completion_tokens": 4}, "fake_token_s": 1e-6}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None: ...


@contextlib.contextmanager
def stranger() -> Iterator[int]:
    """A server of this process on a port that others may share; gives the port."""
    listening = ThreadingHTTPServer(("127.0.0.1", 0), Impostor, bind_and_activate=False)
    listening.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listening.server_bind()
    listening.server_activate()
    thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield listening.server_port
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()
