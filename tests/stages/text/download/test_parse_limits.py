"""Documents that keep a parser busy: refused by size, depth and tags, then by CPU seconds; the others go on."""

from __future__ import annotations

import bz2
import hashlib
import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tamis import InProcessExecutor
from tamis.kernels.markup.html_tags import FINE, TOO_DEEP, TOO_MANY, _hash_of, count_tags
from tamis.pipeline import Pipeline
from tamis.stages.text.download import parse_limits
from tamis.stages.text.download.base import DocumentIterateExtractStage
from tamis.stages.text.download.common_crawl import CommonCrawlHTMLExtractor, CommonCrawlWarcIterator
from tamis.stages.text.download.html_extractors import HTMLExtractorAlgorithm
from tamis.stages.text.download.parse_limits import (
    HTML_LIMITS,
    WIKI_LIMITS,
    ParseLimits,
    ParseRefused,
    ParserFailed,
    check_html,
    check_wiki,
    within_cpu_limit,
)
from tamis.stages.text.download.wikipedia import WikipediaExtractor, WikipediaIterator
from tamis.stages.text.io.writer import JsonlWriter
from tamis.tasks import FileGroupTask
from tests.reference.markup_twin import html_tags
from tests.support import warc_files
from tests.support.run_dirs import run_dir_path

SMALL = ParseLimits(max_bytes=1000, max_depth=5, max_tags=20)
QUICK = ParseLimits(max_bytes=10_000_000, max_depth=100, max_tags=100, cpu_s=0.2)


@pytest.mark.parametrize(
    "html",
    [
        "<div>" * 5,
        "<div></div>" * 20,
        "<p>a" * 20,  # each ends the one before
        "<ul>" + "<li>a" * 19,
        "<br>" * 20,
        "<div><span></div>" * 10,  # a closing tag ends what is open inside
        "</div>" * 1000 + "<div>",
        "<script>" + "a<b;" * 100 + "</script><p>",
        "<!--" + "<div>" * 100 + "--><p>",
        "<svg>" + "<path d='x'/>" * 18 + "</svg>",
        "<SCRIPT>'<div>'*1000</script ><p>",
        "a < b " * 1000,
        "<!--" + "<div>" * 100,
        "<style>" + "<div>" * 100,
    ],
)
def test_pages_inside_the_limits(html: str) -> None:
    check_html(html, SMALL)


@pytest.mark.parametrize(
    ("html", "why"),
    [
        ("<div>" * 6, "nested more than 5 deep"),
        ("<DIV class=a>" * 6, "nested more than 5 deep"),
        ("<p><b>" * 6, "nested more than 5 deep"),
        ("<a></x>" * 6, "nested more than 5 deep"),  # a closing tag of what is not open closes nothing
        ("<div/>" * 6, "nested more than 5 deep"),  # ends itself in drawings only
        ("<div></div>" * 21, "more than 20 tags"),
        ("<br>" * 21, "more than 20 tags"),
    ],
)
def test_pages_beyond_the_limits(html: str, why: str) -> None:
    with pytest.raises(ParseRefused, match=why):
        check_html(html, SMALL)


def test_wiki_markup() -> None:
    for good in ("[[a]]" * 20, "{{a|{{b}}}}" * 10, "<br>" * 20, "<ref name=a />" * 20, "x]] }} |}" * 50, "a[1] " * 100):
        check_wiki(good, SMALL)
    for bad in ("[[" * 6, "{{" * 6, "{|\n" * 6, "<ref>" * 6, "[http://a " * 6, "<b>[[{{" * 2):
        with pytest.raises(ParseRefused, match="nested more than 5 deep"):
            check_wiki(bad, SMALL)
    with pytest.raises(ParseRefused, match="more than 20 tags"):
        check_wiki("[[a]]" * 21, SMALL)
    with pytest.raises(ParseRefused, match="it has 1,001 characters, more than 1,000"):
        check_wiki("a" * 1001, SMALL)


def test_checking_hostile_markup_takes_no_time() -> None:
    for text in ("<" * 5_000_000, "<!--" * 1_000_000, "<script>" * 500_000, "<a" * 2_000_000, "<svg><a" * 500_000):
        try:
            check_html(text, HTML_LIMITS)
        except ParseRefused:
            continue
    for text in ("<a" * 2_000_000, "<!--" * 1_000_000, "[a" * 2_000_000, "]" * 4_000_000, "{{}}" * 1_000_000):
        try:
            check_wiki(text, WIKI_LIMITS)
        except ParseRefused:
            continue


def forever() -> int:
    while True:
        pass


def forever_in_c() -> bytes:
    return hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def test_cpu_seconds_are_limited_in_python_and_in_c() -> None:
    before = signal.getsignal(signal.SIGVTALRM)
    with pytest.raises(
        ParseRefused, match=r"time_limit: .* more than 0.2 CPU seconds, twice; .* depends on the machine"
    ):
        within_cpu_limit(forever, QUICK, 100, 10)
    with pytest.raises(ParseRefused, match="time_limit"):
        within_cpu_limit(forever_in_c, QUICK, 10_000_000, 10)
    assert signal.getsignal(signal.SIGVTALRM) == before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_a_call_in_a_process_of_its_own_is_like_any_other() -> None:
    assert within_cpu_limit(lambda: ["a"] * 1_000_000, QUICK, 10_000_000, 10) == ["a"] * 1_000_000
    with pytest.raises(ParserFailed, match="KeyError: 'x'"):
        within_cpu_limit(lambda: {}["x"], QUICK, 10_000_000, 10)
    with pytest.raises(MemoryError):
        within_cpu_limit(lambda: bytes(1 << 60), QUICK, 10_000_000, 10)
    with pytest.raises(ParseRefused, match="the parser crashed: SIGSEGV"):
        within_cpu_limit(crash, QUICK, 10_000_000, 10)


def test_a_second_attempt_may_succeed(tmp_path: Path) -> None:
    def slow_once() -> int:
        if (tmp_path / "tried").exists():
            return 1
        (tmp_path / "tried").touch()
        return forever()

    assert within_cpu_limit(slow_once, QUICK, 100, 10) == 1


def test_a_hostile_page_costs_itself(tmp_path: Path) -> None:
    records = [warc_files.record(i) for i in range(5)]
    records[1] = warc_files.record(1, warc_files.response(b"<html>" + b"<div>" * 100_000 + warc_files.page(1)))
    records[3] = warc_files.record(3, warc_files.response(b"<br>" * 250_000 + warc_files.page(3)))
    parts = warc_files.members(*records)
    path, out = tmp_path / "a.warc.gz", tmp_path / "out"
    path.write_bytes(b"".join(parts))
    stage = DocumentIterateExtractStage(CommonCrawlWarcIterator(), CommonCrawlHTMLExtractor())
    entries, urls = run(stage, path, out, "url")
    assert urls == [f"http://example.org/{i}" for i in (0, 2, 4)]
    assert [(e["file"], e["offset"], e["n"]) for e in entries] == [
        (str(path), len(parts[0]), 1),
        (str(path), sum(len(p) for p in parts[:3]), 1),
    ]
    assert [e["reason"] for e in entries] == [
        "page 'http://example.org/1' is not parsed: its markup is nested more than 3,000 deep",
        "page 'http://example.org/3' is not parsed: it has more than 200,000 tags",
    ]


def test_a_hostile_article_costs_itself(tmp_path: Path) -> None:
    texts = ["plain", "[[" * 200_000, "also plain", "&lt;ref&gt;" * 100_000, "the last"]
    pages = "".join(
        f"<page><title>T{i}</title><ns>0</ns><id>{i}</id><revision><text>{text}</text></revision></page>"
        for i, text in enumerate(texts)
    )
    path = tmp_path / "d.xml.bz2"
    path.write_bytes(bz2.compress(f"<mediawiki>{pages}</mediawiki>".encode()))
    stage = DocumentIterateExtractStage(WikipediaIterator(), WikipediaExtractor())
    entries, titles = run(stage, path, tmp_path / "out", "title")
    assert titles == ["T0", "T2", "T4"]
    assert [e["reason"].partition(" is not")[0] for e in entries] == ["article 'T1'", "article 'T3'"]


def test_a_page_that_takes_too_long_is_named(tmp_path: Path) -> None:
    class Slow(HTMLExtractorAlgorithm):
        def extract_text(self, html: str, stop_words: frozenset[str], language: str) -> list[str] | None:
            return [str(forever())] if "page 1." in html else [html]

    path = tmp_path / "a.warc.gz"
    path.write_bytes(b"".join(warc_files.members(*(warc_files.record(i) for i in range(3)))))
    limits = ParseLimits(max_bytes=1000, max_depth=100, max_tags=100, cpu_s=0.2)
    stage = DocumentIterateExtractStage(CommonCrawlWarcIterator(), CommonCrawlHTMLExtractor(Slow(), limits=limits))
    (entry,), urls = run(stage, path, tmp_path / "out", "url")
    assert urls == ["http://example.org/0", "http://example.org/2"]
    assert entry["reason"].startswith("page 'http://example.org/1' is not parsed: time_limit: ")


def test_large_pages_are_refused_before_they_are_decoded() -> None:
    extractor = CommonCrawlHTMLExtractor(limits=SMALL)
    assert extractor.extract({"url": "u", "content": b"\xff" * 1001}) is None
    (fault,) = extractor.take_faults()
    assert (fault.reason, fault.n) == ("page 'u' is not parsed: it has 1,001 bytes, more than 1,000", 1)


def run(stage: Any, path: Path, out: Path, field: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Quarantine entries, and one field of the documents that were written."""
    pipeline = Pipeline("parse", stages=[stage, JsonlWriter(str(out))])
    pipeline.run(InProcessExecutor(), initial_tasks=[FileGroupTask("set", [str(path)])], quarantine_limit="50%")
    assert pipeline.last_result.ledger.problems() == []
    entries = [json.loads(line) for p in run_dir_path(out).glob("quarantine/*") for line in p.read_text().splitlines()]
    assert pipeline.last_result.ledger.quarantined.n == len(entries)
    return entries, [json.loads(line)[field] for p in out.glob("*.jsonl") for line in p.read_text().splitlines()]


def test_tags_are_counted_as_one_by_one() -> None:
    rng = random.Random(1)
    parts = [
        "<div>",
        "</div>",
        "<a~x=1>",
        "</a>",
        "<p>",
        "<DIV/>",
        "</Div~>",
        "<!--",
        "-->",
        "<script>",
        "</script>",
        "<svg>",
        "</svg>",
        "<script/>",
        "<averylongname>",
        "</averylongname>",
        "<b>",
        "</b>",
        "x",
        "<title>",
        "</title>",
        "<li>",
        "<path/>",
        "<a[>",
        "</a{>",
        "</",
        "<",
        "<!--~</div>~-->",
        "<colgroup>",
        "<iframe>",
    ]
    for _ in range(3000):
        html = "".join(rng.choice(parts).replace("~", " ") for _ in range(rng.randint(1, 60)))
        for n_tags, depth in ((100, 100), (100, rng.randint(1, 12)), (rng.randint(1, 30), 8)):
            assert count_tags(html.encode(), n_tags, depth) == _counted(html, n_tags, depth), html
    assert count_tags(b"<div></div>" * 5000, 10_000, 2) == (5000, FINE)
    assert count_tags(b"<div><!--</div>-->" * 5000, 10_000, 4999) == (5000, TOO_DEEP)


def _counted(html: str, max_tags: int, max_depth: int) -> tuple[int, int]:
    """Count as the kernel does, one tag after the other."""
    n_tags = 0

    def seen() -> Iterator[tuple[str, bool]]:
        nonlocal n_tags
        for name, is_end in html_tags(html):
            n_tags += not is_end
            yield name, is_end

    try:
        parse_limits._check(seen(), ParseLimits(10**6, max_depth, max_tags))
    except ParseRefused as exc:
        return n_tags, TOO_DEEP if "deep" in str(exc) else TOO_MANY
    return n_tags, FINE


def test_end_tags_that_are_looked_for_in_vain_often_close_only_what_is_near() -> None:
    """Names of one slot of the kernel's counts: an end tag of one that is not open looks through all that are."""
    slots: dict[int, list[str]] = {}
    for i in range(20_000):
        slots.setdefault(_hash_of(f"e{i}") & 1023, []).append(f"e{i}")
    name, other = max(slots.values(), key=len)[:2]
    end = f"{'<b>' * 50}</{name}>{'<b>' * 60}".encode()
    for n_in_vain, expected in ((1, (3010, FINE)), (5000, (3001, TOO_DEEP))):
        page = f"<{name}>".encode() * 2900 + f"</{other}>".encode() * n_in_vain + end
        assert count_tags(page, 200_000, 3000) == expected


def test_a_deep_page_with_many_tags_is_refused_and_a_flat_one_is_not() -> None:
    limits = ParseLimits(10**7, 3000, 200_000)
    assert check_html("<td><a>x</a></td>" * 20_000, limits) == 40_000
    with pytest.raises(ParseRefused, match="deep"):
        check_html("<div><script></div></script>" * 4000, limits)
