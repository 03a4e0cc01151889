"""Files of web servers, read only: by ranges, bound to the version of the file that the server first reported.

A server must report the length of a file, serve ranges of it, and name its version (an ETag, or when it was changed);
others are refused, as a file read in parts could be a mixture of two. Redirects are followed on the same scheme only.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tamis.errors import StoreError, UsageError
from tamis.secrets import kind_of, without_password
from tamis.stores import retry
from tamis.stores.reading import Changed, version_of

_PASSING = {500, 502, 503, 504, 429, 408}
_TIMEOUT_S = 60.0


class _SameScheme(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but not to another scheme."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if newurl.partition(":")[0].lower() != str(req.type).lower():
            raise StoreError(
                f"{_shown(req.full_url)}: redirected to another scheme, {newurl.partition(':')[0]}:; refused"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_opener = urllib.request.build_opener(_SameScheme)


def _refuse_secrets(url: str) -> None:
    """Raise UsageError for an address with a password or a signature in it."""
    if "@" in url.split("/", 3)[2]:
        raise UsageError(
            f"{_shown(url)}: no name or password in a URL; make the file readable without, or copy it here"
        )
    signed = [n for n, _ in parse_qsl(urlsplit(url).query) if kind_of(n) or "sig" in n.lower().split("-")[-1][:9]]
    if signed:
        raise UsageError(
            f"{_shown(url)}: {signed[0]} in the address is a secret, and addresses of input are kept in the run "
            "directory and in reports; "
            "use s3:// with credentials from the environment, or copy the file here"
        )


class HttpSource:
    """One version of a file on a web server."""

    def __init__(self, url: str) -> None:
        self.url = url
        _refuse_secrets(url)
        answer = retry.call_with_retries(lambda: _ask(url, {"Range": "bytes=0-0"}), f"looking at {_shown(url)}")
        with answer:
            headers = answer.headers
            total = str(headers.get("Content-Range", "")).rpartition("/")[2]
            empty = answer.status == 200 and headers.get("Content-Length") == "0"
            if not empty and (answer.status != 206 or not _is_length(total)):
                raise StoreError(
                    f"{_shown(url)}: the server does not give ranges of files (Range); copy it to a local folder"
                )
            etag, changed = str(headers.get("ETag", "")), str(headers.get("Last-Modified", ""))
        self._bound = {"If-Match": etag} if etag and not etag.startswith("W/") else {}
        if not self._bound and changed:
            self._bound = {"If-Unmodified-Since": changed}
        if not self._bound and not empty:
            raise StoreError(
                f"{_shown(url)}: the server names no version of the file (ETag, Last-Modified), so that a change "
                "while it is read would "
                "not be noticed; copy it to a local folder"
            )
        self._etag, self._changed = etag, changed
        self.size, self.version = 0 if empty else int(total), version_of(f"{etag}|{changed}")

    def read_into(self, offset: int, view: memoryview) -> None:
        """Read a range of this version; after a broken connection, continue where it was cut."""
        done = 0

        def call() -> None:
            nonlocal done
            first, last = offset + done, offset + len(view) - 1
            with _ask(self.url, {"Range": f"bytes={first}-{last}", **self._bound}) as answer:
                headers = answer.headers
                if str(headers.get("ETag", "")) != self._etag or str(headers.get("Last-Modified", "")) != self._changed:
                    raise Changed(self.url, "changed during the run")
                if answer.status != 206 or not str(headers.get("Content-Range", "")).startswith(
                    f"bytes {first}-{last}/"
                ):
                    raise StoreError(f"{_shown(self.url)}: asked for bytes {first} to {last}, got something else")
                while done < len(view):
                    try:
                        n = answer.readinto(view[done:])
                    except (OSError, http.client.HTTPException) as exc:
                        raise retry.Temporary(str(exc) or type(exc).__name__) from exc
                    if not n:
                        raise retry.Temporary(f"the connection was cut after {done} of {len(view)} bytes")
                    done += n

        if len(view):
            retry.call_with_retries(call, f"reading {_shown(self.url)}")

    def check(self) -> None:
        """Accept any file: web servers give no checksums."""


def _is_length(text: str) -> bool:
    """Return True if `text` is a number of bytes.

    Digits other than 0 to 9, and thousands of digits, are not accepted.

    >>> [_is_length(t) for t in ("17", "*", "", "²", "9" * 5000)]
    [True, False, False, False, False]
    """
    return text.isascii() and text.isdigit() and len(text) <= 18


def _ask(url: str, headers: dict[str, str]) -> Any:
    request = urllib.request.Request(url, headers={"User-Agent": "tamis", "Accept-Encoding": "identity", **headers})
    try:
        return _opener.open(request, timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as exc:
        with exc:
            if exc.code in _PASSING:
                raise retry.Temporary(f"{exc.code} {exc.reason}", slow_down=exc.code in (429, 503)) from exc
            if exc.code in (404, 412, 416) and headers.keys() & {"If-Match", "If-Unmodified-Since"}:
                raise Changed(url, "changed during the run") from exc
            if exc.code == 416:
                raise StoreError(f"{_shown(url)}: empty, or no ranges are given") from exc
            raise StoreError(f"{_shown(url)}: {exc.code} {exc.reason}") from exc
    except StoreError:
        raise
    except (OSError, http.client.HTTPException) as exc:
        raise retry.Temporary(str(exc) or type(exc).__name__) from exc


def _shown(url: str) -> str:
    """Return the URL without possible secrets: a password, a signature."""
    return without_password(url.partition("?")[0])
