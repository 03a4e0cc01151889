"""The preset that begins at WARC: the same documents as its steps one by one, and pages extracted once."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.curation import Curation
from tamis.curation.steps import FuzzyDuplicates
from tamis.stages.text.filters.gopher import GopherQuality
from tamis.stages.text.html import HtmlExtract
from tamis.stages.text.html import extract as html_extract
from tamis.stages.text.io import DocumentReader, JsonlWriter
from tests.support.command import tamis
from tests.support.loopback import serve
from tests.support.warc_files import members, prose, record, response


def crawl(folder: Path, n: int = 40) -> Path:
    """Pages of prose; every fourth repeats the one before it with another menu, every fifth is too short."""
    rng = random.Random(5)
    folder.mkdir()
    records, last = [], ""
    for i in range(n):
        body = last if i % 4 == 3 else "too short" if i % 5 == 0 else prose(rng)
        last = body
        html = f"<html><body><nav><a href='/{i}'>Menu {i}</a></nav><main><article><p>{body}</p></article></main></body>"
        records.append(record(i, response(html.encode())))
    (folder / "a.warc.gz").write_bytes(b"".join(members(*records)))
    return folder


def documents(output: Path) -> list[dict[str, Any]]:
    lines = [line for path in sorted(output.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return sorted((json.loads(line) for line in lines), key=lambda d: d["warc_id"])


def steps() -> list[Any]:
    return [GopherQuality(min_doc_words=50), FuzzyDuplicates(word_ngrams=5, num_bands=14, minhashes_per_band=8)]


def test_pages_are_extracted_in_the_first_pass_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = crawl(tmp_path / "in")
    monkeypatch.setattr("tamis.stages.text.html.text_cache.is_worth_storing", lambda *_: True)
    calls: list[int] = []
    whole = HtmlExtract._call

    def counted(self: HtmlExtract, content: bytes) -> str | None:
        calls.append(len(content))
        return whole(self, content)

    monkeypatch.setattr(html_extract.HtmlExtract, "_call", counted)
    curation = Curation(steps(), str(source), str(tmp_path / "out"))
    assert next(step.name for step in curation.steps) == "html_extract"
    assert any("kept on the disk" in remark for remark in curation.plan().remarks)
    assert len(curation.plan().passes) == 3
    curation.run(InProcessExecutor(), progress=False)
    assert len(calls) == 40

    monkeypatch.setattr("tamis.stages.text.html.text_cache.is_worth_storing", lambda *_: False)
    Curation(steps(), str(source), str(tmp_path / "again")).run(InProcessExecutor(), progress=False)
    assert len(calls) > 80  # every pass extracts what is not kept
    assert documents(tmp_path / "out") == documents(tmp_path / "again")
    assert 10 < len(documents(tmp_path / "out")) < 30


def test_steps_that_extract_by_themselves_are_not_doubled(tmp_path: Path) -> None:
    source = crawl(tmp_path / "in", 4)
    own = Curation([HtmlExtract("trafilatura"), *steps()], str(source), str(tmp_path / "out"))
    assert [step.name for step in own.steps].count("html_extract") == 1
    assert own.steps[0].extractor == "trafilatura"  # type: ignore[union-attr]


def test_the_preset_from_the_command_line(tmp_path: Path) -> None:
    source = crawl(tmp_path / "in")
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "urls").write_text("http://example.org/1\n")
    command = ("curate", source, tmp_path / "out", "--preset", "fineweb", "--memory", "800MB")
    refused = tamis(*command)
    assert refused.exit_code == 2
    assert "--blocklists DIR" in refused.output
    assert tamis(*command, "--blocklists", tmp_path / "lists", "--no-blocklists").exit_code == 2
    done = tamis(*command, "--blocklists", tmp_path / "lists")
    assert done.exit_code == 0, done.output
    assert "url_listed" in done.output
    kept = documents(tmp_path / "out")
    assert kept
    assert all("Menu" not in d["text"] for d in kept)
    assert "http://example.org/1" not in {d["url"] for d in kept}
    planned = tamis("curate", source, tmp_path / "new", "--preset", "fineweb", "--no-blocklists", "--plan")
    assert planned.exit_code == 0, planned.output
    assert "html_extract" in planned.output
    assert "kept on the disk" in planned.output


def test_the_preset_for_many_languages_takes_a_table_of_thresholds(tmp_path: Path) -> None:
    source = crawl(tmp_path / "in")
    (tmp_path / "t.yaml").write_text("de: 0.5\nfr: 0.5\n")
    command = ("curate", source, "--preset", "fineweb2", "--no-blocklists", "--memory", "800MB")
    every = tamis(command[0], source, tmp_path / "out", *command[2:])
    assert every.exit_code == 0, every.output
    assert {d["language"][-5:] for d in documents(tmp_path / "out")} == {"'en']"}
    none = tamis(command[0], source, tmp_path / "none", *command[2:], "--set", f"min_scores={tmp_path}/t.yaml")
    assert none.exit_code == 0, none.output
    assert documents(tmp_path / "none") == []


def test_one_command_keeps_the_documents_that_its_steps_keep_apart(tmp_path: Path) -> None:
    source = crawl(tmp_path / "in")
    Curation(steps(), str(source), str(tmp_path / "one")).run(InProcessExecutor(), progress=False)
    text_pipeline = Pipeline("text", stages=[DocumentReader(str(source)), JsonlWriter(str(tmp_path / "text"))])
    text_pipeline.run(InProcessExecutor())
    Curation(steps(), str(tmp_path / "text"), str(tmp_path / "two")).run(InProcessExecutor(), progress=False)
    assert documents(tmp_path / "one") == documents(tmp_path / "two")


def test_a_curation_takes_files_from_a_web_server(tmp_path: Path) -> None:
    source = crawl(tmp_path / "in", 12)
    with serve() as web:
        web.files |= {f"/{name}.warc.gz": (source / "a.warc.gz").read_bytes() for name in "ab"}
        recipe = tmp_path / "two.yaml"
        recipe.write_text(
            f"name: two\noutput: {tmp_path}/out\nsources:\n"
            f"  - {{path: {web.url}/a.warc.gz}}\n  - {{path: {web.url}/b.warc.gz}}\n"
            "steps: [{html_extract: {extractor: resiliparse}}, exact_duplicates]\nsettings: {memory: 700MB}\n"
        )
        done = tamis("run", recipe)
    assert done.exit_code == 0, done.output
    texts = [document["text"] for document in documents(tmp_path / "out")]
    assert len(texts) == len(set(texts)) > 5
