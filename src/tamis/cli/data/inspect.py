"""`tamis inspect`: what is in these files? From a bounded sample; `sampling.py` looks, this file prints."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Annotated, Any

from tamis.cli.parsing.arguments import Argument, Option

if TYPE_CHECKING:
    from tamis.cli.data.sampling import DataSample, FileSample

_MAX_FILES_SHOWN = 20
_MAX_BAD_SHOWN = 20
_CONTENT = "content"  # the field of a record that HtmlExtract reads


def inspect(
    paths: Annotated[list[str], Argument(metavar="PATHS...", help="Files, folders or quoted globs.")],
    sample_mb: Annotated[
        float, Option(min=0.1, help="How many MB (uncompressed) to read from all files together.")
    ] = 16,
    max_files: Annotated[int, Option(min=1, help="Look into at most so many files, spread evenly over all.")] = 64,
    text_field: Annotated[str, Option(help="The field whose text lengths are shown.")] = "text",
    tokenizer: Annotated[
        str | None,
        Option(
            metavar="FOLDER",
            help="Also count the tokens of the sampled texts, by the tokenizer in this folder, and estimate those of "
            "all documents.",
        ),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print one JSON document instead of tables.")] = False,
) -> None:
    """Show what is in files, from a sample: formats, sizes, number of documents, fields, text lengths and bad lines.

    Reads JSONL (plain or compressed), Parquet and Arrow files: the beginning of each, and a few other places that are
    the same every time. Of WARC files the first records: how many of each kind, and the fields of those that are
    documents. A number of documents with ~ is an estimate, because the file was not read as a whole.

    Example: tamis inspect data/ --sample-mb 64
    """
    from dataclasses import asdict

    from tamis.cli.data.sampling import SUFFIXES, take_sample
    from tamis.cli.terminal.show import print_json, print_lines
    from tamis.formats.input_files.listing import list_files
    from tamis.formats.input_files.skipped import skipped_lines
    from tamis.stages.text.tokens.tokenizer import text_counter

    files = list_files(paths, SUFFIXES)
    counter = None if tokenizer is None else text_counter(tokenizer)
    sample = take_sample(files.paths, list(files.sizes), int(sample_mb * 1e6), text_field, max_files, counter)
    if as_json:
        print_json({**as_dict(sample), "skipped_files": [asdict(entry) for entry in files.skipped.entries()]})
    else:
        _print_files(sample)
        _print_records(sample)
        _print_fields(sample)
        _print_lengths(sample)
        _print_tokens(sample)
        _print_bad(sample)
        print_lines(skipped_lines(files.skipped.entries()))


def as_dict(sample: DataSample) -> dict[str, Any]:
    """Return the sample as plain JSON values."""
    lengths = sample.text_lengths
    return {
        "files": [dict(vars(field_sample)) for field_sample in sample.files],
        "n_sampled": sample.n_documents,
        **({"records": dict(sample.records)} if sample.records else {}),
        "fields": [
            {
                "name": name,
                "types": dict(field_sample.types),
                "share": round(field_sample.n_present / sample.n_documents, 4) if sample.n_documents else 0.0,
                "example": field_sample.example,
            }
            for name, field_sample in sample.fields.items()
        ],
        "n_fields_left_out": sample.n_fields_left_out,
        "text_field": sample.text_field,
        "text_chars": {
            "n": len(lengths),
            "min": min(lengths, default=0),
            "median": statistics.median(lengths) if lengths else 0,
            "mean": round(statistics.fmean(lengths), 1) if lengths else 0,
            "max": max(lengths, default=0),
            "histogram": [{"from": low, "below": high, "n": n} for low, high, n in sample.histogram()],
        },
        **({"tokens": _tokens(sample)} if sample.count_tokens is not None else {}),
        "n_blank_lines": sample.n_blank,
        "n_bad_lines": sample.n_bad,
        "bad_lines": [dict(vars(bad)) for bad in sample.bad_lines],
    }


def _tokens(sample: DataSample) -> dict[str, Any]:
    """Return the tokens of the sampled texts, and an estimate of those of all documents if their number is known."""
    n_all = sum(s.n_documents or 0 for s in sample.files)
    is_known = sample.n_documents > 0 and all(s.n_documents is not None for s in sample.files)
    return {
        "sampled": sample.n_tokens,
        "bytes_per_token": round(sample.n_token_bytes / max(1, sample.n_tokens), 3),
        "chars_per_token": round(sample.n_token_chars / max(1, sample.n_tokens), 3),
        "estimated": round(sample.n_tokens * n_all / sample.n_documents) if is_known else None,
    }


def _print_tokens(sample: DataSample) -> None:
    from tamis.cli.terminal.show import print_lines

    if sample.count_tokens is None:
        return
    tokens = _tokens(sample)
    line = f"Tokens: {tokens['sampled']:,} in the sample, {tokens['bytes_per_token']} bytes each"
    print_lines([line if tokens["estimated"] is None else f"{line}; about {tokens['estimated']:,} in all documents"])


def _print_files(sample: DataSample) -> None:
    from tamis.cli.terminal.show import count, print_lines, print_table
    from tamis.sizes import format_size

    shown = sorted(sample.files, key=lambda samples: (not samples.fault, -samples.size_bytes))[:_MAX_FILES_SHOWN]
    rows: list[tuple[str, ...]] = [
        (s.path, s.format, format_size(s.size_bytes), format_size(s.sampled_bytes), _documents(s)) for s in shown
    ]
    columns = ["file", "format", "size", "sampled", "documents"]
    if any(s.fault for s in shown):
        columns.append("fault")
        rows = [(*row, s.fault) for row, s in zip(rows, shown, strict=True)]
    print_table("Files", columns, rows, right=(2, 3, 4))
    n_known = sum(s.n_documents or 0 for s in sample.files)
    n_unknown = sum(s.n_documents is None for s in sample.files)
    is_exact = not n_unknown and all(s.is_exact for s in sample.files)
    total = f"{count(len(sample.files), 'file')}, {format_size(sum(s.size_bytes for s in sample.files))}, "
    total += f"{'' if is_exact else 'about '}{count(n_known, 'document')}"
    print_lines(
        [total + (f" without the {count(n_unknown, 'file')} that could not be looked into" if n_unknown else "")]
    )
    if len(sample.files) > len(shown):
        print_lines([f"({count(len(sample.files) - len(shown), 'file')} not shown; --json lists all)"])


def _documents(seen: FileSample) -> str:
    if seen.n_documents is None:
        return "?"
    return f"{'' if seen.is_exact else '~'}{seen.n_documents:,}"


def _print_records(sample: DataSample) -> None:
    from tamis.cli.terminal.show import count, print_table

    if sample.records:
        rows = [(kind, f"{n:,}") for kind, n in sample.records.most_common()]
        title = f"Kinds of {count(sum(sample.records.values()), 'sampled record')}"
        print_table(title, ["kind", "records"], rows, right=(1,))


def _print_fields(sample: DataSample) -> None:
    from tamis.cli.terminal.show import clip, count, print_lines, print_table

    rows = []
    for name, field_sample in sample.fields.items():
        total = max(sum(field_sample.types.values()), 1)
        types = ", ".join(
            kind if n == total else f"{kind} {n / total:.1%}" for kind, n in field_sample.types.most_common()
        )
        share = f"{field_sample.n_present / sample.n_documents:.1%}" if sample.n_documents else "-"
        rows.append((name, types, share, clip(field_sample.example or "", 60)))
    print_table(
        f"Fields of {count(sample.n_documents, 'sampled document')}",
        ["field", "types", "in", "example"],
        rows,
        right=(2,),
    )
    if sample.n_fields_left_out:
        print_lines(
            [f"more than {len(sample.fields):,} different fields; {sample.n_fields_left_out:,} values were left out"]
        )


def _why_no_text(sample: DataSample) -> str:
    if sample.records and _CONTENT in sample.fields and sample.text_field == "text":
        return (
            f"No texts yet: the pages of WARC records are in {_CONTENT!r}, and commands that need texts extract them "
            f"with HtmlExtract. For the lengths of pages: --text-field {_CONTENT}"
        )
    return f"No text in the field {sample.text_field!r}; name another one with --text-field."


def _print_lengths(sample: DataSample) -> None:
    from tamis.cli.terminal.show import bar, print_lines, print_table

    if not sample.text_lengths:
        print_lines([_why_no_text(sample)])
        return
    classes = sample.histogram()
    most = max(n for _, _, n in classes)
    used = [i for i, (_, _, n) in enumerate(classes) if n]
    rows = [
        (f"{low:,} - {high - 1:,}" if high else f"{low:,} and more", f"{n:,}", bar(n / most))
        for low, high, n in classes[used[0] : used[-1] + 1]
    ]
    print_table(f"Characters in {sample.text_field!r}", ["characters", "documents", ""], rows, right=(0, 1))
    lengths = sample.text_lengths
    print_lines(
        [f"shortest {min(lengths):,}, median {statistics.median(lengths):,.0f}, longest {max(lengths):,} characters"]
    )


def _print_bad(sample: DataSample) -> None:
    from tamis.cli.terminal.show import clip, count, print_lines, print_table

    if sample.bad_lines:
        rows = [
            (b.path, f"{b.offset:,}", f"{b.n_bytes:,}", clip(b.reason, 80)) for b in sample.bad_lines[:_MAX_BAD_SHOWN]
        ]
        print_table("Bad lines", ["file", "offset", "bytes", "reason"], rows, right=(1, 2))
    print_lines([f"In the sample: {count(sample.n_bad, 'bad line')}, {count(sample.n_blank, 'blank line')}."])
