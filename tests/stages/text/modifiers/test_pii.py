"""Personal data: what is found, what is not, how it is replaced, and that hostile text ends."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.engine.run.identity import _plain
from tamis.errors import UsageError
from tamis.stages.text.modifiers import Modify, PiiRedactor
from tamis.stages.text.modifiers.pii.numbers import is_card, is_iban, luhn
from tamis.tasks import DocumentBatch


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mail john.doe+x@example.co.uk.", "mail <EMAIL>."),
        ("<x_y@z.io>, 'q@w.org'", "<<EMAIL>>, '<EMAIL>'"),
        ("josé@exämple.de", "<EMAIL>"),
        ("邮箱abc@qq.com谢谢", "邮箱<EMAIL>谢谢"),
        ("see..x@y.com and a@b.com@c.com", "see..<EMAIL> and <EMAIL>@c.com"),
        ("john@example.com-John", "<EMAIL>-John"),
        ("user@sub.my-site.museum", "<EMAIL>"),
        ("x@mail.xn--p1ai", "<EMAIL>"),
        (
            "a@b.c a@b a@-b.com @handle x.@y.com logo@2x.png a@@b.com",
            "a@b.c a@b a@-b.com @handle x.@y.com logo@2x.png a@@b.com",
        ),
        ("a" * 64 + "@b.com", "<EMAIL>"),
        ("a" * 65 + "@b.com", "a" * 65 + "@b.com"),
        ("x@" + "a." * 126 + "c", "x@" + "a." * 126 + "c"),
    ],
)
def test_emails(text: str, expected: str) -> None:
    assert PiiRedactor().modify_document(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host 192.168.1.1, server 8.8.8.8.", "host <IPV4>, server <IPV4>."),
        ("10.0.0.1:80/24 (255.255.255.0)", "<IPV4>:80/24 (<IPV4>)"),
        ("1.2.3 1.2.3.4.5 256.1.1.1 01.2.3.4 12.10.2020", "1.2.3 1.2.3.4.5 256.1.1.1 01.2.3.4 12.10.2020"),
        (
            "v1.2.3.4 version 1.2.3.4 Release: 4.5.6.7 section 1.1.1.1",
            "v1.2.3.4 version 1.2.3.4 Release: 4.5.6.7 section 1.1.1.1",
        ),
        ("fe80::1 and 2001:db8::ff00:42:8329.", "<IPV6> and <IPV6>."),
        ("2001:0db8:0000:0000:0000:0000:0000:0001", "<IPV6>"),
        ("ip:2001:db8::5: [2001:db8::1]:80 ::ffff:1.2.3.4", "ip:<IPV6>: [<IPV6>]:80 <IPV6>"),
        (
            "std::vector a::b add::1 ::1 12:30:45 aa:bb:cc:dd:ee:ff x2001:db8::1",
            "std::vector a::b add::1 ::1 12:30:45 aa:bb:cc:dd:ee:ff x2001:db8::1",
        ),
    ],
)
def test_addresses(text: str, expected: str) -> None:
    assert PiiRedactor().modify_document(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("call +49 30 901820, or +44 (0)20 7946 0958.", "call <PHONE>, or <PHONE>."),
        ("+14155552671 +1 (415) 555-2671 +33.1.42.68.53.00", "<PHONE> <PHONE> <PHONE>"),
        ("(415) 555-2671; 415-555-2671; 415.555.2671; 1-800-555-0199", "<PHONE>; <PHONE>; <PHONE>; <PHONE>"),
        ("200 300 4000; 2020-10-12; 555-1234; 123-456-7890", "200 300 4000; 2020-10-12; 555-1234; 123-456-7890"),
        (
            "C++ 11, a+123456789, +1234567890123456, +12 34, 1+415555267100",
            "C++ 11, a+123456789, +1234567890123456, +12 34, 1+415555267100",
        ),
    ],
)
def test_phones(text: str, expected: str) -> None:
    assert PiiRedactor().modify_document(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4111 1111 1111 1111, 4111-1111-1111-1111, 4111111111111111", "<CREDIT_CARD>, <CREDIT_CARD>, <CREDIT_CARD>"),
        ("amex 3782 822463 10005 or 378282246310005", "amex <CREDIT_CARD> or <CREDIT_CARD>"),
        ("1234 4111 1111 1111 1111 12/25", "1234 <CREDIT_CARD> 12/25"),
        ("No.5555555555554444", "No.<CREDIT_CARD>"),
        (
            "+49 30 901820 4111 1111 1111 1111 415-555-2671 4111 1111 1111 1111",
            "<PHONE> <CREDIT_CARD> <PHONE> <CREDIT_CARD>",
        ),
        (
            "4111111111111112 9999999999999995 4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
            "4111111111111112 9999999999999995 4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
        ),
        ("0.4111111111111111 41111111111111110000000", "0.4111111111111111 41111111111111110000000"),
        ("GB82 WEST 1234 5698 7654 32 is one", "<IBAN> is one"),
        ("DE89370400440532013000, no9386011117947. FR1420041010050500013M02606", "<IBAN>, <IBAN>. <IBAN>"),
        (
            "GB82WEST12345698765431 XX82WEST12345698765432 DE893704004405320130001",
            "GB82WEST12345698765431 XX82WEST12345698765432 DE893704004405320130001",
        ),
    ],
)
def test_numbers_with_checks(text: str, expected: str) -> None:
    assert PiiRedactor().modify_document(text) == expected


@given(st.integers(10**14, 10**15 - 1))
def test_one_last_digit_in_ten_passes_luhn(stem: int) -> None:
    assert [luhn(f"{stem}{d}") for d in range(10)].count(True) == 1


def test_issuers_and_checksums() -> None:
    assert [
        is_card(n)
        for n in ("4222222222222", "30569309025904", "6011111111111117", "3530111333300000", "2223003122003222")
    ] == [True] * 5
    assert not is_card("1111111111111117")
    assert [is_iban(n) for n in ("MT84MALT011000012345MTLCAST001S", "NL91ABNA0417164300", "nl91abna0417164300")] == [
        True
    ] * 3


def test_only_the_requested_kinds() -> None:
    text = "a@b.com 8.8.8.8 +14155552671"
    assert PiiRedactor(kinds=["ipv4"]).modify_document(text) == "a@b.com <IPV4> +14155552671"
    assert (
        PiiRedactor(kinds=("email", "phone"), replacement="[{KIND}]").modify_document(text) == "[EMAIL] 8.8.8.8 [PHONE]"
    )


def test_hashes_are_keyed_and_do_not_depend_on_spelling() -> None:
    text = "A@b.com a@B.COM 4111 1111 1111 1111 4111111111111111 c@d.com 2001:DB8::1 2001:db8:0::1"
    words = PiiRedactor(mode="hash", hash_key="secret").modify_document(text).split()
    assert words[0] == words[1] == "<EMAIL:0a138baf45ae8f5d>"
    assert words[2] == words[3]
    assert words[5] == words[6]
    assert len(set(words)) == 4
    assert PiiRedactor(mode="hash", hash_key=b"secret").modify_document(text).split() == words
    assert not set(PiiRedactor(mode="hash", hash_key="other").modify_document(text).split()) & set(words)


def test_the_key_is_never_among_the_parameters_that_a_run_stores() -> None:
    redactor = PiiRedactor(mode="hash", hash_key="my-secret-key")
    stored = str(_plain(Modify(redactor).modifier_fn, 6))
    assert "my-secret-key" not in stored + repr(redactor)
    assert redactor.key_fingerprint in stored
    assert PiiRedactor(mode="hash", hash_key="another").key_fingerprint != redactor.key_fingerprint
    assert pickle.loads(pickle.dumps(redactor)).modify_document("a@b.com") == redactor.modify_document("a@b.com")


def test_counts_are_logged() -> None:
    stage = Modify(PiiRedactor())
    stage.process(DocumentBatch("x", pa.table({"text": ["a@b.com c@d.com", None, "8.8.8.8", "nothing"]})))
    assert stage._consume_custom_metrics() == {"pii_email": 2, "pii_ipv4": 1}
    stage.process(DocumentBatch("x", pa.table({"text": ["a@b.com"]})))
    assert stage._consume_custom_metrics() == {"pii_email": 1}


PIECES = [
    "a@b.com", "@", "x.y", " ", "\n", "8.8.8.8", ".", "1", "+49 30 901820", "(415) 555-2671", "-",
    "4111 1111 1111 1111", "_", "é", ":", "378282246310005", "3782 822463 10005", "GB82 WEST 1234 5698 7654 32",
    "DE89370400440532013000", "2001:db8::1", "::ffff:1.2.3.4", "fe80::1", "415-555-2671", "NO93-8601-1117-947",
    "FR1420041010050500013M02606", "KZ86125KZT5004100100", "4222222222222", "v", "(", ")", ",", "0",
]  # fmt: skip


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=6).map("".join), max_size=5))
def test_a_batch_finds_what_documents_find(texts: list[str]) -> None:
    """The expressions that choose texts to look at never leave out one that the finders would change."""
    redactor = PiiRedactor()
    expected = [redactor.modify_document(t) for t in texts]
    assert redactor.modify_batch(pa.array([None, *texts], pa.large_string()).slice(1)).to_pylist() == expected


@given(st.lists(st.sampled_from(PIECES), max_size=6).map(" ".join))
def test_nothing_is_left_to_redact(text: str) -> None:
    redactor = PiiRedactor(replacement="[{KIND}]")
    once = redactor.modify_document(text)
    assert redactor.modify_document(once) == once


@pytest.mark.parametrize(
    "piece",
    [
        "a@a@a@",
        "@",
        "(",
        "1.1.1.1.",
        "7",
        "1 ",
        "http://http://",
        ":",
        "a:",
        "+1 ",
        "+",
        "GB82 ",
        "4111 ",
        "415-",
        "a" * 64 + "@" + "b" * 250,
    ],
)
def test_much_of_anything_ends(piece: str) -> None:
    text = piece * (300_000 // len(piece))  # what takes time by the square would take hours
    redactor = PiiRedactor()
    assert redactor.modify_batch(pa.array([text])).to_pylist() == [redactor.modify_document(text)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kinds": ["name"]}, "expected some of"),
        ({"kinds": "email"}, "expected some of"),
        ({"kinds": []}, "expected some of"),
        ({"mode": "mask"}, "expected 'replace' or 'hash'"),
        ({"mode": "hash"}, "hash_key must be a secret"),
        ({"mode": "hash", "hash_key": "k" * 65}, "hash_key must be a secret"),
        ({"mode": "hash", "hash_key": "k", "replacement": "x"}, "must contain {HASH}"),
        ({"hash_key": "k"}, "belong to mode='hash'"),
    ],
)
def test_mistakes_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PiiRedactor(**settings)  # type: ignore[arg-type]
