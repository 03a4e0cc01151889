"""Common Crawl from lists to documents, against a server on loopback with files made here."""

from __future__ import annotations

import errno
import gzip
import io
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis import InProcessExecutor
from tamis.errors import DownloadError, FormatError, Incomplete, StoreError, UsageError
from tamis.formats.warc.http import http_body
from tamis.pipeline import Pipeline
from tamis.stages.text.download.base import DocumentIterateExtractStage
from tamis.stages.text.download.common_crawl import (
    CommonCrawlDownloadExtractStage,
    CommonCrawlHTMLExtractor,
    CommonCrawlWARCDownloader,
    CommonCrawlWarcIterator,
    CommonCrawlWARCReader,
    MainCommonCrawlUrlGenerator,
    NewsCommonCrawlUrlGenerator,
)
from tamis.stages.text.download.streams import Decoded
from tamis.stages.text.io.writer import JsonlWriter
from tamis.tasks import DocumentBatch, EmptyTask, FileGroupTask
from tests.support import warc_files
from tests.support.loopback import Loopback
from tests.support.run_dirs import run_dir_path

ENGLISH = (
    "The tower on the hill was built in the year in which the river changed its course, and it has been used by the "
    "people of "
    "the valley as a place from which they could see who was coming and what the weather would be in the days to come."
)
GERMAN = (
    "Der Turm auf dem Hügel wurde in dem Jahr gebaut, in dem der Fluss seinen Lauf geändert hat, und er wird seitdem "
    "von den "
    "Leuten im Tal als ein Ort benutzt, von dem aus sie sehen können, wer kommt und wie das Wetter in den nächsten "
    "Tagen wird."
)


def page(*paragraphs: str, charset: str = "utf-8") -> bytes:
    text = "".join(f"<p>{p}</p>" for p in paragraphs)
    menu = "<ul>" + "".join(f'<li><a href="/{i}">Link {i}</a></li>' for i in range(5)) + "</ul>"
    html = (
        f'<html><head><meta charset="{charset}"><script>var the = '
        f'"x";</script></head><body>{menu}<main>{text}</main></body></html>'
    )
    return html.encode(charset)


def record(kind: str, block: bytes, number: int = 1, **headers: str) -> bytes:
    fields = {
        "WARC-Type": kind,
        "WARC-Record-ID": f"<urn:uuid:00000000-0000-0000-0000-{number:012d}>",
        "WARC-Target-URI": f"http://example.org/{number}",
        "Content-Length": str(len(block)),
        **headers,
    }
    head = "".join(f"{k}: {v}\r\n" for k, v in fields.items())
    return f"WARC/1.0\r\n{head}\r\n".encode() + block + b"\r\n\r\n"


def response(body: bytes, *headers: str) -> bytes:
    head = "\r\n".join(["HTTP/1.1 200 OK", "Content-Type: text/html", *headers])
    return head.encode() + b"\r\n\r\n" + body


def warc(*records: bytes) -> bytes:
    """Compressed record by record, as Common Crawl does."""
    return b"".join(gzip.compress(r) for r in records)


# -- WARC -------------------------------------------------------------------------------------------------------------
def test_a_stream_that_grows_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tamis.stages.text.download.streams._FREE_BYTES", 1 << 20)
    stream = Decoded(io.BytesIO(gzip.compress(bytes(20_000_000))), "gz")
    assert stream.skip(20_000_000) < 10_000_000
    with pytest.raises(FormatError, match="more than 300 times as many"):
        stream.skip(1)


def test_bodies_of_responses() -> None:
    assert http_body(response(b"abc"), 100)[0:3:2] == (200, b"abc")
    assert http_body(b"HTTP/1.0 404\n\nnone", 100)[0:3:2] == (404, b"none")
    assert (
        http_body(response(b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", "Transfer-Encoding: chunked"), 100)[2] == b"abcde"
    )
    assert http_body(response(b"<not chunked>", "Transfer-Encoding: chunked"), 100)[2] == b"<not chunked>"
    assert http_body(response(gzip.compress(b"abc"), "Content-Encoding: gzip"), 100)[2] == b"abc"
    assert http_body(response(zlib.compress(b"abc")[2:-4], "Content-Encoding: deflate"), 100)[2] == b"abc"
    assert http_body(response(b"abc", "Content-Encoding: gzip"), 100)[2] == b"abc"
    with pytest.raises(FormatError, match="more than 100 bytes when decoded"):
        http_body(response(gzip.compress(bytes(1000)), "Content-Encoding: gzip"), 100)
    with pytest.raises(FormatError, match="no HTTP response"):
        http_body(b"<html>", 100)
    for status in (b"9" * 5000, b"20", b"\xc2\xb2\xc2\xb2\xc2\xb2", "٢٠٠".encode()):
        with pytest.raises(FormatError, match="no HTTP response"):
            http_body(b"HTTP/1.1 " + status + b" OK\r\n\r\nabc", 100)


def test_the_iterator_counts_what_it_leaves_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tamis.stages.text.download.common_crawl.warc_iterator.MAX_PAGE_BYTES", 1000)
    good = [record("warcinfo", b""), record("response", response(b"a"), 7), record("response", b"no http", 8)]
    data = (
        warc(*good, record("response", response(b"x" * 2000), 9)) + gzip.compress(record("response", b"z" * 5000))[:-20]
    )
    path = tmp_path / "a.warc.gz"
    path.write_bytes(data)
    iterator = CommonCrawlWarcIterator()
    assert list(iterator.iterate(str(path))) == [
        {
            "url": "http://example.org/7",
            "warc_id": "00000000-0000-0000-0000-000000000007",
            "source_id": "a.warc.gz",
            "content": b"a",
        }
    ]
    assert iterator.take_skipped() == {
        "pages above 64 MiB": 1,
        "records without an HTTP response": 1,
        "warcinfo records": 1,
    }
    assert iterator.take_skipped() == {}
    (fault,) = iterator.take_faults()
    begin = len(data) - len(gzip.compress(record("response", b"z" * 5000))[:-20])
    assert fault[:3] == (str(path), begin, len(data) - begin)
    assert (fault.n, fault.lost_bytes) == (0, len(data))  # how much is missing cannot be told


BEHIND = [
    pytest.param(warc_files.record(1, length=-5), id="negative length"),
    pytest.param(warc_files.record(1, length=10), id="short length"),
    pytest.param(warc_files.record(1, extra=b"X: " + b"y" * 3_000_000 + b"\r\n"), id="long headers"),
    pytest.param(warc_files.record(1, extra=b"X: y\r\n" * 50_000), id="many headers"),
    pytest.param(b"", id="flipped byte"),
]


@pytest.mark.parametrize("bad", BEHIND)
def test_a_damaged_file_loses_the_damaged_record_only(tmp_path: Path, bad: bytes) -> None:
    records = warc_files.members(*(warc_files.record(i) if i != 1 or not bad else bad for i in range(40)))
    if not bad:
        records[1] = records[1][:100] + bytes([records[1][100] ^ 1]) + records[1][101:]
    path = tmp_path / "a.warc.gz"
    path.write_bytes(b"".join(records))
    reading = DocumentIterateExtractStage(CommonCrawlWarcIterator(), CommonCrawlHTMLExtractor("resiliparse"))
    out = tmp_path / "out"
    pipeline = Pipeline("crawl", stages=[reading, JsonlWriter(str(out))])
    tasks = [FileGroupTask("set", [str(path)])]
    pipeline.run(
        executor=InProcessExecutor(), initial_tasks=tasks, quarantine_limit="10%" if len(bad) < 1000 else "99%"
    )
    rows = [json.loads(line) for p in out.glob("*.jsonl") for line in p.read_text().splitlines()]
    assert [row["url"] for row in rows] == [f"http://example.org/{i}" for i in range(40) if i != 1]
    assert [row.get("resynchronised") for row in rows] == [None] + [True] * 38
    (entry,) = [json.loads(line) for p in run_dir_path(out).glob("quarantine/*") for line in p.read_text().splitlines()]
    assert (entry["file"], entry["offset"], entry["length"]) == (str(path), len(records[0]), len(records[1]))
    ledger = pipeline.last_result.ledger
    assert (ledger.lost_bytes, ledger.n_bad_ranges, ledger.stage_records) == (len(records[1]), 1, 39)
    with pytest.raises(Incomplete, match=r"part of the input could not be read: .* above the limit of 0.10%"):
        pipeline.run(executor=InProcessExecutor(), initial_tasks=tasks, fresh=True)


# -- lists of files ---------------------------------------------------------------------------------------------------
def lists(web: Loopback) -> None:
    ids = ["CC-MAIN-2024-10", "CC-MAIN-2023-50", "CC-MAIN-2023-40", "CC-MAIN-2012", "CC-MAIN-2008-2009"]
    web.files["/collinfo.json"] = json.dumps([{"id": i} for i in ids]).encode()
    for name in ("CC-MAIN-2023-40", "CC-MAIN-2023-50", "CC-NEWS/2023/12", "CC-NEWS/2024/01"):
        paths = [f"crawl-data/{name}/warc/{i}.warc.gz" for i in range(2)]
        web.files[f"/crawl-data/{name}/warc.paths.gz"] = gzip.compress("".join(f"{p}\n" for p in paths).encode())


def test_files_of_a_span_of_main_crawls(web: Loopback) -> None:
    lists(web)
    urls = MainCommonCrawlUrlGenerator("2023-40", "2023-52", web.url, index_prefix=web.url)
    expected = [f"{web.url}/crawl-data/CC-MAIN-2023-{w}/warc/{i}.warc.gz" for w in (40, 50) for i in range(2)]
    assert urls.generate_urls() == expected
    web.requests.clear()
    limited = MainCommonCrawlUrlGenerator("2023-40", "2024-20", web.url, 1, web.url)
    assert limited.generate_urls() == expected[:1]
    assert web.paths() == ["/collinfo.json", "/crawl-data/CC-MAIN-2023-40/warc.paths.gz"]
    with pytest.raises(
        UsageError, match="no main crawl from 2020-01 to 2020-02; the latest are 2023-40, 2023-50, 2024-10"
    ):
        MainCommonCrawlUrlGenerator("2020-01", "2020-02", web.url, index_prefix=web.url).generate_urls()


def test_files_of_a_span_of_news_crawls(web: Loopback) -> None:
    lists(web)
    urls = NewsCommonCrawlUrlGenerator("2023-12", "2024-01", web.url).generate_urls()
    assert urls == [
        f"{web.url}/crawl-data/CC-NEWS/{m}/warc/{i}.warc.gz" for m in ("2023/12", "2024/01") for i in range(2)
    ]


@pytest.mark.parametrize(
    "line", ["../../etc/passwd.warc.gz", "/etc/x.warc.gz", "http://other/x.warc.gz", "a b.warc.gz", "x.tar"]
)
def test_a_list_that_leads_elsewhere_is_refused(web: Loopback, line: str) -> None:
    web.files["/l"] = f"crawl-data/a.warc.gz\n{line}\n".encode()
    with pytest.raises(DownloadError, match="expected a list of paths of WARC files"):
        NewsCommonCrawlUrlGenerator("2023-12", "2023-12", web.url).generate_data_urls(f"{web.url}/l")


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        ("2023", "2023-40", "YYYY-WW"),
        ("2023-54", "2024-01", "1 to 53"),
        ("2024-02", "2024-01", "comes after"),
        ("2023-x", "2024-01", "got '2023-x'"),
    ],
)
def test_snapshots_are_checked(start: str, end: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        MainCommonCrawlUrlGenerator(start, end)
    with pytest.raises(UsageError, match="1 to 12"):
        NewsCommonCrawlUrlGenerator("2023-13", "2024-01")


# -- documents --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("algorithm", [None, "resiliparse", "trafilatura"])
def test_a_page_becomes_a_document_in_its_language(algorithm: str | None) -> None:
    extractor = CommonCrawlHTMLExtractor(algorithm)
    base = {"url": "u", "warc_id": "w", "source_id": "s"}
    english = extractor.extract({**base, "content": page(ENGLISH, ENGLISH[::1].replace("tower", "house"))})
    assert english is not None
    assert {**english, "text": ""} == {**base, "language": "ENGLISH", "text": ""}
    assert english["text"].splitlines()[0] == ENGLISH
    assert "Link" not in english["text"]
    german = extractor.extract({**base, "content": page(GERMAN, GERMAN.replace("Turm", "Berg"), charset="iso-8859-1")})
    assert german is not None
    assert (german["language"], german["text"].splitlines()[0]) == ("GERMAN", GERMAN)


def test_pages_without_a_document_are_counted() -> None:
    extractor = CommonCrawlHTMLExtractor(stop_lists={"ENGLISH": frozenset({"the"})})
    for content in (b"", b"\xff\xfe\x00\x81\x8d" * 3, page(GERMAN), page("Menu")):
        assert extractor.extract({"content": content}) is None
    counts = extractor.take_skipped()
    assert counts.pop("pages without readable text") == 2
    assert counts.pop("pages in a language without stop words") >= 1
    assert sum(counts.values()) <= 1


def test_a_page_does_not_depend_on_those_before_it() -> None:
    extractor = CommonCrawlHTMLExtractor("trafilatura", {"deduplicate": True, "max_repetitions": 1})
    made = [extractor.extract({"content": page(ENGLISH, ENGLISH.replace("tower", "house"))}) for _ in range(4)]
    assert made[0] is not None
    assert made == [made[0]] * 4


def test_a_parser_that_fails_costs_one_page() -> None:
    from tamis.stages.text.download.html_extractors import HTMLExtractorAlgorithm

    class Fails(HTMLExtractorAlgorithm):
        error: Exception = IndexError()

        def extract_text(self, html: str, stop_words: frozenset[str], language: str) -> list[str] | None:
            raise self.error

    extractor = CommonCrawlHTMLExtractor(Fails())
    assert extractor.extract({"content": page(ENGLISH)}) is None
    Fails.error = OSError(errno.ENOMEM, "Cannot allocate memory")
    with pytest.raises(OSError, match="Cannot allocate memory"):  # of this machine, not of the page
        extractor.extract({"content": page(ENGLISH)})
    assert extractor.take_skipped() == {"pages that cannot be parsed (IndexError)": 1}
    with pytest.raises(UsageError, match="give them to the object"):
        CommonCrawlHTMLExtractor(Fails(), {"a": 1})
    with pytest.raises(UsageError, match="expected one of justext, resiliparse, trafilatura"):
        CommonCrawlHTMLExtractor("magic")


def test_the_whole_way(web: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lists(web)
    web.files["/crawl-data/CC-MAIN-2023-40/warc/0.warc.gz"] = warc(
        record("warcinfo", b""),
        record("response", response(page(ENGLISH)), 1),
        record("response", response(page(GERMAN)), 2),
    )
    web.faults["/crawl-data/CC-MAIN-2023-40/warc/0.warc.gz"] = ["cut 100"]
    stage = CommonCrawlDownloadExtractStage("2023-40", "2023-40", str(tmp_path), html_extraction="justext", url_limit=1)
    assert stage.extractor_max_calls_per_worker == 2
    monkeypatch.setattr(stage.url_generator, "data_prefix", web.url)
    monkeypatch.setattr(stage.url_generator, "index_prefix", web.url)
    monkeypatch.setattr(CommonCrawlWARCDownloader, "policy", CommonCrawlWARCDownloader.policy.__class__(pause_s=0.0))
    tasks: list[Any] = [EmptyTask()]
    for part in stage.decompose():
        tasks = part.process_batch(tasks)
    (batch,) = tasks
    rows = batch.to_pyarrow().to_pylist()
    name = "crawl-data-CC-MAIN-2023-40-warc-0.warc.gz"
    assert [(r["url"], r["language"], r["text"], r["source_id"], r["file_name"]) for r in rows] == [
        ("http://example.org/1", "ENGLISH", ENGLISH, name, name),
        ("http://example.org/2", "GERMAN", GERMAN, name, name),
    ]
    with pytest.raises(UsageError, match="expected one of main, news"):
        CommonCrawlDownloadExtractStage("2023-40", "2023-40", str(tmp_path), crawl_type="other")


# -- single records ---------------------------------------------------------------------------------------------------
def test_pages_by_their_place(web: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [
        gzip.compress(r)
        for r in (record("warcinfo", b""), record("response", response(b"one")), record("response", response(b"two")))
    ]
    web.files["/c/a.warc.gz"] = b"".join(parts)
    ends = np.cumsum([len(p) for p in parts]).tolist()
    table = pa.table(
        {
            "warc_filename": ["c/a.warc.gz", "c/a.warc.gz", "c/none.warc.gz", "../x", None, "c/a.warc.gz"],
            "warc_record_offset": [ends[1], ends[0], 0, 0, 0, 0],
            "warc_record_length": [len(parts[2]), len(parts[1]), 10, 10, 10, len(parts[0])],
            "id": ["a", "b", "c", "d", "e", "f"],
        }
    )
    monkeypatch.setattr(CommonCrawlWARCReader, "base_url", web.url)
    stage = CommonCrawlWARCReader(max_retries=0)
    batch = stage.process(DocumentBatch("set", table))
    assert batch.to_pyarrow().select(["id", "binary_content"]).to_pydict() == {
        "id": ["a", "b"],
        "binary_content": [b"two", b"one"],
    }
    (note,) = stage._take_notes().drops
    assert (note.reason, note.serials.tolist()) == ("page not fetched", [2, 3, 4, 5])
    assert [
        "404" in note.values[0],
        "no place in a file" in note.values[1],
        "no response record" in note.values[3],
    ] == [True] * 3
    assert stage._consume_custom_metrics() == {"fetched": 2.0, "failed_downloads": 4.0}
    kept = CommonCrawlWARCReader(max_retries=0, drop_failed=False).process(DocumentBatch("set", table))
    assert kept.column("binary_content").to_pylist() == [b"two", b"one", None, None, None, None]


def test_s3_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for make in (
        lambda: CommonCrawlWARCDownloader(str(tmp_path), use_aws_to_download=True),
        lambda: CommonCrawlWARCReader(s3_bucket="mine"),
    ):
        with pytest.raises(UsageError, match=r"pip install 'tamis\[s3\]'"):
            make()
    with pytest.raises(UsageError, match="are for use_s3=True"):
        CommonCrawlWARCReader(use_s3=False, s3_bucket="mine")


def test_whole_files_and_ranges_come_from_s3(tmp_path: Path, s3: Any) -> None:
    data = gzip.compress(record("response", response(b"one")))
    s3.create_bucket(Bucket="commoncrawl")
    s3.put_object(Bucket="commoncrawl", Key="c/a.warc.gz", Body=data)
    downloader = CommonCrawlWARCDownloader(str(tmp_path), use_aws_to_download=True)
    assert Path(str(downloader.download("https://data.commoncrawl.org/c/a.warc.gz"))).read_bytes() == data
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c-a.warc.gz"]
    assert downloader.download("https://data.commoncrawl.org/c/none.warc.gz") is None
    assert downloader.failures() == [
        {"url": "https://data.commoncrawl.org/c/none.warc.gz", "reason": "there is no such object"}
    ]
    names, lengths = ["a.warc.gz", "none.warc.gz", "a.warc.gz"], [len(data), 10, len(data) * 2]
    place = {"warc_filename": names, "warc_record_offset": [0, 0, len(data)], "warc_record_length": lengths}
    reader = CommonCrawlWARCReader(use_s3=True, s3_key_prefix="/c/", drop_failed=False)
    pages = reader.process(DocumentBatch("set", pa.table(place))).column("binary_content").to_pylist()
    assert pages == [b"one", None, None]
    (page_of_remote,) = CommonCrawlWarcIterator({"anon": False}).iterate("s3://commoncrawl/c/a.warc.gz")
    assert page_of_remote["content"] == b"one"
    with pytest.raises(DownloadError, match="begins with s3://"):
        next(CommonCrawlWarcIterator().iterate("ftp://host/a.warc.gz"))
    with pytest.raises(UsageError, match="secret is a credential"):
        CommonCrawlWarcIterator({"secret": "x"})


def test_times_and_attempts_hold_for_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3", reason="the extra `s3` is not installed")
    asked: list[tuple[float, float]] = []

    class Silent:
        def get_object(self, **_: Any) -> Any:
            raise TimeoutError("silence")

    def client(options: Any, keys: Any = None) -> Silent:
        asked.append((options.connect_timeout, options.read_timeout))
        return Silent()

    monkeypatch.setattr("tamis.stores.s3.client", client)
    monkeypatch.setattr("tamis.stages.text.download.remote._PAUSE_S", 0.0)
    reader = CommonCrawlWARCReader(use_s3=True, timeout=7, max_retries=2)
    assert "failed 3 times, the last time with: silence" in str(reader._page("c/a.warc.gz", 0, 10))
    assert asked == [(7, 7.0)] * 3


def test_a_store_that_refuses_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tamis.stages.text.download import remote
    from tamis.stores.s3 import AccessDenied, Bucket

    def refuses(self: Bucket, key: str) -> None:
        raise AccessDenied("no rights")

    monkeypatch.setattr(Bucket, "head", refuses)
    with pytest.raises(DownloadError, match="access is refused: no rights") as caught:
        remote.fetch_object("s3://b/a", str(tmp_path / "a"))
    assert not caught.value.permanent


def test_an_interrupted_object_is_gone_on_with(tmp_path: Path, s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tamis.stages.text.download import remote
    from tamis.stores.s3 import Bucket

    monkeypatch.setattr(remote, "_BLOCK_BYTES", 4)
    s3.create_bucket(Bucket="parts")
    s3.put_object(Bucket="parts", Key="a", Body=b"0123456789")
    part, read, asked = tmp_path / "a.part", Bucket.read_into, []

    def breaks(self: Bucket, key: str, etag: str, offset: int, view: memoryview) -> None:
        asked.append(offset)
        if asked == [0, 4]:
            raise StoreError("the store fell silent")
        read(self, key, etag, offset, view)

    monkeypatch.setattr(Bucket, "read_into", breaks)
    with pytest.raises(DownloadError, match=r"broke off after 4 bytes: the store fell silent; run it again"):
        remote.fetch_object("s3://parts/a", str(part))
    assert part.read_bytes() == b"0123"
    assert remote.fetch_object("s3://parts/a", str(part)) == 10
    assert (part.read_bytes(), asked) == (b"0123456789", [0, 4, 4, 8])
    assert [p.name for p in tmp_path.iterdir()] == ["a.part"]
    part.write_bytes(b"of another version")
    assert remote.fetch_object("s3://parts/a", str(part)) == 10
    assert part.read_bytes() == b"0123456789"


def test_a_task_without_files_gives_no_documents() -> None:
    batch = DocumentIterateExtractStage(CommonCrawlWarcIterator(), CommonCrawlHTMLExtractor()).process(
        FileGroupTask("", [])
    )
    assert not isinstance(batch, list)
    assert batch.get_columns() == ["url", "warc_id", "source_id", "language", "text", "file_name"]
