"""Fetching from a real server that breaks off, changes its mind, lies and is busy."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tamis.errors import DownloadError
from tamis.stages.text.download.fetch import (
    FetchPolicy,
    _Body,
    _persist,
    _Redirects,
    _TooSlow,
    fetch_bytes,
    fetch_file,
    fetch_range,
)
from tests.support.loopback import Loopback

DATA = random.Random(1).randbytes(300_000)


class Sleeps(list[float]):
    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def policy(**changes: Any) -> FetchPolicy:
    return FetchPolicy(**{"sleep": Sleeps(), "timeout_s": 10.0, **changes})


def test_a_file_comes_whole_and_leaves_nothing_next_to_it(web: Loopback, tmp_path: Path) -> None:
    web.files["/a"] = DATA
    assert fetch_file(f"{web.url}/a", str(tmp_path / "a.part"), policy()) == len(DATA)
    assert [p.name for p in tmp_path.iterdir()] == ["a.part"]
    assert (tmp_path / "a.part").read_bytes() == DATA


def test_an_empty_file_is_a_file(web: Loopback, tmp_path: Path) -> None:
    web.files["/a"] = b""
    assert fetch_file(f"{web.url}/a", str(tmp_path / "a"), policy()) == 0
    assert (tmp_path / "a").read_bytes() == b""


def test_a_transfer_that_breaks_off_is_gone_on_with(web: Loopback, tmp_path: Path) -> None:
    web.files["/a"] = DATA
    web.faults["/a"] = ["cut 1000", "cut 500"]
    fetch_file(f"{web.url}/a", str(tmp_path / "a"), policy())
    assert (tmp_path / "a").read_bytes() == DATA
    assert [r.range for r in web.requests] == [None, "bytes=1000-", "bytes=1500-"]


def test_progress_starts_the_count_of_attempts_again(web: Loopback, tmp_path: Path) -> None:
    web.files["/a"] = DATA
    web.faults["/a"] = ["cut 10"] * 8
    fetch_file(f"{web.url}/a", str(tmp_path / "a"), policy(n_attempts=2))
    assert (tmp_path / "a").read_bytes() == DATA


def test_the_next_call_continues_where_the_last_one_gave_up(web: Loopback, tmp_path: Path) -> None:
    web.files["/a"] = DATA
    web.faults["/a"] = ["cut 1000", "hang up", "hang up"]
    with pytest.raises(DownloadError, match=r"/a: .*run it again") as caught:
        fetch_file(f"{web.url}/a", str(tmp_path / "a"), policy(n_attempts=3))
    assert not caught.value.permanent
    assert (tmp_path / "a").stat().st_size == 1000
    fetch_file(f"{web.url}/a", str(tmp_path / "a"), policy())
    assert (tmp_path / "a").read_bytes() == DATA
    assert web.requests[-1].range == "bytes=1000-"


def test_parts_of_two_versions_are_never_joined(web: Loopback, tmp_path: Path) -> None:
    web.files["/a"] = DATA
    web.faults["/a"] = ["cut 1000"]
    with pytest.raises(DownloadError):
        fetch_file(f"{web.url}/a", str(tmp_path / "a"), policy(n_attempts=1))
    web.files["/a"] = DATA[::-1]
    fetch_file(f"{web.url}/a", str(tmp_path / "a"), policy())
    assert (tmp_path / "a").read_bytes() == DATA[::-1]


def test_without_a_validator_it_starts_over(web: Loopback, tmp_path: Path) -> None:
    web.files["/a"], web.validators = DATA, False
    web.faults["/a"] = ["cut 1000"]
    fetch_file(f"{web.url}/a", str(tmp_path / "a"), policy())
    assert (tmp_path / "a").read_bytes() == DATA
    assert [r.range for r in web.requests] == [None, None]


@pytest.mark.parametrize("fault", ["shift", "416"])
def test_a_server_that_answers_with_another_range_gets_a_request_for_all(
    web: Loopback, tmp_path: Path, fault: str
) -> None:
    web.files["/a"] = DATA
    web.faults["/a"] = ["cut 1000", fault]
    fetch_file(f"{web.url}/a", str(tmp_path / "a"), policy())
    assert (tmp_path / "a").read_bytes() == DATA
    assert web.requests[-1].range is None


def test_a_part_of_another_url_is_not_used(web: Loopback, tmp_path: Path) -> None:
    web.files["/a"] = web.files["/b"] = DATA
    web.faults["/a"] = ["cut 1000"]
    with pytest.raises(DownloadError):
        fetch_file(f"{web.url}/a", str(tmp_path / "x"), policy(n_attempts=1))
    fetch_file(f"{web.url}/b", str(tmp_path / "x"), policy())
    assert web.requests[-1].range is None


def test_a_busy_server_is_retried_when_it_says(web: Loopback, tmp_path: Path) -> None:
    web.files["/a"] = DATA
    web.faults["/a"] = ["503 after 7", "429", "hang up"]
    sleeps = Sleeps()
    fetch_file(f"{web.url}/a", str(tmp_path / "a"), policy(sleep=sleeps))
    assert sleeps[0] == 7.0
    assert 1.5 <= sleeps[1] <= 2.5
    assert 3.0 <= sleeps[2] <= 5.0


def test_what_is_not_there_is_requested_once(web: Loopback, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="HTTP 404") as caught:
        fetch_file(f"{web.url}/none", str(tmp_path / "a"), policy())
    assert caught.value.permanent
    assert len(web.requests) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x", "http:/x", "//host/x", "http://h/a b", "http://h/\n"]
)
def test_other_schemes_and_odd_urls_are_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(DownloadError) as caught:
        fetch_file(url, str(tmp_path / "a"), policy())
    assert caught.value.permanent


def test_redirects_are_followed_but_not_to_local_files(web: Loopback, tmp_path: Path) -> None:
    web.files["/b"] = DATA
    web.faults["/a"] = [f"to {web.url}/b", "to file:///etc/passwd", "to ftp://127.0.0.1/x"]
    fetch_file(f"{web.url}/a", str(tmp_path / "a"), policy())
    assert (tmp_path / "a").read_bytes() == DATA
    with pytest.raises(DownloadError, match="file:///etc/passwd"):
        fetch_file(f"{web.url}/a", str(tmp_path / "c"), policy())
    with pytest.raises(DownloadError, match=r"ftp://127\.0\.0\.1/x: expected a URL"):
        fetch_file(f"{web.url}/a", str(tmp_path / "c"), policy())


def test_no_redirect_leads_from_an_encrypted_connection_to_an_open_one() -> None:
    from urllib.request import Request

    with pytest.raises(DownloadError, match="begins with https://"):
        _Redirects(("http", "https")).redirect_request(Request("https://h/a"), None, 302, "", {}, "http://h/a")


@pytest.mark.parametrize("lengths", [True, False])
def test_more_than_is_allowed_is_refused(web: Loopback, tmp_path: Path, lengths: bool) -> None:
    web.files["/a"], web.lengths = DATA, lengths
    with pytest.raises(DownloadError, match="allowed"):
        fetch_file(f"{web.url}/a", str(tmp_path / "a"), policy(max_bytes=len(DATA) - 1))
    assert fetch_file(f"{web.url}/a", str(tmp_path / "b"), policy(max_bytes=len(DATA))) == len(DATA)


def test_small_files_into_memory(web: Loopback) -> None:
    web.files["/a"] = DATA
    web.faults["/a"] = ["500", "cut 5"]
    assert fetch_bytes(f"{web.url}/a", len(DATA), policy()) == DATA
    with pytest.raises(DownloadError, match="there are more"):
        fetch_bytes(f"{web.url}/a", 100, policy())


@pytest.mark.parametrize("faults", [[], ["no range"], ["cut 3"], ["503"]])
def test_ranges_into_memory(web: Loopback, faults: list[str]) -> None:
    web.files["/a"] = DATA
    web.faults["/a"] = faults
    assert fetch_range(f"{web.url}/a", 5000, 100, policy()) == DATA[5000:5100]


@pytest.mark.parametrize(
    "note", ["{", "[]", '{"url": "URL", "length": 5, "validator": "a\\nb"}', '{"url": "URL", "length": "5"}']
)
def test_a_note_that_others_wrote_is_not_believed(web: Loopback, tmp_path: Path, note: str) -> None:
    web.files["/a"] = DATA
    (tmp_path / "x").write_bytes(b"other")
    (tmp_path / "x.from").write_text(note.replace("URL", f"{web.url}/a"))
    fetch_file(f"{web.url}/a", str(tmp_path / "x"), policy())
    assert (tmp_path / "x").read_bytes() == DATA


def test_links_that_others_made_are_not_followed(web: Loopback, tmp_path: Path) -> None:
    web.files["/a"] = DATA
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "x").symlink_to(tmp_path / "precious")
    (tmp_path / "x.from").symlink_to(tmp_path / "precious")
    fetch_file(f"{web.url}/a", str(tmp_path / "x"), policy())
    assert (tmp_path / "precious").read_text() == "precious"
    assert (tmp_path / "x").read_bytes() == DATA


def test_a_range_beyond_the_end_is_reported(web: Loopback) -> None:
    web.files["/a"] = DATA
    with pytest.raises(DownloadError, match=r"416|bytes came"):
        fetch_range(f"{web.url}/a", len(DATA), 10, policy(n_attempts=2))
    assert len(web.requests) == 1


def test_a_range_that_was_not_requested_is_not_taken(web: Loopback) -> None:
    web.files["/a"] = DATA
    web.faults["/a"] = ["shift"]
    assert fetch_range(f"{web.url}/a", 5, 10, policy()) == DATA[5:15]
    assert len(web.requests) == 2
    web.faults["/a"] = ["shift", "shift"]
    with pytest.raises(DownloadError, match="another range than was asked for"):
        fetch_range(f"{web.url}/a", 5, 10, policy(n_attempts=2))


@pytest.mark.parametrize(
    ("status", "is_gone"),
    [(404, True), (410, True), (451, True), (400, False), (401, False), (403, False), (407, False)],
)
def test_only_what_a_server_does_not_have_is_gone(web: Loopback, tmp_path: Path, status: int, is_gone: bool) -> None:
    web.faults["/a"] = [str(status)]
    with pytest.raises(DownloadError, match=f"HTTP {status}") as caught:
        fetch_file(f"{web.url}/a", str(tmp_path / "a"), policy())
    assert caught.value.permanent is is_gone
    assert ("access is refused" in str(caught.value)) is (status in (401, 403, 407))
    assert len(web.requests) == 1


class Dripping:
    """An answer of one byte a minute, by a clock of its own."""

    def __init__(self, n_bytes: int) -> None:
        self.left, self.now_s = n_bytes, 0.0

    def read1(self, n: int) -> bytes:
        self.now_s += 60.0
        self.left -= 1
        return b"x" if self.left >= 0 else b""


def test_a_byte_a_minute_is_no_transfer() -> None:
    dripping = Dripping(1000)
    body = _Body(dripping, policy(clock=lambda: dripping.now_s))
    with pytest.raises(_TooSlow, match="only 2 bytes came in 120 s"):
        body.read(1000)
    steady = Dripping(1000)
    body = _Body(steady, policy(clock=lambda: steady.now_s, least_bytes_per_s=1 / 60))
    assert len(body.read(2000)) == 1000


def test_attempts_that_are_too_slow_are_not_repeated_for_ever(tmp_path: Path) -> None:
    came: list[int] = []

    def attempt() -> None:
        came.append(1)
        raise _TooSlow("only 2 bytes came in 120 s")

    with pytest.raises(DownloadError, match=r"only 2 bytes came in 120 s \(3 attempts"):
        _persist("http://h/a", policy(n_attempts=3), attempt, lambda: len(came))


def test_a_stall_after_a_few_bytes_is_too_slow() -> None:
    class Stalled(Dripping):
        def read1(self, n: int) -> bytes:
            data = super().read1(n)
            if not data:
                raise TimeoutError
            return data

    stalled = Stalled(1)
    body = _Body(stalled, policy(clock=lambda: stalled.now_s))
    with pytest.raises(_TooSlow, match="did not answer in time"):
        body.read(10)
