"""Records that a pass keeps for later ones: these do not read WARC files again, and account for all that is in them."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis import InProcessExecutor
from tamis.curation import Curation
from tamis.curation.costs import pass_costs
from tamis.curation.steps import ExactDuplicates, FuzzyDuplicates
from tamis.dedup.pass_runner import PassRunner
from tamis.errors import TamisError
from tamis.formats.record_frames import FrameKind, RecordFrame
from tamis.formats.scratch.kept_records import KeptBlock, KeptRange, KeptRecords
from tamis.formats.warc import format as warc_format
from tamis.stages.base import ProcessingStage
from tamis.stages.text.filters.gopher import GopherQuality
from tamis.stages.text.html import HtmlExtract
from tamis.tasks import DocumentBatch
from tests.support.command import tamis
from tests.support.run_dirs import run_dir_path
from tests.support.warc_files import members, prose, record, response

STATE = (1000, 5)
STORING = "tamis.stages.text.html.text_cache.is_worth_storing"


# -- the files --------------------------------------------------------------------------------------------------------
def kept(start: int, end: int, **more: Any) -> KeptRange:
    """Return a range with a document at every tenth position."""
    at = np.arange(start, end, 10)
    table = pa.table({"url": [f"u{i}" for i in at], "content": pa.nulls(len(at), pa.large_string())})
    identity = (at.astype(np.uint64), at.astype(np.uint64) + np.uint64(7))
    return KeptRange(start, end, table, at, at * 2, at + 100, identity=identity, **more)


def test_ranges_are_read_as_they_were_stored(tmp_path: Path) -> None:
    records = KeptRecords(str(tmp_path), "a.warc.gz", STATE, 100)
    fault = RecordFrame(FrameKind.FAULT, 70, 12, "no record: \udcff".encode("utf-8", "replace"))
    records.store(kept(0, 40, bad=[(15, fault)], skipped={"requests": [5, 25]}), 1000)
    assert not records.spans()  # where it ends is not known
    records.end_at(40)
    (span,) = records.spans()
    assert (span.start, span.end, span.stored_end) == (0, 40, 70)
    assert span.n_bytes > 1000
    found = span.load()
    assert found.table.column("url").to_pylist() == ["u0", "u10", "u20", "u30"]
    assert found.bad == [(15, fault)]
    assert found.skipped == {"requests": [5, 25]}
    block = KeptBlock([found])
    assert block.identity()[1].tolist() == [7, 17, 27, 37]
    assert block.lengths(np.array([1, -1])).tolist() == [110, 0]
    part = span._replace(start=20).load()
    assert (part.positions.tolist(), part.bad, part.skipped) == ([20, 30], [], {"requests": [25]})


def test_ranges_may_overlap_and_what_is_missing_is_named(tmp_path: Path) -> None:
    records = KeptRecords(str(tmp_path), "a.warc.gz", STATE, 100)
    for start, end in ((0, 80), (0, 60), (60, 120), (150, 200)):
        records.store(kept(start, end), 0)
    records.end_at(200)
    gap = [(span.start, span.end) for span in records.spans() if not span.path]
    assert gap == [(120, 150)]
    records.store(kept(100, 160), 0)
    spans = records.spans()
    assert [(span.start, span.end) for span in spans] == [(0, 80), (80, 120), (120, 160), (160, 200)]
    positions = np.concatenate([span.load().positions for span in spans])
    assert positions.tolist() == list(range(0, 200, 10))


def test_another_state_of_the_file_or_limit_is_another_input(tmp_path: Path) -> None:
    records = KeptRecords(str(tmp_path), "a.warc.gz", STATE, 100)
    records.store(kept(0, 10), 0)
    records.end_at(10)
    assert records.spans()
    assert not KeptRecords(str(tmp_path), "a.warc.gz", (1000, 6), 100).spans()
    assert not KeptRecords(str(tmp_path), "a.warc.gz", STATE, 101).spans()
    unknown = KeptRecords(str(tmp_path), "b.warc.gz", None, 100)
    unknown.store(kept(0, 10), 0)
    unknown.end_at(10)
    assert not unknown.spans()


def test_a_range_that_is_damaged_is_an_error(tmp_path: Path) -> None:
    records = KeptRecords(str(tmp_path), "a.warc.gz", STATE, 100)
    records.store(kept(0, 10), 0)
    records.end_at(10)
    (span,) = records.spans()
    Path(span.path).write_bytes(b"ARROW1")
    with pytest.raises(TamisError, match="kept by an earlier pass cannot be read"):
        span.load()


# -- in a curation ----------------------------------------------------------------------------------------------------
def crawl(folder: Path, n: int = 40) -> Path:
    """Write pages: some repeat others or are too short, one nests too deeply, one has no text; and what is no page."""
    folder.mkdir()
    records, texts = [], [prose(random.Random(i)) for i in range(n)]
    for i in range(n):
        html = f"<html><body><main><p>{'too short' if i % 5 == 0 else texts[i - i % 3]}</p></main></body>"
        html = "<div>" * 4000 + "deep" if i == 7 else "<html><body></body>" if i == 8 else html
        records += [record(1000 + i, b"GET / HTTP/1.1\r\n\r\n", "request"), record(i, response(html.encode()))]
    data = b"".join(members(*records))
    (folder / "a.warc.gz").write_bytes(data + b"no record at all" * 10)
    (folder / "b.warc.gz").write_bytes(b"".join(members(*records[:20])))
    return folder


def steps() -> list[Any]:
    rules = GopherQuality(min_doc_words=50)
    return [rules, ExactDuplicates(), FuzzyDuplicates(word_ngrams=5, num_bands=14, minhashes_per_band=8)]


def outcome(output: Path, result: Any) -> dict[str, Any]:
    """Return what users see of a curation, without times."""
    lines = [line for path in sorted(output.glob("*.jsonl")) for line in path.read_text().splitlines()]
    run_dir = run_dir_path(output)
    quarantine = sorted(run_dir.rglob("quarantine/*.jsonl"))
    entries = [json.loads(line) for path in quarantine for line in path.read_text().splitlines()]
    facts = [(e["file"][-9:], e["offset"], e["length"], e["reason"], e["stage"], e.get("raw")) for e in entries]
    ledger = result.run.ledger
    stages = [(b.name, b.into.n, b.out.n, {r: t.n for r, t in b.dropped.items()}) for b in ledger.stages]
    return {
        "lines": lines,
        "quarantine": sorted(facts),
        "stages": stages,
        "records": ledger.records,
        "skipped": ledger.skipped,
        "lost": (ledger.n_bad_ranges, ledger.lost_bytes),
        "hash": ledger.content.identity,
    }


def test_later_passes_read_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = crawl(tmp_path / "in")
    n_decoded: list[int] = []
    whole = warc_format.decode

    def counted(frames: Any, path: str, max_record_bytes: int) -> Any:
        decoded = whole(frames, path, max_record_bytes)
        n_decoded.append(len(decoded.positions))
        return decoded

    monkeypatch.setattr(warc_format, "decode", counted)
    outcomes = []
    for name, is_kept, settings in (
        ("kept", True, {}),
        ("blocks", True, {"blocksize": "4KB"}),
        ("again", False, {}),
    ):
        monkeypatch.setattr(STORING, lambda *_, stored=is_kept: stored)
        n_decoded.clear()
        curation = Curation(steps(), str(source), str(tmp_path / name))
        result = curation.run(InProcessExecutor(), progress=False, quarantine_limit="100%", **settings)
        outcomes.append(outcome(tmp_path / name, result))
        assert sum(n_decoded) == 50 if is_kept else sum(n_decoded) >= 100
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert outcomes[0]["lines"]
    assert outcomes[0]["skipped"] == {"request records": 50}
    assert len(outcomes[0]["quarantine"]) == 3  # two pages that nest too deeply, and what is no record
    assert any("<div><div>" in str(entry[-1]) for entry in outcomes[0]["quarantine"])


@dataclass
class Fails(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Fails on documents with a word in their text."""

    word: str = "poisonous"
    name: str = "fails"

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        if any(self.word in (text or "") for text in batch.texts("text").to_pylist()):
            raise ValueError(f"a text with {self.word}")
        return batch


@pytest.mark.parametrize("pass_that_fails", ["keys-0", "write"])
def test_pages_in_quarantine_do_not_make_later_passes_read_the_files_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pass_that_fails: str
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    texts = [prose(random.Random(i)) for i in range(24)]
    texts[9] += " This is poisonous."
    pages = [f"<html><body><main><p>{text}</p></main></body></html>" for text in texts]
    records = [record(i, response(html.encode())) for i, html in enumerate(pages)]
    (source / "a.warc.gz").write_bytes(b"".join(members(*records)))
    passes: list[str] = []
    decoding: list[str] = []
    execute, decode = PassRunner.execute, warc_format.decode

    def executed(self: PassRunner, pipeline: Any, label: str, *args: Any, **more: Any) -> Any:
        passes.append(label)
        return execute(self, pipeline, label, *args, **more)

    def decoded(*args: Any) -> Any:
        decoding.append(passes[-1])
        return decode(*args)

    monkeypatch.setattr(PassRunner, "execute", executed)
    monkeypatch.setattr(warc_format, "decode", decoded)
    monkeypatch.setattr(STORING, lambda *_: True)
    fails_first = [HtmlExtract(), Fails(), *steps()]
    order = fails_first if pass_that_fails == "keys-0" else [HtmlExtract(), *steps(), Fails()]
    curation = Curation(order, str(source), str(tmp_path / "out"))
    result = curation.run(InProcessExecutor(), progress=False, quarantine_limit="100%", fail_fast=False)
    found = outcome(tmp_path / "out", result)
    assert len(found["lines"]) == 23
    (entry,) = found["quarantine"]
    assert "poisonous" in entry[3]
    assert ("quarantined by an earlier pass" in entry[3]) == (pass_that_fails == "keys-0")  # not tried again
    assert found["records"].n == 24
    assert len(passes) == 3
    assert set(decoding) == {"keys-0"}


def test_what_was_not_kept_is_read_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = crawl(tmp_path / "in", 300)
    decode, n_decoded, n_stored = warc_format.decode, [0], [0]

    def counted(*args: Any) -> Any:
        decoded = decode(*args)
        n_decoded[0] += len(decoded.positions)
        return decoded

    def every_third(*_: Any) -> bool:
        n_stored[0] += 1
        return n_stored[0] % 3 != 1

    monkeypatch.setattr(warc_format, "decode", counted)
    outcomes = []
    for name, is_stored in (("parts", every_third), ("none", lambda *_: False)):
        monkeypatch.setattr(STORING, is_stored)
        n_decoded[0] = 0
        curation = Curation(steps(), str(source), str(tmp_path / name))
        settings: Any = {"progress": False, "quarantine_limit": "100%", "blocksize": "64KiB"}
        outcomes.append((outcome(tmp_path / name, curation.run(InProcessExecutor(), **settings)), n_decoded[0]))
    (parts, n_parts), (none, n_none) = outcomes
    assert parts == none
    assert 310 < n_parts < n_none
    assert n_stored[0] > 6


def test_kept_texts_that_are_gone_are_an_error(tmp_path: Path) -> None:
    stage = HtmlExtract()
    (tmp_path / "texts").mkdir()
    stage.keep_between_passes(str(tmp_path / "texts"))
    block = KeptBlock([kept(0, 30)])
    block.places = (np.zeros(3, np.int32), np.arange(0, 30, 10))
    with pytest.raises(TamisError, match="texts that an earlier pass kept are gone"):
        stage.process(DocumentBatch.over(block, np.arange(3)))


def test_the_plan_says_which_passes_read_what_was_kept(tmp_path: Path) -> None:
    source = crawl(tmp_path / "in", 12)
    plan = Curation(steps(), str(source), str(tmp_path / "out")).plan()
    assert [p.reads for p in plan.passes] == ["the input", "what html_extract kept", "what html_extract kept"]
    whole = Curation([HtmlExtract(keep_content=True), *steps()], str(source), str(tmp_path / "out")).plan()
    assert {p.reads for p in whole.passes} == {"the input"}
    printed = tamis("curate", source, tmp_path / "new", "--preset", "fineweb", "--no-blocklists", "--plan")
    assert "what html_extract kept" in printed.output
    assert "tokens of the input" not in printed.output  # pages have no text yet


def test_passes_that_read_what_was_kept_do_not_cost_the_extraction(tmp_path: Path) -> None:
    source, output = str(crawl(tmp_path / "in", 12)), str(tmp_path / "out")
    kept = Curation(steps(), source, output)
    sizes = kept.sizes()
    assert 6 <= sizes["n_documents"] <= 24  # estimated
    sizes["decoded_bytes"] = 10**9
    seconds = [cost.cpu_s for cost in pass_costs(kept, sizes, 10**9, 2)]
    whole = Curation([HtmlExtract(keep_content=True), *steps()], source, output)
    again = [cost.cpu_s for cost in pass_costs(whole, sizes, 10**9, 2)]
    assert seconds[0] == again[0]
    assert all(now < then / 2 for now, then in zip(seconds[1:], again[1:], strict=True))


def test_pages_without_a_text_are_no_duplicates_that_were_missed(tmp_path: Path) -> None:
    source = crawl(tmp_path / "in", 12)
    empty = response(b"<html><body></body></html>")
    (source / "empty.warc.gz").write_bytes(b"".join(members(*(record(900 + i, empty) for i in range(3)))))
    done = tamis("dedup", "exact", source, tmp_path / "out", "--memory", "400MB", "--quarantine-limit", "100%")
    assert done.exit_code == 0, done.output
