"""`advisor buckets` as a person runs it: files and a page in, lists and flags out, quickly and without vLLM."""

import http.server
import json
import os
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from advisor.engine.capture import CaptureRequest, capture_list
from advisor.engine.options import parse_options
from advisor.engine.rules.requested import read_request
from advisor.errors import InputError
from advisor.report.buckets import buckets_lines
from advisor.search.buckets import Question, answer
from tests import pace

DATA = Path(__file__).parent.parent / "data"
TABLE = DATA / "graph_steps" / "0.26.0.log"
PAGE = (DATA / "metrics" / "cpu-0.32-default.prom").read_text()


def run(*words: str, **variables: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "advisor", "buckets", *words]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables})


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "batches.json"
    path.write_text(json.dumps({"64": 900, "63": 300, "33": 100, "1": 20}))
    return path


@pytest.mark.parametrize("version", ["0.9.0", "0.10.2", "0.11.2", "0.26.0", "0.33.0"])
def test_the_flag_asks_that_version_for_that_list(file, version):
    told = answer(Question(file, vllm_version=version, max_num_seqs=64, graphs=3))
    chosen = told["recommended"]
    options = parse_options(tuple(shlex.split(chosen["flag"])))
    numbers = tuple(map(int, version.split(".")))
    asked = read_request(options, {}, numbers)
    request = CaptureRequest(
        numbers, 64, 8192, sizes=asked.sizes, maximum=asked.maximum, sizes_by_flag=asked.sizes_by_flag
    )
    assert list(capture_list(request).sizes) == chosen["sizes"] == [1, 33, 64]


def test_figures(file):
    told = answer(Question(file, vllm_version="0.26.0", max_num_seqs=64, graphs=4))
    plan, default = told["recommended"], told["default"]
    assert plan["sizes"] == [1, 33, 63, 64] and plan["padding_saved_percent"] == pytest.approx(100)
    assert plan["padded_tokens_percent"] == 0 and default["padded_tokens_percent"] > 0
    assert plan["step_ms"] == pytest.approx(told["ideal_ms"]) and plan["step_time_percent"] < 0
    assert plan["graph_gib"] == pytest.approx(4 * told["graph_costs"]["gib"])
    assert told["step_ms_by_graphs"] == sorted(told["step_ms_by_graphs"], reverse=True)
    assert any("assumed" in note for note in told["assumed"])


def test_costs_mode_and_version_from_a_log(file):
    log = DATA / "logs" / "h200-0.26-default.log"
    told = answer(Question(file, log=log))
    assert told["vllm_version"] == "0.26.0" and log.name in told["graph_costs"]["source"]
    assert not any("costs of a graph" in note for note in told["assumed"])


def test_own_step_times(file, tmp_path):
    times = tmp_path / "times"
    times.write_text("1 2.0\n64 4.0\n")
    told = answer(Question(file, step_times=times, eager_ms=30.0, max_num_seqs=64))
    assert told["step_times"] == "times" and told["eager_ms"] == 30.0
    assert told["ideal_ms"] == pytest.approx(
        (900 * 4 + 300 * (2 + 2 * 62 / 63) + 100 * (2 + 2 * 32 / 63) + 20 * 2) / 1320
    )


def test_lines_for_people(file):
    told = answer(Question(file, vllm_version="0.26.0", max_num_seqs=256, max_num_batched_tokens=2048))
    lines = buckets_lines(told)
    text = "\n".join(lines)
    assert told["recommended"]["flag"] in text and "planned, not measured" in text
    assert "--cover 256" in text  # the load may grow
    assert any(line.startswith("note: step times assumed") for line in lines)
    covered = answer(Question(file, vllm_version="0.26.0", max_num_seqs=256, cover=256))
    assert covered["recommended"]["sizes"][-1] == 256 and "--cover" not in "\n".join(buckets_lines(covered))


def test_lines_fit_a_terminal_and_the_flag_stays_whole(file):
    told = answer(Question(file, vllm_version="0.26.0", max_num_seqs=64))
    wide, lines = buckets_lines(told), buckets_lines(told, 80)
    flag = f"    {told['recommended']['flag']}"
    assert max(map(len, wide)) > 80 and flag in lines and flag in wide
    assert not [line for line in lines if len(line) > 80 and line != flag]
    assert [line.split()[-4:] for line in lines if "(default)" in line] == [["1", "..", "128", "(default)"]]
    assert " ".join(" ".join(lines).split("note:")[1].split()) == " ".join(" ".join(wide).split("note:")[1].split())
    assert any(line.startswith("padding saved: of the time") and "charged:" in line for line in wide)


def test_what_saves_nothing_and_one_graph_are_worded(file):
    told = answer(Question(file, vllm_version="0.26.0", max_num_seqs=64, graphs=1))
    plan = {**told["plans"][0], "padding_saved_percent": -5031.6}
    text = "\n".join(buckets_lines({**told, "plans": [plan]}))
    assert "51.3x added" in text and "-5031" not in text
    assert "\n1 graph: 64\n" in text


def test_kv_cache_is_assumed_by_the_gpu(file):
    def assumed(**more):
        told = answer(Question(file, vllm_version="0.26.0", **more))
        return told["prices"]["kv_gib"], [note for note in told["assumed"] if "GiB of KV cache" in note]

    assert assumed(gpu="L4") == (
        12, ["assumed: 12 GiB of KV cache, half of the 24 GiB of L4 (--kv-gib, or --log of a launch)"]
    )  # fmt: skip
    assert assumed() == (
        40, ["assumed: 40 GiB of KV cache, half of an H100's 80 GiB (--kv-gib, or --log of a launch)"]
    )  # fmt: skip
    assert assumed(gpu="L4", kv_gib=5) == (5, [])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"histogram": None}, "either --histogram or --from-metrics"),
        ({"metrics": "http://127.0.0.1:1"}, "either --histogram or --from-metrics"),
        ({"histogram": Path("/nowhere/x.json")}, "cannot be read"),
        ({"serve_args": "--enforce-eager"}, "nothing to capture"),
        ({"serve_args": "'"}, "--serve-args"),
        ({"gpu": "cpu"}, "GPUs only"),
        ({"log": Path("/nowhere")}, "--log"),
        ({"vllm_version": "0.5.0"}, "0.5.0"),
    ],
)
def test_mistakes(file, changed, said):
    with pytest.raises(InputError, match=said):
        answer(Question(**{"histogram": file, **changed}))


@pytest.fixture
def server():
    """A page that grows by 100 steps of 33 to 64 tokens a reading, with 40 requests running."""
    readings = [0]

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            readings[0] += 1
            steps = 100 * readings[0]
            body = (
                f'vllm:num_requests_running{{engine="0"}} 40.0\n'
                f'vllm:iteration_tokens_total_bucket{{le="32.0"}} 7.0\n'
                f'vllm:iteration_tokens_total_bucket{{le="64.0"}} {steps}.0\n'
                f'vllm:iteration_tokens_total_bucket{{le="+Inf"}} {steps}.0\n'
            )
            self.send_response(200 if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()
        thread.join()


def test_a_running_server(server):
    told = answer(Question(metrics=server, max_num_seqs=64))
    assert told["histogram"]["steps"] == pytest.approx(100) and told["histogram"]["most"] == 64
    watched = answer(Question(metrics=f"{server}/metrics", watch_s=0.3, max_num_seqs=64))
    assert watched["histogram"]["least"] == watched["histogram"]["most"] == 40
    assert watched["recommended"]["sizes"] == [40]


def test_a_server_that_is_not_there():
    with pytest.raises(InputError, match=r"127\.0\.0\.1:1/metrics cannot be read"):
        answer(Question(metrics="http://127.0.0.1:1"))


def test_the_command(file):
    done = run("--histogram", str(file), "--vllm-version", "0.26.0", "--graphs", "2", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["recommended"]["graphs"] == 2
    assert run("--histogram", str(file)).stdout.count("cudagraph_capture_sizes") == 1
    wrong = run()
    assert wrong.returncode == 2 and "advisor: give either" in wrong.stderr


LIMIT_S = 0.4


def test_it_answers_at_once():
    """Start of the interpreter included: 0.28 s of processor time on a core of an AMD EPYC, without numpy's idle threads."""

    def told() -> None:
        assert run("--histogram", str(TABLE), "--vllm-version", "0.26.0", OPENBLAS_NUM_THREADS="1").returncode == 0

    spent = pace.best_s(lambda: pace.child_s(told), pace.start_s, pace.START_S, LIMIT_S, most=10)
    assert spent < LIMIT_S


def test_neither_vllm_nor_torch_is_imported():
    code = (
        "import sys; from pathlib import Path; from advisor.search.buckets import Question, answer; "
        f"answer(Question(Path({str(TABLE)!r}))); "
        "print([m for m in ('vllm', 'torch', 'scipy', 'optuna', 'pydantic', 'httpx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_time_to_watch_without_a_page_to_watch_is_refused(tmp_path):
    file = tmp_path / "h.json"
    file.write_text('{"40": 10}')
    with pytest.raises(InputError, match="--watch is for --from-metrics"):
        answer(Question(histogram=file, watch_s=3.0, max_num_seqs=64))
