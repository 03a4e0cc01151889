"""HtmlExtract: the main text of web pages, by a library of choice, inside limits that hostile pages cannot exceed.

Limits that do not depend on the machine come first: bytes, nesting and tags (`parse_limits.py`). Then CPU seconds: a
page that takes longer is parsed once more, alone in a process of its own; if that takes as long, too, it goes to
quarantine with its URL and the reason `time_limit`. A crash of a parser takes that process, not the worker; what a
parser leaks ends with its worker, which the engine replaces when its floor rises.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tamis._lazy import np, pa
from tamis.errors import TamisError, UsageError
from tamis.failures import is_memory_failure
from tamis.memory.release import reusing_large_blocks
from tamis.sizes import parse_size
from tamis.stages.base import DropRule, ProcessingStage
from tamis.stages.text.download.parse_limits import (
    HTML_LIMITS,
    CpuGuard,
    ParseLimits,
    ParseRefused,
    check_html,
    error_name,
)
from tamis.stages.text.html.extractors import (
    BestOf,
    ByAlgorithm,
    Extract,
    JusText,
    Resiliparse,
    extractor_of,
    load_library,
    parts_of,
)
from tamis.stages.text.html.text_cache import CachedDrop, TextCache
from tamis.stages.traits import StageTraits
from tamis.tasks import TEXT, DocumentBatch

_MARKUP = frozenset({"text/html", "application/xhtml+xml"})
_PLAIN = frozenset({"text/plain"})
_UNSURE = frozenset({"", "application/xml", "text/xml"})  # looked into: many servers send pages as these
_LOOKS_LIKE_HTML = re.compile(rb"<(?:!doctype\s+html|html|head|body|title|meta|div|p|a)\b", re.I)
_LOOK_BYTES = 2000
_RESILIPARSE_ALONE = {"alone_chars": 1 << 20, "alone_tags": 60_000}
NO_TEXT, NOT_HTML, NOT_PARSED = "html_without_text", "not_html", "html_not_parsed"


@dataclass(repr=False)
class HtmlExtract(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Make the main text of web pages the text of their documents.

    `extractor`: "resiliparse", "trafilatura" (with the options of FineWeb), "justext", a function from a page to its
    text or None, an HTMLExtractorAlgorithm, or a list of these: of their texts the one with most words in lines of
    prose is kept (docs/guides/web.md has the rule). `extractor_options` are parameters of the library, for a list by
    the name of each. The page is in `content_field`, as WarcReader gives it, and leaves the document unless
    `keep_content`; its type is in `type_field`: plain text is taken as it is, what is neither text nor markup is
    dropped, and so are pages without text. Documents without a page stay as they are. `max_bytes`, `max_depth`,
    `max_tags`, `cpu_seconds`: pages beyond these limits go to quarantine with their URL; None for cpu_seconds: no
    limit.
    """

    extractor: Any = "resiliparse"
    content_field: str = "content"
    text_field: str = "text"
    type_field: str = "content_type"
    url_field: str = "url"
    keep_content: bool = False
    extractor_options: Mapping[str, Any] | None = None
    max_bytes: int | str = HTML_LIMITS.max_bytes
    max_depth: int = HTML_LIMITS.max_depth
    max_tags: int = HTML_LIMITS.max_tags
    cpu_seconds: float | None = HTML_LIMITS.cpu_s
    name: str = "html_extract"
    traits: ClassVar[StageTraits] = StageTraits(keeps_results=True)
    kernel_groups: ClassVar[tuple[str, ...]] = ("markup",)
    columns_in = ("content_field",)
    columns_out = ("text_field",)
    _kept_in: str | None = field(default=None, init=False)
    _kept_bytes: int | None = field(default=0, init=False)  # of texts; None: not all were stored

    def __post_init__(self) -> None:
        extract = extractor_of(self.extractor, self.extractor_options, self.name)
        if any(isinstance(one, (JusText, ByAlgorithm)) for one in parts_of(extract)):  # they look at the language
            self.kernel_groups = ("text", *self.kernel_groups)  # type: ignore[misc]
        for what in ("max_depth", "max_tags"):
            if getattr(self, what) < 1:
                raise UsageError(f"{self.name}: {what} must be at least 1, got {getattr(self, what)}")
        if self.cpu_seconds is not None and not self.cpu_seconds > 0:
            raise UsageError(f"{self.name}: cpu_seconds must be above 0, or None, got {self.cpu_seconds!r}")
        size = parse_size(self.max_bytes, f"{self.name}: max_bytes")
        # Up to 1 MiB (where Common Crawl used to cut pages) it takes some seconds at most, unless one tag has tens of
        # thousands of attributes. A process of its own costs 20 to 50 % of the time of such a page.
        alone = _RESILIPARSE_ALONE if isinstance(extract, Resiliparse) else {}
        self._limits = ParseLimits(size, self.max_depth, self.max_tags, self.cpu_seconds, **alone)
        self._extract: Extract = extract

    def rules(self) -> list[DropRule]:
        return [DropRule(name, name, {}) for name in (NOT_HTML, NO_TEXT, NOT_PARSED)]

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        """Load the library in the process from which workers are forked, which then share it."""
        load_library(self._extract)

    def keep_between_passes(self, folder: str) -> None:
        self._kept_in = folder

    def replaced_field(self) -> str | None:
        return None if self.keep_content or self.content_field == self.text_field else self.content_field

    def take_kept_bytes(self) -> int | None:
        n_bytes, self._kept_bytes = self._kept_bytes, 0
        return n_bytes

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        cache = TextCache(self._kept_in) if self._kept_in is not None else None
        known = cache.load(batch) if cache is not None else {}
        pages = np.union1d(np.flatnonzero(batch.kinds(self.content_field) == TEXT), list(known)).astype(np.int64)
        if len(pages) < batch.num_items and _is_kept(batch):
            raise TamisError(f"{self.name}: texts that an earlier pass kept are gone; start over with fresh (--fresh)")
        if not len(pages):
            return batch
        outcome = _Outcome(batch.num_items)
        contents, types, urls = (batch.texts(f) for f in (self.content_field, self.type_field, self.url_field))
        began_s = time.process_time()
        with reusing_large_blocks(), CpuGuard(self._limits) as guard:
            for i in pages.tolist():
                if i in known:
                    outcome.put(i, known[i])
                    continue
                try:
                    outcome.put(i, self._text(contents[i].as_buffer().to_pybytes(), types[i].as_py(), guard))
                except ParseRefused as exc:
                    outcome.refuse(i, f"page {urls[i].as_py()!r} is not parsed: {exc}")
        if isinstance(self._extract, BestOf):
            self._log_metrics({f"text of {name}": n for name, n in self._extract.take_kept().items()})
        if cache is not None:
            new = {i: v for i, v in outcome.values.items() if i not in known}
            n_bytes = cache.store(batch, new, time.process_time() - began_s)
            is_all = n_bytes is not None and self._kept_bytes is not None
            self._kept_bytes = (n_bytes or 0) + (self._kept_bytes or 0) if is_all else None
        self._note_bad(batch.serial[list(outcome.refused)], list(outcome.refused.values()))
        for rule in (NOT_HTML, NO_TEXT, NOT_PARSED):
            self._note_drops(batch.serial[outcome.dropped(rule)], rule, None, {})
        result = batch.with_column(self.text_field, outcome.texts(batch, self.text_field))
        if not self.keep_content and self.content_field != self.text_field:
            result = result.drop_columns([self.content_field])
        return result.filter(outcome.stays)

    def _text(self, content: bytes, media: str | None, guard: CpuGuard) -> str | CachedDrop:
        """Return the text of a page, or the rule that drops it; raises ParseRefused for one beyond the limits."""
        media = media or ""
        if media not in _MARKUP and not (media in _UNSURE and _LOOKS_LIKE_HTML.search(content, 0, _LOOK_BYTES)):
            if media not in _PLAIN and media != "":
                return CachedDrop(NOT_HTML)
            return content.decode() if content.strip() else CachedDrop(NO_TEXT)
        n_bytes = len(content)
        if n_bytes > self._limits.max_bytes:
            raise ParseRefused(f"it has {n_bytes:,} bytes, more than {self._limits.max_bytes:,}")
        n_tags = check_html(content, self._limits)
        try:
            text = guard.call(lambda: self._call(content), n_bytes, n_tags)
        except ParseRefused:
            raise
        except Exception as exc:  # parsers raise what they like on pages that no browser would show
            if isinstance(exc, TamisError) or is_memory_failure(exc):
                raise
            self._log_metric(f"not parsed: {error_name(exc)}", 1.0)
            return CachedDrop(NOT_PARSED)
        text = _valid(text)
        return text if text else CachedDrop(NO_TEXT)

    def _call(self, content: bytes) -> str | None:
        of_bytes = getattr(self._extract, "of_bytes", None)
        text: str | None = self._extract(content.decode()) if of_bytes is None else of_bytes(content)
        return text


class _Outcome:
    """Outcome of the documents of a batch: texts, rules that drop, reasons for the quarantine."""

    def __init__(self, n: int) -> None:
        self.stays = np.ones(n, bool)
        self.values: dict[int, str | CachedDrop] = {}
        self.refused: dict[int, str] = {}

    def put(self, i: int, value: str | CachedDrop) -> None:
        self.values[i] = value
        self.stays[i] = not isinstance(value, CachedDrop)

    def refuse(self, i: int, reason: str) -> None:
        self.refused[i] = reason
        self.stays[i] = False

    def dropped(self, rule: str) -> list[int]:
        return [i for i, value in self.values.items() if isinstance(value, CachedDrop) and value.rule == rule]

    def texts(self, batch: DocumentBatch, field: str) -> pa.Array:
        """Return the column of texts: those of pages, and for the other documents what they had."""
        n = batch.num_items
        before = batch.texts(field) if len(self.values) + len(self.refused) < n else None
        texts = [self.values.get(i) for i in range(n)]
        if before is not None:
            texts = [before[i].as_py() if i not in self.values else texts[i] for i in range(n)]
        return pa.array([t if isinstance(t, str) else None for t in texts], pa.large_string())


def _is_kept(batch: DocumentBatch) -> bool:
    """Return True for records that an earlier pass kept without their pages."""
    from tamis.formats.scratch.kept_records import KeptBlock

    return batch.lineage is not None and isinstance(batch.lineage.origin, KeptBlock)


def _valid(text: str | None) -> str:
    """Return the text without surrounding white space, and without characters that UTF-8 does not have."""
    if text is None:
        return ""
    stripped = text.strip()
    try:
        stripped.encode()
    except UnicodeEncodeError:
        return stripped.encode("utf-8", "replace").decode()
    return stripped
