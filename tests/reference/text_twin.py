"""The slow twin of kernels/text/ in plain Python: the specification of every statistic."""

from __future__ import annotations

import re
from collections import Counter

BULLETS = tuple("•‣⁃⁌⁍∙○●◘◦⦾⦿")
ELLIPSIS_MARKS = ("...", "[...]", "…", "(...)", "[…]", "-»", "read more..", "read more")
END_MARKS = (".", "?", "!", '"', "'")
COMMON_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
C4_POLICY = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
POLICY = (
    *C4_POLICY,
    "privacy overview",
    "privacy & cookies policy",
    "privacy and cookies policy",
    "necessary cookies are absolutely essential",
    "any cookies that may not be particularly necessary",
    "if you continue to browse this site without changing your cookie settings",
)
URL = r"https?://(?:[A-Za-z0-9$\-_@.&+/:=?#~]|[!*\(\),]|(?:%[0-9A-Fa-f]{2}))+"
WIDE_URL = r"https?://(?:[a-zA-Z]|[0-9]|[$-_@.&+]|[!*\(\),]|(?:%[0-9a-fA-F][0-9a-fA-F]))+"
CITATION = r"\[\d*]|\[edit]|\[citation needed]"
# Sentence-final punctuation of all scripts, and the punctuation that alone makes no word, as datatrove lists them.
TERMINAL = set(
    ".!?։؝؞؟۔܀܁܂߹࠷࠹࠽࠾।॥၊။።፧፨᙮᜵᜶។៕៖៙៚᠃᠉᥄᥅᪨᪩᪪᪫᭚᭛᭞᭟᭽᭾᰻᰼᱾᱿‼‽⁇⁈⁉⸮⸼⹓⹔。꓿꘎꘏꛳꛷꡶꡷꣎꣏꤯꧈꧉꩝꩞꩟꫰꫱꯫﹒﹖﹗！．？｡"
    "𐩖𐩗𐽕𐽖𐽗𐽘𐽙𐾆𐾇𐾈𐾉𑁇𑁈𑂾𑂿𑃀𑃁𑅁𑅂𑅃𑇅𑇆𑇍𑇞𑇟𑈸𑈹𑈻𑈼𑊩𑑋𑑌𑗂𑗃𑗉𑗊𑗋𑗌𑗍𑗎𑗏𑗐𑗑𑗒𑗓𑗔𑗕𑗖𑗗𑙁𑙂𑜼𑜽𑜾𑥄𑥆𑩂𑩃𑪛𑪜𑱁𑱂𑻷𑻸𑽃𑽄𖩮𖩯𖫵𖬷𖬸𖭄𖺘𛲟𝪈"
)
SYMBOLS = TERMINAL | set("!/—”:％１〈&(、━\\【#%「」，】；+^]~“《„';’{|∶´[=-`*．（–？！：$～«〉,><》)?）。…@_.\"}►»")
SYMBOLS |= {chr(c) for low, high in ((0, 9), (11, 32), (127, 160)) for c in range(low, high)}


def duplicates(pieces: list[str]) -> tuple[int, int]:
    """(pieces that occurred before, their characters)."""
    seen: set[str] = set()
    n = n_chars = 0
    for piece in pieces:
        if piece in seen:
            n, n_chars = n + 1, n_chars + len(piece)
        seen.add(piece)
    return n, n_chars


def is_symbol_word(word: str) -> bool:
    return word in ELLIPSIS_MARKS or len(re.findall("#+", word)) / len(word) > 0.5


def n_sentences(line: str) -> int:
    """Count ends (. ? ! and closing quotes or brackets, before whitespace or the end) and the rest after them."""
    ends = list(re.finditer(r"[.?!]+[\"')\]]*(?=\s|$)", line))
    return len(ends) + bool(line[ends[-1].end() if ends else 0 :].strip())


def c4(text: str) -> dict[str, int]:
    found = {"c4_lines": 0, "c4_sentences": 0, "c4_lorem_ipsum": 0, "c4_curly_bracket": 0}
    for raw in text.splitlines():
        line = raw.strip()
        words = line.split()
        if any(len(word) > 1000 for word in words):
            continue
        bare = re.sub(CITATION, "", line)
        if not bare.endswith(END_MARKS) or bare.endswith("...") or len(words) < 3:
            continue
        low = line.lower()
        if "lorem ipsum" in low:
            found["c4_lorem_ipsum"] = 1
            break
        if "javascript" in low:
            continue
        if "{" in line:
            found["c4_curly_bracket"] = 1
            break
        if not any(phrase in low for phrase in C4_POLICY):
            found["c4_lines"] += 1
            found["c4_sentences"] += n_sentences(line)
    return found


def top_gram(words: list[str], n: int) -> tuple[str, int]:
    """Return the most frequent n-gram joined by spaces, of several the first, and its count."""
    counts = Counter(tuple(words[k : k + n]) for k in range(len(words) - n + 1))
    gram, count = counts.most_common(1)[0]
    return " ".join(gram), count


def duplicate_chars(words: list[str], n: int) -> int:
    """Characters of n-grams met before, with a space between words; words counted already are left out."""
    seen: set[tuple[str, ...]] = set()
    n_chars = n_covered = 0
    for k in range(len(words) - n + 1):
        gram = tuple(words[k : k + n])
        if gram in seen:
            n_chars += sum(map(len, gram[n_covered:])) + min(n - n_covered, n - 1)
            n_covered = n
        seen.add(gram)
        n_covered = max(n_covered - 1, 0)
    return n_chars


def gopher_duplicate_chars(words: list[str], n: int) -> int:
    """Characters of n-grams, joined without spaces, met before; after one the next n words are not looked at."""
    seen: set[str] = set()
    n_chars = k = 0
    while k + n <= len(words):
        gram = "".join(words[k : k + n])
        if gram in seen:
            n_chars += len(gram)
            k += n
        else:
            seen.add(gram)
            k += 1
    return n_chars


def fractions(text: str) -> dict[str, float]:
    words, found = text.split(), {}
    for n in range(2, 11):
        top, duplicate, gopher_top, gopher_duplicate = 1.0, 1.0, 0.0, 0.0
        if len(words) >= n:
            gram, count = top_gram(words, n)
            top = (len(text) - len(text.replace(gram, ""))) / len(text)
            duplicate = duplicate_chars(words, n) / len(text)
            gopher_top = len(gram) * count / len(text)
            gopher_duplicate = gopher_duplicate_chars(words, n) / len(text)
        found[f"top_{n}_gram_fraction"] = top
        found[f"duplicate_{n}_gram_fraction"] = duplicate
        found[f"gopher_top_{n}_gram_fraction"] = gopher_top
        found[f"gopher_duplicate_{n}_gram_fraction"] = gopher_duplicate
    return found


def characters(text: str) -> dict[str, int]:
    return {
        "bytes": len(text.encode()),
        "chars": len(text),
        "whitespace_chars": sum(map(str.isspace, text)),
        "basic_whitespace_chars": sum(c in "\t\n\r\b " for c in text),
        "digits": len(re.findall("[0-9]", text)),
        "alpha_chars": sum(map(str.isalpha, text)),
        "alnum_punct_chars": len(re.findall("[a-zA-Z0-9\n?!,.]", text)),
        "bracket_chars": sum(c in "()[]{}⟨⟩" for c in text),
        "hash_chars": text.count("#"),
        "ellipses": text.count("...") + text.count("…"),
        "newlines": text.count("\n"),
        "curly_brackets": text.count("{"),
        "lorem_ipsum": int("lorem ipsum" in text.lower()),
        "javascript": int("javascript" in text.lower()),
    }


def words_of(text: str) -> dict[str, int]:
    words = text.split()
    others = [word for word in words if any(c not in SYMBOLS for c in word)]
    return {
        "words": len(words),
        "words_with_alpha": sum(any(map(str.isalpha, word)) for word in words),
        "word_chars": sum(map(len, words)),
        "longest_word": max(map(len, words), default=0),
        "symbol_words": sum(map(is_symbol_word, words)),
        "common_words": sum(word in COMMON_WORDS for word in words),
        "distinct_common_words": len(set(words).intersection(COMMON_WORDS)),
        "non_symbol_words": len(others),
        "non_symbol_word_chars": sum(map(len, others)),
    }


def lines_of(text: str) -> dict[str, int]:
    lines = [line for line in text.split("\n") if line.strip()]
    n_same, n_same_chars = duplicates(lines)
    runs = re.split("\n+", text)
    split = text.splitlines()
    return {
        "sentences": len(lines),
        "sentence_chars": sum(map(len, lines)),
        "unique_sentences": len(set(lines)),
        "unique_sentence_chars": sum(map(len, set(lines))),
        "duplicate_sentences": n_same,
        "duplicate_sentence_chars": n_same_chars,
        "bullet_sentences": sum(line.strip().startswith(BULLETS) for line in lines),
        "ellipsis_sentences": sum(line.strip().lower().endswith(ELLIPSIS_MARKS) for line in lines),
        "sentences_without_end_mark": sum(not line.strip().endswith(END_MARKS) for line in lines),
        "terminal_sentences": sum(line[-1] in TERMINAL for line in lines),
        "short_sentences": sum(len(line) <= 30 for line in lines),
        "line_runs": len(runs),
        "duplicate_line_runs": duplicates(runs)[0],
        "duplicate_line_run_chars": duplicates(runs)[1],
        "split_lines": len(split),
        "gopher_bullet_lines": sum(line.lstrip().startswith(("•", "-")) for line in split),
        "gopher_ellipsis_lines": sum(line.rstrip().endswith(("...", "…")) for line in split),
        **c4(text),
    }


def paragraphs_of(text: str) -> dict[str, int]:
    pieces, stripped = text.split("\n\n"), re.split("\n{2,}", text.strip())
    return {
        "paragraphs": len(pieces),
        "paragraph_chars": sum(map(len, pieces)),
        "unique_paragraphs": len(set(pieces)),
        "unique_paragraph_chars": sum(map(len, set(pieces))),
        "duplicate_paragraphs": duplicates(pieces)[0],
        "duplicate_paragraph_chars": duplicates(pieces)[1],
        "boilerplate_paragraphs": sum(any(phrase in piece.lower() for phrase in POLICY) for piece in pieces),
        "gopher_paragraphs": len(stripped),
        "gopher_paragraph_chars": sum(map(len, stripped)),
        "gopher_duplicate_paragraphs": duplicates(stripped)[0],
        "gopher_duplicate_paragraph_chars": duplicates(stripped)[1],
    }


def urls_of(text: str) -> dict[str, int]:
    found = {}
    for prefix, pattern in (("", URL), ("wide_", WIDE_URL)):
        urls = re.findall(pattern, text)
        found[f"{prefix}urls"] = len(urls)
        found[f"{prefix}url_chars"] = sum(map(len, urls))
        found[f"{prefix}porn_urls"] = sum("porn" in url for url in urls)
    return found


def statistics(document: str | None) -> dict[str, float]:
    """Every statistic of one document."""
    text = document or ""
    return {
        "is_null": int(document is None),
        **characters(text),
        **words_of(text),
        **lines_of(text),
        **paragraphs_of(text),
        **urls_of(text),
        **fractions(text),
    }
