"""The pages of docs/evidence and the files beside them say the same."""

from __future__ import annotations

import importlib.util
import json
import shlex
import shutil

import pytest

from advisor.anatomy import document as documents
from advisor.anatomy.square import floor_of
from advisor.anatomy.table import starred
from benchmarks import tables
from tests.anatomy_help import decode, document, mode, skipped

drawing = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="no matplotlib: make installs it")
STARTS = {"M-8B": {"default": {"cold_s": [80.04, 70.0, 75.0], "warm_s": [30.0, 33.0]}, "eager": {"cold_s": [55.0], "warm_s": []}}}


@pytest.fixture
def folder(tmp_path):
    for page in ("README.md", "anatomy.md", "launcher.md"):
        (tmp_path / page).write_text(f"# {page}\n\nWritten by hand.\n")
    documents.save(tmp_path / "anatomy-h200-Invented.json", document())
    (tmp_path / "launcher-h200.json").write_text(json.dumps(STARTS))
    (tmp_path / "noise-h200.json").write_text("{}")
    return tmp_path


def pages(folder):
    return {path.name: path.read_text() for path in folder.glob("*.md")}


# ---------------------------------------------------------------- what is committed


def test_the_evidence_that_is_committed_says_what_its_files_say():
    """`python -m benchmarks.tables` mends it."""
    assert tables.update(tables.FOLDER, check=True) == []


# ---------------------------------------------------------------- tables


def steps_of(name):
    """Batch size -> what the steps of all modes and the floor are in a table; of the evidence that is committed."""
    modes = documents.read(tables.FOLDER / f"anatomy-h200-{name}.json")["modes"]
    found = {}
    for mode_of in modes.values():
        for row in mode_of["decode"]:
            found.setdefault(row["batch"], []).append(starred(row))
    return {batch: [*cells, floor_of(modes, batch)] for batch, cells in found.items()}


@pytest.mark.parametrize("name", ["Qwen3-0.6B", "Qwen3-1.7B-GPTQ-Int4", "Llama-3.1-8B"])
def test_the_table_of_three_models_that_a_person_wrote_has_the_figures_of_the_files(name):
    lines = (tables.FOLDER / "anatomy.md").read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(f"| [{name}](#"))
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[at : at + 2]]
    written = {int(batch): figures for _, batch, *figures in cells}
    steps = steps_of(name)
    assert written == {batch: steps[batch] for batch in (1, 512)}


def test_the_front_page_has_the_figures_of_the_file():
    none, _, full, _, both, floor = steps_of("Llama-3.1-8B")[1]
    assert f"| {none} | {full} | {both} | {floor} |" in (tables.FOLDER.parents[1] / "README.md").read_text()


def test_an_anatomy_states_its_conditions_and_all_its_tables(folder):
    text = tables.anatomy(folder / "anatomy-h200-Invented.json")
    row = document()["modes"]["both"]["decode"][0]
    step, gpu, idle = (f"{row[name]:.3g}" for name in ("step_ms", "gpu_ms", "gpu_idle_ms"))
    flat = " ".join(text.split())
    for said in (
        "NVIDIA H200, 16 cores, vLLM 0.26.0, driver 580.0, torch 2.11.0, CUDA 13.0, Python 3.12.0, 2026-11-30.",
        "**random weights**, 512 tokens of context, medians of 60 steps. Copies: 4,000 GB/s",
        "    advisor anatomy --model Invented-8B",
        "(anatomy-h200-Invented.svg)",
        "| batch | floor, ms |  | no graphs | full graphs |",
        f"| 1 | 4.03 | not compiled | 19.1 (21%) | {document()['modes']['full']['decode'][0]['step_ms']:.3g} (78%) |",
        f"| compile, full graphs | 1 | {step} | {gpu} | 0.35 | {idle} | 8 | 400 | 4.03 |",
        "| compile, full graphs | VLLM_COMPILE, FULL_AND_PIECEWISE graphs | 98.8 |  |  | cold | 0.98 |",
        "| launching a kernel costs the host 5 to 10 microseconds | 2.5 us for a bare kernel",
    ):
        assert said in text or said in flat, said
    for item in document()["claims"]:
        assert f"| {item['claim']} | {item['measured']} |" in text
    for sentence in document()["words"]:
        assert sentence in flat


def test_steps_that_were_not_steady_have_a_star_and_modes_that_failed_a_reason(tmp_path):
    failed = {**mode("both"), "status": "failed", "reason": "a | b", "start": {}, "decode": [], "prefill": []}
    found = document({"none": {**mode("none"), "decode": [decode("none", 1, spread=0.4)]}, "both": failed})
    documents.save(tmp_path / "anatomy-x.json", found)
    text = tables.anatomy(tmp_path / "anatomy-x.json")
    assert "| no optimisation | 1 | 19.1* |" in text
    assert "| compile, full graphs | failed: a \\| b |" in text


def test_prompts_stand_under_their_modes(tmp_path):
    some = {name: mode(name, (1,), (128, 2048)) for name in ("none", "both")}
    found = document({**some, "full": skipped("full", "none")})
    found["modes"]["both"]["prefill"][1]["steady"] = False
    path = tmp_path / "anatomy-h200-X.json"
    path.write_text(json.dumps(found))
    text = tables.anatomy(path)
    header = "| tokens | no optimisation | compile, full graphs |\n| --- | --- | --- |\n"
    assert f"{header}| 128 | 25.4 | 6.75 |\n| 2,048 | 121 | 103* |\n" in text


def test_a_long_command_is_one_command_still():
    command = f"advisor anatomy --model M --serve-args '{'--load-format dummy --x 1 ' * 5}' --env A=1 --output f.json --json"
    lines = tables.command(command).splitlines()
    assert len(lines) > 1
    assert all(line.startswith("    ") and line.endswith("\\") for line in lines[:-1])
    assert shlex.split("".join(line.removesuffix("\\") for line in lines)) == shlex.split(command)


def test_a_launcher_has_every_start_medians_and_ratio(folder):
    assert tables.launcher(folder / "launcher-h200.json").splitlines()[-2:] == [
        "| M-8B | default | 80.0, 70.0, 75.0 | 30.0, 33.0 | 75.0 | 31.5 | 0.42 | 0.50 |",
        "| M-8B | eager | 55.0 |  | 55.0 |  |  | 0.25 |",
    ]


def test_throughput_that_a_launcher_measured_stands_beside_its_starts(tmp_path):
    path = tmp_path / "launcher-x.json"
    arm = {"cold_s": [80.0], "warm_s": [20.0], "cold_tok_s": [4800.0, 4900.0], "warm_tok_s": [4750.4, 4849.6]}
    path.write_text(json.dumps({"M": {"own": arm, "eager": {"cold_s": [], "warm_s": []}}}))
    head, _, *rows = tables.launcher(path).splitlines()[-4:]
    assert head.endswith("| goal on a GPU | cold, tok/s | warm, tok/s | warm / cold, tok/s |")
    assert rows == [
        "| M | own | 80.0 | 20.0 | 80.0 | 20.0 | 0.25 |  | 4,800, 4,900 | 4,750, 4,850 | 0.990 |",
        "| M | eager |  |  |  |  |  | 0.25 |  |  |  |",
    ]


# ---------------------------------------------------------------- pages


@drawing
def test_new_files_get_a_section_on_their_page_and_a_plot_and_the_second_run_changes_nothing(folder):
    assert tables.main(["--folder", str(folder)]) == 0
    text = pages(folder)
    headline = "NVIDIA H200, 2026-11-30: what a decode step of Invented-8B is made of"
    assert text["anatomy.md"].startswith(f"# anatomy.md\n\nWritten by hand.\n\n## {headline}\n")
    assert text["launcher.md"].startswith("# launcher.md\n\nWritten by hand.\n\n## launcher-h200\n")
    assert text["README.md"] == "# README.md\n\nWritten by hand.\n"
    assert "noise-h200.json" not in "".join(text.values())
    assert (folder / "anatomy-h200-Invented.svg").exists()
    assert tables.update(folder, check=True) == []
    tables.update(folder, check=False)
    assert pages(folder) == text


def test_a_new_file_without_the_page_of_its_kind_is_told(folder):
    (folder / "launcher.md").unlink()
    with pytest.raises(SystemExit, match=r"launcher-h200\.json has no tables, and launcher\.md, .* is not there"):
        tables.main(["--check", "--folder", str(folder)])


@drawing
def test_tables_are_written_in_place_on_any_page_and_nothing_else_is_touched(folder):
    tables.update(folder, check=False)
    mine = pages(folder)["launcher.md"].replace("## launcher-h200\n", "## A better name\n\nProse.\n") + "\nAn end.\n"
    (folder / "launcher.md").unlink()
    (folder / "starts.md").write_text(mine)
    wanted = pages(folder)
    for page, right, wrong in (("anatomy.md", "| 19.1 (21%) |", "| 1.91 (21%) |"), ("starts.md", "| 0.42 |", "| 0.24 |")):
        assert right in wanted[page]
        (folder / page).write_text(wanted[page].replace(right, wrong))
    tables.update(folder, check=False)
    assert pages(folder) == wanted


@drawing
def test_a_page_that_says_something_else_fails_the_check_and_stays(folder, capsys):
    tables.update(folder, check=False)
    stale = pages(folder)["launcher.md"].replace("| 0.42 |", "| 0.24 |")
    (folder / "launcher.md").write_text(stale)
    assert tables.main(["--check", "--folder", str(folder)]) == 1
    said = capsys.readouterr().out
    assert "| 0.24 | 0.50 |" in said and "| 0.42 | 0.50 |" in said and "--- launcher.md" in said
    assert pages(folder)["launcher.md"] == stale


@drawing
def test_changed_and_new_files_and_lost_plots_fail_the_check(folder):
    tables.update(folder, check=False)
    shutil.copy(folder / "anatomy-h200-Invented.json", folder / "anatomy-h200-New.json")
    differences = tables.update(folder, check=True)
    assert differences[0] == "anatomy-h200-New.svg is not there"
    assert any("begin anatomy-h200-New.json" in line for line in differences)
    (folder / "anatomy-h200-New.json").unlink()
    (folder / "launcher-h200.json").write_text(json.dumps({"M-8B": {"default": {"cold_s": [80.0], "warm_s": [20.0]}}}))
    assert any("0.25" in line for line in tables.update(folder, check=True))


BEGIN, END = "<!-- begin a.json: x -->\n", "<!-- end a.json -->\n"


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (["<!-- begin gone.json: x -->\n<!-- end gone.json -->\n"], "0.md has tables of gone.json, which is not there"),
        ([BEGIN], r"the marks of a.json are not one begin and one end after it \(0.md\)"),
        ([END + BEGIN], "the marks of a.json are not one begin"),
        ([(BEGIN + END) * 2], "the marks of a.json are not one begin"),
        ([BEGIN + END, BEGIN + END], r"the marks of a.json are not one begin .*\(0.md, 0.md, 1.md, 1.md\)"),
        ([BEGIN, END], r"the marks of a.json are not one begin .*\(0.md, 1.md\)"),
        ([BEGIN + END, BEGIN], "the marks of a.json are not one begin"),
    ],
)
def test_marks_that_a_person_broke_are_told(texts, problem):
    with pytest.raises(tables.Disagreement, match=problem):
        tables.rewritten({f"{number}.md": text for number, text in enumerate(texts)}, {"a.json": "A"}, str)


def test_the_tables_of_one_file_are_printed(folder, capsys):
    assert tables.main([str(folder / "launcher-h200.json")]) == 0
    assert capsys.readouterr().out.rstrip("\n") == tables.launcher(folder / "launcher-h200.json")
    kinds = r"anatomy-NAME\.json, attention-NAME\.json, launcher-NAME\.json"
    with pytest.raises(SystemExit, match=rf"noise-h200\.json: files are called {kinds}"):
        tables.main([str(folder / "noise-h200.json")])
