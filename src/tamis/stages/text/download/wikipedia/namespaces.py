"""Links that are no prose: images, media and categories, by their names in Wikipedias of various languages."""

from __future__ import annotations

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
