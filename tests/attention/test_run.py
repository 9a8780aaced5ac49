"""The command without vLLM: scripted engines, a real file."""

from __future__ import annotations

import itertools
import json

import pytest
from typer.testing import CliRunner

from advisor import cli
from advisor.attention import grid
from advisor.attention import run as running
from advisor.attention.document import read
from advisor.attention.table import told
from advisor.errors import AdvisorError, InputError
from advisor.records import BackendFacts, FirstFacts
from tests.attention import scripted

ARMS = ["FLASH_ATTN:3", "FLASH_ATTN:2", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "FLASH_ATTN:4"]
SMALL = grid.Wanted(batch_sizes=(1, 16), contexts=(512,))


@pytest.fixture
def engines(monkeypatch, tmp_path):
    return scripted.install(monkeypatch, tmp_path)


def go(tmp_path, engines, wanted=SMALL, **words):
    notes: list[str] = []
    words = {"command": "advisor attention --model /models/Small", "output": tmp_path / "found.json", **words}
    engines.clock = scripted.Clock()
    document, path = running.attention(
        running.Wish("/models/Small", "h200", wanted=wanted, **words), notes.append, engines.clock
    )
    assert json.loads(path.read_text()) == json.loads(json.dumps(document))
    return document, notes


def arms_of(engines):
    return list(dict.fromkeys(arm for arm, *_ in engines.asked))


def test_every_legal_backend_is_measured_in_a_process_of_its_own(tmp_path, engines):
    document, _ = go(tmp_path, engines)
    assert list(document["backends"]) == document["legal"] == ARMS
    assert document["default"] == "FLASH_ATTN:3"
    for name, backend in document["backends"].items():
        assert (backend["status"], backend["reason"]) == ("measured", None), name
        assert len(backend["rows"]) == 6
        assert backend["active"]["source"] == "engine"
        assert backend["start"]["start_s"] == 50.0
    assert document["backends"]["FLASH_ATTN:2"]["active"]["flash_attention_version"] == 2
    assert document["model"] == {
        "name": "Small", "architecture": "LlamaForCausalLM", "config": "abc", "quantization": None, "random_weights": False,
    }  # fmt: skip
    for name in ("date", "command", "gpu", "cores", "versions", "serve_args", "env", "steps", "chunk"):
        assert document[name] is not None, name


def test_the_settings_reach_the_engine_in_its_own_spelling(tmp_path, engines, monkeypatch):
    seen = {}
    start = engines.start
    monkeypatch.setattr(
        engines, "start", lambda self, request: seen.update({self.arm: request["argv"]}) or start(self, request)
    )
    go(tmp_path, engines, serve_args=("--max-model-len", "4096"))
    assert seen["FLASH_ATTN-3"] == ["/models/Small", "--max-model-len", "4096"]
    assert "--attention-backend" in seen["TRITON_ATTN"]
    assert seen["TRITON_ATTN"][seen["TRITON_ATTN"].index("--attention-backend") + 1] == "TRITON_ATTN"
    two = seen["FLASH_ATTN-2"]
    assert two[two.index("--attention-backend") + 1] == "FLASH_ATTN"
    assert json.loads(two[two.index("--attention-config") + 1]) == {"flash_attn_version": 2}


def test_cheap_cells_come_first_and_all_phases_early(tmp_path, engines):
    go(tmp_path, engines, grid.Wanted(), backends=("FLASHINFER",))
    asked = [(what, batch, context) for arm, what, batch, context, _ in engines.asked if arm == "FLASHINFER"][1:]
    assert asked[0] == ("decode", 1, 512)
    assert {what for what, *_ in asked[: len(asked) // 2]} == {"decode", "prefill", "mixed"}
    assert asked[-1][1] * asked[-1][2] == max(batch * context for _, batch, context in asked)


def test_only_the_default_is_measured_twice_with_other_prompts(tmp_path, engines):
    document, _ = go(tmp_path, engines)
    again = {name: [row["again_ms"] for row in one["rows"]] for name, one in document["backends"].items()}
    assert all(again["FLASH_ATTN:3"])
    assert not any(value for name in ARMS[1:] for value in again[name])
    prefills = [seed for arm, what, *_, seed in engines.asked if (arm, what) == ("FLASH_ATTN-3", "prefill")]
    assert prefills == [0, 0, 1, 1]
    assert document["noise"]["prefill"] == {"cells": 2, "typical": 0.004, "high": 0.004, "most": 0.004, "faster": 0}


def disturbed(engines, monkeypatch, spreads, arm="FLASHINFER"):
    """Prefill of one prompt takes steps that spread so far, one after the other."""
    plain, left = engines.measured, iter(spreads)

    def measured(self, request):
        answer = plain(self, request)
        if (self.arm, request["do"], request["batch"]) == (arm, "prefill", 1):
            step = answer["step_ms"]["median"]
            answer["step_ms"] = {"median": step, "low": step, "high": step * (1 + next(left))}
        return answer

    monkeypatch.setattr(engines, "measured", measured)


@pytest.mark.parametrize(("spreads", "counts"), [((0.9, 0.05), 0.05), ((0.5, 0.9), 0.5), ((0.9, 0.5), 0.5), ((0.1,), 0.1)])
def test_steps_that_are_not_steady_are_measured_once_more_with_new_prompts(tmp_path, engines, monkeypatch, spreads, counts):
    disturbed(engines, monkeypatch, spreads)
    document, _ = go(tmp_path, engines)
    (row,) = [row for row in document["backends"]["FLASHINFER"]["rows"] if (row["phase"], row["batch"]) == ("prefill", 1)]
    assert row["step_high_ms"] / row["step_ms"] - 1 == pytest.approx(counts)
    seeds = [seed for arm, what, batch, _, seed in engines.asked if (arm, what, batch) == ("FLASHINFER", "prefill", 1)]
    assert seeds == [0, 2][: len(spreads)]


def test_the_second_measurement_of_the_default_has_another_try_too(tmp_path, engines, monkeypatch):
    disturbed(engines, monkeypatch, (0.1, 0.9, 0.1), arm="FLASH_ATTN-3")
    document, _ = go(tmp_path, engines)
    (row,) = [row for row in document["backends"]["FLASH_ATTN:3"]["rows"] if (row["phase"], row["batch"]) == ("prefill", 1)]
    assert row["again_steady"]
    seeds = [seed for arm, what, batch, _, seed in engines.asked if (arm, what, batch) == ("FLASH_ATTN-3", "prefill", 1)]
    assert seeds == [0, 1, 3]


def test_without_time_for_another_try_the_first_one_counts(tmp_path, engines, monkeypatch):
    disturbed(engines, monkeypatch, (0.9, 0.1))
    late = {"ok": False, "error_type": "Late", "error": "the time was over"}
    plain = engines.request

    def request(self, asked, timeout_s):
        answer = plain(self, asked, timeout_s)
        return late if asked.get("seed") == 2 else answer

    monkeypatch.setattr(engines, "request", request)
    document, _ = go(tmp_path, engines)
    (row,) = [row for row in document["backends"]["FLASHINFER"]["rows"] if (row["phase"], row["batch"]) == ("prefill", 1)]
    assert (row["steady"], row["reason"]) == (False, None)


def test_a_winner_needs_more_than_the_noise(tmp_path, engines):
    engines.steps = {
        ("FLASHINFER", "decode", 16): 0.9,
        ("TRITON_ATTN", "prefill", None): 0.985,
        ("FLEX_ATTENTION", "mixed", None): 3,
    }
    document, _ = go(tmp_path, engines)
    cells = {(cell["phase"], cell["batch"]): cell for cell in document["cells"]}
    assert (cells["decode", 16]["outcome"], cells["decode", 16]["best"]) == ("wins", "FLASHINFER")
    assert cells["decode", 16]["over_default"] == pytest.approx(1 / 0.9 - 1, abs=1e-3)
    assert cells["decode", 1]["outcome"] == "tie"
    assert cells["prefill", 16]["outcome"] == "tie"  # 1.5% are less than 2%
    words = "\n".join(document["words"])
    assert "FLASHINFER wins decode at batch 16: FLASH_ATTN:3 takes 11% longer" in words
    assert "decode: everywhere else a tie (1 of 2 cells)" in words
    assert "prefill: a tie in all 2 cells" in words
    assert (
        "FLEX_ATTENTION takes, beside FLASH_ATTN:3: 1.00 times in decode, 1.00 times in prefill, 3.00 times in mixed"
        in words
    )


def test_backends_that_vllm_captures_otherwise_are_named(tmp_path, engines, monkeypatch):
    """As with -cc.cudagraph_mode=FULL: FlashInfer's mixed steps cannot be in a full graph, and vLLM captures decode only."""
    document, _ = go(tmp_path, engines)
    assert "graphs" not in "\n".join(document["words"])
    start = engines.start
    monkeypatch.setattr(
        engines, "start", lambda self, request: start(self, request) | {
            "cudagraph_mode": "FULL_DECODE_ONLY" if self.arm in ("FLASHINFER", "FLASH_ATTN-2") else "FULL"
        },
    )  # fmt: skip
    document, _ = go(tmp_path, engines, output=tmp_path / "other.json")
    assert document["words"][-2] == (
        "vLLM gives FLASH_ATTN:2 and FLASHINFER FULL_DECODE_ONLY graphs and FLASH_ATTN:3 FULL: what differs between them is not "
        "the attention alone"
    )


def test_a_backend_that_vllm_replaced_is_told_and_not_credited(tmp_path, engines):
    three = {"backend": "FLASH_ATTN", "flash_attention_version": 3, "prefill_backend": None, "layers": 9}
    engines.runs = {"FLASHINFER": [three], "FLASH_ATTN-2": [three]}
    document, notes = go(tmp_path, engines)
    assert document["backends"]["FLASHINFER"]["status"] == "not-as-requested"
    assert document["backends"]["FLASHINFER"]["rows"] == []
    assert "vLLM ran FLASH_ATTN:3 instead" in document["backends"]["FLASHINFER"]["reason"]
    assert "vLLM ran FlashAttention 3 instead" in document["backends"]["FLASH_ATTN:2"]["reason"]
    assert any("FLASHINFER: not-as-requested" in line for line in notes)
    assert "FLASHINFER: not-as-requested: vLLM ran FLASH_ATTN:3 instead" in told(document)
    engines.asked.clear()
    go(tmp_path, engines)  # and is not started again
    assert not engines.asked


def test_the_next_backend_is_imported_while_this_one_starts_and_none_while_steps_are_timed(tmp_path, engines):
    go(tmp_path, engines)
    order, names = engines.order, [arm.replace(":", "-") for arm in ARMS]
    for name, following in itertools.pairwise(names):
        begun, waited = order.index((following, "import")), order.index((following, "waited for"))
        assert begun < order.index((name, "start")) < waited < order.index((name, "decode"))
        assert order.index((name, "closed")) < order.index((following, "start"))  # one engine at a time
    assert sorted(arm for arm, what in order if what == "closed") == sorted(names)


def test_the_first_backend_is_imported_while_the_inspection_goes_on(tmp_path, engines, monkeypatch):
    found = scripted.facts()

    def inspection(model, gpu, python, serve_args, env, first_known):
        first_known(FirstFacts(found.gpu, found.model))
        engines.order.append((None, "inspected"))
        return found

    monkeypatch.setattr(running, "inspected", inspection)
    go(tmp_path, engines, backends=("FLASHINFER",))
    assert engines.order[:4] == [
        ("FLASH_ATTN-3", "import"), (None, "inspected"), ("FLASHINFER", "import"), ("FLASH_ATTN-3", "start"),
    ]  # fmt: skip
    assert engines.order.count(("FLASH_ATTN-3", "closed")) == 1
    engines.order.clear()
    go(tmp_path, engines, backends=("TRITON_ATTN",))  # vLLM's own choice is there already
    assert engines.order[:5] == [
        ("FLASH_ATTN-3", "import"), (None, "inspected"), ("FLASH_ATTN-3", "closed"), ("TRITON_ATTN", "start"),
        ("TRITON_ATTN", "decode"),
    ]  # fmt: skip
    engines.order.clear()
    with pytest.raises(InputError, match="no such backend"):
        go(tmp_path, engines, backends=("NONE_SUCH",))
    assert engines.order == [("FLASH_ATTN-3", "import"), (None, "inspected"), ("FLASH_ATTN-3", "closed")]


def test_variables_that_ask_for_a_backend_reach_its_own_process_only(tmp_path, engines, monkeypatch):
    """As vLLM before --attention-backend was asked."""
    monkeypatch.setattr(
        running, "_variables", lambda arm, facts: {} if arm.default else {"VLLM_ATTENTION_BACKEND": arm.name}
    )
    seen = {}
    begun = engines.__init__

    def kept(self, python, script, env, log):
        begun(self, python, script, env, log)
        seen[self.arm] = env.get("VLLM_ATTENTION_BACKEND")

    monkeypatch.setattr(engines, "__init__", kept)
    go(tmp_path, engines, backends=("FLASHINFER", "TRITON_ATTN"))
    assert seen == {"FLASH_ATTN-3": None, "FLASHINFER": "FLASHINFER", "TRITON_ATTN": "TRITON_ATTN"}


def test_imports_that_fail_end_their_own_backend_only(tmp_path, engines):
    engines.script = {("FLASHINFER", "import"): scripted.died()}
    document, _ = go(tmp_path, engines)
    states = {name: one["status"] for name, one in document["backends"].items()}
    assert states.pop("FLASHINFER") == "failed"
    assert set(states.values()) == {"measured"}
    assert "signal -11" in document["backends"]["FLASHINFER"]["reason"]
    assert ("FLASHINFER", "start") not in engines.order


def test_what_was_imported_and_is_not_its_turn_is_ended(tmp_path, engines):
    """vLLM's own choice turns out to be the backend that was to come next."""
    two = {"backend": "FLASH_ATTN", "flash_attention_version": 2, "prefill_backend": None, "layers": 9}
    engines.runs = {"FLASH_ATTN-3": [two]}
    go(tmp_path, engines)
    assert [what for arm, what in engines.order if arm == "FLASH_ATTN-2"] == ["import", "waited for", "closed"]
    assert engines.order.index(("FLASH_ATTN-2", "closed")) < engines.order.index(("FLASHINFER", "start"))


def test_on_a_processor_nothing_is_imported_beside(tmp_path, monkeypatch):
    engines = scripted.install(monkeypatch, tmp_path, scripted.facts(scripted.CPU, capability=None))
    engines.runs = {
        "CPU_ATTN": [{"backend": "CPU_ATTN", "flash_attention_version": None, "prefill_backend": None, "layers": 1}]
    }
    go(tmp_path, engines)
    assert "import" not in [what for _, what in engines.order]


def test_what_runs_by_default_has_the_name_of_what_really_ran(tmp_path, engines):
    engines.runs = {
        "FLASH_ATTN-3": [{"backend": "FLASH_ATTN", "flash_attention_version": 2, "prefill_backend": None, "layers": 9}]
    }
    document, _ = go(tmp_path, engines)
    assert document["default"] == "FLASH_ATTN:2"
    assert list(document["backends"]) == ["FLASH_ATTN:2", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "FLASH_ATTN:4"]
    assert document["backends"]["FLASH_ATTN:2"]["default"] is True
    assert "FLASH_ATTN-2" not in arms_of(engines)
    engines.asked.clear()
    document, _ = go(tmp_path, engines)
    assert not engines.asked
    assert document["default"] == "FLASH_ATTN:2"


def test_where_neither_engine_nor_log_tells_nothing_is_credited(tmp_path, engines, monkeypatch):
    monkeypatch.setattr(engines, "__enter__", lambda self: (self.log.write_text(""), self)[1])
    engines.runs = {"TRITON_ATTN": []}
    document, _ = go(tmp_path, engines, backends=("TRITON_ATTN",))
    assert document["backends"]["TRITON_ATTN"]["status"] == "not-as-requested"
    assert "neither the engine nor its log" in document["backends"]["TRITON_ATTN"]["reason"]


def test_the_log_tells_where_the_layers_do_not(tmp_path, engines):
    engines.runs = {"FLASH_ATTN-3": []}
    document, _ = go(tmp_path, engines, backends=("FLASHINFER",))
    assert document["default"] == "FLASH_ATTN"
    assert document["backends"]["FLASH_ATTN"]["active"]["source"] == "log"


# ---------------------------------------------------------------- failures


def test_an_engine_that_does_not_start_stops_none_of_the_others(tmp_path, engines):
    engines.script = {
        ("FLASH_ATTN-4", "start"): {"ok": False, "error_type": "Refusal", "error": "no cutlass in /models/Small"}
    }
    document, _ = go(tmp_path, engines)
    four = document["backends"]["FLASH_ATTN:4"]
    assert (four["status"], four["reason"], four["rows"]) == ("failed", "Refusal: no cutlass in Small", [])
    assert all(document["backends"][name]["status"] == "measured" for name in ARMS[:-1])
    assert "FLASH_ATTN:4: failed: Refusal: no cutlass" in told(document)
    engines.asked.clear()
    go(tmp_path, engines)
    assert arms_of(engines) == ["FLASH_ATTN-4"]  # tried again


def test_an_engine_that_dies_leaves_its_rows_and_that_cell_comes_last_the_next_time(tmp_path, engines):
    engines.script = {("FLASHINFER", "mixed", 1): scripted.died()}
    document, _ = go(tmp_path, engines)
    broken = document["backends"]["FLASHINFER"]
    assert (broken["status"], "signal -11" in broken["reason"]) == ("partly", True)
    assert [(row["phase"], row["batch"]) for row in broken["rows"] if row["step_ms"] is None] == [("mixed", 1)]
    assert len(broken["rows"]) < 6
    engines.asked.clear()
    engines.script = {}
    document, _ = go(tmp_path, engines)
    assert arms_of(engines) == ["FLASHINFER"]
    assert engines.asked[-1][1:3] == ("mixed", 1)
    assert document["backends"]["FLASHINFER"]["status"] == "measured"
    assert all(row["step_ms"] for row in document["backends"]["FLASHINFER"]["rows"])


def test_an_engine_that_hangs_is_given_up(tmp_path, engines):
    engines.script = {("FLEX_ATTENTION", "prefill", 1): scripted.silent()}
    document, _ = go(tmp_path, engines)
    assert "gave no answer" in document["backends"]["FLEX_ATTENTION"]["reason"]
    assert document["backends"]["FLASH_ATTN:4"]["status"] == "measured"


def test_a_cell_without_room_has_its_reason_and_the_others_go_on(tmp_path, engines):
    full = {"ok": False, "error_type": "Refusal", "error": "the KV cache holds 1,000 tokens, 8,000 are needed"}
    engines.script = {("FLASHINFER", "decode", 16): full}
    document, _ = go(tmp_path, engines)
    row = next(row for row in document["backends"]["FLASHINFER"]["rows"] if row["step_ms"] is None)
    assert (row["failed"], row["reason"]) == (False, full["error"])
    assert document["backends"]["FLASHINFER"]["status"] == "measured"
    assert "FLASHINFER: no figure of decode 16 x 512: the KV cache holds" in told(document)


def test_one_failure_is_survived_and_two_in_a_row_are_not(tmp_path, engines):
    lost = {"ok": False, "error_type": "OutOfMemoryError", "error": "CUDA out of memory"}
    engines.script = {("FLASHINFER", "prefill", 1): lost}
    document, _ = go(tmp_path, engines)
    assert document["backends"]["FLASHINFER"]["status"] == "measured"
    assert [row["reason"] for row in document["backends"]["FLASHINFER"]["rows"] if row.get("failed")] == [
        "OutOfMemoryError: CUDA out of memory"
    ]
    engines.script = {("TRITON_ATTN", phase, None): lost for phase in ("decode",)} | {
        ("TRITON_ATTN", phase): lost for phase in grid.PHASES
    }
    (tmp_path / "found.json").unlink()
    engines.asked.clear()
    document, _ = go(tmp_path, engines)
    assert len([1 for arm, *_ in engines.asked if arm == "TRITON_ATTN"]) == 3  # the start and two cells
    assert document["backends"]["TRITON_ATTN"]["status"] == "failed"
    assert "several times in a row" in document["backends"]["TRITON_ATTN"]["reason"]


def test_where_every_backend_fails_the_command_does(tmp_path, engines):
    refused = {"ok": False, "error_type": "ValueError", "error": "no room"}
    engines.script = {(arm.replace(":", "-"), "start"): refused for arm in ARMS}
    with pytest.raises(AdvisorError, match="no backend could be measured; the last one: ValueError: no room"):
        go(tmp_path, engines)


# ---------------------------------------------------------------- time


def test_the_budget_ends_it_and_the_same_command_goes_on(tmp_path, engines):
    engines.start_s, engines.cell_s = 50.0, 10.0
    document, notes = go(tmp_path, engines, budget_s=500)
    assert engines.clock.now < 500 + 60
    statuses = {name: one["status"] for name, one in document["backends"].items()}
    assert "measured" in statuses.values() or "partly" in statuses.values()
    assert any("the time of --budget is over" in line or "time was over" in line for line in notes)
    first = sum(row["step_ms"] is not None for one in document["backends"].values() for row in one["rows"])
    for _ in range(6):
        document, _ = go(tmp_path, engines, budget_s=500)
    assert {one["status"] for one in document["backends"].values()} == {"measured"}
    assert first < sum(row["step_ms"] is not None for one in document["backends"].values() for row in one["rows"]) == 36


def test_a_backend_that_is_slow_leaves_the_others_their_share(tmp_path, engines, monkeypatch):
    slow = engines.measured

    def measured(self, request):
        self.clock.now += 100.0 if self.arm == "FLASH_ATTN-3" else 1.0
        return slow(self, request)

    monkeypatch.setattr(engines, "measured", measured)
    document, _ = go(tmp_path, engines, budget_s=700)
    assert (document["backends"]["FLASH_ATTN:3"]["status"]) == "partly"
    assert "the same command goes on" in document["backends"]["FLASH_ATTN:3"]["reason"]
    assert all(document["backends"][name]["status"] == "measured" for name in ARMS[1:])


def test_a_slow_start_is_not_taken_from_what_is_measured(tmp_path, engines):
    engines.start_s, engines.cell_s = 240.0, 2.0
    document, _ = go(tmp_path, engines, budget_s=600, backends=("FLASHINFER",))
    assert document["backends"]["FLASH_ATTN:3"]["status"] == "measured"
    assert document["backends"]["FLASHINFER"]["status"] == "measured"


def test_late_is_no_failure_of_the_engine(tmp_path, engines):
    engines.script = {("FLASHINFER", "prefill", 16): {"ok": False, "error_type": "Late", "error": "the time was over"}}
    document, _ = go(tmp_path, engines)
    rows = document["backends"]["FLASHINFER"]["rows"]
    assert document["backends"]["FLASHINFER"]["status"] == "partly"
    assert all(row["step_ms"] for row in rows)
    assert len(rows) < 6


# ---------------------------------------------------------------- going on


def test_the_same_command_measures_nothing_again(tmp_path, engines):
    go(tmp_path, engines)
    engines.asked.clear()
    document, notes = go(tmp_path, engines, command="advisor attention again")
    assert not engines.asked
    assert all("already" in line for line in notes)
    assert document["commands"] == ["advisor attention --model Small", "advisor attention again"]


def test_more_cells_are_added_and_nothing_else(tmp_path, engines):
    go(tmp_path, engines, backends=("FLASHINFER",))
    engines.asked.clear()
    wider = grid.Wanted(batch_sizes=(1, 16, 32), contexts=(512,))
    document, _ = go(tmp_path, engines, wider, backends=("FLASHINFER",))
    assert {batch for arm, what, batch, *_ in engines.asked if what != "start"} == {32}
    assert len(document["backends"]["FLASHINFER"]["rows"]) == 8  # 32 prompts of 512 are more than a step takes
    assert document["left_out"] == [
        {"phase": "prefill", "batch": 32, "context": 512,
         "reason": "16,384 tokens are more than the 8,192 of one step (--max-num-batched-tokens)"}
    ]  # fmt: skip


def test_other_conditions_do_not_mix(tmp_path, engines):
    go(tmp_path, engines)
    with pytest.raises(InputError, match="another chunk: 1024 there, 256 now"):
        go(tmp_path, engines, grid.Wanted(batch_sizes=(1, 16), contexts=(512,), chunk=256))
    (tmp_path / "found.json").write_text("{}")
    with pytest.raises(InputError, match="no figures of `advisor attention`"):
        go(tmp_path, engines)


# ---------------------------------------------------------------- what is compared


def test_only_some_backends_beside_the_default(tmp_path, engines):
    document, _ = go(tmp_path, engines, backends=("TRITON_ATTN",))
    assert list(document["backends"]) == ["FLASH_ATTN:3", "TRITON_ATTN"]
    assert "legal and not measured yet: FLASH_ATTN:2, FLASHINFER, FLEX_ATTENTION, FLASH_ATTN:4" in told(document)
    with pytest.raises(InputError, match="--backends FLASHMLA: this vLLM has no such backend"):
        go(tmp_path, engines, backends=("FLASHMLA",))


def test_refused_backends_are_told_with_the_reason(tmp_path, engines):
    document, _ = go(tmp_path, engines)
    assert {"backend": "TURBOQUANT", "reason": "kv_cache_dtype not supported"} in document["refused"]
    text = told(document)
    assert "TURBOQUANT refused: it does not take this --kv-cache-dtype" in text
    assert "CPU_ATTN refused" not in text  # vLLM does not consider it here: in the JSON only


def test_one_backend_alone_is_measured_and_says_so(tmp_path, monkeypatch):
    engines = scripted.install(monkeypatch, tmp_path, scripted.facts(scripted.CPU, capability=None))
    document, _ = go(tmp_path, engines)
    assert document["legal"] == list(document["backends"]) == ["CPU_ATTN"]
    assert document["words"][0].startswith("only CPU_ATTN is legal here")
    assert all(row["step_ms"] and row["again_ms"] for row in document["backends"]["CPU_ATTN"]["rows"])
    assert {cell["outcome"] for cell in document["cells"]} == {"alone"}
    assert "FLASH_ATTN refused: vLLM would silently run CPU_ATTN instead" in told(document)


def test_mla_backends_share_what_runs_their_prompts(tmp_path, monkeypatch):
    engines = scripted.install(monkeypatch, tmp_path, scripted.facts(scripted.MLA))
    engines.runs = {
        name: [{"backend": name, "flash_attention_version": None, "prefill_backend": "FLASH_ATTN", "layers": 9}]
        for name in ("FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA")
    }
    document, _ = go(tmp_path, engines)
    assert list(document["backends"]) == ["FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA"]
    assert (
        "prompts run MLA's prefill backend FLASH_ATTN with all of them: differences in prefill are not the backends'"
        in document["words"]
    )


def test_short_prompts_that_an_mla_backend_runs_itself_are_its_own(tmp_path, monkeypatch):
    """In 0.26 a whole prompt of 512 tokens is decode to FLASH_ATTN_MLA, and one of 128 to FLASHMLA."""
    engines = scripted.install(monkeypatch, tmp_path, scripted.facts(scripted.MLA))
    engines.runs = {
        name: [{"backend": name, "flash_attention_version": None, "prefill_backend": "FLASH_ATTN", "layers": 9,
                "prompts_as_decode": short}]
        for name, short in (("FLASH_ATTN_MLA", 512), ("FLASHMLA", 128), ("TRITON_MLA", None))
    }  # fmt: skip
    document, _ = go(tmp_path, engines)
    assert (
        "prompts of more than 512 tokens run MLA's prefill backend FLASH_ATTN with all of them: differences in prefill are not "
        "the backends' there; shorter ones are run like decode by FLASH_ATTN_MLA of up to 512 tokens, FLASHMLA of up to 128 tokens"
    ) in document["words"]


def test_a_vllm_that_cannot_be_asked_has_its_own_choice_measured(tmp_path, monkeypatch):
    engines = scripted.install(monkeypatch, tmp_path, scripted.facts((), error="no selector"))
    engines.runs = {
        "DEFAULT": [{"backend": "FLASHINFER", "flash_attention_version": None, "prefill_backend": None, "layers": 9}]
    }
    document, _ = go(tmp_path, engines)
    assert list(document["backends"]) == ["FLASHINFER"]
    assert "could not be asked which backends it takes (no selector)" in document["words"][0]


def test_secrets_and_paths_stay_out_of_the_file(tmp_path, engines):
    engines.script = {
        ("FLASHINFER", "start"): {"ok": False, "error_type": "OSError", "error": "hf_abcdefgh at /models/Small"}
    }
    go(tmp_path, engines, env={"HF_TOKEN": "hf_abcdefgh"}, command="advisor attention --env HF_TOKEN=hf_abcdefgh")
    text = (tmp_path / "found.json").read_text()
    assert "hf_abcdefgh" not in text
    assert "/models/" not in text


def test_rows_are_lines(tmp_path, engines):
    document, _ = go(tmp_path, engines)
    lines = (tmp_path / "found.json").read_text().splitlines()
    rows = sum(len(one["rows"]) for one in document["backends"].values())
    assert sum(line.lstrip().startswith('{"phase":') and '"step_ms"' in line for line in lines) == rows


# ---------------------------------------------------------------- the command line


WORDS = ["attention", "--model", "/models/Small", "--batch-sizes", "1,16", "--contexts", "512", "--output", "f.json"]


def test_the_command_prints_tables_or_the_file_and_draws(tmp_path, engines):
    shown = CliRunner().invoke(cli.app, [*WORDS, "--plot", "map.svg"])
    assert shown.exit_code == 0, shown.output
    for part in (
        "decode step, ms",
        "prefill step, ms",
        "mixed step, ms (median), with a prompt of 1024 tokens",
        "map.svg",
    ):
        assert part in shown.stdout, part
    assert "FLASHINFER: measured" in shown.stderr
    assert (tmp_path / "map.svg").read_text().startswith("<?xml")
    printed = CliRunner().invoke(cli.app, [*WORDS, "--json"])
    assert json.loads(printed.stdout) == json.loads((tmp_path / "f.json").read_text())


def test_what_was_measured_is_told_and_drawn_again_on_any_machine(tmp_path, engines, monkeypatch):
    CliRunner().invoke(cli.app, WORDS)
    monkeypatch.setattr(running, "inspected", lambda *_: 1 / 0)
    shown = CliRunner().invoke(cli.app, ["attention", "--from", "f.json", "--plot", "again.png"])
    assert shown.exit_code == 0, shown.output
    assert "decode step, ms" in shown.stdout
    assert (tmp_path / "again.png").stat().st_size > 5000
    assert read(tmp_path / "f.json") == json.loads((tmp_path / "f.json").read_text())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--phases", "encode"], "--phases: 'encode' is not a phase"),
        (["--batch-sizes", "1,x"], "--batch-sizes '1,x'"),
        (["--contexts", "0"], "--contexts '0'"),
        (["--contexts", "40000"], "nothing that could be measured fits"),
        (["--backends", "FLASH"], "this vLLM has no such backend"),
        (["--budget", "soon"], "--budget"),
        (["--gpu", "H2000"], "unknown GPU"),
        (["--env", "X"], "is not NAME=VALUE"),
        (["--serve-args", "--attention-backend FLASHINFER"], "--serve-args decides attention_backend"),
        (["--serve-args", "-ac.flash_attn_version=2"], "--serve-args decides flash_attention_version"),
        (["--plot", "map.doc"], "not the name of a plot"),
        (["--from", "f.json"], "--from reads what was measured, and --model is about measuring"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_measured(engines, words, said):
    shown = CliRunner().invoke(cli.app, ["attention", "--model", "/models/Small", *words])
    assert isinstance(shown.exception, InputError), shown.exception
    assert said in shown.exception.problem
    assert not engines.asked


@pytest.mark.parametrize(
    ("text", "said"), [(None, "is not there"), ("[", "cannot be read"), ("{}", "no figures of `advisor attention`"),
                       ('{"schema": "advisor.attention/1"}', "is not complete: it has no model")]
)  # fmt: skip
def test_a_file_that_is_none(tmp_path, engines, text, said):
    if text is not None:
        (tmp_path / "f.json").write_text(text)
    shown = CliRunner().invoke(cli.app, ["attention", "--from", "f.json"])
    assert isinstance(shown.exception, InputError)
    assert said in shown.exception.problem


def test_a_budget_too_short_for_any_engine_is_told(tmp_path, engines):
    with pytest.raises(AdvisorError, match="could be measured: the time of --budget is too short"):
        go(tmp_path, engines, budget_s=10)


def test_no_figure_breaks_in_two_however_many_backends_there_are(tmp_path, monkeypatch):
    names = [f"A_BACKEND_WITH_A_NAME_{index}" for index in range(9)]
    engines = scripted.install(monkeypatch, tmp_path, scripted.facts(tuple(map(BackendFacts, names))))
    document, _ = go(tmp_path, engines)
    lines = told(document).splitlines()
    first = next(line for line in lines if line.split()[:2] == ["1", "512"])
    assert all(any(name in line for line in lines) for name in names)
    assert first.count("%") == 8
