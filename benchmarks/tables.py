"""The tables of docs/evidence/*.md, from the evidence files beside them: `python -m benchmarks.tables [--check] [FILE ...]`.

Tables stand between two comments that name their file, on any page; a run writes what is between them anew, draws the plots, and
begins a section for a file that has none, on the page of its kind. With --check nothing is written, and the exit code is 1 where
pages and files disagree. With FILEs their tables are printed.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from advisor.anatomy import document as documents
from advisor.anatomy.modes import TITLES, what_runs
from advisor.anatomy.plot import plot_anatomy
from advisor.anatomy.square import HEADER, chosen, square
from advisor.errors import AdvisorError
from advisor.journal import write_atomically
from advisor.stepping.figures import bare_ms
from benchmarks import attention_tables
from benchmarks.launcher import GOALS
from benchmarks.markdown import command, conditions, markdown, paragraph

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "evidence"
_BLOCK = re.compile(r"<!-- begin (?P<name>\S+):[^>]*-->\n(?P<body>.*?)<!-- end (?P=name) -->\n", re.DOTALL)
_ANY_MARK = re.compile(r"<!-- (?:begin|end) ([^\s:]+)")


class Disagreement(Exception):
    """Pages and files cannot be brought together without a person."""


def block(name: str, content: str) -> str:
    return f"<!-- begin {name}: written by `python -m benchmarks.tables` -->\n\n{content}\n\n<!-- end {name} -->\n"


# ---------------------------------------------------------------- anatomy


def anatomy(path: Path) -> str:
    """Machine, versions, date and command; steps two by two, what they are made of, starts, sentences, claims."""
    document = documents.read(path)
    modes, batches = document["modes"], chosen(document["modes"])
    parts = [
        conditions(document, path.name, _details(document)),
        "\n".join(map(command, document["commands"])),
        f"![Steps over the floor, and what they are made of]({path.stem}.svg)",
        "Milliseconds a step, in brackets the share of it that the floor is:",
        markdown(HEADER, square(modes)),
        markdown(*_steps(modes, batches)),
        *_prefills(modes),
        markdown(*_starts(modes)),
        "\n".join(paragraph(text, "- ") for text in document["words"]),
        markdown(("claim", "here"), [(item["claim"], item["measured"]) for item in document["claims"]]),
    ]
    return "\n\n".join(part for part in parts if part)


def _details(document: Mapping[str, Any]) -> str:
    bandwidth = document.get("bandwidth")
    copies = f" Copies: {bandwidth['gb_s']:,.0f} GB/s, read and written together." if bandwidth else ""
    return f"{document['context']} tokens of context, medians of {document['steps']} steps.{copies}"


_COLUMNS = {
    "step_ms": "step, ms", "gpu_ms": "GPU, ms", "host_ms": "host, ms", "gpu_idle_ms": "GPU idle, ms",
    "launches": "launches", "kernels": "kernels", "operators": "operators", "operators_ms": "in operators, ms",
    "floor_ms": "floor, ms",
}  # fmt: skip


def _steps(modes: Mapping[str, Mapping[str, Any]], batches: Sequence[int]) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Of every mode that ran; columns that nothing was measured for are left out."""
    rows = [(mode["title"], row) for mode in modes.values() for row in mode["decode"] if row["batch"] in batches]
    names = [name for name in _COLUMNS if any(row.get(name) is not None for _, row in rows)]
    lines = [(title, str(row["batch"]), *(_figure(row, name) for name in names)) for title, row in rows]
    return ("", "batch", *(_COLUMNS[name] for name in names)), lines


def _figure(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if value is None:
        return ""
    star = "*" if name == "step_ms" and not row["steady"] else ""
    return (bare_ms(value) if name.endswith("_ms") else f"{value:,.0f}") + star


def _prefills(modes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Prompt lengths down, modes across."""
    rows = {mode["title"]: {row["tokens"]: row for row in mode["prefill"]} for mode in modes.values() if mode["prefill"]}
    lengths = sorted({tokens for found in rows.values() for tokens in found})
    if not lengths:
        return []
    lines = [(f"{tokens:,}", *(_figure(found.get(tokens, {}), "step_ms") for found in rows.values())) for tokens in lengths]
    return ["Milliseconds from the first step of one prompt to its first token:", markdown(("tokens", *rows), lines)]


def _starts(modes: Mapping[str, Mapping[str, Any]]) -> tuple[Sequence[str], list[Sequence[str]]]:
    lines = []
    for mode in modes.values():
        start = mode.get("start") or {}
        seconds = [_tenth(start.get(name)) for name in ("start_s", "compile_s", "capture_s")]
        memory = start.get("graph_memory_gib")
        runs = what_runs(mode["resolved"]) if start else _why_not(mode)
        lines.append(
            (mode["title"], runs, *seconds, start.get("cache") or "", "" if memory is None else f"{memory:.2f}")
        )
    return ("", "runs", "start, s", "compile, s", "capture, s", "compile cache", "graphs, GiB"), lines


def _why_not(mode: Mapping[str, Any]) -> str:
    same = mode.get("same_as")
    return f"the same as '{TITLES[same]}'" if same else f"{mode['status']}: {mode['reason']}"


def _tenth(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


# ---------------------------------------------------------------- launcher


_STARTS = ("model", "configuration", "cold, s", "warm, s", "median cold", "median warm", "warm / cold", "goal on a GPU")
_RATES = {"cold_tok_s": "cold, tok/s", "warm_tok_s": "warm, tok/s"}


def launcher(path: Path) -> str:
    """Every start, medians, and their ratio beside the goal; every throughput and the medians' ratio where it was measured."""
    found = json.loads(path.read_text(encoding="utf-8"))
    arms = [(model, config, arm) for model, configs in found.items() for config, arm in configs.items()]
    measured = any(arm.get(name) for *_, arm in arms for name in _RATES)
    rows = [(model, config, *_started(config, arm), *(_rated(arm) if measured else ())) for model, config, arm in arms]
    head = (*_STARTS, *_RATES.values(), "warm / cold, tok/s") if measured else _STARTS
    return f"[{path.name}]({path.name}):\n\n" + markdown(head, rows)


def _started(config: str, arm: Mapping[str, Sequence[float]]) -> list[str]:
    cold, warm = arm["cold_s"], arm["warm_s"]
    ratio = f"{statistics.median(warm) / statistics.median(cold):.2f}" if cold and warm else ""
    seconds = [", ".join(map(_tenth, values)) for values in (cold, warm)]
    return [*seconds, _median(cold), _median(warm), ratio, f"{GOALS[config]:.2f}" if config in GOALS else ""]


def _rated(arm: Mapping[str, Sequence[float]]) -> list[str]:
    cold, warm = (arm.get(name) or [] for name in _RATES)
    ratio = f"{statistics.median(warm) / statistics.median(cold):.3f}" if cold and warm else ""
    return [*(", ".join(f"{value:,.0f}" for value in values) for values in (cold, warm)), ratio]


def _median(values: Sequence[float] | None) -> str:
    return _tenth(statistics.median(values)) if values else ""


# ---------------------------------------------------------------- pages

KINDS: dict[str, Callable[[Path], str]] = {
    "anatomy-": anatomy,
    "attention-": attention_tables.attention,
    "launcher-": launcher,
}


def _plot_anatomy(data: Path) -> None:
    plot_anatomy(documents.read(data), data, data.with_suffix(".svg"), lambda _: None)


_PLOTS: dict[str, Callable[[Path], None]] = {"anatomy-": _plot_anatomy, "attention-": attention_tables.plot}


def contents(folder: Path) -> dict[str, str]:
    """File name -> its tables."""
    return {path.name: make(path) for begin, make in KINDS.items() for path in sorted(folder.glob(f"{begin}*.json"))}


def headline(path: Path) -> str:
    """Of the section that a new file gets; a person may write a better one."""
    if path.name.startswith("attention-"):
        return attention_tables.headline(path)
    if not path.name.startswith("anatomy-"):
        return path.stem
    document = documents.read(path)
    return f"{document['gpu']['name']}, {document['date'][:10]}: what a decode step of {document['model']['name']} is made of"


def page_of(name: str) -> str:
    """Of a new file: anatomy.md, for example."""
    return f"{name.partition('-')[0]}.md"


def rewritten(pages: Mapping[str, str], found: Mapping[str, str], headlines: Callable[[str], str]) -> dict[str, str]:
    """The pages with the tables of all files. Raises Disagreement for marks without a file or other end, or that are repeated."""
    whole = {match["name"]: page for page, text in pages.items() for match in _BLOCK.finditer(text)}
    for name, page in whole.items():
        if name not in found:
            raise Disagreement(f"{page} has tables of {name}, which is not there")
    marks = [(name, page) for page, text in pages.items() for name in _ANY_MARK.findall(text)]
    for name in dict(marks):
        places = [page for marked, page in marks if marked == name]
        if name not in whole or len(places) != 2:
            raise Disagreement(f"the marks of {name} are not one begin and one end after it ({', '.join(places)})")
    after = {
        page: _BLOCK.sub(lambda match: block(match["name"], found[match["name"]]), text) for page, text in pages.items()
    }
    for name, content in found.items():
        if name not in whole:
            page = page_of(name)
            if page not in after:
                raise Disagreement(f"{name} has no tables, and {page}, the page that they belong on, is not there")
            after[page] = f"{after[page].rstrip()}\n\n## {headlines(name)}\n\n{block(name, content)}"
    return after


def update(folder: Path, check: bool) -> list[str]:
    """Lines that tell what differs, with --check; otherwise pages and plots are written. Raises Disagreement."""
    before = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}
    after = rewritten(before, contents(folder), lambda name: headline(folder / name))
    plots = [path.with_suffix(".svg") for kind in _PLOTS for path in sorted(folder.glob(f"{kind}*.json"))]
    if check:
        missing = [f"{plot.name} is not there" for plot in plots if not plot.exists()]
        return missing + [line for page, text in before.items() for line in _differences(page, text, after[page])]
    for plot in plots:
        data = plot.with_suffix(".json")
        next(draw for kind, draw in _PLOTS.items() if data.name.startswith(kind))(data)
    for page, text in after.items():
        if text != before[page]:
            write_atomically(folder / page, text)
    return []


def _differences(page: str, before: str, after: str) -> list[str]:
    return list(difflib.unified_diff(before.splitlines(), after.splitlines(), page, "files", lineterm=""))


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="print the tables of these files")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit code 1 where pages and files disagree"
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the pages and the files are")
    given = parser.parse_args(words)
    try:
        if given.files:
            print("\n\n".join(_of_kind(path)(path) for path in given.files))
            return 0
        differences = update(given.folder, given.check)
    except (AdvisorError, Disagreement) as problem:
        sys.exit(f"{problem}")
    if differences:
        print("\n".join(differences))
    return 1 if differences else 0


def _of_kind(path: Path) -> Callable[[Path], str]:
    for begin, make in KINDS.items():
        if path.name.startswith(begin):
            return make
    raise Disagreement(f"{path.name}: files are called {', '.join(f'{begin}NAME.json' for begin in KINDS)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
