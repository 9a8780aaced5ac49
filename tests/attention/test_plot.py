"""What the heat map shows, and that it can be drawn."""

from __future__ import annotations

import pytest

from advisor.attention.plot import COLORS, draw, write_heat_map
from advisor.attention.plot_parts import EMPTY, NOBODY, SEVERAL, SINGLE, named, panels, short
from advisor.attention.winners import comparison
from advisor.errors import EnvironmentMismatch, InputError
from tests.attention.test_winners import DEFAULT, backends, row

pytest.importorskip("matplotlib")


def document(rows, left_out=()):
    found = {
        "model": {"name": "A $model$ (8B)", "random_weights": True}, "gpu": {"name": "NVIDIA H200"}, "versions": {"vllm": "0.26.0"},
        "date": "2026-11-30T10:00:00+00:00", "default": DEFAULT, "legal": [DEFAULT, "FLASHINFER", "TRITON_ATTN"], "chunk": 1024,
        "left_out": list(left_out), "backends": rows,
    }  # fmt: skip
    return found | comparison(rows, DEFAULT)


def picture():
    """Batches 1, 2, 4, 8, 16 at one context: a winner, a tie, two ahead together, the default, one alone; one left out."""
    full = {
        "phase": "decode",
        "batch": 32,
        "context": 512,
        "step_ms": None,
        "failed": False,
        "reason": "the KV cache holds 5",
    }
    rows = backends(
        FA=[row(10.0, batch, again=10.0) for batch in (1, 2, 4)] + [row(9.0, 8), row(5.0, 16), full],
        FI=[row(9.0, 1), row(10.0, 2), row(9.0, 4), row(10.0, 8)],
        TR=[row(10.0, 1), row(10.0, 2), row(9.02, 4), row(10.0, 8)],
    )
    out = {"phase": "decode", "batch": 64, "context": 512, "reason": "too many"}
    return document(rows, [out])


def test_every_square_says_who_wins():
    (panel,) = panels(picture())
    assert (panel.columns, panel.rows) == ((1, 2, 4, 8, 16, 32, 64), (512,))
    assert [(square.owner, square.lines) for square in panel.squares] == [
        ("FLASHINFER", ("FI", "+11%", "9 ms")),
        (NOBODY, ("tie", "10 ms")),
        (SEVERAL, ("FI=TR", "+11%", "9 ms")),
        (DEFAULT, ("FA3", "next +11%", "9 ms")),
        (SINGLE, ("5 ms",)),
        (EMPTY, ("does not\nfit",)),
        (EMPTY, ("does not\nfit",)),
    ]


def test_what_the_budget_left_is_not_said_to_not_fit():
    (panel,) = panels(document(backends(FA=[row(10.0, 1, 512), row(10.0, 2, 1024)])))
    assert [square.lines for square in panel.squares] == [
        ("10 ms",),
        ("not\nmeasured",),
        ("not\nmeasured",),
        ("10 ms",),
    ]


def test_a_panel_for_each_phase_with_figures():
    rows = backends(FA=[row(10.0, phase=phase) for phase in ("mixed", "decode")])
    assert [panel.title for panel in panels(document(rows))] == ["decode", "mixed (chunk 1024)"]


def test_short_names_tell_backends_apart():
    names = (DEFAULT, "FLASH_ATTN:2", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "FLASH_ATTN_MLA", "FLASHMLA", "FLASHINFER_MLA",
             "TRITON_MLA", "TURBOQUANT", "CPU_ATTN")  # fmt: skip
    assert len({short(name) for name in names}) == len(names)
    assert short(DEFAULT) == "FA3"


def test_the_legend_names_whoever_a_square_names():
    assert named(picture(), [DEFAULT, "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION"]) == [
        DEFAULT,
        "FLASHINFER",
        "TRITON_ATTN",
    ]
    figure = draw(picture(), panels(picture()))
    (legend,) = figure.legends
    told = [text.get_text() for text in legend.get_texts()]
    assert told == [
        "FA3: FLASH_ATTN:3",
        "FI: FLASHINFER",
        "TR: TRITON_ATTN",
        "a tie",
        "several ahead, equal among themselves",
    ]


LONG = {"model": {"name": "An-organisation/A-model-" + "with-a-long-name-" * 4 + "x", "random_weights": True},
        "gpu": {"name": "NVIDIA " + "GPU of some kind " * 5}}  # fmt: skip


@pytest.mark.parametrize("more", [{}, LONG])
def test_texts_stay_in_their_squares_and_off_each_other(more):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    shown = picture() | more
    figure = draw(shown, panels(shown))
    FigureCanvasAgg(figure).draw()
    (axes,) = figure.axes
    inside = [text.get_window_extent() for text in axes.texts]
    squares = [patch.get_window_extent() for patch in axes.patches]
    assert all(any(square.x0 <= box.x0 and box.x1 <= square.x1 for square in squares) for box in inside)
    around = [
        text.get_window_extent()
        for text in (*figure.texts, axes.title, axes.xaxis.label, axes.yaxis.label, *figure.legends)
    ]
    around += [label.get_window_extent() for label in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    boxes, edge = [*inside, *(box for box in around if box.width)], figure.bbox
    assert not any(one.overlaps(other) for index, one in enumerate(boxes) for other in boxes[index + 1 :])
    for box in boxes:
        assert edge.x0 <= box.x0 and box.x1 <= edge.x1 and edge.y0 <= box.y0 and box.y1 <= edge.y1, box


def test_the_default_has_one_colour_in_all_plots():
    figure = draw(picture(), panels(picture()))
    faces = [patch.get_facecolor() for patch in figure.axes[0].patches]
    assert len(set(COLORS)) == len(COLORS)
    assert len({faces[0], faces[1], faces[2], faces[3], faces[4]}) == 5


def test_the_same_figures_are_the_same_file(tmp_path):
    for name in ("a.svg", "b.svg"):
        write_heat_map(picture(), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_what_cannot_be_drawn_is_told(tmp_path):
    with pytest.raises(EnvironmentMismatch, match="there is nothing to draw"):
        write_heat_map(document(backends(FA=[])), tmp_path / "a.png")
    with pytest.raises(InputError, match="not the name of a plot"):
        write_heat_map(picture(), tmp_path / "a.doc")
    with pytest.raises(EnvironmentMismatch, match="cannot be written"):
        (tmp_path / "file").write_text("")
        write_heat_map(picture(), tmp_path / "file" / "a.png")
