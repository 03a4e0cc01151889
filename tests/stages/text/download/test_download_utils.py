"""Text of pages: encodings, languages, stop words."""

from __future__ import annotations

import pytest

from tamis.errors import UsageError
from tamis.stages.text.download.html_extractors.utils import get_stop_list_dict
from tamis.stages.text.download.utils import (
    check_s5cmd_installed,
    decode_html,
    detect_language,
    lang_detect,
    try_decode_with_detected_encoding,
)
from tamis.stages.text.utils.languages import NAMES, WITHOUT_SPACES

RUSSIAN = (
    "Башня на холме была построена в том году, когда река изменила своё течение, и с тех пор жители долины ею "
    "пользуются."
)


def test_pages_in_various_encodings() -> None:
    assert decode_html("Grüße".encode()) == "Grüße"
    assert decode_html(b"\xef\xbb\xbfabc") == "abc"
    assert decode_html(b'<meta charset="koi8-r">' + RUSSIAN.encode("koi8-r")) == '<meta charset="koi8-r">' + RUSSIAN
    assert decode_html(f"<p>{RUSSIAN}</p>".encode("cp1251")) == f"<p>{RUSSIAN}</p>"
    assert (
        decode_html(b'<meta charset="no-such-thing"><p>na\xefve caf\xe9</p>')
        == '<meta charset="no-such-thing"><p>naïve café</p>'
    )
    assert try_decode_with_detected_encoding(b"\x81\x8d\x00\xff" * 5) is None


def test_the_language_of_text_and_of_pages() -> None:
    assert lang_detect("This is a sentence in the English language, as everybody can see.") == "ENGLISH"
    ((name, code, score),) = detect_language(RUSSIAN)
    assert (name, code, score > 0.8) == ("RUSSIAN", "ru", True)
    hidden = "<script>" + "der die das und nicht ist " * 200 + "</script>"
    assert lang_detect(f"<html><head>{hidden}</head><body><p>{RUSSIAN}</p></body></html>") == "RUSSIAN"
    style = "<style>" + "a{color:red}" * 20_000 + "</style>"  # more than is looked at first
    assert lang_detect(f"<html><head>{style}</head><body><p>{RUSSIAN}</p></body></html>") == "RUSSIAN"
    assert detect_language("") == (("UNKNOWN", "un", 0.0),)
    assert lang_detect("<" * 100_000) in {"UNKNOWN", *NAMES.values()}  # takes no time


def test_every_language_of_the_model_has_a_name() -> None:
    from tamis.stages.text.langid import LanguageId

    codes = {label.removeprefix("__label__") for label in LanguageId().load().labels}
    assert codes - set(NAMES) == set()
    assert set(NAMES.values()) >= WITHOUT_SPACES


def test_stop_words_are_found_under_the_names_of_the_model() -> None:
    lists = get_stop_list_dict()
    assert {"the", "and"} <= lists["ENGLISH"]
    assert {"NORWEGIAN", "CHINESE", "JAPANESE", "THAI", "KOREAN"} <= set(lists)
    assert len(set(lists) & set(NAMES.values())) > 90
    assert set(get_stop_list_dict(["English", "german", "THAI"])) == {"ENGLISH", "GERMAN", "THAI"}
    with pytest.raises(UsageError, match="no stop words for KLINGON"):
        get_stop_list_dict(["Klingon"])


def test_a_command_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert check_s5cmd_installed() is False
