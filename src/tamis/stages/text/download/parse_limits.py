"""Limits for parsers of web pages and wiki markup, which hostile documents keep busy for hours.

First what does not depend on the machine: the size of a document, how deeply its markup is nested, how many tags it
has. Then CPU seconds: a call that takes longer is made once more in a process of its own; if that takes as long, too,
the document is given up. Documents that may keep a parser inside of one call of a C library, where no signal of Python
gets through, are parsed in a process of their own at once: fork costs some milliseconds, so it is for large ones only.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import resource
import signal
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from tamis.failures import is_memory_failure

T = TypeVar("T")
_ALONE_CHARS, _ALONE_TAGS = (
    512_000,
    10_000,
)  # beyond: in a process of its own. Below, the slowest takes some seconds
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class ParseLimits:
    """Limits of a document: bytes (of wiki markup: characters), nesting depth, tags.

    And CPU seconds for parsing it, None: any. `alone_chars`, `alone_tags`: larger documents are parsed in a process of
    their own at once, as parsers in C may spend long on them without a signal getting through.
    """

    max_bytes: int
    max_depth: int
    max_tags: int
    cpu_s: float | None = 30.0
    alone_chars: int = _ALONE_CHARS
    alone_tags: int = _ALONE_TAGS


HTML_LIMITS = ParseLimits(max_bytes=20_000_000, max_depth=3000, max_tags=200_000)
WIKI_LIMITS = ParseLimits(max_bytes=4_000_000, max_depth=2000, max_tags=100_000)


class ParseRefused(Exception):
    """A document is beyond a limit; the message says which."""


class ParserFailed(Exception):
    """A parser raised in a process of its own; `name` is the type of the exception."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


def error_name(exc: Exception) -> str:
    """Return the type of what a parser raised, wherever it ran."""
    return exc.name if isinstance(exc, ParserFailed) else type(exc).__name__


# -- size, depth and tags ---------------------------------------------------------------------------------------------
_WIKI_TOKEN = re.compile(r"\[\[|\]\]|\{\{|\}\}|\{\||\|\}|\[(?=(?:[a-zA-Z]+:)?//)|\]|<!--|<(/?)([a-zA-Z]+)[^<>]*>")
_WIKI_PAIRS = {"]]": "[[", "}}": "{{", "|}": "{|", "]": "["}
_WIKI_FLAT = frozenset(["br", "wbr", "hr", "meta", "link", "img", "li", "dt", "dd", "th", "td", "tr"])


def check_html(html: str | bytes, limits: ParseLimits) -> int:
    """Refuse a page that is nested too deeply or has too many tags; returns how many tags there are at most.

    Bytes are UTF-8.

    >>> check_html("<p>a<br>b</p>", HTML_LIMITS)
    3
    """
    page = html.encode("utf-8", "replace") if isinstance(html, str) else html
    n_tags = page.count(b"<")
    if n_tags <= min(limits.max_tags, limits.max_depth):  # neither too many nor nested too deeply, end tags included
        return n_tags
    from tamis.kernels.markup.html_tags import FINE, TOO_MANY, count_tags

    n_tags, outcome = count_tags(page, limits.max_tags, limits.max_depth)
    if outcome != FINE:
        raise _too_many_tags(limits) if outcome == TOO_MANY else _too_deep(limits)
    return n_tags


def _too_many_tags(limits: ParseLimits) -> ParseRefused:
    return ParseRefused(f"it has more than {limits.max_tags:,} tags")


def _too_deep(limits: ParseLimits) -> ParseRefused:
    return ParseRefused(f"its markup is nested more than {limits.max_depth:,} deep")


def check_wiki(markup: str, limits: ParseLimits) -> int:
    """Refuse wiki markup that is too large, nested too deeply or has too many elements.

    Returns how many there are at most.
    """
    if len(markup) > limits.max_bytes:
        raise ParseRefused(f"it has {len(markup):,} characters, more than {limits.max_bytes:,}")
    n_tags = sum(markup.count(token) for token in ("<", "[", "{"))
    if n_tags > min(limits.max_depth, limits.max_tags):
        n_tags = _check(_wiki_tokens(markup), limits)
    return n_tags


def _check(tags: Iterator[tuple[str, bool]], limits: ParseLimits) -> int:
    """Count tags, given as (name, is_end), and refuse too many, or too many open at a time."""
    n_tags, stack, n_open = 0, [], Counter[str]()
    for name, is_end in tags:
        if not is_end:
            n_tags += 1
            stack.append(name)
            n_open[name] += 1
            if n_tags > limits.max_tags:
                raise _too_many_tags(limits)
            if len(stack) > limits.max_depth:
                raise _too_deep(limits)
        elif n_open[name]:  # closes the innermost of its name and all open inside it
            while (last := stack.pop()) != name:
                n_open[last] -= 1
            n_open[name] -= 1
    return n_tags


def _wiki_tokens(markup: str) -> Iterator[tuple[str, bool]]:
    position = 0
    while (token := _WIKI_TOKEN.search(markup, position)) is not None:
        position, text = token.end(), token[0]
        if text == "<!--":
            end = markup.find("-->", position)
            if end < 0:
                return
            position = end
        elif token[2] is None:
            yield _WIKI_PAIRS.get(text, text), text in _WIKI_PAIRS
        else:
            name = token[2].lower()
            yield name, bool(token[1])
            if not token[1] and (name in _WIKI_FLAT or text.endswith("/>")):
                yield name, True


# -- CPU seconds ------------------------------------------------------------------------------------------------------
class _TooLong(BaseException):
    """Not an Exception: parsers catch those."""


class CpuGuard:
    """Bounds the CPU seconds of calls of a parser, one after the other, inside a `with`.

    One timer serves all calls: it ticks several times in the allowed seconds, and its handler stops a call that had
    them. In a thread, where no signals come, calls of Python are not bounded.
    """

    def __init__(self, limits: ParseLimits) -> None:
        self._limits = limits
        self._is_on = False
        self._began_s: float | None = None  # of the present call
        self._before: Any = None

    def __enter__(self) -> Self:
        if self._limits.cpu_s is not None and threading.current_thread() is threading.main_thread():
            tick_s = min(1.0, self._limits.cpu_s / 4)
            self._is_on, self._before = True, signal.signal(signal.SIGVTALRM, self._stop)
            signal.setitimer(signal.ITIMER_VIRTUAL, tick_s, tick_s)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_on:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
            signal.signal(signal.SIGVTALRM, self._before)
            self._is_on = False

    def call(self, parse: Callable[[], T], n_chars: int, n_tags: int) -> T:
        """Return what `parse` returns (strings and lists, as JSON has them).

        ParserFailed for what it raises in another process; ParseRefused where it takes too many CPU seconds, twice, or
        its process crashes.
        """
        limits = self._limits
        if limits.cpu_s is None:
            return parse()
        is_large = n_chars > limits.alone_chars or n_tags > limits.alone_tags
        for alone in (is_large, True):
            try:
                return self._in_child(parse, limits.cpu_s) if alone else self._here(parse)
            except _TooLong:
                continue
        raise ParseRefused(
            f"time_limit: parsing it took more than {limits.cpu_s:g} CPU seconds, twice; whether it does depends on "
            "the machine"
        )

    def _here(self, parse: Callable[[], T]) -> T:
        """Call `parse` in this process; _TooLong where it takes too long in Python."""
        self._began_s = time.process_time()
        try:
            return parse()
        finally:
            self._began_s = None

    def _stop(self, *_: object) -> None:
        """Stop a call that took too long, at every tick again: a parser may catch the exception."""
        assert self._limits.cpu_s is not None
        if self._began_s is not None and time.process_time() - self._began_s >= self._limits.cpu_s:
            raise _TooLong

    def _in_child(self, parse: Callable[[], T], cpu_s: float) -> T:
        """Call `parse` in a forked process, or here where none can be had."""
        try:
            return _in_child(parse, cpu_s)
        except _NoProcess:
            return self._here(parse)


class _NoProcess(Exception):
    """No memory for another process inside the cap, or too many processes."""


def within_cpu_limit(parse: Callable[[], T], limits: ParseLimits, n_chars: int, n_tags: int) -> T:
    """Call a parser once, as `CpuGuard.call` does."""
    with CpuGuard(limits) as guard:
        return guard.call(parse, n_chars, n_tags)


def _in_child(parse: Callable[[], T], cpu_s: float) -> T:
    """Call `parse` in a forked process, which the kernel ends after so many CPU seconds."""
    read_fd, write_fd = os.pipe()
    with open(read_fd, "rb", buffering=0) as answer:
        try:
            with (
                warnings.catch_warnings()
            ):  # of threads, which this process may have: the child uses none of what they may lock
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
        except OSError as exc:
            os.close(write_fd)
            raise _NoProcess from exc
        if pid == 0:
            _work(parse, cpu_s, write_fd)
        os.close(write_fd)
        parts = []
        try:
            while part := answer.read(_READ_BYTES):
                parts.append(part)
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            raise
        finally:
            _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGPROF:
        raise _TooLong
    if code == -signal.SIGKILL:
        raise MemoryError("the process that parsed a document was killed")
    if code:
        raise ParseRefused(f"the parser crashed: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}")
    result, error, message = json.loads(b"".join(parts))
    if error == "MemoryError":
        raise MemoryError(message)
    if error:
        raise ParserFailed(error, message)
    return result  # type: ignore[no-any-return]


def _work(parse: Callable[[], Any], cpu_s: float, write_fd: int) -> None:
    """Run the parser in the child process; never return."""
    status = 1
    try:
        faulthandler.disable()  # the parent process reports a crash
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # which ends the process, also inside of C code
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        result, error, message = None, "", ""
        try:
            result = parse()
        except Exception as exc:
            error, message = "MemoryError" if is_memory_failure(exc) else type(exc).__name__, str(exc)
        data = memoryview(json.dumps([result, error, message]).encode())
        while data:
            data = data[os.write(write_fd, data) :]
        status = 0
    finally:
        os._exit(status)
