"""WARC files for tests, and damage to them."""

from __future__ import annotations

import gzip
import random

SENTENCE = (
    "The tower on the hill was built in the year in which the river changed its course, and it has been used by the "
    "people of "
    "the valley as a place from which they could see who was coming and what the weather would be in the days to come."
)


_WORDS = "the of and to in that it is was for on are as with his they at be this from have or by one had not but"


def prose(rng: random.Random, n_sentences: int = 12) -> str:
    """Make up sentences that filters take for English."""
    names = [f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in ("ler", "mont", "ric", "san", "ton")]
    sentences = []
    for _ in range(n_sentences):
        words = [rng.choice(_WORDS.split() if rng.random() < 0.5 else names) for _ in range(rng.randint(9, 16))]
        sentences.append(" ".join(words).capitalize() + ".")
    return " ".join(sentences)


def page(number: int) -> bytes:
    return f"<html><body><main><p>{SENTENCE} This is page {number}.</p></main></body></html>".encode()


def response(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body


def record(
    number: int, block: bytes | None = None, kind: str = "response", length: int | str | None = None, extra: bytes = b""
) -> bytes:
    """One record; `length` is what it claims to have, `extra` are further header lines."""
    block = response(page(number)) if block is None else block
    head = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:{number:032d}>\r\nWARC-Target-URI: "
        f"http://example.org/{number}\r\n"
        f"Content-Length: {len(block) if length is None else length}\r\n"
    )
    return head.encode() + extra + b"\r\n" + block + b"\r\n\r\n"


def members(*records: bytes) -> list[bytes]:
    """Each record compressed by itself, as Common Crawl does."""
    return [gzip.compress(r, 6, mtime=0) for r in records]
