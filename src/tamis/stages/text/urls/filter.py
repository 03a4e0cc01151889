"""UrlFilter: drops documents by their URL, before anything else is done with them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from tamis._lazy import np
from tamis.errors import UsageError, check_choice
from tamis.sizes import check_integer
from tamis.stages.base import DropRule, ProcessingStage
from tamis.stages.fingerprints import joined, of_file
from tamis.stages.text.urls.hosts import host_of, parents_of, split_host
from tamis.stages.text.urls.lists import (
    BYTES_PER_ENTRY,
    DOMAINS,
    SOFT_WORDS,
    SUBSTRINGS,
    URLS,
    WORDS,
    HashTable,
    ListFiles,
    hash_of,
    normalized,
)
from tamis.stages.traits import StageTraits
from tamis.tasks import DocumentBatch

DATATROVE, SUFFIX = "datatrove", "suffix"
RULES = ("url_domain", "url_host", "url_listed", "url_banned_word", "url_soft_words", "url_banned_substring")
_WORDS = re.compile(r"[^a-zA-Z0-9]+")
_SCHEME = re.compile(r"^(?:[a-zA-Z][a-zA-Z0-9+.-]*:)?//(?:[^/?#@]*@)?")


@dataclass(repr=False)
class UrlFilter(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Drop documents whose URL is on a list, or has words that are.

    `blocklists`: a folder with files named `domains`, `urls`, `banned_words`, `soft_banned_words` and
    `banned_subwords`, plain or .gz, in it or in its folders (as UT1 has them; `categories` chooses among these). Each
    kind can be given by itself: a file, or a list of entries. `match`: "datatrove" compares the registered domain and
    the full host with the domains, and URLs letter by letter, as its URLFilter does; "suffix" also drops the
    subdomains of each listed domain, in any case, and compares URLs without scheme. A URL goes for one banned word,
    for `soft_word_threshold` soft ones, and for a banned substring of its letters and digits. Documents without a URL
    stay. No list ships: `blocklists: false` says that a recipe is to go without them.
    """

    blocklists: str | Literal[False] | None = None
    categories: Sequence[str] | None = None
    domains: str | Iterable[str] | None = None
    urls: str | Iterable[str] | None = None
    banned_words: str | Iterable[str] | None = None
    soft_banned_words: str | Iterable[str] | None = None
    banned_subwords: str | Iterable[str] | None = None
    soft_word_threshold: int = 2
    match: str = DATATROVE
    url_field: str = "url"
    name: str = "url_filter"
    traits: ClassVar[StageTraits] = StageTraits(only_drops=True)
    columns_in = ("url_field",)
    _tables: _Tables | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        check_choice(f"{self.name}: match", self.match, (DATATROVE, SUFFIX))
        check_integer(self.soft_word_threshold, f"{self.name}: soft_word_threshold")
        if self.categories is not None and not self.blocklists:
            raise UsageError(f"{self.name}: categories choose among the folders of blocklists; give both")
        self._files = ListFiles()
        if self.blocklists:
            self._files = ListFiles.below(self.blocklists, self.categories, self.name)
        lists = (self.domains, self.urls, self.banned_words, self.soft_banned_words, self.banned_subwords)
        kinds = (DOMAINS, URLS, WORDS, SOFT_WORDS, SUBSTRINGS)
        self._more = {k: self._files.add(k, entries, self.name) for k, entries in zip(kinds, lists, strict=True)}
        if not self._files.all and not any(self._more.values()) and self.blocklists is not False:
            raise UsageError(
                f"{self.name}: no list is given; name a folder with blocklists, or domains, urls or words; or say that "
                "there are none with blocklists=False (tamis curate --no-blocklists)"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tables": None}

    def rules(self) -> list[DropRule]:
        limits = [{}, {}, {}, {}, {"soft_word_threshold": self.soft_word_threshold}, {}]
        return [DropRule(name, name, limit) for name, limit in zip(RULES, limits, strict=True)]

    def least_bytes(self) -> int:
        """Return the size of the table, which memory holds once."""
        return BYTES_PER_ENTRY * (self._files.n_entries() + len(self._more[DOMAINS]) + len(self._more[URLS]))

    def model_files(self) -> str:
        return joined([of_file(path) or "" for path in self._files.all])

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        """Build the tables in the process from which workers are forked, which then share them."""
        self._load()

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        tables = self._load()
        texts = batch.texts(self.url_field).to_pylist()
        verdicts = tables.verdicts([url or "" for url in texts])
        for number, rule in enumerate(self.rules(), 1):
            rows = np.flatnonzero(verdicts == number)
            self._note_drops(batch.serial[rows], rule.name, [texts[i][:200] for i in rows.tolist()], rule.limits)
        return batch.filter(verdicts == 0)

    def _load(self) -> _Tables:
        if self._tables is None:
            self._tables = _Tables(self._files, self._more, self.match, self.soft_word_threshold, self.name)
        return self._tables


class _Tables:
    """The lists, as they are compared."""

    def __init__(self, files: ListFiles, more: dict[str, list[str]], match: str, soft: int, owner: str) -> None:
        self._is_suffix, self._soft = match == SUFFIX, soft

        def entries(kind: str) -> Iterable[str]:
            yield from files.lines(kind)
            yield from more[kind]

        self._domains = HashTable(entries(DOMAINS), _domain_key if self._is_suffix else str)
        self._urls = HashTable(entries(URLS), _url_key if self._is_suffix else str)
        self._words = files.words(WORDS, more[WORDS], owner)
        self._soft_words = files.words(SOFT_WORDS, more[SOFT_WORDS], owner)
        substrings = sorted(files.words(SUBSTRINGS, more[SUBSTRINGS], owner))
        self._substrings = re.compile("|".join(map(re.escape, substrings))) if substrings else None

    def verdicts(self, urls: list[str]) -> Any:
        """Return for each URL the number of the first rule that drops it, 0 if none does."""
        verdicts = np.zeros(len(urls), np.int8)
        by_host, by_domain = self._hosts(urls)
        by_url = self._urls.has(np.array([hash_of(_url_key(u) if self._is_suffix else u) for u in urls], np.uint64))
        for i, url in enumerate(urls):
            if not url:
                continue
            verdicts[i] = 1 if by_domain[i] else 2 if by_host[i] else 3 if by_url[i] else self._by_words(url)
        return verdicts

    def _hosts(self, urls: list[str]) -> tuple[Any, Any]:
        """Return which URLs are listed by their host, and which by a domain above it."""
        n = len(urls)
        by_host, by_domain = np.zeros(n, bool), np.zeros(n, bool)
        if not self._domains.n:
            return by_host, by_domain
        if not self._is_suffix:
            hosts = [split_host(host_of(url)) for url in urls]
            by_host = self._domains.has(np.array([hash_of(h.name) for h in hosts], np.uint64))
            by_domain = self._domains.has(np.array([hash_of(h.registered) for h in hosts], np.uint64))
            return by_host & [bool(h.name) for h in hosts], by_domain & [bool(h.registered) for h in hosts]
        names = [parents_of(host_of(url)) for url in urls]
        rows = np.repeat(np.arange(n), [len(above) for above in names])
        hits = self._domains.has(np.array([hash_of(name) for above in names for name in above], np.uint64))
        is_whole = np.diff(rows, prepend=-1) > 0
        by_host[rows[hits & is_whole]] = True
        by_domain[rows[hits & ~is_whole]] = True
        return by_host, by_domain

    def _by_words(self, url: str) -> int:
        if self._words or self._soft_words:
            words = set(_WORDS.split(url.lower() if self._is_suffix else url))
            if not words.isdisjoint(self._words):
                return 4
            if len(words & self._soft_words) >= self._soft:
                return 5
        if self._substrings is not None and self._substrings.search(normalized(url)):
            return 6
        return 0


def _domain_key(entry: str) -> str:
    return entry.lower().removeprefix("*.").strip(".")


def _url_key(url: str) -> str:
    """Return a URL without scheme and user, its host in lower case, without a slash at its end."""
    rest = _SCHEME.sub("", url)
    host, slash, path = rest.partition("/")
    return (host.lower() + slash + path).rstrip("/")
