"""Real text that is already on the machine: Python's own files, documentation, licences. No network.

Files are taken in an order fixed by the seed and cut into documents at line ends. When all of them are used up the next
pass begins: the same files, cut differently and numbered as another `copy`. Texts that occurred before are left out, so
that the only duplicates in a corpus are those planted on purpose. Memory: the list of paths, one file (at most 2 MB), 8
bytes of hash per document.
"""

from __future__ import annotations

import hashlib
import os
import random
import site
import sysconfig
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

SUFFIXES = (".py", ".pyi", ".txt", ".rst", ".md", ".html", ".htm", ".info")
NAMES = ("LICENSE", "LICENCE", "COPYING", "README", "NOTICE", "AUTHORS", "copyright", "changelog", "NEWS")
MAX_FILE_BYTES = 2_000_000
MAX_FILES = 200_000
MIN_CHARS = 80
# Characters per document in the first, second, ... pass.
CUTS = (40_000, 9_000, 20_000, 5_000, 14_000)
# Below this share of ASCII letters and digits a text is data, not prose or code; junk planted by the demo has none at
# all.
MIN_ALNUM_SHARE = 0.2
_NOT_ALNUM = bytes(b for b in range(256) if not (chr(b).isalnum() and b < 128))


@dataclass(frozen=True)
class LocalText:
    """One document: the part of a file, which part it is, and in which pass over the machine's files it was cut."""

    text: str
    source: str
    part: int
    copy: int


def default_roots() -> list[str]:
    """Return the folders that hold text on most machines; those that do not exist are left out."""
    paths = sysconfig.get_paths()
    roots = [paths["stdlib"], paths["purelib"], paths["platlib"], *site.getsitepackages()]
    roots += ["/usr/lib/python3", "/usr/share/common-licenses", "/usr/share/doc", "/usr/share/info", "/usr/share/perl"]
    real = sorted({os.path.realpath(root) for root in roots if os.path.isdir(root)})
    return [root for root in real if not any(root.startswith(other + os.sep) for other in real if other != root)]


def find_files(roots: Sequence[str]) -> list[str]:
    """Return the text files below the roots, sorted; links are not followed."""
    paths: list[str] = []
    for root in roots:
        for base, folders, names in os.walk(root):
            folders[:] = sorted(f for f in folders if f != "__pycache__")
            paths += [os.path.join(base, name) for name in names if _is_text_name(name)]
            if len(paths) > MAX_FILES:
                return sorted(paths[:MAX_FILES])
    return sorted(paths)


def _is_text_name(name: str) -> bool:
    plain = name.removesuffix(".gz")
    return plain.endswith(SUFFIXES) or plain.startswith(NAMES)


def read_text(path: str) -> str | None:
    """Read the text of a file (also .gz).

    Return None if it is a link, too large, unreadable, binary or not UTF-8.
    """
    try:
        if os.path.islink(path) or os.path.getsize(path) > MAX_FILE_BYTES:
            return None
        with open(path, "rb") as file:
            raw = file.read(MAX_FILE_BYTES)
        if path.endswith(".gz"):
            raw = zlib.decompressobj(31).decompress(raw, MAX_FILE_BYTES)
        return None if b"\0" in raw else raw.decode("utf-8")
    except (OSError, zlib.error, UnicodeDecodeError):
        return None


def local_texts(seed: int, roots: Sequence[str] | None = None) -> Iterator[LocalText]:
    """Yield distinct texts as long as another pass yields any; the same for the same seed and files."""
    files = find_files(default_roots() if roots is None else roots)
    random.Random(seed).shuffle(files)
    seen: set[bytes] = set()
    copy = 0
    while True:
        n_new = 0
        for path in files:
            text = read_text(path)
            for part, piece in enumerate(_cut(text, copy)) if text else ():
                raw = piece.encode("utf-8")
                if len(piece) < MIN_CHARS or len(raw.translate(None, _NOT_ALNUM)) < MIN_ALNUM_SHARE * len(raw):
                    continue
                key = hashlib.blake2b(raw, digest_size=8).digest()
                if key not in seen:
                    seen.add(key)
                    n_new += 1
                    yield LocalText(piece, path, part, copy)
        if n_new == 0:
            return
        copy += 1


def _cut(text: str, copy: int) -> Iterator[str]:
    """Yield pieces of about CUTS characters that end at line ends; pass `copy` leaves out that many first lines."""
    position = 0
    for _ in range(copy):
        position = text.find("\n", position) + 1
        if position == 0:
            return
    n_chars = CUTS[copy % len(CUTS)]
    while position < len(text):
        end = len(text) if len(text) - position <= n_chars else text.find("\n", position + n_chars) + 1 or len(text)
        yield text[position:end]
        position = end
