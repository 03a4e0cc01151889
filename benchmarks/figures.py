"""Figures as they are measured: printed while they come, and written as the table of a page in docs/."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs/explanation"
GPU_SECTION = "\n## On a GPU\n"  # of a page: measured elsewhere, kept when the rest is written anew
ROWS: list[tuple[str, str, str, str]] = []  # part, what, figure, verdict


def note(part: str, what: str, figure: str, ok: bool | None = None) -> None:
    """`ok`: whether a goal was reached; None where there is none."""
    verdict = "" if ok is None else "yes" if ok else "NO"
    ROWS.append((part, what, figure, verdict))
    print(f"{part:12s} {what:70s} {figure:60s} {verdict}", flush=True)


def exit_code() -> int:
    """1 where a goal was missed."""
    return 1 if any(row[3] == "NO" for row in ROWS) else 0


def table(rows: Iterable[Sequence[str]]) -> list[str]:
    head = ["| part | what | measured | kept |", "|---|---|---|---|"]
    return [*head, *(f"| {a} | {b} | {c} | {d} |" for a, b, c, d in rows)]


def write_page(name: str, lines: Iterable[str]) -> None:
    (DOCS / name).write_text("\n".join(lines).rstrip() + "\n")


def write_above_gpu(name: str, lines: Iterable[str]) -> None:
    """As `write_page`, but what the page has under "On a GPU" stays."""
    _, mark, rest = (DOCS / name).read_text().partition(GPU_SECTION)
    write_page(name, ["\n".join(lines).rstrip(), *([mark.rstrip() + "\n" + rest.rstrip()] if mark else [])])


def put_rows(name: str, rows: Sequence[Sequence[str]]) -> None:
    """Put rows of one part into the table of a page that is there, in the place of those that it has of this part."""
    page = DOCS / name
    if rows and page.exists():
        part = rows[0][0].partition(",")[0]
        left = [line for line in page.read_text().splitlines() if not line.startswith(f"| {part}")]
        page.write_text("\n".join([*left, *table(rows)[2:]]) + "\n")


def run_parts(
    about: str | None, parts: Mapping[str, Callable[[bool], None]], out: Path, write: Callable[[], None]
) -> int:
    """Run the command line of a benchmark whose parts only distinguish quick and full.

    `write` is called when all of it ran in full.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=sorted(parts), action="append")
    args = parser.parse_args()
    out.mkdir(parents=True, exist_ok=True)
    os.environ["TAMIS_PROFILES"] = "off"
    for name, part in parts.items():
        if not args.only or name in args.only:
            part(args.quick)
    shutil.rmtree(out, ignore_errors=True)
    if not args.only and not args.quick:
        write()
    return exit_code()
