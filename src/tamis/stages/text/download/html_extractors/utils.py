"""Stop words by language: jusText's lists, and short ones for languages that it has none for."""

from __future__ import annotations

from collections.abc import Sequence

from tamis.errors import UsageError, optional

# Frequent function words. No share of them is counted (these languages are written without spaces); the list says that
# a language is wanted, and is what `stop_lists` shows.
_OWN = {
    "CHINESE": (
        "的 了 在 是 我 有 和 就 不 人 都 一 一个 上 也 很 到 说 要 去 "
        "你 会 着 没有 看 好 自己 这 那 他 她 它 们 与 及 或 而 但 因为 所以 如果"
    ),
    "JAPANESE": (
        "の に は を た が で て と し れ さ ある いる も する から "
        "な こと として い や など なっ ない この ため その あっ よう また もの という あり まで"
    ),
    "THAI": "ที่ และ ของ ใน เป็น การ มี ได้ ให้ ว่า จะ ไม่ กับ นี้ คือ แต่ หรือ จาก โดย เพื่อ ก็ อยู่ ถึง ซึ่ง เมื่อ ยัง แล้ว ทำ มา ไป ตาม",
}
_OTHER_NAMES = {"NORWEGIAN_BOKMAL": "NORWEGIAN"}


def get_stop_list_dict(languages: Sequence[str] | None = None) -> dict[str, frozenset[str]]:
    """Map languages (English names in capitals) to stop words; all known ones, or the requested ones."""
    justext = optional("justext", "stop words", "html")
    justext_names = {_key(name): name for name in justext.get_stoplists()}
    requested = [*justext_names, *_OWN] if languages is None else [_key(name) for name in languages]
    unknown = [name for name in requested if name not in justext_names and name not in _OWN]
    if unknown:
        raise UsageError(f"no stop words for {', '.join(unknown)}; known: {', '.join(sorted({*justext_names, *_OWN}))}")
    return {
        name: frozenset(_OWN[name].split()) if name in _OWN else frozenset(justext.get_stoplist(justext_names[name]))
        for name in requested
    }


def _key(name: str) -> str:
    upper = name.strip().upper().replace(" ", "_")
    return _OTHER_NAMES.get(upper, upper)
