"""Dumps of Wikipedia as the input of a curation: downloaded once, then read as any other files."""

from __future__ import annotations

import bz2
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tamis import InProcessExecutor
from tamis.curation import Curation
from tamis.curation.steps import ExactDuplicates
from tamis.errors import UsageError
from tamis.stages.text.download.wikipedia import WikipediaDownloadExtractStage
from tests.support.command import tamis
from tests.support.loopback import Loopback, serve
from tests.support.warc_files import prose

NAMES = [f"enwiki-20240101-pages-articles-multistream{n}.xml-p{n}p9.bz2" for n in (1, 2)]


@pytest.fixture
def dumps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """Serve a dump of two files with three articles each, of which one is the same in both."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serve() as web:
        about = {name: {} for name in NAMES}
        status = {"jobs": {"articlesmultistreamdump": {"status": "done", "files": about}}}
        web.files["/enwiki/20240101/dumpstatus.json"] = json.dumps(status).encode()
        for k, name in enumerate(NAMES):
            texts = [prose(random.Random(i)) for i in (0, 2 * k + 1, 2 * k + 2)]
            pages = "".join(
                f"<page><title>T{k}{i}</title><ns>0</ns><id>{10 * k + i}</id><revision><id>9</id>"
                f"<text>{text}</text></revision></page>"
                for i, text in enumerate(texts)
            )
            dump = f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/">{pages}</mediawiki>'
            web.files[f"/enwiki/20240101/{name}"] = bz2.compress(dump.encode())
        yield web


def parameters(web: Loopback, folder: Path) -> dict[str, Any]:
    return {
        "language": "en",
        "dump_date": "20240101",
        "wikidumps_index_prefix": web.url,
        "download_dir": str(folder),
        "remove_files": True,
    }


def documents(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(output.glob("*.jsonl")) for line in path.read_text().splitlines()]


def test_a_dump_is_downloaded_once_and_curated(dumps: Loopback, tmp_path: Path) -> None:
    source = {"wikipedia": parameters(dumps, tmp_path / "dump")}
    curation = Curation([ExactDuplicates()], source, str(tmp_path / "out"))
    assert [p.reads for p in curation.plan().passes] == ["the input", "the input"]
    with pytest.raises(UsageError, match="the size of wikipedia is not known before it was downloaded"):
        curation.sizes()
    curation.run(InProcessExecutor(), progress=False)
    assert len(documents(tmp_path / "out")) == 5
    assert {d["language"] for d in documents(tmp_path / "out")} == {"en"}
    n_requests = len(dumps.requests)
    again = WikipediaDownloadExtractStage(**source["wikipedia"])
    Curation([ExactDuplicates()], again, str(tmp_path / "other")).run(InProcessExecutor(), progress=False)
    assert documents(tmp_path / "other") == documents(tmp_path / "out")
    assert not [path for path in dumps.paths()[n_requests:] if path.endswith(".bz2")]
    assert curation.sizes()["n_files"] == 2


def test_a_recipe_mixes_a_dump_with_files(dumps: Loopback, tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text(json.dumps({"text": prose(random.Random(99))}) + "\n")
    recipe = tmp_path / "mixed.yaml"
    given = json.dumps(parameters(dumps, tmp_path / "dump"))
    recipe.write_text(
        f"name: mixed\noutput: {tmp_path}/out\nsources:\n  - {{path: {tmp_path}/own.jsonl, weight: 2}}\n"
        f"  - {{wikipedia: {given}}}\nsteps: [exact_duplicates]\nsettings: {{memory: 700MB}}\n"
    )
    planned = tamis("plan", recipe)
    assert planned.exit_code == 2
    assert "the size of wikipedia is not known before it was downloaded" in planned.output
    done = tamis("run", recipe)
    assert done.exit_code == 0, done.output
    assert len(documents(tmp_path / "out")) == 5 + 2
    assert tamis("plan", recipe).exit_code == 0


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"wikipedia": {"lang": "de"}}, "got an unexpected keyword argument 'lang'"),
        ({"wiki": {}}, "expected a path, or one of wikipedia, arxiv, common_crawl"),
        ({"arxiv": "papers/"}, "arxiv: expected its parameters"),
    ],
)
def test_a_wrong_description_is_an_error(given: Any, why: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=why):
        Curation([ExactDuplicates()], given, str(tmp_path / "out"))


def test_a_source_has_one_origin(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a source is one of path, wikipedia, arxiv, common_crawl, download"):
        Curation([ExactDuplicates()], None, str(tmp_path / "out"), sources=[{"path": "a/", "arxiv": {}}])
