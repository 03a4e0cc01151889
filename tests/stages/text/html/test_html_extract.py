"""HtmlExtract: texts, reasons and limits, and the same stage in recipes and commands."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.errors import UsageError
from tamis.stages.text.download.html_extractors import ResiliparseExtractor
from tamis.stages.text.html import HtmlExtract
from tamis.stages.text.io import DocumentReader, JsonlReader, JsonlWriter, WarcReader
from tamis.tasks import DocumentBatch
from tests.support.command import tamis
from tests.support.run_dirs import run_dir_path
from tests.support.warc_files import SENTENCE, members, page, record, response

MENU = "<nav><ul><li><a href='/a'>Home</a></li><li><a href='/b'>Imprint</a></li></ul></nav>"


def whole_page(text: str = SENTENCE, n: int = 4) -> str:
    paragraphs = "".join(f"<p>{text} ({i})</p>" for i in range(n))
    return f"<!doctype html><html><body>{MENU}<main><article>{paragraphs}</article></main></body></html>"


def slow(html: str) -> str:
    """Take longer than any limit of a test, for pages that ask for it."""
    while "forever" in html:
        pass
    return html


def run(rows: list[dict[str, Any]], stage: HtmlExtract, tmp_path: Path) -> tuple[list[dict[str, Any]], Any]:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    pipeline = Pipeline("html", stages=[JsonlReader(str(source)), stage, JsonlWriter(str(tmp_path / "out"))])
    pipeline.run(InProcessExecutor(), quarantine_limit="100%")
    lines = [line for p in sorted((tmp_path / "out").glob("*.jsonl")) for line in p.read_text().splitlines()]
    return [json.loads(line) for line in lines], pipeline.last_result


@pytest.mark.parametrize("extractor", ["resiliparse", "trafilatura", "justext"])
def test_the_main_text_by_each_library(extractor: str, tmp_path: Path) -> None:
    rows = [{"url": "u", "content_type": "text/html", "content": whole_page()}]
    (document,), _ = run(rows, HtmlExtract(extractor), tmp_path)
    assert document.keys() == {"url", "content_type", "text"}
    assert document["text"].count("The tower on the hill") == 4
    assert "Imprint" not in document["text"]


@pytest.mark.parametrize(("n_kilobytes", "n_forks"), [(700, 0), (1100, 1)])
def test_only_pages_above_1_mib_take_a_process_of_their_own(
    n_kilobytes: int, n_forks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    forks: list[int] = []
    fork = os.fork

    def counting() -> int:
        forks.append(1)
        return fork()

    monkeypatch.setattr(os, "fork", counting)
    html = whole_page("word " * 1000, n_kilobytes // 5)
    batch = HtmlExtract("resiliparse").process(DocumentBatch("x", pa.table({"content": [html]})))
    assert batch.texts("text")[0].as_py().count("word") == 1000 * (n_kilobytes // 5)
    assert len(forks) == n_forks


def test_an_algorithm_or_a_function_of_ones_own(tmp_path: Path) -> None:
    rows = [{"content": whole_page()}]
    (by_algorithm,), _ = run(rows, HtmlExtract(ResiliparseExtractor()), tmp_path)
    assert SENTENCE[:20] in by_algorithm["text"]
    stage = HtmlExtract(lambda html: f"{len(html)}", keep_content=True)
    batch = stage.process(DocumentBatch("x", pa.table({"content": [whole_page()]})))
    assert batch.to_pyarrow().to_pylist() == [{"content": whole_page(), "text": str(len(whole_page()))}]


def test_of_several_extractors_the_text_with_most_prose_is_kept(tmp_path: Path) -> None:
    def shouts(html: str) -> str:
        return "No sentence at all\n" * 100

    def fails(html: str) -> str:
        raise ValueError("no")

    def first(html: str) -> str | None:
        return None if "tower" in html else "Five words make a line."

    prose = whole_page().replace(")</p>", ").</p>")
    rows = [{"n": 0, "content": prose}, {"n": 1, "content": "<html><p>plain</p></html>"}]
    stage = HtmlExtract([shouts, fails, "trafilatura", first, "justext"])
    documents, result = run(rows, stage, tmp_path)
    assert "The tower on the hill" in documents[0]["text"]
    assert documents[1]["text"] == "Five words make a line."
    assert result.ledger.stages[0].metrics == {"text of trafilatura": 1, "text of first": 1}
    both = [HtmlExtract(names)._extract(prose) for names in (["trafilatura", "justext"], ["justext", "trafilatura"])]
    alone = {HtmlExtract(name)._extract(prose) for name in ("trafilatura", "justext")}
    assert set(both) <= alone  # from one parse the same texts as from one parse each


def test_of_equal_texts_the_first_is_kept_and_any_text_beats_none() -> None:
    def of(name: str, text: str | None) -> Any:
        def extract(html: str) -> str | None:
            return text

        extract.__name__ = name
        return extract

    prose, words = "This is a line of prose.", "Home About Contact Imprint Legal"
    for texts, expected in (
        ((words, prose), prose),
        ((prose, "These are six words of prose."), prose),
        ((None, words), words),
        (("", None), None),
        ((words, "Other words"), words),
    ):
        best = HtmlExtract([of("a", texts[0]), of("b", texts[1])])._extract
        assert best("<p>") == expected


def test_types_decide_and_every_page_that_goes_has_a_rule(tmp_path: Path) -> None:
    rows = [
        {"n": 0, "content_type": "text/html", "content": "<html></html>"},
        {"n": 1, "content_type": "text/plain", "content": "<b>as it is</b>"},
        {"n": 2, "content_type": "application/json", "content": "{}"},
        {"n": 3, "content_type": None, "content": whole_page()},
        {"n": 4, "content_type": None, "content": "plain words"},
        {"n": 5, "content_type": "text/xml", "content": "<rss><item/></rss>"},
        {"n": 6, "content_type": "text/xml", "content": whole_page()},
        {"n": 7, "text": "it has a text already"},
        {"n": 8, "content_type": "text/plain", "content": " \n"},
    ]
    documents, result = run(rows, HtmlExtract(), tmp_path)
    assert [d["n"] for d in documents] == [1, 3, 4, 6, 7]
    assert [documents[i]["text"] for i in (0, 2, 4)] == ["<b>as it is</b>", "plain words", "it has a text already"]
    (book,) = result.ledger.stages
    assert book.losses == {"not_html": 2, "html_without_text": 2}
    assert not result.ledger.problems()


@pytest.mark.parametrize(
    ("content", "options", "why"),
    [
        ("<p>" + "x" * 2000, {"max_bytes": 1800}, "2,003 bytes, more than 1,800"),
        ("<div>" * 300, {"max_depth": 200}, "nested more than 200 deep"),
        ("<b>a</b>" * 300, {"max_tags": 200}, "more than 200 tags"),
    ],
)
def test_pages_beyond_a_limit_go_to_quarantine_with_their_url(
    content: str, options: dict[str, Any], why: str, tmp_path: Path
) -> None:
    html = {"content_type": "text/html"}
    rows = [{"url": "http://bad", "content": content, **html}, {"url": "http://good", "content": whole_page(), **html}]
    documents, result = run(rows, HtmlExtract(**options), tmp_path)
    assert [d["url"] for d in documents] == ["http://good"]
    (entry,) = entries(tmp_path / "out")
    assert "http://bad" in entry["reason"]
    assert why in entry["reason"]
    assert entry["stage"] == "html_extract"
    assert (result.ledger.quarantined.n, result.ledger.problems()) == (1, [])


def entries(output: Path) -> list[dict[str, Any]]:
    paths = (run_dir_path(output) / "quarantine").glob("*.jsonl")
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def test_a_page_that_takes_too_long_is_tried_twice_and_named(tmp_path: Path) -> None:
    rows = [{"url": f"http://{i}", "content": "<p>forever" if i == 1 else whole_page()} for i in range(3)]
    began = time.monotonic()
    documents, _ = run(rows, HtmlExtract(slow, cpu_seconds=0.2), tmp_path)
    assert [d["url"] for d in documents] == ["http://0", "http://2"]
    (entry,) = entries(tmp_path / "out")
    assert "time_limit" in entry["reason"]
    assert "depends on the machine" in entry["reason"]
    assert time.monotonic() - began < 60


def test_wrong_parameters_name_what_is_expected() -> None:
    for options, message in (
        ({"extractor": "lynx"}, "expected one of resiliparse, trafilatura, justext"),
        ({"extractor": len, "extractor_options": {"a": 1}}, "for an extractor given by its name"),
        ({"extractor": 3}, "or a function"),
        ({"extractor": ["justext"]}, "two or more different ones"),
        ({"extractor": ["justext", "justext"]}, "two or more different ones"),
        ({"extractor": ["justext", "trafilatura"], "extractor_options": {"a": 1}}, "by the name of one of them"),
        ({"max_depth": 0}, "at least 1"),
        ({"cpu_seconds": 0}, "above 0"),
    ):
        with pytest.raises(UsageError, match=message):
            HtmlExtract(**options)


def warc(folder: Path, n: int = 30) -> Path:
    folder.mkdir()
    (folder / "a.warc.gz").write_bytes(b"".join(members(*[record(i) for i in range(n)])))
    return folder


def test_a_reader_of_documents_extracts_the_text_of_web_pages_and_only_then(tmp_path: Path) -> None:
    source = warc(tmp_path / "in")
    assert [s.name for s in DocumentReader(str(source)).decompose()] == [
        "file_partitioning",
        "document_reader",
        "html_extract",
    ]
    assert len(DocumentReader(str(source), extract=None).decompose()) == 2
    assert len(DocumentReader(str(source / "a.warc.gz")).decompose()) == 3
    assert len(DocumentReader(f"{source}/*.gz").decompose()) == 3
    (tmp_path / "plain.jsonl").write_text("{}\n")
    assert len(DocumentReader(str(tmp_path / "plain.jsonl")).decompose()) == 2


def test_commands_take_a_crawl(tmp_path: Path) -> None:
    source = warc(tmp_path / "in")
    done = tamis("filter", "minimal-length", source, tmp_path / "x", "--memory", "600MB")
    assert done.exit_code != 0  # no such filter: the message lists those that ship
    done = tamis("run", "copy", "--set", f"input={source}", "--set", f"output={tmp_path / 'out'}", "--memory", "600MB")
    assert done.exit_code == 0, done.output
    lines = [line for p in (tmp_path / "out").glob("*.jsonl") for line in p.read_text().splitlines()]
    assert sorted(json.loads(line)["text"] for line in lines) == sorted(
        f"{SENTENCE} This is page {i}." for i in range(30)
    )
    planned = tamis("plan", "copy", "--set", f"input={source}", "--set", f"output={tmp_path / 'new'}")
    assert "html_extract" in planned.output
    looked = tamis("inspect", source, "--text-field", "content")
    assert "warc.gz" in looked.output
    assert "30 documents" in looked.output
    deduplicated = tamis("dedup", "exact", source, tmp_path / "unique", "--memory", "600MB")
    assert deduplicated.exit_code == 0, deduplicated.output


def test_resource_records_of_plain_text_pass(tmp_path: Path) -> None:
    (tmp_path / "a.warc").write_bytes(
        record(1, b"words", "conversion", extra=b"Content-Type: text/plain\r\n") + record(2, response(page(2)))
    )
    stages = [WarcReader(str(tmp_path / "a.warc")), HtmlExtract(), JsonlWriter(str(tmp_path / "out"))]
    Pipeline("wet", stages=stages).run(InProcessExecutor())
    lines = [line for p in (tmp_path / "out").glob("*.jsonl") for line in p.read_text().splitlines()]
    assert [json.loads(line)["text"] for line in lines] == ["words", f"{SENTENCE} This is page 2."]
