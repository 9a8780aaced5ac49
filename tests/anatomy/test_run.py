"""The command without vLLM: a scripted engine, a real file."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from advisor import cli
from advisor.anatomy import measure as measuring
from advisor.anatomy import run as running
from advisor.anatomy.modes import MODES, parse_modes
from advisor.anatomy.table import told
from advisor.errors import AdvisorError, InputError
from advisor.records import EngineFacts, Facts, FirstFacts, GpuFacts, ModelFacts
from advisor.stepping import conditions
from advisor.target_process import TargetDied

RESOLVED = {"max_num_seqs": 4, "max_num_batched_tokens": 2048, "max_model_len": 4096, "tensor_parallel_size": 1}
STARTED = {
    "ok": True, "imports_s": 20.0, "engine_s": 30.0, "start_s": 50.0, "pipelined": True, "threads": 8,
    "compilation_mode": "NONE", "cudagraph_mode": "FULL", "capture_sizes": [1, 2, 4], "max_num_seqs": 4,
    "max_num_batched_tokens": 2048, "max_model_len": 4096, "dtype": "bfloat16", "kv_cache_dtype": "auto",
    "prefix_caching": True, "kv_tokens": 100000,
    "weights": {"dense_bytes": 2e9, "embedding_bytes": 0, "experts_bytes": 0, "experts": 0, "experts_per_token": None,
                "parameters": 10**9, "weight_bits": None},
    "kv": [{"layers": 10, "kind": "FullAttentionSpec", "bytes_per_token": 4096, "window": None, "state_bytes": 0}],
}  # fmt: skip
LOG = """INFO 11-29 10:00:25 [cuda.py:482] Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN']
INFO 11-29 10:00:49 [gpu_model_runner.py:99] Graph capturing finished in 6 secs, took 0.98 GiB
"""


def facts(weights=True):
    return Facts(
        GpuFacts("cuda", "NVIDIA H200", "h200", 1, 139.0, driver="580"),
        EngineFacts("/e/python", "3.12.0", "0.26.0", "2.11.0", "cuda"),
        ModelFacts("/models/Small", "LlamaForCausalLM", "abc", 10, 64, 4, 4, 16, 1000, 4096, has_weights=weights),
    )


class Engine:
    """Stands in for TargetProcess. `dies` is (mode, request) at which the engine is gone."""

    dies: tuple[str, str] | None = None
    refuses: str | None = None
    asked: list = []  # noqa: RUF012

    def __init__(self, python, script, env, log):
        assert (script, env["VLLM_ENABLE_V1_MULTIPROCESSING"]) == ("anatomy", "0")
        self.log, self.mode = Path(log), Path(log).stem

    def __enter__(self):
        self.log.write_text(LOG)
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.asked.append((self.mode, "closed", None))

    def send(self, request):
        self.asked.append((self.mode, request["do"], None))

    def receive(self, timeout_s):
        if self.dies == (self.mode, "import"):
            raise TargetDied("anatomy.py in /e/python ended with exit code 1 without an answer")
        return {"ok": True}

    def request(self, request, timeout_s):
        what = request["do"]
        self.asked.append((self.mode, what, request.get("batch")))
        if self.dies == (self.mode, what):
            raise TargetDied("anatomy.py in /e/python ended by signal -11 without an answer")
        if self.refuses == self.mode and what == "start":
            return {"ok": False, "error_type": "ValueError", "error": "no room in /models/Small for graphs"}
        return getattr(self, what)(request)

    def start(self, request):
        assert request["argv"][0] == "/models/Small"
        return STARTED

    def decode(self, request):
        step = {"none": 8.0, "compile": 6.0, "piecewise": 3.0}.get(self.mode, 2.0) + request["batch"] / 100
        three, host = {"median": step, "low": step, "high": step}, {"median": 0.9, "low": 0.8, "high": 1.0}
        return {"ok": True, "context_tokens": 512.0, "step_ms": three, "serial_ms": three, "host_ms": host,
                "batch": request["batch"]}  # fmt: skip

    def trace(self, request):
        return {"ok": True, "gpu_ms": 1.9, "gpu_reason": None, "launches": 300, "kernels": 280, "traced_ms": 9.0}

    def prefill(self, request):
        return {"ok": True, "chunks": 1, "step_ms": {"median": 10.0, "low": 9.0, "high": 11.0}}

    trace_prefill = trace

    def copy(self, request):
        return {"ok": True, "gb_s": 4000.0, "copied_bytes": 1 << 30}

    def launch(self, request):
        return {"ok": True, "bare_us": 2.0, "op_us": 5.0}


class Resolution:
    def __init__(self, python, model, env):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def resolve(self, arguments, env):
        given = (
            json.loads(arguments[arguments.index("--compilation-config") + 1])
            if "--enforce-eager" not in arguments
            else {}
        )
        compilation, graphs = given.get("mode", "NONE"), given.get("cudagraph_mode", "NONE")
        return {"ok": True, "resolved": {**RESOLVED, "compilation_mode": compilation, "cudagraph_mode": graphs}}


@pytest.fixture(autouse=True)
def engines(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # logs go into runs/
    monkeypatch.setattr(Engine, "asked", [])
    monkeypatch.setattr(Engine, "dies", None)
    monkeypatch.setattr(Engine, "refuses", None)
    monkeypatch.setattr(measuring, "TargetProcess", Engine)
    monkeypatch.setattr(running, "Resolution", Resolution)
    monkeypatch.setattr(conditions, "inspect_all", lambda *_: facts())


def wish(tmp_path, **words):
    words = {"command": "advisor anatomy --model /models/Small", "output": tmp_path / "found.json", **words}
    return running.Wish("/models/Small", "h200", **words)


def go(tmp_path, **words):
    notes: list[str] = []
    document, path = running.anatomy(wish(tmp_path, **words), notes.append)
    assert json.loads(path.read_text()) == json.loads(json.dumps(document))
    return document, notes


def test_all_five_modes_with_every_figure(tmp_path):
    document, _ = go(tmp_path)
    assert list(document["modes"]) == [mode.name for mode in MODES]
    for mode in document["modes"].values():
        assert mode["status"] == "measured"
        assert [row["batch"] for row in mode["decode"]] == [1, 2, 4]
        for row in mode["decode"]:
            assert not [name for name in ("step_ms", "gpu_ms", "host_ms", "launches", "floor_ms") if row[name] is None]
    first = document["modes"]["none"]["decode"][0]
    assert first["host_ms"] == 0.9  # as the engine timed it
    assert first["gpu_idle_ms"] == pytest.approx(8.01 - 1.9)
    assert first["floor_ms"] == pytest.approx((2e9 + 512 * 40960) / 4000e6, rel=1e-4)
    start = document["modes"]["both"]["start"]
    assert (start["start_s"], start["capture_s"], start["graph_memory_gib"]) == (50.0, 6.0, 0.98)
    assert document["modes"]["both"]["resolved"]["attention_backends"] == ["FLASH_ATTN"]
    assert document["bandwidth"]["gb_s"] == 4000.0
    assert (document["gpu"]["name"], document["versions"]["vllm"], document["model"]["name"]) == (
        "NVIDIA H200", "0.26.0", "Small"
    )  # fmt: skip


def test_nothing_is_traced_before_everything_is_timed(tmp_path):
    go(tmp_path, modes=parse_modes("both"))
    asked = [what for _, what, _ in Engine.asked]
    assert asked[0] == "start"
    assert asked.index("trace") > max(
        asked.index("launch"), asked.index("copy"), len(asked) - asked[::-1].index("decode") - 1
    )


def test_the_next_mode_is_imported_while_this_one_is_traced(tmp_path):
    go(tmp_path)
    asked = [(mode, what) for mode, what, _ in Engine.asked]
    names = [mode.name for mode in MODES]
    for name, following in itertools.pairwise(names):
        begun = asked.index((following, "import"))
        assert max(at for at, one in enumerate(asked) if one in ((name, "decode"), (name, "prefill"))) < begun
        assert begun < asked.index((name, "trace"))
        assert asked.index((name, "closed")) < asked.index((following, "start"))  # one engine at a time
    assert sorted(mode for mode, what in asked if what == "closed") == sorted(names)


def test_a_mode_that_is_there_already_is_not_imported(tmp_path):
    go(tmp_path, modes=parse_modes("compile,full"))
    Engine.asked.clear()
    go(tmp_path, modes=parse_modes("none,compile,full,both"))
    assert [mode for mode, what, _ in Engine.asked if what == "import"] == ["both"]


def known_early(monkeypatch, found=None):
    """The inspection as it is: GPU and model are told before vLLM has been asked."""
    found = found or facts()

    def inspection(model, gpu, python, serve_args, env, first_known):
        first_known(FirstFacts(found.gpu, found.model))
        Engine.asked.append((None, "inspected", None))
        return found

    monkeypatch.setattr(conditions, "inspect_all", inspection)


def test_the_first_mode_is_imported_while_the_inspection_goes_on(tmp_path, monkeypatch):
    known_early(monkeypatch)
    go(tmp_path, modes=parse_modes("compile,full"))
    asked = [(mode, what) for mode, what, _ in Engine.asked]
    assert asked[:3] == [("compile", "import"), (None, "inspected"), ("compile", "start")]
    assert asked.count(("compile", "closed")) == asked.count(("full", "closed")) == 1
    Engine.asked.clear()
    go(tmp_path, modes=parse_modes("compile,full,both"))  # compile is there already: another process is used
    asked = [(mode, what) for mode, what, _ in Engine.asked if what in ("import", "closed", "start")]
    assert asked == [("compile", "import"), ("compile", "closed"), ("both", "start"), ("both", "closed")]


def test_what_was_imported_ends_with_whatever_ends_the_command(tmp_path, monkeypatch):
    known_early(monkeypatch)
    with pytest.raises(InputError, match="--batch-sizes 9"):
        go(tmp_path, batch_sizes=(9,))
    known_early(monkeypatch, facts(weights=False))
    with pytest.raises(InputError, match="holds no weights"):
        go(tmp_path)
    assert [what for _, what, _ in Engine.asked if what != "inspected"] == ["import", "closed"] * 2
    Engine.asked.clear()
    known_early(monkeypatch, dataclasses.replace(facts(), gpu=GpuFacts("cpu", "AMD EPYC", "cpu", 1, 24.0)))
    go(tmp_path, output=tmp_path / "cpu.json")
    assert not [one for one in Engine.asked if one[1] == "import"]


def test_imports_that_fail_end_their_own_mode_only(tmp_path, monkeypatch):
    monkeypatch.setattr(Engine, "dies", ("full", "import"))
    modes = go(tmp_path)[0]["modes"]
    assert [mode["status"] for mode in modes.values()] == ["measured", "measured", "failed", "measured", "measured"]
    assert "exit code 1" in modes["full"]["reason"]
    assert not [one for one in Engine.asked if one[:2] == ("full", "start")]


def test_on_a_processor_nothing_runs_beside_a_trace(tmp_path, monkeypatch):
    found = facts()
    processor = dataclasses.replace(found, gpu=GpuFacts("cpu", "AMD EPYC", "cpu", 1, 24.0))
    monkeypatch.setattr(conditions, "inspect_all", lambda *_: processor)
    go(tmp_path)
    assert not [one for one in Engine.asked if one[1] == "import"]


def test_the_tables_hold_steps_starts_and_words(tmp_path):
    document, _ = go(tmp_path)
    text = told(document)
    for shown in (
        "Small, NVIDIA H200", "copies 4,000 GB/s", "decode step", "no optimisation", "0.98", "prefill of one prompt",
        "piecewise graphs give", "claim: launching a kernel", "GPU", "12,800",
    ):  # fmt: skip
        assert shown in text, shown
    assert max(map(len, text.splitlines())) < 190


def test_the_same_command_goes_on(tmp_path):
    go(tmp_path, modes=parse_modes("none,both"), batch_sizes=(1, 2))
    Engine.asked.clear()
    document, notes = go(tmp_path, command="advisor anatomy again", batch_sizes=(1, 2))
    assert {mode for mode, _, _ in Engine.asked} == {"compile", "full", "piecewise"}
    assert "no optimisation: in" in notes[0]
    assert document["commands"] == ["advisor anatomy --model Small", "advisor anatomy again"]
    Engine.asked.clear()
    go(tmp_path, modes=parse_modes("none"), batch_sizes=(1, 2, 4))  # more sizes: that mode anew
    assert {mode for mode, _, _ in Engine.asked} == {"none"}


def test_a_run_that_fails_takes_nothing_away(tmp_path, monkeypatch):
    go(tmp_path, modes=parse_modes("none"), batch_sizes=(1, 2))
    monkeypatch.setattr(Engine, "dies", ("none", "prefill"))
    document, _ = go(tmp_path, modes=parse_modes("none"), batch_sizes=(1, 2, 4))
    assert document["modes"]["none"]["status"] == "measured"
    assert [row["batch"] for row in document["modes"]["none"]["decode"]] == [1, 2]


def test_other_conditions_do_not_mix(tmp_path):
    go(tmp_path, modes=parse_modes("none"))
    with pytest.raises(InputError, match="another context: 512 there, 256 now"):
        go(tmp_path, modes=parse_modes("none"), context=256)
    (tmp_path / "found.json").write_text("{}")
    with pytest.raises(InputError, match="no figures of `advisor anatomy`"):
        go(tmp_path)


def test_an_engine_that_does_not_start_stops_none_of_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(Engine, "refuses", "full")
    document, notes = go(tmp_path)
    assert document["modes"]["full"]["status"] == "failed"
    assert document["modes"]["full"]["reason"] == "ValueError: no room in Small for graphs"
    assert document["modes"]["both"]["status"] == "measured"
    assert any("failed: ValueError" in line for line in notes)
    assert "failed: ValueError" in told(document)


def test_an_engine_that_dies_under_the_profiler_leaves_its_timings(tmp_path, monkeypatch):
    monkeypatch.setattr(Engine, "dies", ("both", "trace"))
    document, _ = go(tmp_path)
    both = document["modes"]["both"]
    assert (both["status"], "signal -11" in both["reason"]) == ("partly", True)
    assert [(row["step_ms"] is None, row["gpu_ms"]) for row in both["decode"]] == [(False, None)] * 3
    assert both["decode"][0]["floor_ms"] is not None
    Engine.asked.clear()
    monkeypatch.setattr(Engine, "dies", None)
    document, _ = go(tmp_path)
    assert {mode for mode, _, _ in Engine.asked} == {"both"}
    assert document["modes"]["both"]["status"] == "measured"


def test_where_every_mode_fails_the_command_does(tmp_path, monkeypatch):
    monkeypatch.setattr(Engine, "refuses", "none")
    with pytest.raises(AdvisorError, match="no mode could be measured; the last one: ValueError"):
        go(tmp_path, modes=parse_modes("none"))


def test_a_model_without_weights_needs_random_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(conditions, "inspect_all", lambda *_: facts(weights=False))
    with pytest.raises(InputError, match="holds no weights"):
        go(tmp_path)
    document, _ = go(tmp_path, serve_args=("--load-format", "dummy"), modes=parse_modes("none"))
    assert document["model"]["random_weights"] is True


def test_secrets_and_paths_stay_out_of_the_file(tmp_path):
    env = {"HF_TOKEN": "hf_abcdefgh"}
    _, path = running.anatomy(
        wish(tmp_path, env=env, command="advisor anatomy --env HF_TOKEN=hf_abcdefgh"), lambda _: None
    )
    assert "hf_abcdefgh" not in path.read_text()
    assert "/models/" not in path.read_text()


def test_secrets_in_the_served_arguments_stay_out_too(tmp_path):
    _, path = running.anatomy(wish(tmp_path, serve_args=("--hf-token", "hf_abcdefgh")), lambda _: None)
    assert "hf_abcdefgh" not in path.read_text()


def test_the_machine_is_measured_once(tmp_path):
    go(tmp_path)
    assert sum(what == "copy" for _, what, _ in Engine.asked) == 1


def test_what_a_launch_costs_is_measured_in_each_process_to_see_whether_the_host_was_equally_fast(tmp_path, monkeypatch):
    costs = iter((2.0, 2.1, 3.3, 2.2, 2.3))
    monkeypatch.setattr(Engine, "launch", lambda *_: {"ok": True, "bare_us": next(costs), "op_us": 5.0})
    document, _ = go(tmp_path)
    assert [mode["launch"]["bare_us"] for mode in document["modes"].values()] == [2.0, 2.1, 3.3, 2.2, 2.3]
    assert document["launch"]["bare_us"] == 2.0
    assert [line for line in document["words"] if line.startswith("full graphs only: the host was slow in this process")]


def test_steps_that_are_not_steady_are_timed_again_at_once_and_the_steadier_ones_count(tmp_path, monkeypatch):
    plain, tries = Engine.decode, {}

    def decode(self, request):
        """Batch 1 is disturbed the first time, batch 2 both times and more the second time, batch 4 fails the second time."""
        batch = request["batch"]
        time = tries[batch] = tries.get(batch, 0) + 1
        spread = {(1, 1): 9.0, (2, 1): 5.0, (2, 2): 9.0, (4, 1): 5.0}.get((batch, time), 0.1)
        if (batch, time) == (4, 2):
            return {"ok": False, "error": "no"}
        return {**plain(self, request), "step_ms": {"median": 8.0, "low": 8.0, "high": 8.0 + spread}}

    monkeypatch.setattr(Engine, "decode", decode)
    document, _ = go(tmp_path, modes=parse_modes("none"))
    assert tries == {1: 2, 2: 2, 4: 2}
    rows = [(row["steady"], row["attempts"], row["step_high_ms"]) for row in document["modes"]["none"]["decode"]]
    assert rows == [(True, 2, 8.1), (False, 2, 13.0), (False, 2, 13.0)]


def test_steady_steps_are_timed_once(tmp_path):
    document, _ = go(tmp_path, modes=parse_modes("none"))
    assert [what for _, what, _ in Engine.asked].count("decode") == 3
    assert {row["attempts"] for row in document["modes"]["none"]["decode"] + document["modes"]["none"]["prefill"]} == {1}


def test_why_a_figure_is_missing_stands_below_the_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(Engine, "trace", lambda *_: {"ok": False, "error": "CUPTI_ERROR_NOT_INITIALIZED"})
    document, _ = go(tmp_path, modes=parse_modes("none"))
    assert "no GPU time and launches: not traced: CUPTI_ERROR_NOT_INITIALIZED" in told(document)


def test_rows_are_lines(tmp_path):
    go(tmp_path, modes=parse_modes("none"))
    lines = (tmp_path / "found.json").read_text().splitlines()
    assert sum(line.lstrip().startswith('{"batch":') for line in lines) == 3
    assert len(lines) < 120


def test_the_command_prints_tables_or_the_file(tmp_path):
    words = [
        "anatomy",
        "--model",
        "/models/Small",
        "--modes",
        "none,both",
        "--batch-sizes",
        "1,4",
        "--output",
        "f.json",
    ]
    shown = CliRunner().invoke(cli.app, words)
    assert shown.exit_code == 0, shown.output
    assert "decode step, ms" in shown.output
    assert "compile, full graphs: measured" in shown.stderr
    printed = CliRunner().invoke(cli.app, [*words, "--json"])
    assert json.loads(printed.stdout) == json.loads(Path("f.json").read_text())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--modes", "eager"], "--modes: 'eager' is not a mode"),
        (["--batch-sizes", "1,8"], "--batch-sizes 8 is more than the 4 requests"),
        (["--context", "50"], "--context 50 does not fit"),
        (["--gpu", "H2000"], "unknown GPU"),
        (["--env", "X"], "is not NAME=VALUE"),
        (["--serve-args", "--enforce-eager"], "--serve-args decides enforce_eager"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_measured(words, said):
    shown = CliRunner().invoke(cli.app, ["anatomy", "--model", "/models/Small", *words])
    assert isinstance(shown.exception, InputError)
    assert said in shown.exception.problem
    assert not Engine.asked
