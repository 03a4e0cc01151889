"""`tamis diff` and `tamis report`: two runs compared, and the page of one run made anew.

Both read run directories only.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from tamis import _satellites
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, Option
from tamis.errors import UsageError

Output = Annotated[str, Argument(help="Output folder of a run, or its run directory.")]


_LABELS = {
    "seconds": "time",
    "peak_bytes": "peak memory",
    "mb_per_s": "speed",
    "records": "documents",
    "read_bytes": "read",
    "written": "documents written",
    "written_bytes": "written",
    "first_output": "time to the first output",
}


def diff(
    first: Annotated[str, Argument(help="Output folder of a run, or its run directory.")],
    second: Annotated[str, Argument(help="That of another run over the same input.")],
    as_html: Annotated[
        bool, Option("--html", help="Write a page with both runs side by side: diff.html of the second run directory.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Show which documents changed their verdict between two runs over the same input, and by which rules.

    Settings that differ between the runs are listed, too, and the figures of both.

    Example: tamis diff clean/ clean-strict/
    """
    from tamis.cli.terminal.show import print_json, print_lines, print_table
    from tamis.observe.diff import compare
    from tamis.observe.gpu_figures import shown
    from tamis.observe.verdicts import run_folder
    from tamis.sizes import format_size

    differences = compare(first, second)
    if as_html:
        path = Path(_satellites.load("report.compare")(run_folder(first), run_folder(second), differences))
        print_json({"page": str(path), **asdict(differences)}) if as_json else print_lines([str(path)])
        return
    if as_json:
        print_json(asdict(differences))
        return
    lines = [f"different: {sentence}" for sentence in differences.settings] or [
        "the same stages with the same settings"
    ]
    lines = [*differences.remarks, *lines]
    for paths, which in ((differences.only_first, "first"), (differences.only_second, "second")):
        if paths:
            lines.append(f"left out: {len(paths):,} files that only the {which} run read, such as {paths[0]}")
    print_lines(lines)
    if differences.changes:
        rows = [
            (c.before, c.after, f"{c.n_documents:,}", format_size(c.n_bytes), ", ".join(c.examples))
            for c in differences.changes
        ]
        print_table(
            "Changed verdicts", ["first run", "second run", "documents", "bytes", "such as"], rows, right=(2, 3)
        )
    else:
        print_lines(["no document changed its verdict"])
    print_lines([f"{differences.n_same:,} documents were dropped by the same rule in both"])
    went = [
        (
            _LABELS.get(f.name, f.name.replace("_", " ")),
            *("-" if v is None else shown(f.name, v) for v in (f.before, f.after)),
        )
        for f in differences.figures
    ]
    print_table("Figures", ["", "first run", "second run"], went, right=(1, 2))


def report(output: Output, as_json: options.AsJson = False) -> None:
    """Write report.html of a run anew from its run directory: during the run, after it, or on another machine.

    Example: tamis report clean/
    """
    from tamis.cli.terminal.show import print_json, print_lines
    from tamis.observe.passes import looked_only
    from tamis.observe.verdicts import run_folder

    if (table := looked_only(output)) is not None:
        raise UsageError(
            f"{output}: this run only looked for duplicates; the table of them is in {table}, and there is no report "
            "of documents that went"
        )
    folder = str(run_folder(output))
    try:
        path = Path(_satellites.load("report.write")(folder))
    except OSError as exc:
        raise UsageError(
            f"cannot write to {folder}: {exc.strerror or exc}; copy it to where you may write, and name the copy"
        ) from exc
    if as_json:
        print_json({"report": str(path), "bytes": path.stat().st_size})
    else:
        print_lines([str(path)])
