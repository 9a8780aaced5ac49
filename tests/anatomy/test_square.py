"""The two-by-two: compiled or not, with graphs or without."""

from __future__ import annotations

import re

from advisor.anatomy.document import with_words
from advisor.anatomy.square import chosen, square
from advisor.anatomy.table import told
from tests.anatomy_help import decode, document, mode, skipped

FOUR = ("none", "compile", "full", "both")


def found(*names, batches=(1, 8, 64)):
    return document({name: mode(name, batches) for name in names})["modes"]


def test_compilation_goes_down_and_graphs_across():
    """Each cell: the mode's step and the floor's share of it."""
    modes = found(*FOUR)
    rows = {name: modes[name]["decode"][0] for name in FOUR}
    cells = {name: f"{row['step_ms']:.3g} ({row['floor_ms'] / row['step_ms']:.0%})" for name, row in rows.items()}
    assert len(set(cells.values())) == 4
    assert square(modes, (1,)) == [
        ("1", f"{rows['none']['floor_ms']:.3g}", "not compiled", cells["none"], cells["full"]),
        ("", "", "compiled", cells["compile"], cells["both"]),
    ]


def test_the_smallest_the_middle_and_the_largest_batch_are_chosen():
    assert chosen(found(*FOUR, batches=(1, 2, 4, 8, 16, 32, 1024))) == (1, 8, 1024)
    assert chosen(found(*FOUR, batches=(1, 4))) == (1, 4)
    assert chosen(found(*FOUR, batches=(2,))) == (2,)
    assert [line[0] for line in square(found(*FOUR))] == ["1", "", "8", "", "64", ""]


def test_a_cell_without_a_figure_says_why():
    modes = document({"none": mode("none", (1,)), "compile": mode("compile", (1, 2)), "full": skipped("full", "none")})[
        "modes"
    ]
    assert [line[3:] for line in square(modes, (1, 2))] == [
        ("19.1 (21%)", "is 'no optimisation' here"),
        ("17.1 (24%)", "was not run"),
        ("was not measured at batch 2", "is 'no optimisation' here"),
        ("17.1 (24%)", "was not run"),
    ]


def test_steps_that_were_not_steady_have_a_star():
    modes = found("none", "both", batches=(1,))
    modes["none"]["decode"] = [decode("none", 1, spread=0.4)]
    assert square(modes)[0][3] == "19.1* (21%)"


def test_without_a_floor_there_is_no_share():
    modes = found("none", "both", batches=(1,))
    for name in modes:
        modes[name]["decode"][0]["floor_ms"] = None
    assert square(modes)[0] == ("1", "", "not compiled", "19.1", "was not run")


def test_a_floor_above_a_step_gives_no_share():
    modes = found("none", "both", batches=(1, 8))
    modes["both"]["decode"][1]["floor_ms"] = 9.0
    assert [line[1:4] for line in square(modes)][::2] == [("", "not compiled", "19.1")] * 2


def test_one_mode_is_no_square():
    assert square(found("none")) == []
    assert square(found("none", "piecewise")) == []


def test_it_is_printed_with_the_other_tables():
    text = told(document({name: mode(name, (1, 8, 64)) for name in FOUR}))
    assert "ms a step (the floor's share of it)" in text
    lines = [line.split() for line in text.splitlines() if "compiled  " in line]
    assert lines[0][:4] == ["1", "4.03", "not", "compiled"]
    assert len(lines) == 6


def test_no_heading_and_no_name_is_cut():
    text = told(document())
    assert "…" not in text
    for heading in ("imports", "compile", "capture", "kernels", "graphs GiB", "full graphs only"):
        assert heading in text


def test_all_tables_mark_steps_that_were_not_steady():
    found = document()
    found["modes"]["compile"]["decode"][0] |= {"step_ms": 20.04, "steady": False}
    found["modes"]["none"]["prefill"][0] |= {"step_ms": 15.56, "steady": False}
    shown = told(with_words(found))
    assert len(re.findall(r"\b20\*", shown)) == 3  # of all modes, two by two, and what it is made of
    assert len(re.findall(r"\b15\.6\*", shown)) == 1
    assert "not steady (* above), between the quartiles: a prompt of 128 tokens (" in shown
