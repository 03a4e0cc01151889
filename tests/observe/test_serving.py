"""Who may look at a dashboard."""

from __future__ import annotations

import pytest

from tamis.observe.serving import AccessGuard, good_token, is_loopback

TOKEN = "0123456789abcdef"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("127.0.0.1.example.org", False),
        ("localhost.example.org", False),
        ("", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("127.0.0.1:8787", True),
        ("localhost:9000", True),
        ("LOCALHOST", True),
        ("[::1]:8787", True),
        ("evil.example:8787", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        (None, False),
        ("localhost@evil.example", False),
    ],
)
def test_names_that_this_machine_goes_by(header: str | None, expected: bool) -> None:
    assert AccessGuard("127.0.0.1", 8787).knows_host(header) is expected


def test_where_others_may_come_any_name_is_good_and_the_token_decides() -> None:
    guard = AccessGuard("0.0.0.0", 8787, TOKEN)
    assert guard.knows_host("worker7.cluster.example:8787")
    assert not guard.knows_host(None)
    assert not guard.lets_in("", "")
    assert not guard.lets_in("0123456789abcdee", "")
    assert not guard.lets_in("", "tamis-8788=" + TOKEN)
    assert not guard.lets_in("", "tamis-8787=x; other=" + TOKEN)
    assert not guard.lets_in("é" * 16, "tamis-8787=é")
    assert guard.lets_in(TOKEN, "")
    assert guard.lets_in("", f"a=b; tamis-8787={TOKEN}")


def test_no_token_no_questions_on_this_machine() -> None:
    assert AccessGuard("127.0.0.1", 1).lets_in("", "")


def test_there_is_no_open_dashboard_without_token() -> None:
    with pytest.raises(AssertionError):
        AccessGuard("0.0.0.0", 8787)


def test_the_cookie_is_for_this_page_alone() -> None:
    assert AccessGuard("0.0.0.0", 8787, TOKEN).new_cookie() == f"tamis-8787={TOKEN}; Path=/; HttpOnly; SameSite=Strict"


def test_tokens_fit_a_url_and_a_cookie() -> None:
    assert [good_token(t) for t in (TOKEN, "short", "a b c d e f", "x;y=12345678", "x" * 257, "A-_9" * 5)] == [
        True,
        False,
        False,
        False,
        False,
        True,
    ]
