"""The form of the documentation: links and anchors resolve, every page is in the index, paragraphs are short.

Covers what can be checked without Sphinx; `make docs` builds the site with warnings as errors. What the pages show is
executed by test_docs.py.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
_FENCE = re.compile(r"^( *)(```+|:::+).*?^\1\2$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_SOURCE = re.compile(r"""<img [^>]*?src="([^"]+)""")
# Written by programs from measurements or docstrings; their sentences are checked where they come from.
GENERATED = ("cli.md", "filters.md", "stages.md", "metrics.md", "datatrove.md", "benchmarks-")
MAX_LINES, COLUMNS = 5, 100
MAX_IMAGE_BYTES = 150_000


def prose(page: Path) -> str:
    """Return the page without fenced blocks and HTML comments."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)


def without_code(text: str) -> str:
    return re.sub(r"`+[^`\n]*`+", "``", text)


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings, as GitHub and MyST name them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def links(page: Path) -> list[str]:
    text = without_code(prose(page))
    return _LINK.findall(text) + _SOURCE.findall(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_of_a_page_resolve(page: Path) -> None:
    for link in links(page):
        assert not re.match(r"https?:|/", link), f"{page}: {link}: links to pages and files are relative"
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page}: {link}"
        assert path.is_relative_to(ROOT), f"{page}: {link}"
        if anchor:
            assert anchor in anchors(path), f"{page}: {link}: no such heading"


def toctree(page: Path) -> list[Path]:
    """Return the pages that the toctrees of a page list."""
    blocks = re.findall(r"^```\{toctree\}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names = [line for block in blocks for line in block.splitlines() if line and not line.startswith(":")]
    return [page.parent / f"{name}.md" for name in names]


def test_every_page_is_in_the_index_once() -> None:
    listed, queue = [DOCS / "index.md"], [DOCS / "index.md"]
    while queue:
        below = toctree(queue.pop())
        listed += below
        queue += below
    assert sorted(listed) == sorted(DOCS.rglob("*.md"))


def test_the_index_links_to_every_page_of_its_groups() -> None:
    linked = {(DOCS / link).resolve() for link in links(DOCS / "index.md")}
    assert set(toctree(DOCS / "index.md")) <= linked


def paragraphs(page: Path) -> list[str]:
    """Return paragraphs and list items, each on one line."""
    blocks, block = [], ""
    for line in [*prose(page).splitlines(), ""]:
        bare = line.strip()
        if not bare or bare.startswith(("#", "|", "<")):
            blocks.append(block)
            block = ""
        elif re.match(r"([-*]|\d+\.) ", bare):
            blocks.append(block)
            block = bare
        else:
            block = f"{block} {bare}".strip()
    return [b for b in blocks if b]


@pytest.mark.parametrize(
    "page",
    [p for p in [ROOT / "README.md", *DOCS.rglob("*.md")] if not p.name.startswith(GENERATED)],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_paragraphs_are_short(page: Path) -> None:
    for paragraph in paragraphs(page):
        shown = _LINK.sub(lambda m: m[0][1 : m[0].index("]")], paragraph)
        assert len(textwrap.wrap(shown, COLUMNS)) <= MAX_LINES, shown


@pytest.mark.parametrize("page", sorted(DOCS.glob("guides/*.md")), ids=lambda p: p.name)
def test_a_guide_begins_with_an_example(page: Path) -> None:
    head = page.read_text(encoding="utf-8").split("\n## ")[0]
    assert re.search(r"^```", head, re.MULTILINE), "a block before the second heading"


def test_pictures_are_used_and_of_moderate_size() -> None:
    used = {(page.parent / link).resolve() for page in PAGES for link in links(page)}
    for picture in (DOCS / "images").iterdir():
        assert picture in used, f"no page shows {picture.name}"
        assert picture.stat().st_size <= MAX_IMAGE_BYTES, picture.name
