"""url_counts against re.findall, also on text made to confuse it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.kernels.text.url_stats import url_counts
from tests.support.limits import examples

NARROW_PATTERN = r"https?://(?:[A-Za-z0-9$\-_@.&+/:=?#~]|[!*\(\),]|(?:%[0-9A-Fa-f]{2}))+"
WIDE_PATTERN = r"https?://(?:[a-zA-Z]|[0-9]|[$-_@.&+]|[!*\(\),]|(?:%[0-9a-fA-F][0-9a-fA-F]))+"

PARTS = [
    "http",
    "https",
    "s",
    "h",
    "t",
    "p",
    ":",
    "/",
    "//",
    "://",
    "a",
    "%",
    "4f",
    "%4F",
    "%4",
    "%g",
    " ",
    "é",
    "porn",
    "po",
]
PARTS += ["rn", "<", ">", ";", "^", "[", "]", "\\", "~", "!", "_", "`", "{", "#", "?", "\n", "x" * 60]


@pytest.mark.parametrize(("wide", "pattern"), [(False, NARROW_PATTERN), (True, WIDE_PATTERN)])
@settings(max_examples=examples(400), deadline=None)
@given(texts=st.lists(st.lists(st.sampled_from(PARTS), max_size=25).map("".join), min_size=1, max_size=4))
def test_equals_findall(wide: bool, pattern: str, texts: list[str]) -> None:
    raw = [text.encode() for text in texts]
    ends = np.cumsum([len(text) for text in raw])
    data = np.frombuffer(b"".join(raw), np.uint8)
    found = url_counts(data, ends - [len(text) for text in raw], ends, wide)
    for row, text in enumerate(texts):
        urls = re.findall(pattern, text)
        got = tuple(int(column[row]) for column in found.values())
        assert got == (len(urls), sum(map(len, urls)), sum("porn" in url for url in urls))


def test_every_byte_after_a_url() -> None:
    for c in map(chr, range(256)):
        raw = np.frombuffer(f"http://a{c}b".encode(), np.uint8)
        for wide, pattern in ((False, NARROW_PATTERN), (True, WIDE_PATTERN)):
            found = url_counts(raw, np.array([0]), np.array([raw.size]), wide)
            assert int(list(found.values())[1][0]) == len(re.findall(pattern, f"http://a{c}b")[0])


def test_hostile_text_takes_linear_time() -> None:
    raw = np.frombuffer(b"http://" * 1_000_000, np.uint8)
    assert int(url_counts(raw, np.array([0]), np.array([raw.size]))["urls"][0]) == 1
