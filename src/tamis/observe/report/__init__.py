"""report.html: what a run did, as one self-contained page (nothing is loaded from elsewhere).

`report.json` next to it has the totals and what was dropped, for programs.

Reads the run directory only (facts.py). Everything in there is treated as hostile text and escaped. Parts that are
missing or damaged are named on the page; only a missing run directory is an error. The page stays below `MAX_BYTES`
(page.py), whatever the run holds.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tamis import files
from tamis.engine.ledger import Ledger
from tamis.errors import TamisError
from tamis.observe.report.facts import Facts, gather
from tamis.observe.report.page import render

__all__ = ["Facts", "as_dict", "gather", "render", "write_report"]


def write_report(run_dir: str | os.PathLike[str]) -> Path:
    """Write report.html and report.json into the run directory, each whole or not at all.

    Returns the path of the page.
    """
    folder = Path(run_dir)
    if not folder.is_dir():
        raise TamisError(f"{folder} is not a run directory; give that of an output")
    facts = gather(folder)
    _write(folder / "report.json", files.json_lines(as_dict(facts)) + "\n")
    return _write(folder / "report.html", render(facts))


def _write(path: Path, text: str) -> Path:
    files.write_text(path, text, files.OWN, sync=False)
    return path


def _totals(ledger: Ledger | None, n_duplicates: int | None) -> dict[str, int | None]:
    """Return the totals of a run; null while there is no ledger."""
    return {
        "n_records": None if ledger is None else ledger.n_read,
        "n_written": None if ledger is None else ledger.written.n,
        "n_dropped": None if ledger is None else ledger.n_dropped,
        "n_duplicates": n_duplicates,
        "n_quarantined": None if ledger is None else ledger.quarantined.n,
        "written_bytes": None if ledger is None else ledger.written_bytes,
    }


def as_dict(facts: Facts) -> dict[str, Any]:
    """Return totals and drops as plain JSON values; counts are null until the run has finished."""
    ledger, manifest, record = facts.ledger, facts.run.manifest, facts.run.record
    counts = None if record is None else record.counts
    return {
        "status": "not finished" if manifest is None else manifest.status,
        "exit_code": None if manifest is None else manifest.exit_code,
        "message": "" if manifest is None else manifest.message,
        **({} if record is None else record.cost()),
        "problems": facts.problems,
        **_totals(ledger, None if counts is None else counts.duplicates),
        "passes": [] if record is None else [asdict(p) for p in record.passes],
        "drops": [d.to_dict() for d in facts.drops],
        "skipped_files": [asdict(p) for p in facts.skipped_files],
    }
