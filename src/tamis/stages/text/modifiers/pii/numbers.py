"""Finds numbers with check digits: payment cards and bank accounts."""

from __future__ import annotations

import re
from collections.abc import Iterator

Span = tuple[int, int]

# Digits in one run, or grouped as on cards. All repetitions are bounded, so backtracking is, too.
_CARD = re.compile(
    r"(?<![0-9A-Za-z+])(?<![0-9][.,-])"
    r"(?:[0-9]{13,19}"
    r"|[0-9]{4}([ -])[0-9]{4}\1[0-9]{4}\1[0-9]{4}(?:\1[0-9]{3})?"
    r"|[0-9]{4}([ -])[0-9]{6}\2[0-9]{4,5})"
    r"(?![0-9A-Za-z]|\.[0-9])"
)
_BETWEEN = re.compile("[ -]")
# First prefix, last prefix, lengths: the published ranges of issuers.
_ISSUERS = (
    ("4", "4", (13, 16, 19)),  # Visa
    ("51", "55", (16,)),
    ("2221", "2720", (16,)),  # Mastercard
    ("34", "34", (15,)),
    ("37", "37", (15,)),  # American Express
    ("6011", "6011", (16, 19)),
    ("644", "649", (16, 19)),
    ("65", "65", (16, 19)),  # Discover
    ("300", "305", (14,)),
    ("36", "36", (14,)),
    ("38", "39", (14, 16)),  # Diners Club
    ("3528", "3589", (16, 17, 18, 19)),  # JCB
    ("62", "62", (16, 17, 18, 19)),  # UnionPay
    ("5018", "5018", (16, 19)),
    ("5020", "5020", (16, 19)),
    ("5038", "5038", (16, 19)),  # Maestro
    ("6304", "6304", (16, 19)),
    ("6759", "6763", (16, 19)),
    ("2200", "2204", (16,)),  # Mir
)

_IBAN_START = re.compile(r"(?<![0-9A-Za-z])[A-Za-z]{2}[0-9]{2}")
_IBAN_GROUP = re.compile(r"[0-9A-Za-z]{1,4}")
# ISO 13616: length of an account number -> countries
_IBAN_COUNTRIES = {
    15: "NO",
    16: "BE",
    18: "DK FI FK FO GL NL SD",
    19: "MK SI",
    20: "AT BA EE KZ LT LU MN XK",
    21: "CH HR LI LV",
    22: "BG BH CR DE GB GE IE ME RS VA",
    23: "AE GI IL IQ OM SO TL",
    24: "AD CZ ES MD PK RO SA SE SK TN VG",
    25: "LY PT ST",
    26: "IS TR",
    27: "BI DJ FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HN HU LB NI PL SV",
    29: "BR EG PS QA UA",
    30: "JO KW MU YE",
    31: "MT SC",
    32: "LC",
    33: "RU",
}
IBAN_LENGTHS = {country: n for n, countries in _IBAN_COUNTRIES.items() for country in countries.split()}


def find_cards(text: str) -> Iterator[Span]:
    """Yield the spans of card numbers: a known issuer, its length, and a valid Luhn check digit."""
    position = 0
    while (match := _CARD.search(text, position)) is not None:
        start, end = match.span()
        gaps = [gap.start() for gap in _BETWEEN.finditer(text, start, end)]
        ends = [end, gaps[3]] if len(gaps) == 4 else [end]  # the fifth group may be another number
        end = next((e for e in ends if is_card(_digits(text[start:e]))), 0)
        if end:
            yield start, end
        position = end or (gaps[0] + 1 if gaps else match.end())  # the number may begin at the next group


def _digits(text: str) -> str:
    return text.replace(" ", "").replace("-", "")


def is_card(digits: str) -> bool:
    """Return True for the prefix and length of an issuer and a valid check digit."""
    n = len(digits)
    has_issuer = any(low <= digits[: len(low)] <= high and n in lengths for low, high, lengths in _ISSUERS)
    return has_issuer and luhn(digits)


def luhn(digits: str) -> bool:
    """Return True if the Luhn check digit is valid.

    >>> luhn("4111111111111111"), luhn("4111111111111112")
    (True, False)
    """
    odd = sum(map(int, digits[-1::-2]))
    even = sum(sum(divmod(2 * int(d), 10)) for d in digits[-2::-2])
    return (odd + even) % 10 == 0


def find_ibans(text: str) -> Iterator[Span]:
    """Yield the spans of IBANs, checked by their country's length and check digits.

    An IBAN is one run, or groups of four with spaces or hyphens between.
    """
    done = 0
    for start in _IBAN_START.finditer(text):
        length = IBAN_LENGTHS.get(start[0][:2].upper())
        if length is None or start.start() < done:
            continue
        end, account = start.end(), start[0]
        while len(account) < length:
            begin = end + 1 if text[end : end + 1] in (" ", "-") else end
            group = _IBAN_GROUP.match(text, begin)
            if group is None:
                break
            account, end = account + group[0], group.end()
            if len(group[0]) < 4:
                break
        if len(account) > length:  # the last group of four continues past the number
            continue
        if len(account) == length and not text[end : end + 1].isalnum() and is_iban(account):
            done = end
            yield start.start(), end


def is_iban(account: str) -> bool:
    """Return True if the check digits are valid.

    >>> is_iban("GB82WEST12345698765432"), is_iban("GB82WEST12345698765431")
    (True, False)
    """
    return int("".join(str(int(c, 36)) for c in account[4:] + account[:4])) % 97 == 1
