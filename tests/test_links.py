"""Links of all Markdown files lead somewhere: to a file or folder of the repository, and to a heading where they name one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOPS = ("advisor", "benchmarks", "constraints", "docs", "profiles", "search_spaces", "tests", "tools")
PAGES = sorted([*ROOT.glob("*.md"), *(path for top in TOPS for path in (ROOT / top).rglob("*.md"))])
INDEX = ROOT / "docs" / "evidence" / "README.md"
# Between fences, indented after an empty line (a list's lines are indented too), or between backticks.
_CODE = re.compile(r"^```.*?^```$|(?<=\n\n)(?: {4}[^\n]*\n?)+|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.MULTILINE)


def anchors(text):
    """As GitHub makes them: lower case, without punctuation, blanks as hyphens; repeated ones are counted."""
    found = []
    for title in _HEADING.findall(re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        found.append(re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-"))
    return {f"{name}-{found[:at].count(name)}" if name in found[:at] else name for at, name in enumerate(found)}


def broken(page):
    wrong = []
    for link in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert broken(page) == []


def test_the_index_of_the_evidence_names_every_section():
    index = set(_LINK.findall(INDEX.read_text(encoding="utf-8")))
    for page in INDEX.parent.glob("*.md"):
        for title in re.findall(r"^## .+$", page.read_text(encoding="utf-8"), re.MULTILINE):
            [anchor] = anchors(title)
            assert f"{page.name}#{anchor}" in index, f"{page.name}: {title}"


def test_links_that_lead_nowhere_are_found(tmp_path):
    (tmp_path / "other.md").write_text("# One `thing`: a, b\n\n## Twice\n\n## Twice\n\n```\n# no heading\n```\n")
    good = "[a](other.md) [b](other.md#one-thing-a-b) [c\nd](other.md#twice-1) [e](https://x.org/gone) [f](#here) `[g](gone)`"
    bad = ["gone.md", "other.md#gone", "other.md#twice-2", "other.md#no-heading", "#nowhere"]
    page = tmp_path / "page.md"
    code = "    [h](gone)\n    [i](gone)\n\n```\n[j](gone)\n```\n"
    page.write_text(f"# Here\n\n{good}\n\n{code}\n- a list\n  - of\n    " + "\n    ".join(f"[x]({link})" for link in bad))
    assert broken(page) == bad
