"""UrlFilter: which documents go by which rule, lists in every form, and the same verdicts as datatrove."""

from __future__ import annotations

import gzip
import pickle
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.errors import UsageError
from tamis.stages.text.io import JsonlReader, JsonlWriter
from tamis.stages.text.urls import UrlFilter
from tamis.stages.text.urls.filter import RULES
from tamis.stages.text.urls.hosts import host_of, split_host
from tamis.stages.text.urls.lists import HashTable, hash_of
from tamis.tasks import DocumentBatch
from tests.support.command import tamis


def verdicts(stage: UrlFilter, *urls: str | None) -> list[str]:
    """Return the rule that drops each URL, "" if it stays."""
    numbers = stage._load().verdicts([u or "" for u in urls]).tolist()
    return [("", *RULES)[n] for n in numbers]


def test_as_datatrove_matches() -> None:
    stage = UrlFilter(
        domains=["bad.com", "sub.fair.org", "blog.blogspot.com"],
        urls=["http://x.org/Exact"],
        banned_words=["casino"],
        soft_banned_words=["free", "win"],
        banned_subwords=["viagra"],
    )
    assert verdicts(
        stage,
        "http://bad.com/a",
        "http://www.bad.com/a",
        "http://sub.fair.org/",
        "http://www.sub.fair.org/",
        "http://BAD.com/",
        "http://a.blog.blogspot.com/",
        "http://x.org/Exact",
        "https://x.org/Exact",
        "http://y.org/casino-night",
        "http://y.org/Casino-night",
        "http://y.org/casinos",
        "http://y.org/free-win",
        "http://y.org/free",
        "http://y.org/via-gra-x",
        None,
    ) == [
        "url_domain",
        "url_domain",
        "url_host",
        "",
        "",
        "",
        "url_listed",
        "",
        "url_banned_word",
        "",
        "",
        "url_soft_words",
        "",
        "url_banned_substring",
        "",
    ]


def test_by_suffix_every_subdomain_goes_in_any_case() -> None:
    stage = UrlFilter(domains=["Bad.com", "*.fair.org"], urls=["x.org/a/"], banned_words=["casino"], match="suffix")
    assert verdicts(
        stage,
        "http://bad.COM/",
        "http://a.b.bad.com:80/x",
        "http://notbad.com/",
        "http://www.fair.org",
        "https://X.org/a",
        "http://x.org/a/b",
        "http://y.org/CASINO",
    ) == ["url_host", "url_domain", "", "url_domain", "url_listed", "", "url_banned_word"]


def ut1(folder: Path) -> Path:
    for category, domains in (("adult", "adult.com\n# a comment\n\n"), ("gambling", "gambling.com\n")):
        (folder / category).mkdir(parents=True)
        (folder / category / "domains").write_text(domains)
    (folder / "gambling" / "urls.gz").write_bytes(gzip.compress(b"x.org/bet\n"))
    (folder / "banned_words.txt").write_text("ca-si-no\n")
    return folder


def test_folders_as_ut1_has_them(tmp_path: Path) -> None:
    folder = str(ut1(tmp_path / "lists"))
    urls = ("http://adult.com", "http://gambling.com", "http://x.org/bet", "http://y.org/casino")
    every = ["url_host", "url_host", "url_listed", "url_banned_word"]
    assert verdicts(UrlFilter(folder, match="suffix"), *urls) == every
    assert verdicts(UrlFilter(folder, ["adult"], match="suffix"), *urls) == ["url_host", "", "", ""]


def test_mistakes_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.gz").write_bytes(gzip.compress(b"a.com\n" * 1000)[:-20])
    for options, message in (
        ({}, "no list is given"),
        ({"blocklists": str(tmp_path / "none")}, "is no folder"),
        ({"blocklists": str(tmp_path / "empty")}, "has no list"),
        ({"blocklists": str(ut1(tmp_path / "lists")), "categories": ["drugs"]}, "no folder named 'drugs'"),
        ({"categories": ["drugs"]}, "give both"),
        ({"domains": str(tmp_path / "none")}, "is no file"),
        ({"domains": ["a.com"], "match": "regex"}, "datatrove, suffix"),
    ):
        with pytest.raises(UsageError, match=message):
            UrlFilter(**options)
    with pytest.raises(UsageError, match="cannot be read as a list"):
        UrlFilter(domains=str(tmp_path / "broken.gz"))._load()


def test_in_a_pipeline_every_drop_has_its_rule_and_url(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"url": "http://bad.com/"}\n{"url": "http://good.com/"}\n{"text": "none"}\n')
    stages = [JsonlReader(str(tmp_path / "in.jsonl")), UrlFilter(domains=["bad.com"]), JsonlWriter(str(tmp_path / "o"))]
    pipeline = Pipeline("urls", stages=stages)
    pipeline.run(InProcessExecutor())
    assert pipeline.last_result is not None
    (book,) = pipeline.last_result.ledger.stages
    assert book.losses == {"url_domain": 1}
    assert book.out.n == 2


def test_workers_share_one_table_that_the_budget_counts(tmp_path: Path) -> None:
    (tmp_path / "domains").write_text("".join(f"host{i}.com\n" for i in range(100_000)))
    stage = UrlFilter(str(tmp_path))
    assert stage.least_bytes() == 800_000
    stage.setup_on_node()
    tables = stage._tables
    assert tables is not None
    assert isinstance(tables._domains._hashes, np.memmap)  # a mapped file: not copied by forks
    assert pickle.loads(pickle.dumps(stage))._tables is None
    before = stage.model_files()
    (tmp_path / "domains").write_text("other.com\n")
    assert UrlFilter(str(tmp_path)).model_files() != before


def test_a_table_knows_its_entries_and_no_others() -> None:
    table = HashTable((str(i) for i in range(70_000)), str)
    assert table.n == 70_000
    keys = np.array([hash_of(str(i)) for i in (0, 69_999, 70_000, 123_456)], np.uint64)
    assert table.has(keys).tolist() == [True, True, False, False]
    assert HashTable([], str).has(keys).tolist() == [False] * 4


def test_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(
        '{"url": "http://bad.com/", "text": "a"}\n{"url": "http://good.com/", "text": "b"}\n'
    )
    steps = "steps:\n  - url_filter: {domains: [bad.com]}\n"
    (tmp_path / "r.yaml").write_text(f"name: urls\ninput: {tmp_path}/in.jsonl\noutput: {tmp_path}/out\n{steps}")
    recipe = ("--preset", tmp_path / "r.yaml", "--memory", "600MB")
    done = tamis("curate", tmp_path / "in.jsonl", tmp_path / "out", *recipe)
    assert done.exit_code == 0, done.output
    assert "url_domain" in done.output


# -- beside datatrove -------------------------------------------------------------------------------------------------
def random_urls(n: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    labels = ["www", "a", "Blog", "xn--bcher-kva", "bad", "b-c", "1", "", "m\u00fcnchen", "blogspot", "casino"]
    suffixes = ["com", "co.uk", "github.io", "ck", "www.ck", "x.ck", "nosuch", "com.", "COM", "de", "kawasaki.jp"]
    paths = ["", "/", "/free-win", "/Free/win", "/casino?x=1", "/a#casino", "/vi%61gra", "/VIAGRA", "/exact", ":80/x"]
    starts = ["http://", "https://", "//", "", "ftp://u:p@", "http:/", "://"]
    hosts = [
        ".".join([*(rng.choice(labels) for _ in range(rng.randint(0, 3))), rng.choice(suffixes)]) for _ in range(n)
    ]
    hosts[:5] = ["127.0.0.1", "1.2.3.4.5", "[::1]", "256.1.1.1", "..com"]
    return [rng.choice(starts) + host + rng.choice(paths) for host in hosts]


@pytest.mark.filterwarnings("ignore")
def test_the_verdicts_are_those_of_datatrove() -> None:
    tldextract = pytest.importorskip("tldextract")
    pytest.importorskip("ahocorasick")
    url_filter = pytest.importorskip("datatrove.pipeline.filters.url_filter")
    from datatrove.data import Document

    urls = [u for u in random_urls(20_000, 1) if u]
    hosts = [split_host(host_of(u)) for u in random_urls(300, 2)]
    lists: dict[str, Any] = {
        "domains": sorted({h.registered for h in hosts[:40] if h.registered} | {h.name for h in hosts[:80] if h.name}),
        "urls": [*urls[:50], "http://com/exact"],
        "banned_words": ["casino"],
        "soft_banned_words": ["free", "win"],
        "banned_subwords": ["viagra", "bcherk"],
    }
    named = {"extra_domains": lists["domains"], "extra_urls": lists["urls"]}
    words = {k: lists[k] for k in ("banned_words", "soft_banned_words", "banned_subwords")}
    theirs = url_filter.URLFilter(**named, **words, use_integrated_lists=False)
    theirs.tldextractor = tldextract.TLDExtract(cache_dir=None, suffix_list_urls=())
    reasons = {
        "domain": "url_domain",
        "subdomain": "url_host",
        "url": "url_listed",
        "hard_blacklisted": "url_banned_word",
        "soft_blacklisted": "url_soft_words",
        "blacklisted_subword": "url_banned_substring",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = [theirs.filter(Document("", "", metadata={"url": url})) for url in urls]
    found = verdicts(UrlFilter(**lists), *urls)
    assert found == ["" if verdict is True else reasons[verdict[1]] for verdict in expected]
    assert set(found) == {"", *reasons.values()}


def test_documents_without_urls_stay() -> None:
    batch = DocumentBatch("x", pa.table({"url": pa.array([None, "http://bad.com"], pa.string())}))
    assert UrlFilter(domains=["bad.com"]).process(batch).num_items == 1
