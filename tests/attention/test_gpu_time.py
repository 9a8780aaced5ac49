"""GPU times in the command, its file, its tables and its sentences: scripted engines."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from advisor import cli
from advisor.attention import grid
from advisor.attention import run as running
from advisor.attention.document import read, with_comparison
from advisor.attention.gpu_words import gpu_advice, gpu_ahead
from advisor.attention.table import told
from advisor.attention.traces import NO_TIME
from advisor.attention.winners import LEAST_GPU, comparison
from tests.attention import scripted
from tests.attention.test_winners import DEFAULT, backends, row

SMALL = grid.Wanted(batch_sizes=(1, 16), contexts=(512,))
LOST = "the profiler saw no kernels: is CUPTI there, and allowed?"


@pytest.fixture
def engines(monkeypatch, tmp_path):
    found = scripted.install(monkeypatch, tmp_path)
    found.start_s = 30.0
    return found


def go(tmp_path, engines, names=("FLASHINFER",), **words):
    engines.clock = scripted.Clock()
    wish = running.Wish("/models/Small", "h200", wanted=SMALL, backends=names, output=tmp_path / "found.json", **words)
    document, path = running.attention(wish, lambda _: None, engines.clock)
    assert json.loads(path.read_text()) == json.loads(json.dumps(document))
    return document


def rows_of(document, name="FLASHINFER"):
    return document["backends"][name]["rows"]


# ---------------------------------------------------------------- measuring


def test_every_cell_is_traced_once_after_all_that_is_timed(tmp_path, engines):
    document = go(tmp_path, engines)
    for name, arm in (("FLASH_ATTN:3", "FLASH_ATTN-3"), ("FLASHINFER", "FLASHINFER")):
        order = [what for who, what in engines.order if who == arm and what in (*grid.PHASES, "trace")]
        timed = 12 if arm == "FLASH_ATTN-3" else 6
        assert order[:timed].count("trace") == 0, arm
        assert order[timed:] == ["trace"] * 6, arm
        for one in rows_of(document, name):
            assert (one["gpu_ms"], one["gpu_low_ms"], one["gpu_high_ms"], one["gpu_reason"]) == (2, 1.99, 2.01, None)
        assert document["backends"][name]["status"] == "measured"


def test_a_processor_is_not_traced_and_says_so(tmp_path, monkeypatch):
    engines = scripted.install(monkeypatch, tmp_path, scripted.facts(scripted.CPU, capability=None))
    document = go(tmp_path, engines, names=None)
    assert not engines.traced
    assert not any("gpu_ms" in one for one in rows_of(document, "CPU_ATTN"))
    assert "gpu" not in document["cells"][0]
    said = [line for line in document["words"] if "GPU time" in line]
    assert said == ["GPU time does not apply: this is a processor, and what a step takes is all that there is"]
    assert "GPU time of a" not in told(document)
    engines.asked.clear()
    go(tmp_path, engines, names=None)
    assert not engines.asked


def test_traces_that_tell_nothing_are_given_up_and_the_reason_is_told_once(tmp_path, engines):
    lost = {"ok": True, "gpu_ms": None, "gpu_reason": LOST, "context_tokens": 512, "steps": 4, "fill_s": 0.1}
    engines.script = {(arm, "trace"): lost for arm in ("FLASH_ATTN-3", "FLASHINFER")}
    document = go(tmp_path, engines)
    assert len(engines.traced) == 4  # two of each
    for name in ("FLASH_ATTN:3", "FLASHINFER"):
        assert {(one["gpu_ms"], one["gpu_reason"]) for one in rows_of(document, name)} == {(None, LOST)}
        assert document["backends"][name]["status"] == "measured"
        assert document["backends"][name]["reason"] is None
    text = told(document)
    assert text.count(LOST) == 1
    assert "FLASH_ATTN:3, FLASHINFER: no GPU time of decode 1 x 512, decode 16 x 512, prefill 1 x 512" in text
    assert "GPU time of a" not in text
    engines.asked.clear()
    engines.traced.clear()
    go(tmp_path, engines)
    assert not engines.asked
    assert not engines.traced


def test_one_trace_that_fails_loses_its_cell_only(tmp_path, engines):
    broken = {"ok": False, "error_type": "RuntimeError", "error": "CUPTI_ERROR at /models/Small"}
    engines.script = {("FLASHINFER", "trace", "decode", 16): broken}
    document = go(tmp_path, engines)
    (one,) = [one for one in rows_of(document) if one["gpu_ms"] is None]
    assert (one["phase"], one["batch"], one["gpu_reason"]) == ("decode", 16, "RuntimeError: CUPTI_ERROR at Small")
    assert one["step_ms"]
    assert document["backends"]["FLASHINFER"]["status"] == "measured"


def test_an_engine_that_dies_under_the_profiler_leaves_its_times_and_the_next_run_traces_the_rest(tmp_path, engines):
    engines.script = {("FLASHINFER", "trace", "prefill", 1): scripted.died()}
    document = go(tmp_path, engines)
    assert document["backends"]["FLASHINFER"]["status"] == "partly"
    assert all(one["step_ms"] for one in rows_of(document))
    (lost,) = [one for one in rows_of(document) if one.get("gpu_reason")]
    assert (lost["phase"], lost["batch"]) == ("prefill", 1)
    assert lost["gpu_reason"].startswith("engine lost: ")
    left = [(one["phase"], one["batch"]) for one in rows_of(document) if "gpu_ms" not in one]
    assert left
    engines.asked.clear()
    engines.traced.clear()
    document = go(tmp_path, engines)
    assert {what for _, what, *_ in engines.asked} == {"start"}
    assert sorted((phase, batch) for _, phase, batch, *_ in engines.traced) == sorted(left)
    assert document["backends"]["FLASHINFER"]["status"] == "measured"


def test_traces_add_at_most_a_third(tmp_path, engines):
    engines.start_s, engines.cell_s, engines.trace_s = 30.0, 5.0, 7.0
    document = go(tmp_path, engines)
    mine = [one for one in engines.traced if one[0] == "FLASHINFER"]
    assert len(mine) == 3  # the start and six cells took 60 s; the third one began after 14 s
    assert [one["gpu_reason"] for one in rows_of(document) if one["gpu_ms"] is None] == [NO_TIME] * 3
    assert document["backends"]["FLASHINFER"]["status"] == "measured"
    assert NO_TIME in told(document)


def test_a_trace_has_only_the_time_that_is_left_of_the_third(tmp_path, engines, monkeypatch):
    engines.start_s, engines.cell_s, engines.trace_s = 30.0, 5.0, 7.0
    limits, trace = [], engines.trace
    monkeypatch.setattr(
        engines, "trace", lambda self, request: limits.append((self.arm, request["limit_s"])) or trace(self, request)
    )
    engines.script = {("FLASHINFER", "trace", "mixed", 1): {"ok": False, "error_type": "Late", "error": "over"}}
    document = go(tmp_path, engines)
    assert [limit for arm, limit in limits if arm == "FLASHINFER"][:2] == [20.0, 13.0]
    reasons = {(one["phase"], one["batch"]): one["gpu_reason"] for one in rows_of(document)}
    assert reasons["mixed", 1] == NO_TIME


def test_a_budget_that_ends_meanwhile_is_gone_on_with(tmp_path, engines):
    engines.start_s, engines.cell_s, engines.trace_s = 30.0, 5.0, 6.0
    document = go(tmp_path, engines, names=("FLASH_ATTN:3",), budget_s=100)
    own = document["backends"]["FLASH_ATTN:3"]
    assert own["status"] == "partly"
    assert own["reason"] == "the time was over before everything was traced; the same command goes on"
    left = sum("gpu_ms" not in one for one in own["rows"])
    assert 0 < left < 6
    engines.asked.clear()
    engines.traced.clear()
    document = go(tmp_path, engines, names=("FLASH_ATTN:3",), budget_s=400)
    assert [what for _, what, *_ in engines.asked] == ["start"]
    assert document["backends"]["FLASH_ATTN:3"]["status"] == "measured"


# ---------------------------------------------------------------- files of before


@pytest.fixture
def old(tmp_path, engines):
    """A file of a release that traced nothing."""
    document = go(tmp_path, engines)
    for backend in document["backends"].values():
        for one in backend["rows"]:
            for name in ("gpu_ms", "gpu_low_ms", "gpu_high_ms", "gpu_reason"):
                del one[name]
    path = tmp_path / "found.json"
    path.write_text(json.dumps(document))
    engines.asked.clear()
    engines.traced.clear()
    return path


def test_a_file_without_gpu_times_is_read_and_says_nothing_of_them(old):
    text = told(read(old))
    assert "decode step, ms" in text
    assert "GPU time" not in text
    assert "gpu" not in read(old)["cells"][0]
    shown = CliRunner().invoke(cli.app, ["attention", "--from", str(old), "--plot", str(old.with_suffix(".svg"))])
    assert shown.exit_code == 0, shown.output
    assert "GPU time" not in shown.stdout


def test_the_same_command_traces_a_file_without_gpu_times_and_times_nothing_again(tmp_path, engines, old):
    before = {name: [one["step_ms"] for one in backend["rows"]] for name, backend in read(old)["backends"].items()}
    document = go(tmp_path, engines)
    assert {what for _, what, *_ in engines.asked} == {"start"}
    assert len(engines.traced) == 12
    assert {name: [one["step_ms"] for one in backend["rows"]] for name, backend in document["backends"].items()} == before


# ---------------------------------------------------------------- what is told


def gpu(one, mean, part=0.001):
    return {**one, "gpu_ms": mean, "gpu_low_ms": mean * (1 - part), "gpu_high_ms": mean * (1 + part), "gpu_reason": None}


def cell(**rows):
    (found,) = comparison(backends(**rows), DEFAULT)["cells"]
    return found


def test_who_is_ahead_in_gpu_time_wins_no_cell():
    found = cell(FA=[gpu(row(10.0, again=10.0), 2.0)], FI=[gpu(row(10.1), 1.5)])
    assert (found["outcome"], found["best"]) == ("tie", DEFAULT)
    assert found["gpu"] == {
        "outcome": "wins", "best": "FLASHINFER", "tied": ["FLASHINFER"], "over_default": 0.3333, "over_next": 0.3333,
    }  # fmt: skip


def test_a_lead_in_gpu_time_is_more_than_processes_differ_by_and_in_every_trace():
    assert LEAST_GPU > 0.025  # what the same kernels differed by, see winners.py
    own = row(10.0, again=10.0)
    assert cell(FA=[gpu(own, 1.025)], FI=[gpu(row(10.0), 1.0)])["gpu"]["outcome"] == "tie"
    assert cell(FA=[gpu(own, 1.035)], FI=[gpu(row(10.0), 1.0)])["gpu"]["outcome"] == "wins"
    assert cell(FA=[gpu(own, 1.035, 0.02)], FI=[gpu(row(10.0), 1.0, 0.02)])["gpu"]["outcome"] == "tie"


def test_a_backend_without_a_gpu_time_may_be_ahead_of_all():
    own, lost = gpu(row(10.0, again=10.0), 2.0), {**row(10.0), "gpu_ms": None, "gpu_reason": LOST}
    found = cell(FA=[own], FI=[gpu(row(10.0), 1.5)], TR=[lost])["gpu"]
    assert (found["outcome"], found["tied"]) == ("ahead-together", ["FLASHINFER"])
    assert cell(FA=[own], FI=[gpu(row(10.0), 3.0)], TR=[lost])["gpu"]["outcome"] == "tie"
    assert "gpu" not in cell(FA=[{**row(10.0), "gpu_ms": None}], FI=[gpu(row(10.0), 1.5)], TR=[gpu(row(10.0), 2.5)])
    assert "gpu" not in cell(FA=[own], FI=[lost])
    assert "gpu" not in cell(FA=[row(10.0)], FI=[row(9.0)])


def test_a_host_that_made_steps_unsteady_does_not_count_there():
    found = cell(FA=[gpu(row(10.0, steady=False), 2.0)], FI=[gpu(row(9.0), 1.5)])
    assert (found["outcome"], found["gpu"]["outcome"]) == ("unsteady", "wins")


def several(phase="decode", own=2.0, other=1.5, step=10.0):
    """Batch 1 and 16 tie, in GPU time too with batch 1; batch 64 is won."""
    mine = [gpu(row(step, batch, phase=phase, again=step), own) for batch in (1, 16, 64)]
    its = [(1, own, step), (16, other, step), (64, other, step * 0.7)]
    rows = backends(FA=mine, FI=[gpu(row(ms, batch, phase=phase), time) for batch, time, ms in its])
    return comparison(rows, DEFAULT)["cells"], rows


def test_where_steps_tie_the_gpu_time_is_said_as_what_a_quicker_host_would_see():
    cells, rows = several()
    assert gpu_ahead("decode", cells, rows, DEFAULT) == [
        "GPU time where decode steps are a tie (20% of FLASH_ATTN:3's step): FLASHINFER is ahead at batch 16 (FLASH_ATTN:3's is "
        "33% longer), nobody in the other 1: what a quicker host would see"
    ]
    assert gpu_ahead("mixed", cells, rows, DEFAULT) == []
    assert gpu_advice(cells, rows, DEFAULT) == [
        "with a quicker host measure again: in GPU time FLASH_ATTN:3 is behind FLASHINFER in 1 of 2 cells that tie while the "
        "GPU waits for the host"
    ]


def test_where_the_gpu_is_busy_all_the_time_no_host_is_blamed():
    cells, rows = several(own=9.9, other=9.4)
    assert gpu_ahead("decode", cells, rows, DEFAULT)[0].endswith("nobody in the other 1: less than the noise of the steps")
    assert gpu_advice(cells, rows, DEFAULT) == []


def test_the_default_that_is_ahead_and_nobody_at_all():
    cells, rows = several(other=2.5)
    assert "FLASH_ATTN:3 is ahead at batch 16 (the next one's is 25% longer)" in gpu_ahead("decode", cells, rows, DEFAULT)[0]
    assert gpu_advice(cells, rows, DEFAULT) == []
    cells, rows = several(other=2.0)
    assert gpu_ahead("decode", cells, rows, DEFAULT) == [
        "GPU time where decode steps are a tie (20% of FLASH_ATTN:3's step): nobody is ahead in any of 2 cells"
    ]


def test_two_that_are_equal_among_themselves():
    rows = backends(FA=[gpu(row(10.0, again=10.0), 2.0)], FI=[gpu(row(10.0), 1.5)], TR=[gpu(row(10.0), 1.51)])
    cells = comparison(rows, DEFAULT)["cells"]
    assert "FLASHINFER and TRITON_ATTN are ahead everywhere (FLASH_ATTN:3's is 33% longer)" in (
        gpu_ahead("decode", cells, rows, DEFAULT)[0]
    )
    assert "behind FLASHINFER in 1 and TRITON_ATTN in 1 of 1 cell" in gpu_advice(cells, rows, DEFAULT)[0]


def test_sentences_and_a_table_of_its_own_that_fits_into_100_columns(tmp_path, engines):
    engines.gpu = {("FLASHINFER", "decode", 16): 0.75, ("TRITON_ATTN", "prefill", None): 1.5}
    document = go(tmp_path, engines, names=("FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION"))
    advice, more = document["words"][-2:]
    assert advice == "no backend is ahead of FLASH_ATTN:3, vLLM's own choice, in any of 6 cells: keep it"
    assert more.startswith("with a quicker host measure again: in GPU time FLASH_ATTN:3 is behind FLASHINFER in 1 of 6 cells")
    lines = told(document).splitlines()
    begin = lines.index("GPU time of a decode step, ms")
    assert lines[begin + 1].split() == ["batch", "context", "FLASH_ATTN:3", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "ahead"]
    assert lines[begin + 4].split() == ["16", "512", "2", "1.5", "-25%", "2", "+0%", "2", "+0%", "FLASHINFER"]
    assert lines[begin - 2].split()[-1] == "tie"  # of the steps, right above
    assert "GPU time of a mixed step, ms" in lines
    tables = lines[: next(index for index, line in enumerate(lines) if line.startswith("start, s"))]
    assert max(map(len, tables)) <= 100


def test_the_file_holds_the_comparison_anew_each_time(tmp_path, engines):
    document = go(tmp_path, engines)
    for one in rows_of(document):
        one |= {"gpu_ms": 1.0, "gpu_low_ms": 1.0, "gpu_high_ms": 1.0}
    again = with_comparison(document)
    assert {found["gpu"]["best"] for found in again["cells"]} == {"FLASHINFER"}
