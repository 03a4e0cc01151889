"""Wikipedia from the state of a dump to plain text, with a dump made here."""

from __future__ import annotations

import bz2
import errno
import json
from pathlib import Path
from typing import Any

import pytest

from tamis.errors import DownloadError, UsageError
from tamis.stages.text.download.wikipedia import (
    WikipediaDownloader,
    WikipediaDownloadExtractStage,
    WikipediaExtractor,
    WikipediaIterator,
    WikipediaUrlGenerator,
)
from tamis.tasks import EmptyTask
from tests.support.loopback import Loopback

HEAD = (
    '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" '
    'xml:lang="en"><siteinfo><sitename>W</sitename></siteinfo>'
)


def page(number: int, title: str, text: str, ns: int = 0, redirect: bool = False) -> str:
    moved = '<redirect title="X" />' if redirect else ""
    return (
        f"<page><title>{title}</title><ns>{ns}</ns><id>{number}</id>{moved}<revision><id>9{number}</id><contributor><id>77</id>"
        f'</contributor><text bytes="5" xml:space="preserve">{text}</text></revision></page>'
    )


def dump(*streams: str) -> bytes:
    """Several bzip2 streams one behind the other, as multistream dumps are."""
    return b"".join(bz2.compress(s.encode()) for s in (HEAD, *streams, "</mediawiki>"))


def status(names: list[str], state: str = "done") -> bytes:
    return json.dumps(
        {"jobs": {"articlesmultistreamdump": {"status": state, "files": {n: {} for n in names}}}}
    ).encode()


FILES = [f"enwiki-20240101-pages-articles-multistream{n}.xml-p{n}p9.bz2" for n in (10, 2)]
INDEX = ["enwiki-20240101-pages-articles-multistream-index2.txt-p1p9.bz2"]


def test_the_latest_complete_dump(web: Loopback) -> None:
    web.files["/enwiki/"] = (
        b'<a href="20231201/">x</a><a href="20240101/">x</a><a href="20240120/">x</a><a href="20240201/">x</a>'
    )
    web.files["/enwiki/20240120/dumpstatus.json"] = status([], "waiting")
    web.files["/enwiki/20240101/dumpstatus.json"] = status(FILES + INDEX)
    urls = WikipediaUrlGenerator("en", None, web.url).generate_urls()
    assert urls == [f"{web.url}/enwiki/20240101/{name}" for name in (FILES[1], FILES[0])]
    assert WikipediaUrlGenerator("en", "20240101", web.url + "/").generate_urls() == urls
    with pytest.raises(UsageError, match=r"20240120 .* not complete yet"):
        WikipediaUrlGenerator("en", "20240120", web.url).generate_urls()


@pytest.mark.parametrize("names", [["../x.xml.bz2"], ["enwiki-20240101-pages-articles-multistream.xml/../x.bz2"], []])
def test_a_state_with_odd_names_is_refused(web: Loopback, names: list[str]) -> None:
    web.files["/enwiki/20240101/dumpstatus.json"] = status(names)
    with pytest.raises(DownloadError, match="expected names of files with articles"):
        WikipediaUrlGenerator("en", "20240101", web.url).generate_urls()


@pytest.mark.parametrize(("language", "date"), [("../x", None), ("EN", None), ("en", "2024-01-01")])
def test_languages_and_dates_are_checked(language: str, date: str | None) -> None:
    with pytest.raises(UsageError, match="Wikipedia: expected"):
        WikipediaUrlGenerator(language, date)


def test_articles_of_a_dump(tmp_path: Path) -> None:
    pages = [
        page(1, "Sea &amp; Sky", "Blue &lt;b&gt;water&lt;/b&gt;"),
        page(2, "Talk:Sea", "talk", ns=1),
        page(3, "Ocean", "#REDIRECT [[Sea]]", redirect=True) + page(4, "Empty", ""),
        page(5, "Größe", "Grüße"),
    ]
    path = tmp_path / "d.xml.bz2"
    path.write_bytes(dump(*pages))
    iterator = WikipediaIterator("en")
    assert list(iterator.iterate(str(path))) == [
        {
            "title": "Sea & Sky",
            "id": "1",
            "url": "https://en.wikipedia.org/wiki/Sea_%26_Sky",
            "language": "en",
            "source_id": "d.xml.bz2",
            "raw_content": "Blue <b>water</b>",
        },
        {
            "title": "Größe",
            "id": "5",
            "url": "https://en.wikipedia.org/wiki/Gr%C3%B6%C3%9Fe",
            "language": "en",
            "source_id": "d.xml.bz2",
            "raw_content": "Grüße",
        },
    ]
    assert iterator.take_skipped() == {
        "pages outside of the main namespace": 1,
        "redirects": 1,
        "pages without text": 1,
    }


@pytest.mark.parametrize("damage", ["truncated", "no xml", "dtd", "entities"])
def test_damage_and_tricks_are_quarantined_and_reading_continues(tmp_path: Path, damage: str) -> None:
    good = dump(page(1, "A", "text"), page(2, "B", "text"))
    path = tmp_path / "d.xml.bz2"
    if damage == "truncated":
        path.write_bytes(good[: -len(bz2.compress(b"</mediawiki>")) + 20])
    elif damage == "no xml":
        path.write_bytes(dump(page(1, "A", "text"), "</oops>", page(2, "B", "text")))
    else:
        bomb = (
            '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "<!ENTITY b '&a;&a;'>]>"
            if damage == "entities"
            else "<!DOCTYPE x>"
        )
        path.write_bytes(bz2.compress(bomb.encode()) + good)
    iterator = WikipediaIterator()
    assert [a["title"] for a in iterator.iterate(str(path))] == ["A", "B"]
    (fault,) = iterator.take_faults()
    assert (fault.path, fault.n, fault.lost_bytes > 0) == (str(path), 0, True)
    assert iterator.take_skipped() == {}


def titles(path: Path) -> tuple[list[str], list[tuple[int, int]]]:
    iterator = WikipediaIterator()
    found = [a["title"] for a in iterator.iterate(str(path))]
    return found, [(f.offset, f.length) for f in iterator.take_faults()]


def test_a_damaged_stream_costs_its_articles_only(tmp_path: Path) -> None:
    streams = [bz2.compress(s.encode()) for s in (HEAD, *(page(i, f"T{i}", "text " * 50) for i in range(6)))]
    path = tmp_path / "d.xml.bz2"
    begin = len(streams[0]) + len(streams[1])
    whole = b"".join(streams) + bz2.compress(b"</mediawiki>")
    for at in (
        0,
        3,
        5,
        12,
        60,
        len(streams[2]) - 4,
    ):  # the magic of the stream and of its block, the checksums, the data
        bad = bytearray(whole)
        bad[begin + at] ^= 0x55
        path.write_bytes(bad)
        assert titles(path) == (["T0", "T2", "T3", "T4", "T5"], [(begin, len(streams[2]))]), at
    iterator = WikipediaIterator()
    marks = [a.get("resynchronised") for a in iterator.iterate(str(path))]
    assert marks == [None, True, True, True, True]


@pytest.mark.parametrize(
    "bad",
    [
        page(1, "T1", "a &undefined; b"),
        page(1, "T1", "a < b"),
        page(1, "T1", "text").replace("</page>", ""),
        page(1, "T1", "text").replace("</text>", ""),
        "<page><title>T1</title>",
        page(1, "T1", "<a>" * 1000),
        page(1, "T1", "<a b='" + "x" * 20_000_000),
    ],
    ids=["entity", "angle", "page", "text", "title", "nested", "token"],
)
def test_an_invalid_page_costs_itself(tmp_path: Path, bad: str) -> None:
    pages = [page(0, "T0", "text"), bad, page(2, "T2", "text"), page(3, "T3", "ü")]
    path = tmp_path / "d.xml"
    path.write_text(HEAD + "".join(pages) + "</mediawiki>")
    assert titles(path) == (["T0", "T2", "T3"], [(len(HEAD) + len(pages[0]), len(bad))])


def test_a_dump_that_is_no_dump(tmp_path: Path) -> None:
    path = tmp_path / "d.xml"
    path.write_text("no XML" * 100_000)
    assert titles(path) == ([], [(0, 600_000)])
    path.write_text(HEAD + page(0, "T0", "text") + page(1, "T1", "text")[:-20])
    iterator = WikipediaIterator()
    assert [a["title"] for a in iterator.iterate(str(path))] == ["T0"]
    (fault,) = iterator.take_faults()
    assert fault.offset == len(HEAD) + len(page(0, "T0", "text"))
    assert fault.lost_bytes == path.stat().st_size  # how much is missing cannot be told


def test_a_page_that_does_not_end_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tamis.stages.text.download.wikipedia.iterator._PAGE_CHARS", 1000)
    path = tmp_path / "d.xml.bz2"
    path.write_bytes(dump(page(1, "A", "x" * 5000), page(2, "B", "text")))
    iterator = WikipediaIterator()
    assert [a["title"] for a in iterator.iterate(str(path))] == ["B"]
    assert iterator.take_skipped() == {"pages above 16 million characters": 1}


def plain(markup: str, language: str = "en") -> str:
    made = WikipediaExtractor(language).extract({"raw_content": markup, "title": "t"})
    return made["text"] if made else ""


def test_prose_and_headings_stay_and_markup_goes() -> None:
    markup = """{{Infobox|name=Sea}}
[[File:Sea.jpg|thumb|A [[blue]] sea]]
The '''sea''' is a [[body of water|large body]] of ''salt'' [[water]].<ref>{{cite|x}}</ref> <!-- hidden -->__TOC__
See [http://example.org the page] &amp; [[:Category:Seas]].

== History ==
Ships&nbsp;sailed.<br>Then came steam.

=== Empty ===

== Table ==
{| class="wikitable"
! a !! b
|-
| 1 || 2
|}
<gallery>File:x.jpg|x</gallery>
== See also ==
* [[Ocean]]
[[Category:Water]]
"""
    assert plain(markup) == (
        "The sea is a large body of salt water. \nSee the page & "
        "Category:Seas.\n\nHistory\n\nShips\u00a0sailed.\nThen came steam."
        "\n\nSee also\n\nOcean"
    )


def test_names_of_images_in_other_languages() -> None:
    assert plain("[[Datei:Berg.jpg|mini|Ein Berg]]Der Berg.[[Kategorie:Berg]]", "de") == "Der Berg."
    assert plain("[[ファイル:a.jpg]]山です。[[カテゴリ:山]]", "ja") == "山です。"
    assert plain("[[Datei:Berg.jpg]]", "en") == "Datei:Berg.jpg"


def test_an_article_without_prose_is_counted() -> None:
    extractor = WikipediaExtractor()
    assert extractor.extract({"raw_content": "{{stub}}"}) is None
    assert extractor.take_skipped() == {"articles without prose": 1}


def test_an_error_of_the_library_costs_one_article(monkeypatch: pytest.MonkeyPatch) -> None:
    import mwparserfromhell

    def failing(with_error: Exception) -> Any:
        def parse(*_: Any, **__: Any) -> None:
            raise with_error

        return parse

    extractor = WikipediaExtractor()
    with monkeypatch.context() as changed:
        changed.setattr(mwparserfromhell, "parse", failing(mwparserfromhell.parser.ParserError("should not happen")))
        assert extractor.extract({"raw_content": "a"}) is None
        changed.setattr(mwparserfromhell, "parse", failing(OSError(errno.ENOMEM, "Cannot allocate memory")))
        with pytest.raises(OSError, match="Cannot allocate memory"):  # of this machine, not of the article
            extractor.extract({"raw_content": "a"})
    assert extractor.take_skipped() == {"articles that cannot be parsed (ParserError)": 1}
    assert extractor.extract({"raw_content": "a", "title": "t"}) is not None


def test_ten_thousand_links_take_no_time() -> None:
    assert plain("[[File:a.jpg|x]]" * 10_000 + "end") == "end"


def test_the_whole_way(web: Loopback, tmp_path: Path) -> None:
    web.files["/enwiki/20240101/dumpstatus.json"] = status(FILES)
    web.files[f"/enwiki/20240101/{FILES[1]}"] = dump(page(1, "Sea", "The '''sea'''."), page(2, "Sky", "The sky."))
    stage = WikipediaDownloadExtractStage("en", str(tmp_path), "20240101", web.url, url_limit=1, record_limit=1)
    assert WikipediaDownloader(str(tmp_path)).num_workers_per_node() == 2
    tasks: list[Any] = [EmptyTask()]
    for part in stage.decompose():
        tasks = part.process_batch(tasks)
    name = f"enwiki-20240101-{FILES[1]}"
    assert tasks[0].to_pyarrow().to_pylist() == [
        {
            "text": "The sea.",
            "title": "Sea",
            "id": "1",
            "url": "https://en.wikipedia.org/wiki/Sea",
            "language": "en",
            "source_id": name,
            "file_name": name,
        }
    ]
