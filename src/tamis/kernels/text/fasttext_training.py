"""Train a fastText classifier: stochastic gradient descent with softmax loss and word n-grams in hash buckets.

Algorithm: Joulin et al., "Bag of Tricks for Efficient Text Classification" (2016), with the rules of fastText 0.9.2
for words, buckets and gradients; the rows of a text are those that `fasttext_kernels.predict` adds up. One thread, so
that the same texts give the same bits. Linear in the words: each costs about 4 * dim * word n-grams multiplications.
Memory: the matrices, and 8 bytes per row of the longest text.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math

import numpy as np

from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, pointer, put
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import F32_OUT, F64_OUT, I32_IN, I64_IN, I64_OUT, U8_IN, U32_IN, U64_OUT
from tamis.kernels.text.fasttext_kernels import _is_space
from tamis.kernels.text.fasttext_tables import BUCKET, DIM, FNV_START, N_LABELS, N_WORDS, WORD_NGRAMS, fnv, word_id

_EOS_KEY = np.uint64(int.from_bytes(b"</s>", "little"))
_LABEL_KEY = np.uint64(int.from_bytes(b"__label_", "little"))


@helper
def _rows(text, p, end, eos, shape, names, begins, lengths, hashes, slots, mask, open_hashes, rows):
    """Collect the input rows of one text, words and their n-grams; return how many there are."""
    n_words, bucket = at(shape, N_WORDS), np.uint64(at(shape, BUCKET))
    n_joined = at(shape, WORD_NGRAMS) - 1
    n_rows = np.int64(0)
    n_seen = np.int64(0)
    last = False
    while not last:
        while p < end and _is_space(at(text, p)):
            p += 1
        source = text if p < end else eos
        begin = p if p < end else np.int64(0)
        stop = end if p < end else np.int64(4)
        q = begin
        h = FNV_START
        key = np.uint64(0)
        while q < stop and not _is_space(at(source, q)):
            c = at(source, q)
            if q - begin < 8:
                key |= np.uint64(c) << np.uint64(8 * (q - begin))
            h = fnv(h, c)
            q += 1
        p = q if p < end else p
        last = q - begin == 4 and key == _EOS_KEY
        entry = word_id(source, begin, q, h, names, begins, lengths, hashes, slots, mask)
        is_label = q - begin >= 9 and key == _LABEL_KEY and at(source, begin + 8) == 95
        if entry >= n_words or (entry < 0 and is_label):
            continue
        if entry >= 0:
            put(rows, n_rows, entry)
            n_rows += 1
        if n_joined > 0:
            own = np.uint64(np.int64(np.int32(h)))
            for back in range(min(n_joined, n_seen)):
                place = (n_seen - 1 - back) % n_joined
                joined = at(open_hashes, place) * np.uint64(116049371) + own
                put(open_hashes, place, joined)
                put(rows, n_rows, n_words + np.int64(joined % bucket))
                n_rows += 1
            put(open_hashes, n_seen % n_joined, own)
            n_seen += 1
    return n_rows


@helper
def _step(label, rate, dim, n_labels, n_rows, rows, inputs, outputs, hidden, change, scores):
    """Move the matrices by one text; its loss."""
    best = np.float32(-np.inf)
    for i in range(n_labels):
        x = np.float32(0.0)
        for d in range(dim):
            x += at(hidden, d) * at(outputs, i * dim + d)
        put(scores, i, np.float64(x))
        best = max(best, x)
    total = 0.0
    for i in range(n_labels):
        put(scores, i, math.exp(at(scores, i) - best))
        total += at(scores, i)
    for d in range(dim):
        put(change, d, np.float32(0.0))
    for i in range(n_labels):
        target = 1.0 if i == label else 0.0
        step = np.float32(rate * (target - at(scores, i) / total))
        for d in range(dim):
            put(change, d, at(change, d) + step * at(outputs, i * dim + d))
            put(outputs, i * dim + d, at(outputs, i * dim + d) + step * at(hidden, d))
    for d in range(dim):
        put(change, d, np.float32(at(change, d) / n_rows))
    for k in range(n_rows):
        first = at(rows, k) * dim
        for d in range(dim):
            put(inputs, first + d, at(inputs, first + d) + at(change, d))
    return -math.log(at(scores, label) / total + 1e-5)


@kernel(
    types.void(
        *(U8_IN, I64_IN, I64_IN, I32_IN, I64_IN, U8_IN, types.float64, types.float64),
        *(I64_IN, U8_IN, I64_IN, I32_IN, U32_IN, I32_IN),
        *(F32_OUT, F32_OUT, I64_OUT, U64_OUT, F64_OUT, F32_OUT, F32_OUT, F64_OUT, F64_OUT),
    )
)
def train(
    data,
    starts,
    ends,
    labels_in,
    order_in,
    eos_in,
    first_rate,
    last_rate,
    shape_in,
    names_in,
    begins_in,
    lengths_in,
    hashes_in,
    slots_in,
    inputs_out,
    outputs_out,
    rows_out,
    open_out,
    total_out,
    hidden_out,
    change_out,
    scores_out,
    loss_out,
):
    """Train for one pass over the texts data[starts[i]:ends[i]) in this order.

    The rate falls from first to last. `rows_out` has room for all rows of the longest text: half as many words as
    bytes,
    and as many n-grams of each. `loss_out` gets the sum of the losses.
    """
    text, eos, shape, names = pointer(data), pointer(eos_in), pointer(shape_in), pointer(names_in)
    begins, lengths, hashes, slots = pointer(begins_in), pointer(lengths_in), pointer(hashes_in), pointer(slots_in)
    inputs, outputs, rows, open_hashes = pointer(inputs_out), pointer(outputs_out), pointer(rows_out), pointer(open_out)
    sums, hidden, change, scores = pointer(total_out), pointer(hidden_out), pointer(change_out), pointer(scores_out)
    dim, n_labels = at(shape, DIM), at(shape, N_LABELS)
    mask = np.int64(slots_in.size - 1)
    loss = 0.0
    for k in range(order_in.size):
        row = at(order_in, k)
        n_rows = _rows(
            text,
            at(starts, row),
            at(ends, row),
            eos,
            shape,
            names,
            begins,
            lengths,
            hashes,
            slots,
            mask,
            open_hashes,
            rows,
        )
        if n_rows == 0:
            continue
        for d in range(dim):
            put(sums, d, 0.0)
        for i in range(n_rows):
            first = at(rows, i) * dim
            for d in range(dim):
                put(sums, d, at(sums, d) + np.float64(at(inputs, first + d)))
        for d in range(dim):
            put(hidden, d, np.float32(at(sums, d) / n_rows))
        rate = first_rate + (last_rate - first_rate) * k / order_in.size
        loss += _step(
            np.int64(at(labels_in, row)), rate, dim, n_labels, n_rows, rows, inputs, outputs, hidden, change, scores
        )
    put(pointer(loss_out), 0, loss)
