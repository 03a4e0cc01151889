"""What a deduplication says at its end."""

from __future__ import annotations

from typing import Any

from tamis.cli.terminal.show import count, print_lines, print_table
from tamis.sizes import format_size


def print_summary(about: dict[str, Any], result: Any) -> None:
    if "n_segments" in about:
        joined = f"{about['n_segments']:,} segments are {about['n_documents']:,} documents"
        print_lines([f"{joined}, {about['seconds']:.1f} s", f"output: {about['output']}"])
        return
    n, gone = about["n_documents"], about["n_duplicates"]
    if about["status"] == "already":
        print_lines(
            [f"finished earlier, nothing to do: {gone:,} of {n:,} documents are duplicates (--fresh starts over)"]
        )
        return
    rows = [("documents", f"{n:,}"), ("duplicates", f"{gone:,} ({gone / n:.1%})" if n else "0")]
    if "n_similar" in about:
        rows += [("  equal texts", f"{about['n_equal']:,}"), ("  similar texts", f"{about['n_similar']:,}")]
    if about.get("n_without_number"):
        rows.append(("without a number to be kept by", f"{about['n_without_number']:,}"))
    if "n_indexed" in about:
        rows.append(("  of documents in the index", f"{about['n_duplicates_of_indexed']:,}"))
        rows.insert(1, ("documents in the index", f"{about['n_indexed']:,}"))
    if "n_ids" in about:
        rows.append(("ids listed", f"{about['n_ids']:,}"))
    if "n_groups" in about:
        rows += [
            ("groups", f"{about['n_groups']:,}"),
            ("largest group", f"{about['largest_group']:,}"),
            ("without text", f"{about['n_without_text']:,}"),
        ]
    for name in ("hashed_on", "sketched_on"):
        if name in about:
            rows.append((name.replace("_", " "), about[name]))
    if "backend" in about:
        rows.append(("compared on", f"{about['backend']} ({about['backend_why']})"))
    if about.get("n_components"):
        rows.append(
            ("components before verification", f"{about['n_components']:,}, largest {about['largest_component']:,}")
        )
    if about.get("n_heavy_buckets"):
        rows.append(
            ("buckets above 100,000 documents", f"{about['n_heavy_buckets']:,}, largest {about['largest_bucket']:,}")
        )
    _print("Duplicates", rows, about, result, "duplicates")


def _print(title: str, rows: list[tuple[str, str]], about: dict[str, Any], result: Any, listed: str) -> None:
    """Print the table, the resources used, the location of the output, and where the results are `listed`."""
    from tamis.hints import command

    n_aside, n_ranges = about.get("n_quarantined", 0), about.get("n_bad_ranges", 0)
    rows += [("quarantined", f"{n_aside:,}")] if n_aside else []
    rows += [("stretches that could not be read", f"{n_ranges:,}")] if n_ranges else []
    print_table(title, ["", ""], rows, right=(1,))
    memory, scratch = format_size(about["peak_bytes"]), format_size(about["scratch_bytes"])
    lines = [f"{about['seconds']:.1f} s, peak memory {memory}, scratch {scratch}"]
    if result.run is not None:
        written = f"{count(result.run.ledger.written.n, 'document')} in {count(result.run.n_files, 'file')}"
        lines.append(f"output: {about['output']} ({written})")
    lines.append(f"{listed}: {about['duplicates']}")
    print_lines([*lines, *([f"quarantine: {command('quarantine', about['output'])}"] if n_aside or n_ranges else [])])


def described(result: Any) -> dict[str, Any]:
    """Return what a summary reports in addition to the counts of the decision."""
    about: dict[str, Any] = {"unit": result.counted.removesuffix("s")}
    if result.run is not None:
        book = next(b for b in result.run.ledger.stages if b.name == "cut_units")
        about["cut_bytes"] = int(book.metrics.get("bytes_cut", 0))
        about["n_dropped"] = sum(t.n for t in book.dropped.values())
    return about


def print_lines_summary(about: dict[str, Any], result: Any) -> None:
    unit, n, cut = f"{about['unit']}s", about["n_long_enough"], about["n_duplicates"]
    if about["status"] == "already":
        print_lines([f"finished earlier, nothing to do: {cut:,} of {n:,} {unit} repeat others (--fresh starts over)"])
        return
    rows = [
        (unit, f"{about['n_units']:,}"),
        ("  long enough to count", f"{n:,}"),
        ("  repeated, cut" if result.run is not None else "  repeated", f"{cut:,} ({cut / n:.1%})" if n else "0"),
        (f"different {unit} among them", f"{about['n_groups']:,}"),
        ("most frequent one", f"{about['largest_group']:,} times"),
        ("documents", f"{about['n_documents']:,}"),
        (f"  with repeated {unit}", f"{about['n_edited']:,}"),
    ]
    if result.run is not None:
        rows += [
            ("  dropped, too little left", f"{about['n_dropped']:,}"),
            ("text cut", format_size(about["cut_bytes"])),
        ]
    _print(f"Repeated {unit}", rows, about, result, f"most frequent {unit}")
