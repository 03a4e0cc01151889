"""fastText inference straight from the bytes of a model file: words, character n-grams, hidden layer, labels.

Covers the hot loops only; `fasttext_file` proves every offset and id before a kernel sees them.
Algorithm: Joulin et al., "Bag of Tricks for Efficient Text Classification" (2016), with the rules of fastText 0.9.2 for
splitting, hashing and ties. Linear in the text: each character starts at most `maxn` n-grams.

A word's vectors are summed first and the sums of words of up to KEY_BYTES are kept in a direct-mapped table, since
few words make up most of a text. A hit and a miss give the same bits, so results do not depend on what was read
before. Words are read some at a time (`_fasttext_words`) and their slots asked for early: waiting for slots took as
long as all else. Memory: the table, 64 + 4 * dim bytes per slot, and a few vectors.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math

import numpy as np

from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, pointer, put
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import (
    F32_OUT,
    F64_OUT,
    I32_IN,
    I32_OUT,
    I64_IN,
    I64_OUT,
    U8_IN,
    U8_OUT,
    U32_IN,
    U32_OUT,
    U64_IN,
    U64_OUT,
)
from tamis.kernels.text._blocks import ZERO
from tamis.kernels.text._fasttext_ngrams import add_ngrams, bucket_row
from tamis.kernels.text._fasttext_rows import add_eight, add_row, dot_row
from tamis.kernels.text._fasttext_words import (
    AHEAD,
    BEGIN,
    KEY_BYTES,
    N_BYTES,
    SLOT,
    SLOT_OF,
    is_known,
    note_word,
    read_words,
)
from tamis.kernels.text.fasttext_tables import (
    BUCKET,
    DIM,
    FNV_START,
    LOSS,
    MAXN,
    N_LABELS,
    N_WORDS,
    WORD_NGRAMS,
    fnv,
    word_id,
)

HIERARCHICAL, NEGATIVE_SAMPLING, SOFTMAX, ONE_VS_ALL = 1, 2, 3, 4  # fastText's loss numbers
END_OF_LINE = np.frombuffer(b"</s>", np.uint8)  # the word that ends a text, for `eos_in`

_EOS_KEY = np.uint64(int.from_bytes(b"</s>", "little"))
_LABEL_KEY = np.uint64(int.from_bytes(b"__label_", "little"))
_MAX_SIGMOID, _SIGMOID_CELLS = 8, 512


@helper
def _is_space(c):
    return c == 32 or 9 <= c <= 13 or c == 0


@kernel(types.void(U8_IN, I64_IN, I64_IN, types.int64, I64_OUT, I64_OUT))
def windows(data, starts, ends, max_bytes, begins_out, ends_out):
    """Compute the span of the first `max_bytes` of each text after leading whitespace.

    No character is cut; the span is empty for blank texts.
    """
    for row in range(starts.size):
        p = at(starts, row)
        end = at(ends, row)
        while p < end and _is_space(at(data, p)):
            p += 1
        q = min(end, p + max_bytes)
        while p < q < end and at(data, q) & 0xC0 == 0x80:
            q -= 1
        put(begins_out, row, p)
        put(ends_out, row, q)


@helper
def _is_label(text, p, e, key):
    return e - p >= 9 and key == _LABEL_KEY and at(text, p + 8) == 95


@helper
def _sigmoid(x):
    """Look up the sigmoid in fastText's table: 512 steps between -8 and 8, not the exact function."""
    if x != x:
        return x
    if x < -_MAX_SIGMOID:
        return np.float32(0.0)
    if x > _MAX_SIGMOID:
        return np.float32(1.0)
    cell = np.int64((x + np.float32(_MAX_SIGMOID)) * np.float32(_SIGMOID_CELLS) / 8.0 / 2.0)
    return np.float32(1.0 / (1.0 + math.exp(-(cell * 2.0 * _MAX_SIGMOID / _SIGMOID_CELLS - _MAX_SIGMOID))))


@helper
def _log(x):
    return np.float32(math.log(np.float64(x) + 1e-5))


@helper
def _offer(ids, scores, first, k, n_kept, label, score):
    """Keep the k best, best first; of equals the later one, as fastText's heap does for k = 1."""
    if n_kept == k:
        if score < at(scores, first + k - 1):
            return n_kept
        n_kept -= 1
    to = first + n_kept
    while to > first and not at(scores, to - 1) > score:
        put(ids, to, at(ids, to - 1))
        put(scores, to, at(scores, to - 1))
        to -= 1
    put(ids, to, np.int32(label))
    put(scores, to, np.float32(score))
    return n_kept + 1


@helper
def _walk(file, shape, matrix, tree, hidden, threshold, stack, stack_scores, ids, scores, first, k):
    """Walk the Huffman tree depth first, skipping branches that cannot reach the threshold or the k best."""
    n_labels = at(shape, N_LABELS)
    lowest = _log(np.float32(threshold))
    n_kept = 0
    put(stack, 0, np.int32(2 * n_labels - 2))
    put(stack_scores, 0, np.float32(0.0))
    n_stacked = 1
    while n_stacked > 0:
        n_stacked -= 1
        node = np.int64(at(stack, n_stacked))
        score = at(stack_scores, n_stacked)
        if score < lowest or (n_kept == k and score < at(scores, first + k - 1)):
            continue
        if node < n_labels:
            n_kept = _offer(ids, scores, first, k, n_kept, node, score)
            continue
        f = dot_row(file, matrix, at(shape, DIM), node - n_labels, hidden)
        f = np.float32(1.0 / (1.0 + np.float64(np.float32(math.exp(-f)))))
        put(stack, n_stacked, at(tree, 2 * (node - n_labels) + 1))
        put(stack_scores, n_stacked, np.float32(score + _log(f)))
        put(stack, n_stacked + 1, at(tree, 2 * (node - n_labels)))
        put(stack_scores, n_stacked + 1, np.float32(score + _log(np.float32(1.0 - f))))
        n_stacked += 2
    return n_kept


@helper
def _flat(file, shape, matrix, hidden, threshold, output, ids, scores, first, k):
    """Compute every label's own score: softmax, or independent sigmoids."""
    n_labels = at(shape, N_LABELS)
    best = np.float32(-np.inf)
    for label in range(n_labels):
        x = dot_row(file, matrix, at(shape, DIM), label, hidden)
        put(output, label, x if at(shape, LOSS) == SOFTMAX else _sigmoid(x))
        best = max(best, x)
    if at(shape, LOSS) == SOFTMAX:
        total = np.float32(0.0)
        for label in range(n_labels):
            put(output, label, np.float32(math.exp(at(output, label) - best)))
            total += at(output, label)
        for label in range(n_labels):
            put(output, label, at(output, label) / total)
    n_kept = 0
    for label in range(n_labels):
        if not at(output, label) < threshold:
            n_kept = _offer(ids, scores, first, k, n_kept, label, _log(at(output, label)))
    return n_kept


@kernel(
    types.void(
        *(U8_IN, I64_IN, I64_IN, U8_IN, types.int64, types.float32),
        *(U8_IN, U8_IN, I64_IN, I64_IN, I64_IN, I64_IN, I32_IN, U32_IN, I32_IN, I32_IN, U64_IN, I32_IN),
        *(U64_OUT, F32_OUT, F64_OUT, F32_OUT, U64_OUT, U64_OUT, U8_OUT, I64_OUT, U32_OUT, I32_OUT, F32_OUT),
        *(I32_OUT, F32_OUT),
    )
)
def predict(
    data,
    starts,
    ends,
    eos_in,
    k,
    threshold,
    file_in,
    vectors_in,
    shape_in,
    inputs_in,
    outputs_in,
    begins_in,
    lengths_in,
    hashes_in,
    slots_in,
    pruned_in,
    kept_in,
    tree_in,
    known_out,
    sums_out,
    total_out,
    hidden_out,
    open_out,
    ahead_out,
    pad_out,
    waiting_out,
    hashed_out,
    stack_out,
    scratch_out,
    ids_out,
    scores_out,
):
    """Predict the k best labels of each text data[starts[i]:ends[i]).

    Ids are -1 and scores 0 if there are fewer.
    """
    file, shape, inputs, outputs = pointer(file_in), pointer(shape_in), pointer(inputs_in), pointer(outputs_in)
    vectors = pointer(vectors_in)  # the location of the input matrix: the file itself, or a copy
    begins, lengths, hashes = pointer(begins_in), pointer(lengths_in), pointer(hashes_in)
    slots, pruned, kept, tree = pointer(slots_in), pointer(pruned_in), pointer(kept_in), pointer(tree_in)
    known, sums, ahead, pad = pointer(known_out), pointer(sums_out), pointer(ahead_out), pointer(pad_out)
    total, hidden, open_hashes = pointer(total_out), pointer(hidden_out), pointer(open_out)
    waiting, hashed = pointer(waiting_out), pointer(hashed_out)
    stack, scratch, ids, scores = pointer(stack_out), pointer(scratch_out), pointer(ids_out), pointer(scores_out)
    text, eos = pointer(data), pointer(eos_in)
    dim, n_words, bucket = at(shape, DIM), at(shape, N_WORDS), at(shape, BUCKET)
    stride = np.int64(total_out.size)  # dim, rounded up to eights
    n_joined = at(shape, WORD_NGRAMS) - 1
    word_mask, pruned_mask = np.int64(slots_in.size - 1), np.int64(pruned_in.size // 2 - 1)
    kept_mask = np.int64(64 * kept_in.size - 1)
    n_slots = np.int64(known_out.size // SLOT - 1)  # the last place is for words that are not kept
    for row in range(starts.size):
        p = begin = at(starts, row)
        end = at(ends, row)
        inside = ZERO
        n_rows = np.int64(0)
        n_seen = 0
        for d in range(stride):
            put(total, d, 0.0)
        last = False
        k_ahead = n_ahead = np.int64(0)
        source = text
        while not last:
            if k_ahead == n_ahead:
                k_ahead = n_ahead = np.int64(0)
                while p < end and n_ahead == 0:
                    n_ahead, p, inside, begin = read_words(
                        text, data.size, p, end, inside, begin, pad, n_slots, known, sums, stride, ahead
                    )
                if n_ahead == 0:
                    source = eos
                    note_word(eos, 4, np.int64(0), np.int64(4), n_slots, known, sums, stride, ahead, np.int64(0))
                    n_ahead = np.int64(1)
            base = AHEAD * k_ahead
            k_ahead += 1
            s = np.int64(at(ahead, base + BEGIN))
            n_bytes = np.int64(at(ahead, base + N_BYTES))
            slot = np.int64(at(ahead, base + SLOT_OF))
            key = at(ahead, base)
            last = n_bytes == 4 and key == _EOS_KEY
            is_hit = n_bytes <= KEY_BYTES and is_known(known, slot, ahead, base)
            first = slot * stride
            h = FNV_START
            if n_joined > 0 or not is_hit:
                for q in range(s, s + n_bytes):
                    h = fnv(h, at(source, q))
            if not is_hit:
                for part in range(4):
                    put(known, SLOT * slot + part, at(ahead, base + part))
                for d in range(dim):
                    put(sums, first + d, np.float32(0.0))
                n_own = np.int64(0)
                e = s + n_bytes
                entry = word_id(source, s, e, h, file, begins, lengths, hashes, slots, word_mask)
                if entry >= n_words or (entry < 0 and _is_label(source, s, e, key)):
                    n_own = np.int64(-1)  # a label is no word
                else:
                    if entry >= 0:
                        add_row(vectors, inputs, dim, entry, sums, first)
                        n_own = np.int64(1)
                    if not last and at(shape, MAXN) > 0:
                        model = (vectors, shape, pruned, pruned_mask, kept, kept_mask, inputs)
                        n_own += add_ngrams(source, s, e, *model, waiting, hashed, sums, first)
                put(known, SLOT * slot + 4, np.uint64(n_own + 1))
            n_own = np.int64(at(known, SLOT * slot + 4)) - 1
            if n_own < 0:
                continue
            for d in range(0, stride, 8):
                add_eight(total, d, sums, first + d)
            n_rows += n_own
            if n_joined > 0:
                # Every word lengthens the n-grams that began up to n_joined words before it.
                own = np.uint64(np.int64(np.int32(h)))
                for back in range(min(n_joined, n_seen)):
                    place = (n_seen - 1 - back) % n_joined
                    joined = at(open_hashes, place) * np.uint64(116049371) + own
                    put(open_hashes, place, joined)
                    to = bucket_row(shape, pruned, pruned_mask, np.int64(joined % np.uint64(bucket)))
                    if to >= 0:
                        spare = n_slots * stride
                        for d in range(dim):
                            put(sums, spare + d, np.float32(0.0))
                        add_row(vectors, inputs, dim, to, sums, spare)
                        for d in range(0, stride, 8):
                            add_eight(total, d, sums, spare + d)
                        n_rows += 1
                put(open_hashes, n_seen % n_joined, own)
                n_seen += 1
        n_kept = 0
        if n_rows > 0:
            for d in range(dim):
                put(hidden, d, np.float32(at(total, d) / n_rows))
            if at(shape, LOSS) == HIERARCHICAL:
                n_kept = _walk(file, shape, outputs, tree, hidden, threshold, stack, scratch, ids, scores, row * k, k)
            else:
                n_kept = _flat(file, shape, outputs, hidden, threshold, scratch, ids, scores, row * k, k)
        for place in range(row * k, row * k + n_kept):
            put(scores, place, np.float32(math.exp(at(scores, place))))
        for place in range(row * k + n_kept, (row + 1) * k):
            put(ids, place, np.int32(-1))
            put(scores, place, np.float32(0.0))
