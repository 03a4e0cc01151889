"""WikipediaExtractor: wiki markup to plain text. Needs the extra `wikipedia`."""

from __future__ import annotations

import re
from typing import Any

from tamis.errors import TamisError, optional
from tamis.failures import is_memory_failure
from tamis.stages.text.download.base.extract import DocumentExtractor
from tamis.stages.text.download.parse_limits import (
    WIKI_LIMITS,
    ParseLimits,
    ParseRefused,
    check_wiki,
    error_name,
    within_cpu_limit,
)

_MAGIC_WORD = re.compile(r"__[A-Z_\u00c0-\uffff]{3,40}__")
_BLANK_LINES = re.compile(r"\n{3,}")
_TAGS_WITHOUT_TEXT = {
    "ref",
    "references",
    "gallery",
    "table",
    "timeline",
    "imagemap",
    "score",
    "graph",
    "syntaxhighlight",
}


class WikipediaExtractor(DocumentExtractor):
    """Keeps prose and headings; templates, tables, references, files and categories go."""

    def __init__(self, language: str = "en", limits: ParseLimits = WIKI_LIMITS) -> None:
        """Create the extractor. `limits`: articles beyond them go to quarantine with their title."""
        self._language, self.limits = language, limits

    def extract(self, record: dict[str, Any]) -> dict[str, Any] | None:
        markup = record["raw_content"]
        try:
            n_tags = check_wiki(markup, self.limits)
            optional("mwparserfromhell", "WikipediaExtractor", "wikipedia")  # here, not in a child each time
            text = within_cpu_limit(lambda: self._plain(markup), self.limits, len(markup), n_tags)
        except ParseRefused as exc:
            self._refuse(f"article {record.get('title')!r} is not parsed: {exc}")
            return None
        except Exception as exc:  # an error of the library costs one article, not the dump
            if isinstance(exc, TamisError) or is_memory_failure(exc):
                raise
            name = error_name(exc)
            is_deep = name == "RecursionError"  # markup nested on purpose
            self._skip(
                "articles whose markup is nested too deeply" if is_deep else f"articles that cannot be parsed ({name})"
            )
            return None
        if not text:
            self._skip("articles without prose")
            return None
        mark = {"resynchronised": True} if record.get("resynchronised") else {}
        return {"text": text, **{name: record.get(name) for name in self.output_columns()[1:]}, **mark}

    def input_columns(self) -> list[str]:
        return ["title", "id", "url", "language", "source_id", "raw_content"]

    def output_columns(self) -> list[str]:
        return ["text", "title", "id", "url", "language", "source_id"]

    def _plain(self, markup: str) -> str:
        mwparserfromhell = optional("mwparserfromhell", "WikipediaExtractor", "wikipedia")
        return _prose(mwparserfromhell.parse(_MAGIC_WORD.sub("", markup)), self._language)


def _prose(code: Any, language: str) -> str:
    """Return the text of an article, with a blank line around headings; drop headings with nothing under them."""
    from mwparserfromhell.nodes import Heading

    blocks: list[str] = []
    heading, text = "", []
    for node in (*code.nodes, None):
        if node is not None and not isinstance(node, Heading):
            text.append(_text(node, language))
            continue
        block = "".join(text).strip()
        if block:
            blocks += [heading, block] if heading else [block]
        heading, text = _inside(node.title, language).strip() if node is not None else "", []
    return _BLANK_LINES.sub("\n\n", "\n\n".join(blocks))


def _inside(code: Any, language: str) -> str:
    return "".join(_text(node, language) for node in code.nodes) if code is not None else ""


def _text(node: Any, language: str) -> str:
    """Return what a reader sees of one node.

    Visits each node once, whereas the library's own `remove` searches the whole article again.
    """
    from mwparserfromhell import nodes

    if isinstance(node, nodes.Text):
        return str(node.value)
    if isinstance(node, nodes.Wikilink):
        if is_media_or_category(str(node.title), language):
            return ""
        return _inside(node.text if node.text is not None else node.title, language).lstrip(":")
    if isinstance(node, nodes.ExternalLink):
        return _inside(node.title, language) if node.brackets else str(node.url)
    if isinstance(node, nodes.HTMLEntity):
        return str(node.normalize())
    if isinstance(node, nodes.Heading):
        return _inside(node.title, language)
    if isinstance(node, nodes.Tag):
        name = str(node.tag).strip().lower()
        return "\n" if name == "br" else "" if name in _TAGS_WITHOUT_TEXT else _inside(node.contents, language)
    return ""  # templates, arguments, comments


# The English names hold in every Wikipedia.
_EVERYWHERE = "file image media category"
_OWN = {
    "ar": "ملف صورة وسائط تصنيف",
    "bg": "файл картинка медия категория",
    "ca": "fitxer imatge categoria",
    "cs": "soubor kategorie",
    "da": "fil billede kategori",
    "de": "datei bild kategorie medium",
    "el": "αρχείο εικόνα κατηγορία",
    "es": "archivo imagen categoría",
    "et": "pilt fail kategooria",
    "fa": "پرونده رسانه رده",
    "fi": "tiedosto kuva luokka",
    "fr": "fichier catégorie média",
    "he": "קובץ תמונה קטגוריה",
    "hi": "चित्र श्रेणी",
    "hu": "fájl kép kategória",
    "id": "berkas gambar kategori",
    "it": "immagine categoria",
    "ja": "ファイル 画像 カテゴリ メディア",
    "ko": "파일 그림 분류",
    "nl": "bestand afbeelding categorie",
    "no": "fil bilde kategori",
    "pl": "plik grafika kategoria",
    "pt": "ficheiro arquivo imagem categoria",
    "ro": "fișier imagine categorie",
    "ru": "файл изображение категория",
    "sv": "fil bild kategori",
    "th": "ไฟล์ ภาพ หมวดหมู่",
    "tr": "dosya resim kategori",
    "uk": "файл зображення категорія",
    "vi": "tập_tin hình thể_loại",
    "zh": "文件 檔案 档案 图像 圖像 分类 分類",
}


def is_media_or_category(title: str, language: str) -> bool:
    """Return True if a link leads to an image, a media file or a category.

    A leading colon makes it an ordinary link.

    >>> [is_media_or_category(title, "de") for title in ("Datei:Berg.jpg|mini", ":Kategorie:Berg", "Berg")]
    [True, False, False]
    """
    prefix, colon, _ = title.strip().partition(":")
    name = prefix.strip().lower().replace(" ", "_")
    return bool(colon) and bool(name) and name in f"{_EVERYWHERE} {_OWN.get(language.partition('-')[0], '')}".split()
