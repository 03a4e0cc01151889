"""FileSpans of files: what is read and copied equals the same bytes taken from the whole files."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from tamis.errors import FormatError, StoreError
from tamis.formats.jsonl import file_spans
from tamis.formats.jsonl.file_spans import FileSpan, FileSpans
from tamis.stores.reading import Changed


def _files(folder: Path, lines: list[list[bytes]]) -> tuple[FileSpans, bytes]:
    """Return a span of each file: everything but its first line, up to its last one but one."""
    parts, whole = [], b""
    for i, some in enumerate(lines):
        path = folder / f"{i}.jsonl"
        path.write_bytes(b"".join(some))
        info = path.stat()
        start, end = len(some[0]), info.st_size - len(some[-1])
        parts.append(FileSpan(str(path), start, end, (info.st_size, info.st_mtime_ns)))
        whole += b"".join(some[1:-1])
    return FileSpans(parts), whole


def _runs(whole: bytes, chosen: random.Random, share: float) -> list[tuple[int, int]]:
    """Return some of the lines, those that follow each other together."""
    runs: list[tuple[int, int]] = []
    at = 0
    for line in whole.split(b"\n")[:-1]:
        end = at + len(line) + 1
        if chosen.random() < share:
            if runs and runs[-1][1] == at:
                runs[-1] = (runs[-1][0], end)
            else:
                runs.append((at, end))
        at = end
    return runs


@pytest.mark.parametrize("window", [64, 300, 1 << 18])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.97, 1.0])
def test_runs_are_copied_whatever_the_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int, share: float
) -> None:
    monkeypatch.setattr(file_spans, "WINDOW_BYTES", window)
    chosen = random.Random(window)
    lines = [[chosen.randbytes(chosen.randint(0, 200)).replace(b"\n", b".") + b"\n" for _ in range(60)] for _ in "abc"]
    lying, whole = _files(tmp_path, lines)
    assert lying.n_bytes == len(whole)
    for _ in range(5):
        runs = _runs(whole, chosen, share)
        expected = b"".join(whole[a:b] for a, b in runs)
        views = [bytes(view) for view in lying.windows(runs)]
        assert b"".join(views) == expected
        assert all(len(view) <= window for view in views)
        assert lying.gather(runs).tobytes() == expected
        spread = lying.spread(runs)
        assert len(spread) == len(whole)
        assert b"".join(spread[a:b].tobytes() for a, b in runs) == expected
    assert lying.gather([(0, len(whole))]).tobytes() == whole
    assert list(lying.windows([])) == []


def test_a_file_that_changed_is_not_copied(tmp_path: Path) -> None:
    lying, whole = _files(tmp_path, [[b"first\n", b"one\n", b"two\n", b"last\n"]])
    path = tmp_path / "0.jsonl"
    before = path.stat()
    path.write_bytes(b"first\nONE\nTWO\nlast\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    for read in (lambda: lying.gather([(0, len(whole))]), lambda: list(lying.windows([(0, len(whole))]))):
        with pytest.raises(FormatError, match="changed during the run"):
            read()


def test_a_file_that_changes_while_it_is_copied_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_spans, "WINDOW_BYTES", 8)
    lying, whole = _files(tmp_path, [[b"first\n", b"one line\n", b"two lines\n", b"last\n"]])
    copying = lying.windows([(0, len(whole))])
    next(copying)
    with open(tmp_path / "0.jsonl", "ab") as file:
        file.write(b"more\n")
    with pytest.raises(FormatError, match="changed during the run"):
        list(copying)


def test_runs_that_do_not_end_in_a_line_feed_are_refused(tmp_path: Path) -> None:
    """The same size and time, but other lines: what is copied would be parts of records."""
    lying, _ = _files(tmp_path, [[b"first\n", b"one\n", b"two\n", b"last\n"]])
    with pytest.raises(FormatError, match="not where they were found"):
        list(lying.windows([(0, 3)]))


@pytest.mark.parametrize(
    ("fault", "seen", "said"),
    [
        (OSError(errno.EIO, "Input/output error"), FormatError, "0.jsonl cannot be read: Input/output error"),
        (Changed("s3://b/0.jsonl", "it is not the object that was listed"), FormatError, "changed during the run"),
        (StoreError("s3://b does not answer"), StoreError, "does not answer"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), OSError, "Cannot allocate memory"),
    ],
    ids=["bad sector", "another object", "no answer", "no memory"],
)
def test_what_cannot_be_read_is_bad_input_and_no_fault_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: OSError, seen: type[Exception], said: str
) -> None:
    lying, whole = _files(tmp_path, [[b"first\n", b"one\n", b"last\n"]])
    everything = [(0, len(whole))]

    def fail(*_: object) -> int:
        raise fault

    for name in ("read_at", "open_input"):
        with monkeypatch.context() as patched:
            patched.setattr(file_spans, name, fail)
            for read in (lying.gather, lying.spread, lambda runs: list(lying.windows(runs))):
                with pytest.raises(seen, match=said):
                    read(everything)
