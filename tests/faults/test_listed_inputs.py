"""What lies in the input folder beside plain files: links, pipes, odd names, other formats, the output itself."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.backends.local import InProcessExecutor
from tamis.cli.main import app
from tamis.dedup.exact.workflow import RemoveExactDuplicates
from tamis.errors import RunConflict
from tamis.formats.input_files.skipped import SkippedEntry
from tamis.formats.parquet.format import open_file
from tests.faults.fault_harness import (
    assert_conserved,
    document,
    documents,
    execute,
    ids_of,
    manifest,
    outputs,
    quarantine,
    write_lines,
)
from tests.support.cli_runner import CliRunner
from tests.support.command import tamis
from tests.support.run_dirs import run_dir_path

STRANGE = os.fsdecode(b"b\xff\xfe.jsonl")
STRANGE_TABLE = os.fsdecode(b"t\xfd.Parquet")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """80 documents in files that are read, and one of everything that is not."""
    data = tmp_path / "data"
    write_lines(data / "A.JSONL", documents(20))
    write_lines(tmp_path / "elsewhere" / "deep" / "l.jsonl", documents(20, 20))
    (data / "link").symlink_to("../elsewhere")
    (data / "link" / "loop").symlink_to(data)
    (data / "z.jsonl.GZ").write_bytes(gzip.compress(b"\n".join([*documents(10, 40), b"{bad"])))
    write_lines(data / STRANGE, [*documents(10, 50), b"{bad too"])
    texts = [json.loads(document(i))["text"] for i in range(60, 80)]
    pq.write_table(pa.table({"id": list(range(60, 80)), "text": texts}), tmp_path / "t")
    os.rename(tmp_path / "t", data / STRANGE_TABLE)
    write_lines(data / "x.jsonl.lz4", documents(1))
    write_lines(data / ".hidden.jsonl", documents(1))
    os.mkfifo(data / "pipe.jsonl")
    return data


def reasons(entries: list[SkippedEntry]) -> dict[str, int]:
    return {e.reason.partition(":")[0].partition(",")[0]: e.n for e in entries}


PASSED = {"ends in .lz4": 1, "hidden": 1, "no regular file": 1, "a link to a folder that is read under another name": 1}


def test_everything_is_read_or_named_and_the_output_may_lie_within(folder: Path) -> None:
    out = folder / "out"
    settings = {"quarantine_limit": 1.0}
    first = execute(folder, out, local=False, settings=settings, blocksize="8KiB")
    assert_conserved(first)
    assert (first.exit_code, sorted(ids_of(out))) == (0, list(range(80)))
    assert reasons(first.skipped_files) == PASSED
    assert [SkippedEntry(**e) for e in manifest(out)["skipped_files"]] == first.skipped_files
    assert {os.path.basename(e["file"]) for e in quarantine(out)} == {"z.jsonl.GZ", STRANGE}
    for path in (run_dir_path(out)).rglob("*.json*"):  # what programs read must be UTF-8
        path.read_bytes().decode("utf-8")
    # A run that was killed, and one that was finished: the same command again finds the same input.
    (run_dir_path(out) / "manifest.json").unlink()
    again = execute(folder, out, local=False, settings=settings)
    assert (again.status, again.ledger.written.n) == ("finished", 80)
    assert reasons(again.skipped_files) == {**PASSED, "the output of this run": 1}
    assert execute(folder, out, local=False, settings=settings).status == "already"
    other = execute(folder, folder / "out2", local=False, settings=settings)
    assert other.ledger.written.n == 80
    assert reasons(other.skipped_files) == {**PASSED, "the output of a Tamis run": 1}


def test_the_command_line_reports_what_was_skipped(folder: Path) -> None:
    told = tamis("filter", "c4", folder, folder / "out", "--memory", "512MB", "--quarantine-limit", "100%")
    assert told.exit_code == 0, told.output
    assert "ends in .lz4, a compression that is not read" in told.stdout
    assert str(folder / "x.jsonl.lz4") in told.stdout
    page = (run_dir_path(folder / "out") / "report.html").read_text()
    assert "Skipped, not read" in page
    assert str(folder / "pipe.jsonl") in page
    inspected = CliRunner().invoke(app, ["inspect", str(folder)])
    assert (inspected.exit_code, "no regular file" in inspected.output) == (0, True)
    (folder / "dead.jsonl").symlink_to("nowhere")
    told = tamis("filter", "c4", folder, folder / "out", "--memory", "512MB")
    assert told.exit_code == 2
    assert f"{folder / 'dead.jsonl'}: a link to nothing" in told.stderr


def test_deduplication_with_names_that_are_not_utf8(tmp_path: Path) -> None:
    data = tmp_path / os.fsdecode(b"data\xfc")
    write_lines(data / "a.jsonl", documents(20))
    write_lines(data / STRANGE, documents(30))
    texts = [json.loads(document(i))["text"] for i in range(40)]
    pq.write_table(pa.table({"id": list(range(40)), "text": texts}), tmp_path / "t")
    os.rename(tmp_path / "t", data / STRANGE_TABLE)
    write_lines(data / "not.txt", documents(1))
    out = data / "out"
    workflow = RemoveExactDuplicates(str(out), str(data), max_source_loss=1)
    result = workflow.run(InProcessExecutor(), memory="512MB")
    assert (result.n_documents, result.n_duplicates, len(ids_of(out))) == (90, 50, 40)
    skipped = [SkippedEntry(**entry) for entry in result.summary["skipped_files"]]
    assert reasons(skipped) == {"ends in .txt": 1, "the output of this run": 1}
    (table,) = [open_file(p).read().to_pylist() for p in (run_dir_path(out) / "duplicates").iterdir()]
    assert {r["path"].rpartition("/")[2] for r in table} == {"b%FF%FE.jsonl", "t%FD.Parquet"}
    assert workflow.run(InProcessExecutor(), memory="512MB").status == "already"


@pytest.mark.parametrize("fresh", [False, True])
def test_input_inside_the_output_is_refused_before_anything_is_removed(tmp_path: Path, fresh: bool) -> None:
    write_lines(tmp_path / "in" / "a.jsonl", documents(20))
    clean = tmp_path / "clean"
    execute(tmp_path / "in", clean, local=False)
    (before,) = outputs(clean)
    with pytest.raises(RunConflict, match="output folder"):
        execute(clean, clean, local=False, settings={"fresh": fresh})
    for find_only in (True, False):
        workflow = RemoveExactDuplicates(str(clean), str(clean), perform_removal=not find_only)
        with pytest.raises(RunConflict, match="output folder"):
            workflow.run(InProcessExecutor(), memory="512MB", fresh=fresh)
    assert outputs(clean) == [before]
    assert len(ids_of(clean)) == 20
