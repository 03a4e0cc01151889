"""word_hashes against str.split(), documents longer than a piece, and the limit above which n-grams are left out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import text_twin
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.kernels.buffers import string_buffers
from tamis.kernels.text.text_stats import statistics
from tamis.kernels.text.word_stats import COUNTS, PIECE, Wanted, word_counts, word_hashes


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.none(), st.text(alphabet="abé\u3000 \n漢\x00", max_size=200)), max_size=4))
def test_hashes_tell_words_apart(documents: list[str | None]) -> None:
    parts = string_buffers(pa.array(documents, pa.string()))
    found = word_hashes(parts)
    words = [(document or "").split() for document in documents]
    assert np.diff(found.doc_ptr).tolist() == [len(split) for split in words]
    flat = [word for split in words for word in split]
    spans = zip(found.starts.tolist(), found.lens.tolist(), strict=True)
    assert [bytes(parts.data[begin : begin + n]).decode() for begin, n in spans] == flat
    assert len(set(zip(flat, found.hashes.tolist(), strict=True))) == len(set(flat)) == len(set(found.hashes.tolist()))


def test_hashes_do_not_depend_on_the_place() -> None:
    words = ["a", "the\x00", "exactly8", "exactly16_bytes!", "seventeen_bytes_.", "漢字" * 9]
    alone = [int(word_hashes(string_buffers(pa.array([word]))).hashes[0]) for word in words]
    together = word_hashes(string_buffers(pa.array([" ".join(words), "x " + "\n".join(words)])))
    assert together.hashes.tolist()[:6] == alone
    assert together.hashes.tolist()[7:] == alone


def test_documents_longer_than_a_piece() -> None:
    text = ("the é #a# ... x" + "\u3000" * 5) * (PIECE // 20) + "y" * (PIECE + 50) + " z the"
    names = [*COUNTS, "words", "words_with_alpha"]
    found = statistics(string_buffers(pa.array([text, "y" * PIECE])), names)
    for row, document in enumerate((text, "y" * PIECE)):
        expected = text_twin.words_of(document)
        assert {name: int(found[name][row]) for name in names} == {name: expected[name] for name in names}


def test_more_words_than_the_limit_have_no_fractions() -> None:
    raw = np.frombuffer(b"a b a b a b", np.uint8)
    arguments = raw, np.array([0]), np.array([11]), np.array([6]), np.array([11]), Wanted(last_n=2, duplicates=4)
    assert word_counts(*arguments)[1][0, 11 + 2] == 7 / 11
    assert word_counts(*arguments, max_words=5)[1][0, 11 + 2] == 1.0
