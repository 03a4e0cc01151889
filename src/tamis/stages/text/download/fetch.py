"""Fetching over HTTP: whole files into a part file that survives interruptions, small files and ranges into memory.

A part file grows until it has the length that the server reported. Next to it, `<part>.from` records what it is a
part of: after an interruption the rest is requested with If-Range, so that parts of two versions of a file are never
joined. Covers: schemes, redirects, retries with growing pauses, ranges, lengths. Does not cover: where files go
(base/download.py).
"""

from __future__ import annotations

import http.client
import json
import os
import random
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tamis import files
from tamis.errors import DownloadError

T = TypeVar("T")
_BLOCK_BYTES = 1 << 20
_AGAIN = {408, 425, 429, 500, 502, 503, 504}  # what a server says that may be different in a minute
_GONE = {404, 410, 451}  # it does not have the file, or may not give it to anybody
_REFUSED = {401, 403, 407}
_LONGEST_PAUSE_S = 60.0
_AGENT = "tamis (text curation; python urllib)"
_NETWORK = (TimeoutError, ConnectionError, http.client.HTTPException, ssl.SSLError)


@dataclass(frozen=True)
class FetchPolicy:
    """Limits of retries and of slowness.

    `n_attempts` counts consecutive attempts without a byte; any progress resets the count.

    An attempt that brings less than `least_bytes_per_s` over `slow_s` is aborted and counts as one without a byte: a
    server that sends a byte a minute would keep a worker for years.
    """

    timeout_s: float = 60.0
    n_attempts: int = 5
    pause_s: float = 1.0  # before the second attempt; doubles after that
    max_bytes: int | None = None
    schemes: tuple[str, ...] = ("http", "https")
    least_bytes_per_s: float = 1000.0
    slow_s: float = 120.0
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)


USUAL = FetchPolicy()


def fetch_file(url: str, path: str, policy: FetchPolicy = USUAL) -> int:
    """Bring the whole of `url` into the file `path`, going on with what an earlier call left there; returns its bytes.

    Raises DownloadError. What was fetched by then stays in `path`, for the next call.
    """
    check_url(url, policy.schemes)
    part = _PartFile(path, url)

    def attempt() -> None:
        if part.is_complete():
            return
        try:
            with _answer(url, policy, part.headers()) as answer:
                part.begin(answer)
                part.append(_Body(answer, policy), policy.max_bytes)
        except _NoSuchRange:
            part.start_over()
            raise

    _persist(url, policy, attempt, part.n_bytes)
    part.forget()
    return part.n_bytes()


def fetch_bytes(url: str, max_bytes: int, policy: FetchPolicy = USUAL) -> bytes:
    """Return the contents of a small file (a list, an index); refuse more than `max_bytes`."""
    check_url(url, policy.schemes)

    def attempt() -> bytes:
        with _answer(url, policy, {}) as answer:
            data = _Body(answer, policy).read(max_bytes + 1)
            if len(data) > max_bytes:
                raise DownloadError(url, f"expected at most {max_bytes:,} bytes, and there are more", permanent=True)
            length = _number(answer.headers.get("Content-Length"))
            if length is not None and len(data) < length:  # a connection that broke looks like an end to http.client
                raise _Interrupted(f"{len(data):,} of {length:,} bytes came")
            return data

    return _persist(url, policy, attempt)


def fetch_range(url: str, start: int, length: int, policy: FetchPolicy = USUAL) -> bytes:
    """Fetch `length` bytes of `url` from `start` on; a server without ranges is read up to there, in little memory."""
    check_url(url, policy.schemes)

    def attempt() -> bytes:
        try:
            return read()
        except _NoSuchRange as exc:
            raise DownloadError(url, f"it ends before byte {start:,} ({exc})", permanent=True) from exc

    def read() -> bytes:
        with _answer(url, policy, {"Range": f"bytes={start}-{start + length - 1}"}) as answer:
            body, is_part = _Body(answer, policy), answer.status == http.client.PARTIAL_CONTENT
            if is_part and _first_byte(answer.headers) != start:
                raise _Interrupted("the server answered with another range than was asked for")
            bytes_left = 0 if is_part else start
            while bytes_left and (block := body.piece(bytes_left)):
                bytes_left -= len(block)
            data = body.read(length)
            if len(data) < length:
                raise _Interrupted(f"{len(data):,} of {length:,} bytes came")
            return data

    return _persist(url, policy, attempt)


def check_url(url: str, schemes: tuple[str, ...]) -> None:
    """Reject file:, ftp: and similar URLs, which may come from an untrusted index."""
    try:
        parts = urlsplit(url)
        is_allowed = parts.scheme.lower() in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError as exc:
        raise DownloadError(url, f"this is no URL: {exc}", True) from exc
    if not is_allowed:
        raise DownloadError(url, f"expected a URL that begins with {' or '.join(s + '://' for s in schemes)}", True)
    if not url.isascii() or any(c <= " " or c == "\x7f" for c in url):
        raise DownloadError(url, "the URL has characters in it that must be written as %XX", True)


class _Interrupted(Exception):
    """It did not work this time; what came is kept. `pause_s`: what the server asks to wait."""

    def __init__(self, reason: str, pause_s: float = 0.0) -> None:
        super().__init__(reason)
        self.pause_s = pause_s


class _TooSlow(_Interrupted):
    """So little came that it counts as nothing."""


class _NoSuchRange(_Interrupted):
    """The file is shorter than it was: what came of it is of no use."""


def _persist(url: str, policy: FetchPolicy, attempt: Callable[[], T], progress: Callable[[], int] = lambda: 0) -> T:
    """Return the result of `attempt`, retrying as often as needed.

    Raises DownloadError after too many attempts in a row without progress.
    """
    n_failed = 0
    while True:
        before = progress()
        try:
            return attempt()
        except _Interrupted as exc:
            n_failed = 1 if progress() > before and not isinstance(exc, _TooSlow) else n_failed + 1
            if n_failed >= policy.n_attempts:
                raise DownloadError(url, f"{exc} ({n_failed} attempts; run it again to resume)") from exc
            pause_s = policy.pause_s * 2 ** (n_failed - 1) * random.uniform(0.75, 1.25)  # many workers, one server
            policy.sleep(min(max(pause_s, exc.pause_s), _LONGEST_PAUSE_S))


@contextmanager
def _answer(url: str, policy: FetchPolicy, headers: Mapping[str, str]) -> Iterator[Any]:
    """Yield the open response.

    Failures to get one become DownloadError (permanent) or _Interrupted (temporary).
    """
    request = urllib.request.Request(
        url, headers={"User-Agent": _AGENT, "Accept-Encoding": "identity", "Connection": "close", **headers}
    )
    try:
        answer = _opener(policy.schemes).open(request, timeout=policy.timeout_s)
    except urllib.error.HTTPError as exc:
        exc.close()
        what = f"HTTP {exc.code} {exc.reason}"
        if exc.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise _NoSuchRange(what) from exc
        if exc.code in _GONE:
            raise DownloadError(url, what, permanent=True) from exc
        if exc.code not in _AGAIN:
            raise DownloadError(url, what + _advice(exc.code)) from exc
        raise _Interrupted(what, float(_number(exc.headers.get("Retry-After")) or 0)) from exc
    except urllib.error.URLError as exc:
        if isinstance(exc.reason, ssl.SSLCertVerificationError):
            raise DownloadError(url, f"its certificate is not valid: {exc.reason}") from exc
        raise _Interrupted(f"no connection: {exc.reason}") from exc
    except _NETWORK as exc:
        raise _Interrupted(_words(exc)) from exc
    with answer:
        yield answer


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never to another scheme, nor from an encrypted connection to an open one."""

    def __init__(self, schemes: tuple[str, ...]) -> None:
        self._schemes = schemes

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        check_url(newurl, ("https",) if req.full_url.lower().startswith("https:") else self._schemes)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener(schemes: tuple[str, ...]) -> urllib.request.OpenerDirector:
    """Return an opener that speaks HTTP only: the usual one would also read local files."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        _Redirects(schemes),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


def _advice(status: int) -> str:
    """Return advice for a refused request.

    Whether the server has the file is unknown, so continuing without it would be silent loss.
    """
    if status in _REFUSED:
        return (
            "; access is refused: look at your credentials and your proxy, or wait if the server blocks those who ask "
            "often"
        )
    return "; whether the file exists is unknown: look at the URL, and run it again"


class _Body:
    """Body of a response, in pieces as they arrive; raises _TooSlow if slower than the policy allows."""

    def __init__(self, answer: Any, policy: FetchPolicy) -> None:
        self._answer, self._policy = answer, policy
        self._waited_s, self._came = 0.0, 0

    def piece(self, most: int = _BLOCK_BYTES) -> bytes:
        """Return some bytes, at most `most`; b"" at an orderly end.

        Only the time spent in here counts: a caller that writes the data may take longer.
        """
        began_s = self._policy.clock()
        try:
            data = bytes(self._answer.read1(min(most, _BLOCK_BYTES)))
        except _NETWORK as exc:
            self._waited_s += self._policy.clock() - began_s
            stalled = isinstance(exc, TimeoutError) and self._is_slow()
            raise (_TooSlow if stalled else _Interrupted)(_words(exc)) from exc
        self._waited_s += self._policy.clock() - began_s
        self._came += len(data)
        if data and self._waited_s >= self._policy.slow_s:
            if self._is_slow():
                raise _TooSlow(f"only {self._came:,} bytes came in {self._waited_s:.0f} s")
            self._waited_s, self._came = 0.0, 0
        return data

    def _is_slow(self) -> bool:
        return self._came < self._policy.least_bytes_per_s * self._waited_s

    def read(self, n_bytes: int) -> bytes:
        """Return `n_bytes` bytes; fewer only at an orderly end."""
        pieces: list[bytes] = []
        while n_bytes > 0 and (data := self.piece(n_bytes)):
            pieces.append(data)
            n_bytes -= len(data)
        return b"".join(pieces)


def _words(exc: BaseException) -> str:
    if isinstance(exc, TimeoutError):
        return "the server did not answer in time"
    return f"the connection broke ({type(exc).__name__}: {exc})"


class _PartFile:
    """A partial download on disk, with a note of the URL it is part of."""

    def __init__(self, path: str, url: str) -> None:
        self.path, self.url = path, url
        self._note = path + ".from"
        self._whole = False
        self._known: dict[str, Any] = self._read_note()
        if not self._known:
            self.start_over()

    def n_bytes(self) -> int:
        return os.path.getsize(self.path) if os.path.exists(self.path) else 0

    def is_complete(self) -> bool:
        """Return True if the file has as many bytes as the server reported.

        If no length was reported: if the transfer came to an orderly end.
        """
        return self._whole or (self._known.get("length") is not None and self.n_bytes() == self._known["length"])

    def headers(self) -> dict[str, str]:
        """Return the headers that request the rest, if it is provably the rest of the same file."""
        have, validator = self.n_bytes(), self._known.get("validator")
        if not have or not validator or self._known.get("length") is None:
            return {}
        return {"Range": f"bytes={have}-", "If-Range": validator}

    def begin(self, answer: Any) -> None:
        """Look at how the server answered: the rest, or all of it from the beginning."""
        if answer.status == http.client.PARTIAL_CONTENT:
            if _content_range(answer.headers) == (self.n_bytes(), self._known.get("length")):
                return
            self.start_over()
            raise _Interrupted("the server answered with another range than was asked for")
        self.start_over()
        self._known = {
            "url": self.url,
            "length": _number(answer.headers.get("Content-Length")),
            "validator": _validator(answer.headers),
        }
        files.write_json(self._note, self._known)

    def append(self, body: _Body, max_bytes: int | None) -> None:
        n_bytes, length = self.n_bytes(), self._known["length"]
        if max_bytes is not None and length is not None and length > max_bytes:
            raise DownloadError(self.url, f"it has {length:,} bytes, and {max_bytes:,} are allowed", permanent=True)
        with os.fdopen(files.open_to_append(self.path), "ab") as file:
            try:
                while block := body.piece():
                    n_bytes += len(block)
                    if max_bytes is not None and n_bytes > max_bytes:
                        raise DownloadError(self.url, f"more than the {max_bytes:,} bytes allowed came", permanent=True)
                    file.write(block)
            finally:
                file.flush()
                os.fsync(file.fileno())
        if length is None:
            self._whole = True
        elif n_bytes != length:
            raise _Interrupted(f"{n_bytes:,} of {length:,} bytes came")

    def forget(self) -> None:
        files.remove(self._note)

    def _read_note(self) -> dict[str, Any]:
        """Return the note that an earlier call wrote; {} if it does not contain enough to resume."""
        try:
            with open(self._note, encoding="utf-8") as file:
                note = json.load(file)
        except (OSError, ValueError):
            return {}
        if not isinstance(note, dict) or note.get("url") != self.url:
            return {}
        length, validator = note.get("length"), note.get("validator")
        if not isinstance(validator, str) or not validator.isprintable():
            return {}
        return note if isinstance(length, int) and self.n_bytes() <= length else {}

    def start_over(self) -> None:
        self._known, self._whole = {}, False
        files.remove(self.path)
        files.remove(self._note)


def _content_range(headers: Any) -> tuple[int, int] | None:
    """Parse (first byte, length of the whole) from `Content-Range: bytes 10-19/20`."""
    first, length = _first_byte(headers), _number(headers.get("Content-Range", "").rpartition("/")[2])
    return (first, length) if first is not None and length is not None else None


def _first_byte(headers: Any) -> int | None:
    """Return the 10 of `Content-Range: bytes 10-19/20`, or of `bytes 10-19/*`."""
    unit, _, rest = headers.get("Content-Range", "").partition(" ")
    return _number(rest.partition("-")[0]) if unit == "bytes" else None


def _number(text: str | None) -> int | None:
    """Return a number sent by a server; None for anything else, and for one larger than any file."""
    return int(text) if text and len(text) <= 18 and text.isascii() and text.isdecimal() else None


def _validator(headers: Any) -> str | None:
    """Return the validator for If-Range: a strong ETag, else the time of the last change."""
    etag = headers.get("ETag", "").strip()
    if etag.startswith('"'):
        return str(etag)
    return headers.get("Last-Modified") or None
