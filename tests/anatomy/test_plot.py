"""The plot: what it shows, from invented figures, and that a person can read it."""

from __future__ import annotations

import importlib.util
import itertools
import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from advisor import cli
from advisor.anatomy import document as documents
from advisor.anatomy import plot_parts, plot_scales
from advisor.anatomy.plot import draw, plot_anatomy
from advisor.anatomy.plot_panels import FILLS, MODES
from advisor.errors import EnvironmentMismatch, InputError
from advisor.report import plot_files
from tests.anatomy_help import decode, document, mode, prefill, skipped

ROOT = Path(__file__).parents[2]
CPU_FILE = ROOT / "docs" / "evidence" / "anatomy-cpu-demo.json"
FEW = (1, 8, 64)
drawing = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="no matplotlib: make installs it")


def unsteady():
    found = {name: mode(name, FEW) for name in ("none", "both")}
    found["none"]["decode"][1] = decode("none", 8, spread=0.4)
    return document(found)


def untraced():
    reason = (
        "RuntimeError: CUDA out of memory. GPU 0 has a total capacity of 139.72 GiB, of which 12.31 MiB is free. " * 4
    )
    failed = {**mode("both"), "status": "failed", "reason": reason, "decode": [], "prefill": []}
    return document({"none": mode("none", FEW, traced=False), "compile": mode("compile", FEW), "both": failed})


def resolved_alike():
    return document({
        "none": mode("none", FEW), "compile": mode("compile", FEW), "full": skipped("full", "none"),
        "piecewise": skipped("piecewise", "compile"), "both": skipped("both", "compile"),
    })  # fmt: skip


def scaled(found, factor):
    for item in found["modes"].values():
        for row in item["decode"]:
            row |= {name: value * factor for name, value in row.items() if name.endswith("_ms") and value is not None}
    return found


def last_of_three_alike():
    ran = {name: mode(name, FEW) for name in ("none", "compile", "full")}
    return document({**ran, "piecewise": skipped("piecewise", "full"), "both": skipped("both", "full")})


NEAR = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 520, 600)
SHAPES = {
    "five modes, 11 sizes": document,
    "numbers of five digits, all with a star": lambda: scaled(
        document({name: mode(name, spread=0.4) for name in MODES}), 0.001
    ),
    "one mode, one size, no prefill": lambda: document({"both": mode("both", (1,), prefills=())}),
    "one mode, three sizes": lambda: document({"none": mode("none", FEW)}),
    "two modes": lambda: document({name: mode(name, (1, 2, 3, 4)) for name in ("none", "compile")}),
    "four modes, near sizes, a long name": lambda: document(
        {name: mode(name, NEAR) for name in ("none", "compile", "full", "both")}, name="A-name-of-" + "x" * 90
    ),
    "steps of seconds": lambda: scaled(document({"none": mode("none", FEW)}), 1000),
    "not steady": unsteady,
    "not traced": untraced,
    "resolved alike": resolved_alike,
    "the last of three resolved alike": last_of_three_alike,
    "a processor": lambda: documents.read(CPU_FILE),
}


def figure(found):
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with matplotlib.rc_context():
        matplotlib.rcParams.update(plot_files.STYLE)
        drawn = draw(plot_parts.picture(found))
        FigureCanvasAgg(drawn).draw()
        return drawn


def texts(drawn):
    """(text, box in pixels) of all that is seen."""
    from matplotlib.text import Text

    renderer = drawn.canvas.get_renderer()
    seen = [item for item in drawn.findobj(Text) if item.get_visible() and item.get_text().strip()]
    hidden = {
        item
        for axes in drawn.axes
        if not axes.axison
        for item in [*axes.xaxis.findobj(Text), *axes.yaxis.findobj(Text)]
    }
    return [(item.get_text(), item.get_window_extent(renderer)) for item in seen if item not in hidden]


def said(drawn):
    return "\n".join(text for text, _ in texts(drawn))


# ---------------------------------------------------------------- readable


@drawing
@pytest.mark.parametrize("shape", SHAPES)
def test_no_text_meets_another_or_leaves_the_picture(shape):
    drawn = figure(SHAPES[shape]())
    found = texts(drawn)
    assert len(found) > 15
    for text, box in found:
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= drawn.bbox.x1 and box.y1 <= drawn.bbox.y1, text
    for (one, first), (two, second) in itertools.combinations(found, 2):
        width = min(first.x1, second.x1) - max(first.x0, second.x0)
        height = min(first.y1, second.y1) - max(first.y0, second.y0)
        assert width <= 0.5 or height <= 0.5, f"{one!r} meets {two!r}"


@drawing
def test_no_panel_meets_another():
    boxes = [axes.bbox for axes in figure(document()).axes]
    assert len(boxes) == 3 + 5
    for first, second in itertools.combinations(boxes, 2):
        assert not first.overlaps(second)


def brightness(color):
    """0 to 1, as a black-and-white printer sees it."""
    red, green, blue = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue


def test_parts_differ_on_black_and_white_paper():
    shades = sorted(brightness(FILLS[name][0]) for name in ("floor", "other", "idle"))
    assert all(right - left > 0.2 for left, right in itertools.pairwise(shades))
    assert len({hatch for _, hatch in FILLS.values()}) == len(FILLS)  # bright ones by their hatches too
    assert set(FILLS) == set(plot_parts.PARTS)


def test_modes_differ_by_marks_and_not_by_colour_alone():
    assert len({marker for _, marker, _ in MODES.values()}) == len(MODES)
    assert len({(color, style) for color, _, style in MODES.values()}) == len(MODES)


# ---------------------------------------------------------------- what is shown


@drawing
def test_the_head_says_what_was_measured_where_and_when():
    shown = said(figure(document()))
    assert "What a decode step of Invented-8B is made of" in shown
    assert "random weights, NVIDIA H200, vLLM 0.26.0, 2026-11-30, 512 tokens of context a request" in shown
    assert "random weights" not in said(figure(document(model={"name": "Real", "random_weights": False})))


def test_the_best_step_its_distance_from_the_floor_and_what_dominates_it():
    small, large = plot_parts.told_best(document()["modes"])
    floor = 1e3 * (16.06e9 + 512 * 32 * 4096) / 4000e9
    assert small == (
        f"batch 1: best step {floor * 1.14 * (1 + 1 / 900) + 0.15:.3g} ms (compile, full graphs), 1.2 times the floor of "
        f"{floor:.3g} ms, 85% of it reading weights and KV cache"
    )
    assert large.startswith("batch 1024: ")
    assert "of it other GPU work" in large
    slow = plot_parts.told_best({"none": mode("none", (1,))})
    assert slow[0].endswith(", the host sets the pace")


@drawing
def test_bars_are_the_parts_of_the_steps():
    """Of every mode and batch size: from below floor, other GPU work, idle GPU; together the whole step."""
    found = document({"none": mode("none", FEW), "both": mode("both", FEW)})
    panels = [axes for axes in figure(found).axes if axes.get_ylim() == (0, 100)]
    assert len(panels) == 2
    for axes, rows in zip(panels, (found["modes"]["none"]["decode"], found["modes"]["both"]["decode"]), strict=True):
        floors, others, idles = ([bar.get_height() for bar in bars] for bars in axes.containers)
        for row, floor, other, idle in zip(rows, floors, others, idles, strict=True):
            assert floor == pytest.approx(100 * row["floor_ms"] / row["step_ms"], abs=0.1)
            assert floor + other == pytest.approx(100 * row["gpu_ms"] / row["step_ms"], abs=0.1)
            assert idle == pytest.approx(100 * row["gpu_idle_ms"] / row["step_ms"], abs=0.1)


@drawing
def test_a_bar_has_no_idle_time_that_may_be_none_and_the_picture_says_so():
    found = document({"both": mode("both", FEW, spread=0.19)})
    row = found["modes"]["both"]["decode"][0]
    assert row["steady"] and row["gpu_idle_ms"] is None
    drawn = figure(found)
    assert "idle time of the GPU is not told" in (shown := said(drawn)) and plot_parts.PARTS["idle"] not in shown
    assert len(drawn.axes[3].containers) == 2
    assert plot_parts.bar(row).parts == {"floor": row["floor_ms"], "other": pytest.approx(row["gpu_ms"] - row["floor_ms"])}


@drawing
def test_the_work_of_the_host_is_a_dash_where_it_ends():
    """Measured by itself: at the top of a bar the step waits for it, further down it hides behind the GPU."""
    found = document({"none": mode("none", FEW), "both": mode("both", FEW)})
    for axes, name in zip(figure(found).axes[3:], ("none", "both"), strict=True):
        ends = [dash.get_segments()[0][0][1] for dash in axes.collections[1::2]]
        rows = found["modes"][name]["decode"]
        assert ends == pytest.approx([100 * row["host_ms"] / row["step_ms"] for row in rows])
    assert plot_parts.HOST in said(figure(found))
    cpu = figure(documents.read(CPU_FILE))
    assert plot_parts.HOST not in said(cpu) and not cpu.axes[3].collections


@drawing
def test_steps_and_floor_stand_over_their_batch_sizes():
    found = document({"both": mode("both", FEW)})
    floor, steps = [line for line in figure(found).axes[0].lines if len(line.get_xdata()) == 3]
    assert list(steps.get_xdata()) == [0, 3, 6]
    assert list(steps.get_ydata()) == [row["step_ms"] for row in found["modes"]["both"]["decode"]]
    assert list(floor.get_ydata()) == [row["floor_ms"] for row in found["modes"]["both"]["decode"]]


@drawing
def test_starts_and_graph_memory_stand_beside_the_steps():
    shown = said(figure(document()))
    assert "98.8 s, cold compile cache; graphs 0.98 GiB" in shown
    assert "58.6 s; graphs 0.68 GiB" in shown
    assert "55.1 s\n" in shown


@drawing
def test_prefill_has_a_panel_of_its_own():
    axes = figure(document({"none": mode("none", FEW)})).axes[1]
    assert axes.get_title(loc="left") == "Prefill of one prompt, ms"
    assert list(axes.lines[0].get_ydata()) == [prefill("none", tokens)["step_ms"] for tokens in (128, 512, 2048, 8192)]


@drawing
def test_steps_that_were_not_steady_are_marked():
    drawn = figure(unsteady())
    shown = said(drawn)
    assert shown.count("19.1*") == 1
    assert "hollow marks: the steps were not steady" in shown
    hollow = [line for line in drawn.axes[0].lines if line.get_markerfacecolor() == "white" and len(line.get_xdata())]
    assert [list(line.get_xdata()) for line in hollow] == [[3]]
    steady = said(figure(document({"none": mode("none", FEW)})))
    assert "*" not in steady and "hollow" not in steady


@drawing
def test_modes_that_resolve_to_the_same_are_named_where_they_belong():
    shown = said(figure(resolved_alike()))
    assert "the same here: full graphs only" in shown
    assert "the same here: compile, piecewise graphs;\ncompile, full graphs" in shown
    assert "no CUDA graphs here" in shown


@drawing
def test_a_processor_shows_step_and_floor_and_says_why():
    drawn = figure(documents.read(CPU_FILE))
    shown = said(drawn)
    assert "a processor has no GPU time: only the step and its floor are shown" in shown
    assert "above the floor, not split" in shown
    assert plot_parts.PARTS["idle"] not in shown and "other GPU work" not in shown
    slow = documents.read(CPU_FILE)
    slow["modes"]["none"]["decode"][0]["floor_ms"] = 9.0
    assert plot_parts.notes(slow)[-1] == "a processor has no GPU time: steps are not split"
    assert "AMD EPYC, vLLM 0.32.0, 2026-11-30" in shown


@drawing
def test_what_could_not_be_measured_is_told():
    shown = said(figure(untraced()))
    assert "not split, no GPU time: not traced: CUPTI_ERROR" in shown
    assert "compile, full graphs: failed: RuntimeError: CUDA out of memory." in shown
    assert "no floor" not in shown
    without = mode("none", FEW)
    for row in without["decode"]:
        row["floor_ms"] = None
    drawn = figure(document({"none": without}))
    assert "no floor where the bandwidth was not measured" in said(drawn)
    assert "best step above the floor" not in said(drawn)


@drawing
def test_a_floor_above_a_step_is_not_drawn_and_the_picture_says_why():
    found = document({"both": mode("both", FEW)})
    found["modes"]["both"]["decode"][0]["floor_ms"] = 9.0
    drawn = figure(found)
    shown = said(drawn)
    assert "a step of 4.75 ms is shorter than its floor of 9 ms" in " ".join(shown.split())
    assert "best step above the floor" not in shown and "times the floor" not in shown
    assert plot_parts.PARTS["floor"] not in shown and plot_parts.PARTS["other"] not in shown and "GPU work" in shown
    assert not [line for line in drawn.axes[0].lines if 9.0 in list(line.get_ydata())]


# ---------------------------------------------------------------- scales


def test_ticks_are_few_and_round():
    assert plot_scales.ticks(0.9, 1100) == [1, 10, 100, 1000]
    assert plot_scales.ticks(3.1, 74) == [5, 10, 20, 50]
    assert plot_scales.ticks(4.0, 6.2) == pytest.approx([4, 5, 6])


def test_labels_that_would_meet_are_left_out():
    assert plot_scales.readable([1, 2, 4, 8], lambda *_: 1.0) == [1, 2, 4, 8]
    assert plot_scales.readable([1, 2, 4, 8], lambda *_: 1.1) == [1, 8]
    assert plot_scales.readable([256, 512, 600], lambda *_: 0.5) == [256, 600]
    assert plot_scales.readable([512, 600], lambda *_: 0.5) == [600]
    assert plot_scales.readable([1], lambda *_: 9.0) == [1]


def test_only_bars_with_a_near_neighbour_are_narrow():
    assert plot_scales.bar_widths([1, 2, 4]) == pytest.approx([0.8, 0.8, 0.8])
    assert plot_scales.bar_widths([1, 64]) == pytest.approx([0.8, 0.8])
    near = plot_scales.position(600) - plot_scales.position(512)
    assert plot_scales.bar_widths([256, 512, 600]) == pytest.approx([0.8, 0.8 * near, 0.8 * near])


# ---------------------------------------------------------------- files


@drawing
@pytest.mark.parametrize(("name", "begins"), [("a.svg", b"<?xml"), ("a.png", b"\x89PNG"), ("a.PDF", b"%PDF")])
def test_the_name_says_the_format_and_the_same_figures_give_the_same_file(tmp_path, name, begins):
    path = tmp_path / name
    for _ in range(2):
        assert plot_anatomy(document(), tmp_path / "x.json", path, pytest.fail) == path
        first, found = locals().get("found"), path.read_bytes()
    assert found.startswith(begins)
    assert found == first
    assert [file.name for file in tmp_path.iterdir()] == [name]


@drawing
@pytest.mark.parametrize("name", ["anatomy-h200-Llama-3.1-8B", "anatomy-h200-Qwen3-0.6B"])
def test_an_svg_of_real_figures_is_small_and_its_numbers_are_text_that_nothing_rounds(tmp_path, name):
    data, path = ROOT / "docs" / "evidence" / f"{name}.json", tmp_path / "a.svg"
    shown = documents.read(data)
    plot_anatomy(shown, data, path, pytest.fail)
    assert path.stat().st_size < 100_000  # 470,000 with letters as outlines and dots as curves
    texts = "\n".join(element.text or "" for element in ElementTree.parse(path).iter() if element.tag.endswith("}text"))
    for line in plot_parts.picture(shown).best:
        assert line in texts


def test_an_svg_is_made_smaller_in_its_tags_alone():
    before = (
        '<g>\n  <path d="M 1.234567 -0.0001 \nL 2 3.98765\n"/>\n'
        '  <text style="font-family: \'DejaVu Sans\'" x="0.125001">0.2971 ms</text>\n</g>'
    )
    assert plot_files.small_svg(before) == (
        '<g>\n<path d="M 1.23 0 L 2 3.99 "/>\n'
        '<text style="font-family: \'DejaVu Sans\', Verdana, sans-serif" x="0.13">0.2971 ms</text>\n</g>'
    )


@drawing
def test_a_name_with_dollars_and_letters_that_the_font_lacks(tmp_path):
    assert plot_anatomy(document(name="a$b$_{模型}"), tmp_path / "x.json", None, pytest.fail) == tmp_path / "x.svg"


def test_a_name_without_a_format_is_refused():
    with pytest.raises(InputError, match=r"--plot plot\.jpeg"):
        plot_files.check_plot(Path("plot.jpeg"))


def test_without_matplotlib_the_tables_stay_and_who_asks_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(plot_files.importlib.util, "find_spec", lambda name: None)
    notes: list[str] = []
    assert plot_anatomy(document(), tmp_path / "x.json", None, notes.append) is None
    assert notes == ["no plot: plots need matplotlib, which is not installed here"]
    with pytest.raises(EnvironmentMismatch, match="need matplotlib"):
        plot_anatomy(document(), tmp_path / "x.json", tmp_path / "x.png", notes.append)


@drawing
def test_a_plot_that_cannot_be_written_takes_nothing_away_unless_it_was_asked_for(tmp_path):
    (tmp_path / "x.svg").mkdir()
    notes: list[str] = []
    assert plot_anatomy(document(), tmp_path / "x.json", None, notes.append) is None
    assert "x.svg cannot be written" in notes[0]
    with pytest.raises(EnvironmentMismatch, match=r"x\.svg cannot be written"):
        plot_anatomy(document(), tmp_path / "x.json", tmp_path / "x.svg", notes.append)


def test_nothing_measured_is_no_plot(tmp_path):
    notes: list[str] = []
    found = document({"none": {**mode("none"), "status": "failed", "reason": "no room", "decode": [], "prefill": []}})
    assert plot_anatomy(found, tmp_path / "x.json", None, notes.append) is None
    assert "no step was measured" in notes[0]


def test_matplotlib_is_imported_only_where_something_is_drawn():
    code = (
        "import sys\nimport advisor.cli, advisor.anatomy.run, advisor.anatomy.plot, advisor.report.plot_files\n"
        "from typer.testing import CliRunner\nassert CliRunner().invoke(advisor.cli.app, ['anatomy', '--help']).exit_code == 0\n"
        "print([name for name in ('matplotlib', 'PIL', 'torch', 'vllm') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "[]\n"


# ---------------------------------------------------------------- from a file


def run(*words):
    return CliRunner().invoke(cli.app, ["anatomy", *map(str, words)])


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "found.json"
    documents.save(path, document())
    return path


@drawing
def test_a_file_is_told_and_drawn_again_without_a_gpu(saved):
    before = saved.read_bytes()
    shown = run("--from", saved)
    assert shown.exit_code == 0, shown.output
    for text in (
        "decode step, ms (median)",
        "graphs stop paying",
        "claim: launching a kernel",
        "piecewise graphs give",
    ):
        assert text in shown.stdout
    assert shown.stdout.splitlines()[-2:] == [str(saved), str(saved.with_suffix(".svg"))]
    assert saved.with_suffix(".svg").read_bytes().startswith(b"<?xml")
    assert saved.read_bytes() == before


@drawing
def test_a_file_may_be_drawn_elsewhere_and_printed_as_json(saved, tmp_path):
    shown = run("--from", saved, "--plot", tmp_path / "there" / "p.png", "--json")
    assert json.loads(shown.stdout) == json.loads(saved.read_text())
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["p.png"]
    assert not saved.with_suffix(".svg").exists()


def test_sentences_and_claims_of_a_file_are_those_of_this_release(saved):
    old = json.loads(saved.read_text())
    saved.write_text(json.dumps({**old, "words": ["of old"], "claims": []}))
    assert documents.read(saved) == old


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "give --model or --from"),
        (["--from", "found.json", "--model", "m"], "--from reads what was measured, and --model is about measuring"),
        (
            ["--from", "found.json", "--batch-sizes", "1"],
            "--from reads what was measured, and --batch-sizes is about measuring",
        ),
        (["--from", "gone.json"], "gone.json is not there"),
        (["--from", "other.json"], "other.json exists, but holds no figures of `advisor anatomy`"),
        (
            ["--from", "old.json"],
            "old.json exists, but holds no figures of `advisor anatomy` in this release's form (advisor.anatomy/2)",
        ),
        (["--from", "part.json"], "part.json is not complete: it has no model, gpu"),
        (["--from", "found.json", "--plot", "x.gif"], "--plot x.gif is not the name of a plot"),
        (["--model", "m", "--plot", "x"], "--plot x is not the name of a plot"),
    ],
)
def test_what_is_wrong_with_a_source_is_told(saved, monkeypatch, words, problem):
    monkeypatch.chdir(saved.parent)
    Path("other.json").write_text("[1]")
    Path("old.json").write_text(json.dumps({**json.loads(saved.read_text()), "schema": "advisor.anatomy/1"}))
    Path("part.json").write_text(json.dumps({"schema": documents.SCHEMA}))
    shown = run(*words)
    assert isinstance(shown.exception, InputError)
    assert shown.exception.problem.startswith(problem)
