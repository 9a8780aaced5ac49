"""Sentences and claims, from invented figures: whoever changes a figure must see the sentence change."""

from __future__ import annotations

import pytest

from advisor.anatomy import parts, paying, words
from advisor.anatomy.claims import CLAIMS, claims
from advisor.anatomy.rows import decode_row, prefill_row

STEP = {
    # mode: batch -> (step, gpu); the GPU needs 2 ms at batch 1 and 20 at 64
    "none": {1: (10.0, 2.4), 64: (20.5, 20.25)},
    "compile": {1: (8.0, 2.0), 64: (20.2, 20.0)},
    "full": {1: (2.5, 2.4), 64: (20.4, 20.4)},
    "piecewise": {1: (3.2, 2.0), 64: (20.1, 20.0)},
    "both": {1: (2.0, 2.0), 64: (20.0, 20.0)},
}


def row(batch, step, gpu, launches=300, spread=1.01, host=3.0):
    timed = {
        "ok": True,
        "context_tokens": 512,
        "step_ms": {"median": step, "low": step * 0.99, "high": step * spread},
        "serial_ms": {"median": step + 1, "low": step, "high": step + 2},
        "host_ms": None if host is None else {"median": host, "low": host - 0.1, "high": host + 0.1},
    }
    traced = {
        "ok": True,
        "gpu_ms": gpu,
        "gpu_reason": None,
        "launches": launches,
        "kernels": 300,
        "traced_ms": step * 2,
    }
    return decode_row(batch, timed, traced, 1.5)


def modes(steps=STEP):
    return {
        name: {
            "title": name,
            "status": "measured",
            "resolved": {"cudagraph_mode": "NONE" if name in ("none", "compile") else "FULL"},
            "start": {
                "start_s": 50.0 + 10 * len(name),
                "graph_memory_gib": 0.5 if name == "both" else None,
                "cache": "cold",
            },
            "decode": [row(batch, *figures) for batch, figures in rows.items()],
            "prefill": [],
        }
        for name, rows in steps.items()
    }


def steps_of(found):
    return {name: words.by_batch(mode) for name, mode in found.items()}


def test_host_time_is_what_was_timed_and_never_what_is_left_of_a_step():
    assert row(1, 10.0, 2.4)["host_ms"] == row(1, 5.0, 4.9)["host_ms"] == 3.0
    assert row(1, 10.0, 2.4, host=None)["host_ms"] is None
    assert (row(1, 10.0, 2.4)["launches"], row(1, 10.0, 2.4)["floor_ms"]) == (300, 1.5)
    traced = {"ok": True, "gpu_ms": 4.0, "gpu_reason": None}
    prompt = prefill_row(8, {"ok": True, "chunks": 1, "step_ms": {"median": 9.0, "low": 8.9, "high": 9.1}}, traced)
    assert "host_ms" not in prompt and prompt["gpu_idle_ms"] == 5.0


def test_idle_time_of_the_gpu_is_told_where_its_interval_is_above_zero():
    names = ("gpu_idle_ms", "gpu_idle_low_ms", "gpu_idle_high_ms")
    assert [row(1, 10.0, 2.4)[name] for name in names] == pytest.approx([7.6, 7.5, 7.7])
    assert [row(1, 10.0, 9.89)[name] for name in names] == pytest.approx([0.11, 0.01, 0.21])
    assert [row(1, 10.0, 9.91)[name] for name in names] == [None, 0.0, pytest.approx(0.19)]
    assert [row(1, 10.0, 10.5)[name] for name in names] == [None, 0.0, 0.0]  # never less than nothing
    both = [row(1, 10.0, 9.89), row(8, 10.0, 9.91), row(64, 10.0, 9.95)]
    some = {"both": {"decode": both}, "none": {"decode": [row(1, 9.0, 1.0)]}}
    assert words.no_idle(some) == [
        "idle time of the GPU is not told where the step's lower quartile is not above the GPU's work: 'compile, full graphs' at "
        "batch 8, 64"
    ]
    assert words.no_idle({"none": some["none"]}) == []


def test_a_step_without_idle_time_of_the_gpu_is_the_work_of_the_gpu():
    found = row(1, 10.0, 9.95)
    assert parts.parts(found) == {parts.READING: 1.5, parts.OTHER: pytest.approx(8.45)}
    assert parts.decides(found | {"floor_ms": None}) == (
        "the work of the GPU dominates (the work of the GPU 9.95 ms); the host works for 3 ms meanwhile"
    )


def test_a_row_without_a_trace_says_why():
    timed = {"ok": True, "context_tokens": 512, "step_ms": {"median": 2.0, "low": 1.9, "high": 2.1}}
    found = decode_row(1, timed, {"ok": False, "error": "CUPTI"}, None)
    assert (found["step_ms"], found["gpu_ms"], found["host_ms"], found["reason"]) == (
        2.0,
        None,
        None,
        "not traced: CUPTI",
    )
    refused = decode_row(8, {"ok": False, "error": "the KV cache holds 1"}, None, None)
    assert (refused["step_ms"], refused["reason"]) == (None, "the KV cache holds 1")
    assert prefill_row(128, {"ok": False, "error": "no"}, None)["reason"] == "no"


def test_what_dominates():
    small, large = words.dominant(steps_of({"none": modes()["none"]}))
    assert small == (
        "no optimisation, batch 1: idle time of the GPU dominates (reading weights and KV cache 1.5 ms, other GPU work 0.9 ms, "
        "idle time of the GPU 7.6 ms); the host works for 3 ms meanwhile"
    )
    assert large == (
        "no optimisation, batch 64: other GPU work dominates (reading weights and KV cache 1.5 ms, other GPU work 18.8 ms, gaps "
        "between kernels 0.25 ms); the host works for 3 ms meanwhile"
    )
    assert not words.dominant({"none": {1: row(1, 10.0, 2.4, host=None)}})[0].count("the host")


def test_a_step_as_long_as_the_hosts_work_is_paced_by_it():
    """As measured on an H200: full graphs of a 0.6B, 2.51 ms a step, 1.65 of the GPU, 2.50 of the host. No kernel is to blame."""
    found = row(1, 2.51, 1.65) | {"host_ms": 2.50, "floor_ms": 0.297}
    assert words.dominant({"full": {1: found}}) == [
        "full graphs only, batch 1: the host sets the pace: its work takes 2.5 ms of the step's 2.51 ms; the GPU works for 1.65 ms "
        "meanwhile, 0.297 ms of it reading weights and KV cache"
    ]
    assert not parts.is_paced(found | {"host_ms": 2.2})  # something else takes time, too
    assert not parts.is_paced(found | {"host_ms": None})  # without pipelining
    assert not parts.is_paced(row(1, 2.9, 2.85) | {"host_ms": 2.8})
    assert parts.decides(found | {"host_ms": 2.2}).endswith("idle time of the GPU 0.86 ms); the host works for 2.2 ms meanwhile")


def test_host_work_longer_than_the_step_is_told_with_the_reason():
    """As measured on an H200: steps one by one, with the GPU drained after each, need more of the host than steps in a row."""
    found = row(512, 18.451, 11.2641) | {"host_ms": 21.0478, "floor_ms": 7.6582}
    assert parts.decides(found) == (
        "the host sets the pace: its work, timed by itself with the GPU drained after each step, takes 21 ms, more than the step's "
        "18.5 ms; the GPU works for 11.3 ms meanwhile, 7.66 ms of it reading weights and KV cache"
    )
    assert parts.decides(found | {"host_ms": 18.9}).startswith(
        "the host sets the pace: its work takes as long as the step, 18.5 ms; the GPU works"
    )


def test_two_parts_of_one_size_share_the_step():
    """As measured on an H200: an 8B at batch 512."""
    found = row(512, 24.9, 23.57) | {"host_ms": 10.1, "floor_ms": 12.0}
    assert parts.decides(found).startswith("reading weights and KV cache and other GPU work take about the same (")
    assert parts.decides(found | {"floor_ms": 12.5}).startswith("reading weights and KV cache dominates (")


def test_what_the_gpu_idles_behind_hidden_host_work_lies_between_kernels():
    hidden = row(1, 5.0, 4.8, host=2.6) | {"floor_ms": 3.6}
    assert list(parts.parts(hidden)) == [parts.READING, parts.OTHER, parts.GAPS]
    assert list(parts.parts(hidden | {"host_ms": None}))[-1] == parts.IDLE
    assert list(parts.parts(hidden | {"host_ms": 4.9}))[-1] == parts.IDLE
    assert parts.decides(row(1, 5.0, 1.0) | {"host_ms": 0.9, "floor_ms": 0.1}).startswith(
        "gaps between kernels dominate ("
    )


def test_the_whole_gain():
    small, large = words.whole(steps_of(modes()))
    assert small == "batch 1: a step takes 10 ms without any optimisation, 2 ms with 'compile, full graphs' (-80%)"
    assert large.endswith(
        "20 ms with 'compile, full graphs' (-2%), not told apart from 'compile only', 'full graphs only' "
        "and 'compile, piecewise graphs'"
    )


def test_modes_whose_quartiles_meet_are_not_told_apart():
    """As measured on an H200: full graphs of a 0.6B at batch 512, with and without compilation."""
    found = {name: {512: row(512, step, 10.0)} for name, step in {"none": 18.45, "full": 11.97, "both": 11.72}.items()}
    found["full"][512] |= {"step_low_ms": 11.4}
    found["both"][512] |= {"step_high_ms": 12.1}
    assert words.whole(found)[0].endswith(
        "11.7 ms with 'compile, full graphs' (-36%), not told apart from 'full graphs only'"
    )
    found["full"][512] |= {"step_low_ms": 12.11}
    assert words.whole(found)[0].endswith("(-36%)")
    slower = {"none": {4: row(4, 1.63, 1.0)}, "compile": {4: row(4, 1.93, 1.0)}}  # a tiny model on a processor
    assert words.whole(slower)[0].endswith("1.93 ms with 'compile only' (+18%)")


def test_the_share_of_piecewise_graphs_is_of_the_gain_over_compilation_alone():
    """(8 - 3.2) of (8 - 2); at batch 64 graphs save 1% of the step, of which no share is told."""
    assert words.piecewise_shares(steps_of(modes())) == {1: pytest.approx(0.8)}
    assert words.piecewise(steps_of(modes())) == [
        "piecewise graphs give this share of what full graphs gain over compilation alone: batch 1: 80%"
    ]


def test_where_no_share_of_piecewise_graphs_is_told_the_reason_is():
    late = modes({name: {64: rows[64]} for name, rows in STEP.items()})
    assert words.piecewise(steps_of(late)) == [
        "full graphs gain less than 5% over compilation alone: no share of it is told for piecewise graphs"
    ]
    assert words.piecewise(steps_of({"compile": modes()["compile"]})) == []


def test_graphs_pay_until_the_hosts_work_is_hidden():
    """Both are timed. That the step is much longer than the GPU's work, for whatever reason, is no gain of graphs."""
    assert paying.pays(row(1, 10.0, 2.0, host=2.2))
    assert not paying.pays(row(1, 10.0, 2.0, host=2.1))  # less than 5% of it
    assert not paying.pays(row(1, 10.0, 2.0, host=1.0))
    assert paying.pays(row(1, 10.0, 2.0) | {"gpu_ms": None}) is None
    assert paying.stop_paying({1: True, 8: False, 16: True, 64: False, 128: False}) == 64
    assert paying.stop_paying({1: True, 64: True}) is None
    assert words.paying(steps_of(modes())) == [
        "graphs stop paying at batch 64: without them ('compile only') the host works for 3 ms, the GPU for 20 ms ('compile, full "
        "graphs': -1%), so less than 5% can be gained"
    ]
    never = modes({"compile": {1: (20.1, 20.0), 64: (40.2, 40.0)}})
    assert words.paying(steps_of(never))[0].startswith("graphs do not pay at any batch size from 1 on: ")
    slow = modes({"compile": {1: (8.0, 2.0), 64: (4.0, 2.5)}})
    assert words.paying(steps_of(slow)) == [
        "graphs still pay at batch 64: without them ('compile only') the host works for 3 ms, the GPU for 2.5 ms"
    ]


def test_without_a_host_time_graphs_pay_while_the_gpu_has_nothing_to_do():
    def said(*rows):
        return words.paying({"none": {each["batch"]: each for each in rows}})

    small = row(1, 8.0, 2.0, host=None)
    assert said(small) == [
        "graphs still pay at batch 1: without them ('no optimisation') the GPU has nothing to do for 6 ms of the step's 8 ms"
    ]
    assert said(small, row(64, 20.0, 19.7, host=None)) == [
        "graphs stop paying at batch 64: without them ('no optimisation') the GPU has nothing to do for 0.3 ms of the step's 20 "
        "ms, so less than 5% can be gained"
    ]
    assert "for 0.3 ms of the step's 20 ms at most, so" in said(small, row(64, 20.0, 19.9, host=None))[0]
    wide = row(64, 20.0, 19.9, host=None, spread=1.1)  # none, or 10% of the step
    assert paying.pays(wide) is None
    assert words.paying({"none": {1: small, 64: wide}}, (1, 64))[0].endswith(
        "of the step's 8 ms; of batch 64 nothing is said, the steps of 'no optimisation' differ too much there"
    )


def test_a_missing_host_time_is_told():
    assert words.untimed(modes()) == []
    found = modes({"none": STEP["none"]})
    found["none"]["decode"][0]["host_ms"] = None
    (said,) = words.untimed(found)
    assert said.startswith("no host time of 1 of 2 decode steps: the host's work can be told apart only where")
    found["none"]["decode"][1]["host_ms"] = None
    assert words.sentences(found)[0].startswith("no host time: the host's work")


def test_nothing_is_said_of_steps_that_are_not_steady():
    found = modes()
    found["none"]["decode"][0] = row(1, 18.0, 2.4, spread=15.0)
    said = words.sentences(found)
    assert said[0].startswith(
        "no optimisation: not steady (* above), between the quartiles: batch 1 (17.8 ms to 270 ms); did something else"
    )
    assert not [line for line in said[1:] if "batch 1: a step" in line or "no optimisation, batch 1:" in line]
    assert [item["measured"] for item in claims(document(found=found))][2].startswith("not measured")
    assert row(1, 10, 2, spread=1.18)["steady"]
    assert not row(1, 10, 2, spread=1.2)["steady"]


def test_batches_without_a_graph_are_named():
    found = modes()
    assert words.beyond_graphs(found) == []
    found["both"]["resolved"]["capture_sizes"] = [1, 2, 32]
    found["compile"]["resolved"]["capture_sizes"] = []
    assert words.beyond_graphs(found) == [
        "compile, full graphs: batch 64 ran without a graph, the largest one captured is 32"
    ]


def test_the_distance_from_the_floor_is_that_of_the_best_step():
    small, large = words.above_floor(steps_of(modes()))
    assert "'compile, full graphs', 2 ms) takes 1.3 times the floor of 1.5 ms" in small
    assert large.startswith("batch 64")


def test_a_step_below_its_floor_takes_the_floor_out_of_all_sentences():
    """A copy that another program slowed makes the floor too high; a few percent are what reading gains over copying."""
    found = modes()
    found["both"]["decode"][0]["floor_ms"] = 2.0 * words.SLACK
    assert words.broken_floor(found) == []
    assert words.with_floor_that_holds(found) is found
    found["both"]["decode"][0]["floor_ms"] = 4.0
    said = words.sentences(found)
    assert said[0] == (
        "batch 1: a step of 2 ms is shorter than its floor of 4 ms: the bandwidth was measured too low (did something else use "
        "this machine?), or the weights lie in a cache. Nothing is said of the floor"
    )
    assert not [line for line in said[1:] if "floor" in line]
    assert (
        "no optimisation, batch 1: idle time of the GPU dominates (the work of the GPU 2.4 ms, idle time of the GPU 7.6 ms); the "
        "host works for 3 ms meanwhile"
    ) in said
    assert found["both"]["decode"][0]["floor_ms"] == 4.0  # the figure itself stays


def start(seconds, init, kernels=None, **more):
    return {
        "start_s": seconds,
        "engine_init_s": init,
        "kernels_s": kernels,
        "cache": None,
        "graph_memory_gib": None,
        **more,
    }


def started(**starts):
    return {name: {"title": name, "start": one, "decode": [], "prefill": []} for name, one in starts.items()}


def test_what_a_start_costs_is_the_initialisation_without_kernels_that_are_built_once():
    """As measured on an H200, a 0.6B: the first start on the machine took 7 s for kernels, imports differ by 2 s without cause."""
    found = started(
        none=start(29.65, 10.3, 7.0),
        compile=start(43.78, 26.68, 5.0, cache="cold"),
        full=start(20.51, 4.15, graph_memory_gib=0.28),
        both=start(49.67, 32.71, 7.0, cache="cold", graph_memory_gib=0.5),
    )
    assert words.starts(found) == [
        "no optimisation: 7 s of its start built kernels that the other starts found on the disk: they are left out of what "
        "follows",
        "compile only: starts in 44 s (cold compile cache), its engine's initialisation takes 23 s more than without optimisation",
        "full graphs only: starts in 21 s, its engine's initialisation takes 1 s more than without optimisation; graphs take "
        "0.28 GiB",
        "compile, full graphs: starts in 50 s (cold compile cache), its engine's initialisation takes 29 s more than without "
        "optimisation; graphs take 0.50 GiB",
    ]


def test_kernels_that_the_graphs_start_built_are_left_out_too():
    """`--modes full` first, `none` later."""
    found = started(none=start(22.0, 3.0), full=start(30.0, 11.0, 7.0))
    assert words.starts(found) == [
        "full graphs only: 7 s of its start built kernels that the other starts found on the disk: they are left out of what "
        "follows",
        "full graphs only: starts in 30 s, its engine's initialisation takes 1 s more than without optimisation",
    ]
    alone = started(
        none=start(29.65, 10.3, 7.0), compile=start(43.78, 26.68, 5.0)
    )  # nothing says that they were built once
    assert words.starts(alone) == [
        "compile only: starts in 44 s, its engine's initialisation takes 16 s more than without optimisation"
    ]
    near = started(none=start(20.18, 2.45, 1.0), full=start(21.92, 4.03))  # the log tells whole seconds
    assert words.starts(near) == [
        "full graphs only: starts in 22 s, its engine's initialisation takes 2 s more than without optimisation"
    ]


def test_a_start_whose_log_tells_no_initialisation_is_compared_whole():
    said = words.starts(modes())
    assert said[0] == "compile only: starts in 120 s (cold compile cache), which is 30 s more than without optimisation"
    assert said[-1] == (
        "compile, full graphs: starts in 90 s (cold compile cache), which is no longer than without optimisation; graphs take "
        "0.50 GiB"
    )
    assert len(said) == 4
    assert words.starts({"both": modes()["both"]}) == []


def prompts(tokens=2048, graphs=0.0, spread=0.02, **steps):
    """Prefill rows of modes: (step, GPU) each."""
    found = {}
    for name, (step, gpu) in steps.items():
        timed = {"ok": True, "chunks": 1, "step_ms": {"median": step, "low": step, "high": step * (1 + spread)}}
        traced = {"ok": True, "gpu_ms": gpu, "gpu_reason": None, "graph_launches": graphs, "traced_ms": step}
        found[name] = {"title": name, "decode": [], "prefill": [prefill_row(tokens, timed, traced)]}
    return found


def test_prompts_without_a_graph_tell_the_noise_between_processes():
    """As measured on an H200: a 0.6B, whose host was not equally fast, and an 8B, of which the GPU takes all the time."""
    small = prompts(
        none=(16.9, 6.31), full=(12.0, 6.3), compile=(11.1, 5.23), piecewise=(11.9, 5.21), both=(28.4, 5.21)
    )
    assert words.noise(small) == [
        "prefill of 2048 tokens runs without a graph, and these modes run the same code for it: 'no optimisation' 16.9 ms, 'full "
        "graphs only' 12 ms; 'compile only' 11.1 ms, 'compile, piecewise graphs' 11.9 ms, 'compile, full graphs' 28.4 ms (the GPU "
        "works for 5.21 ms to 6.31 ms of each). The host was not equally fast in all processes: where it sets the pace, modes may "
        "differ by as much for no other reason"
    ]
    large = prompts(none=(49.9, 45.4), full=(49.3, 45.9), compile=(50.1, 45.5), both=(50.6, 44.5))
    assert words.noise(large) == [
        "prefill of 2048 tokens needs no graph: modes that run the same code for it agree within 1%"
    ]
    assert words.noise(prompts(graphs=29.0, piecewise=(4.9, 1.5), both=(5.7, 1.5))) == []
    assert words.noise(prompts(spread=0.4, compile=(11.1, 5.2), both=(28.4, 5.2))) == []  # not steady
    assert words.noise(prompts(none=(16.9, 6.3), both=(28.4, 5.2))) == []  # other code


def test_a_process_with_a_slow_host_is_named():
    found = {
        name: {"title": name, "launch": {"bare_us": cost}}
        for name, cost in {"none": 5.3, "full": 5.6, "both": 9.8}.items()
    }
    (said,) = words.noise(found)
    assert said.startswith(
        "compile, full graphs: the host was slow in this process, launching a bare kernel took it 9.8 us, 5.3 us with 'no "
        "optimisation'"
    )
    found["both"]["launch"]["bare_us"] = 7.9
    assert words.noise(found) == []
    assert words.noise({"none": found["none"]}) == []


def test_larger_batches_that_were_not_steady_are_named_where_graphs_still_pay():
    slow = modes({"compile": {1: (8.0, 2.0), 64: (40.0, 20.0), 512: (60.0, 59.0)}})
    slow["compile"]["decode"][1:] = [row(64, 40.0, 20.0, host=30.0), row(512, 60.0, 59.0, spread=1.5)]
    assert words.sentences(slow)[-3].endswith(
        "the host works for 30 ms, the GPU for 20 ms; of batch 512 nothing is said, the steps of 'compile only' differ too much "
        "there"
    )


def test_a_build_without_graphs_says_so_and_makes_no_sentence_of_graphs():
    some = {"none": modes()["none"], "compile": modes()["compile"]}
    for mode in some.values():
        for item in mode["decode"]:
            item |= {"gpu_ms": None, "host_ms": None, "launches": None}
    skipped = {"title": "x", "status": "skipped", "resolved": {"cudagraph_mode": "NONE"}, "decode": [], "prefill": []}
    said = words.sentences({**some, "full": skipped, "both": skipped})
    assert said[0].startswith("no CUDA graphs here")
    assert not [line for line in said if "piecewise" in line or "pay" in line or "dominates" in line]


def test_of_a_processor_the_share_of_operators_is_told():
    found = {"none": modes()["none"]}
    for mode in found.values():
        for item in mode["decode"]:
            item |= {"gpu_ms": None, "host_ms": None, "operators_ms": 3.0, "traced_ms": 4.0, "operators": 1380.0}
    assert words.dominant(steps_of(found))[0] == (
        "no optimisation, batch 1: PyTorch's operators take 75% of a traced step (1,380 of them), scheduling and Python the rest"
    )


def test_only_who_asks_for_graphs_is_told_that_there_are_none():
    assert not words.no_graphs(modes())
    assert not words.no_graphs({"none": modes()["none"], "compile": modes()["compile"]})


# ---------------------------------------------------------------- claims


def document(parameters=8.03e9, bits=None, launch=None, found=None):
    return {
        "modes": modes() if found is None else found,
        "launch": launch,
        "loaded": {"parameters": parameters, "weight_bits": bits},
    }


def answers(*args, **kwargs):
    return dict(zip(CLAIMS, (item["measured"] for item in claims(document(*args, **kwargs))), strict=True))


def test_each_claim_has_its_measurement_beside_it():
    found = list(answers(launch={"bare_us": 2.5, "op_us": 5.25}).values())
    assert found[0] == (
        "2.5 us for a bare kernel, 5.2 us for one operation of PyTorch; 10.0 us of host work a launch in a step without "
        "optimisation (300 launches, 3 ms; Python and PyTorch included)"
    )
    assert found[1] == (
        "share of the step, at batch 1, in which the GPU waits for the host (its idle time, where the host works longer): "
        "'no optimisation' 76% (the GPU works for 2.4 ms of 10 ms, the host for 3 ms); "
        "'compile only' 75% (the GPU works for 2 ms of 8 ms, the host for 3 ms); "
        "'full graphs only' 4% (the GPU works for 2.4 ms of 2.5 ms, the host for 3 ms); "
        "'compile, piecewise graphs' 37% (the GPU works for 2 ms of 3.2 ms, the host for 3 ms); "
        "'compile, full graphs' not told apart from none (the GPU works for 2 ms of 2 ms, the host for 3 ms)"
    )
    assert found[2] == (
        "batch 1: without 10 ms, compile only 8 ms (-20%), graphs only 2.5 ms (-75%), both 2 ms (-80%); of the step without, the "
        "GPU works for 2.4 ms"
    )
    assert found[3] == "does not apply: the claim is about INT4 weights, these are 16-bit"
    assert found[4] == "80% at batch 1"


def test_host_work_behind_that_of_the_gpu_is_no_overhead_and_idle_time_lies_between_kernels():
    """As measured on an H200: an 8B with full graphs. The host works for 39% of the step, and the GPU waits for none of it."""
    found = modes()
    found["both"]["decode"][0] = row(1, 4.85, 4.71, host=1.88)
    hidden = "; 'compile, full graphs' none (the host's 1.88 ms are hidden behind the GPU's 4.71 ms"
    assert claims(document(found=found))[1]["measured"].endswith(f"{hidden}; the 3% that it idles lie between kernels)")
    found["both"]["decode"][0] = row(1, 4.85, 4.83, host=1.88)
    assert claims(document(found=found))[1]["measured"].endswith(f"{hidden.replace('4.71', '4.83')})")


def test_without_a_host_time_the_claim_says_only_that_the_gpu_idles():
    found = {"none": modes()["none"]}
    found["none"]["decode"][0] = row(1, 10.0, 2.4, host=None)
    assert claims(document(found=found))[1]["measured"].endswith(": 'no optimisation' 76% (the GPU works for 2.4 ms of 10 ms)")


def test_a_claim_about_another_size_is_not_answered():
    small = list(answers(parameters=0.6e9).values())
    assert small[1] == small[2] == "does not apply: the claim is about 8B, this model has 0.6B parameters"
    quantized = list(answers(parameters=1.5e9, bits=4).values())
    assert quantized[3].startswith("batch 1: without 10 ms")
    assert quantized[1] == quantized[2] == "does not apply: the claim is about 16-bit weights, these are INT4"
    large = list(answers(parameters=8e9, bits=4).values())
    assert large[3] == "does not apply: the claim is about 1-3B, this model has 8B parameters"
    assert large[2] == quantized[2]  # 5.5 ms is the time that 16-bit weights take


def test_eight_bit_weights_are_told_by_their_size():
    found = document()
    found["loaded"]["weights"] = {"dense_bytes": 8.4e9, "embedding_bytes": 1e9, "experts_bytes": 0}
    assert claims(found)[2]["measured"] == "does not apply: the claim is about 16-bit weights, these are 8-bit"
    found["loaded"]["weights"]["dense_bytes"] = 15e9
    assert claims(found)[2]["measured"].startswith("batch 1: ")


def test_every_claim_that_people_quote_is_there():
    """Word by word: who drops or changes a figure must see it here."""
    quoted = (
        ("5 to 10 microseconds",),
        ("9%", "8B", "host overhead"),
        ("8B", "5.5 to 5.1 ms", "5.0 ms"),
        ("INT4", "1 to 3B", "1.5 to 1.0 ms", "33%"),
        ("piecewise", "80%", "full graphs"),
    )
    assert len(CLAIMS) == len(quoted)
    for claim, words_of_it in zip(CLAIMS, quoted, strict=True):
        assert all(word in claim for word in words_of_it), claim


def test_a_missing_figure_is_named_with_its_reason():
    """Not run, the same as another mode, another batch size, not steady, or no GPU time."""
    found = {name: rows for name, rows in modes().items() if name in ("none", "both")}
    answer = [item["measured"] for item in claims(document(found=found))]
    assert answer[2] == "batch 1: without 10 ms, both 2 ms (-80%); of the step without, the GPU works for 2.4 ms"
    assert answer[4] == "not measured: 'compile only' was not run, 'compile, piecewise graphs' was not run"
    found["both"] = {**found["both"], "same_as": "none", "decode": []}
    assert [item["measured"] for item in claims(document(found=found))][2] == (
        "not measured: 'full graphs only' was not run, 'compile, full graphs' is 'no optimisation' here"
    )
    late = modes({name: {64: rows[64]} for name, rows in STEP.items()})
    answer = [item["measured"] for item in claims(document(found=late))]
    assert answer[1] == "not measured: 'no optimisation' was not measured at batch 1"
    assert "'full graphs only' was not measured at batch 1" in answer[2]
    assert answer[4] == "full graphs gain less than 5% over compilation alone, of which no share is told"
    found = modes()
    found["none"]["decode"][0] = row(1, 18.0, 2.4, spread=15.0)
    assert claims(document(found=found))[2]["measured"] == "not measured: 'no optimisation' was not steady at batch 1"
    found = modes()
    found["compile"]["decode"][0] = row(1, 18.0, 2.4, spread=15.0)
    assert claims(document(found=found))[2]["measured"] == (
        "batch 1: without 10 ms, graphs only 2.5 ms (-75%), both 2 ms (-80%), 'compile only' was not steady at batch 1; of the "
        "step without, the GPU works for 2.4 ms"
    )
    found = {"none": modes()["none"]}
    found["none"]["decode"][0] |= {"gpu_ms": None, "host_ms": None, "reason": "not traced: CUPTI"}
    assert claims(document(found=found))[1]["measured"] == "not measured: not traced: CUPTI"


def test_the_shares_of_piecewise_graphs_are_told_with_their_batch_sizes():
    steps = {
        "compile": {1: (10.0, 2.0), 8: (10.0, 2.0), 64: (10.0, 2.0)},
        "piecewise": {1: (3.0, 2.0), 8: (6.0, 2.0), 64: (4.0, 2.0)},
        "both": {1: (2.0, 2.0), 8: (2.0, 2.0), 64: (2.0, 2.0)},
    }
    assert claims(document(found=modes(steps)))[4]["measured"] == (
        "88% at batch 1, 50% at batch 8, the lowest and the highest of 3 batch sizes"
    )


def test_nothing_measured_is_said():
    assert all(said.startswith(("not measured", "does not apply")) for said in answers(found={}).values())
