"""Rows of fastText's matrices, dense or product-quantised, read in place from the file.

A matrix is described by an array of positions, from QUANTISED on: byte offsets of its parts and how rows are coded.
Product quantisation: Jegou et al. (2011), as fastText stores it: a code per part of a row, 256 centroids per part,
and a code for the row's norm.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from tamis.kernels.language import plain
from tamis.kernels.language.intrinsics import address, at, loaded, put
from tamis.kernels.language.jit import COMPILING, helper, intrinsic

if COMPILING:
    from llvmlite import ir
    from numba import types

QUANTISED, ROWS, DATA, CENTROIDS, N_SUB, SUB_DIM, LAST_DIM, NORMED, NORM_CODES, NORM_CENTROIDS = range(10)
N_CENTROIDS = 256


@intrinsic(plain.load_f32)
def load_f32(typingctx, array, index):
    """Load a float32 from a uint8 array at a byte offset: matrices follow the dictionary at any alignment."""

    def codegen(context, builder, sig, args):
        return loaded(context, builder, sig, args, 0, ir.FloatType())

    return types.float32(array, types.int64), codegen


@intrinsic(plain.add_eight_bytes)
def add_eight_bytes(typingctx, sums, first, array, index):
    """sums[first:first + 8] += eight float32 from a uint8 array at a byte offset."""

    def codegen(context, builder, sig, args):
        eight = ir.VectorType(ir.FloatType(), 8)
        to = address(context, builder, sig.args[0], args[0], args[1], eight)
        part = loaded(context, builder, sig, args, 2, eight)
        builder.store(builder.fadd(builder.load(to, align=4), part), to, align=4)
        return context.get_dummy_value()

    return types.void(sums, types.int64, array, types.int64), codegen


@intrinsic(plain.add_eight)
def add_eight(typingctx, total, first, array, index):
    """total[first:first + 8] += array[index:index + 8], float64 and float32."""

    def codegen(context, builder, sig, args):
        wide = ir.VectorType(ir.DoubleType(), 8)
        to = address(context, builder, sig.args[0], args[0], args[1], wide)
        part = loaded(context, builder, sig, args, 2, ir.VectorType(ir.FloatType(), 8))
        builder.store(builder.fadd(builder.load(to, align=8), builder.fpext(part, wide)), to, align=8)
        return context.get_dummy_value()

    return types.void(total, types.int64, array, types.int64), codegen


@helper
def _norm(file, matrix, row):
    if at(matrix, NORMED):
        return load_f32(file, at(matrix, NORM_CENTROIDS) + 4 * np.int64(at(file, at(matrix, NORM_CODES) + row)))
    return np.float32(1.0)


@helper
def _sub_vector(file, matrix, row, sub):
    """Return the offset at which the centroid of one part of a quantised row begins, and its length."""
    code = np.int64(at(file, at(matrix, DATA) + row * at(matrix, N_SUB) + sub))
    n = at(matrix, LAST_DIM) if sub == at(matrix, N_SUB) - 1 else at(matrix, SUB_DIM)
    return at(matrix, CENTROIDS) + 4 * (sub * N_CENTROIDS * at(matrix, SUB_DIM) + code * n), n


@helper
def add_row(file, matrix, dim, row, sums, first):
    """sums[first:first + dim] += the row."""
    if at(matrix, QUANTISED) == 0:
        place = at(matrix, DATA) + 4 * dim * row
        n_eights = dim // 8
        for k in range(n_eights):
            add_eight_bytes(sums, first + 8 * k, file, place + 32 * k)
        for d in range(8 * n_eights, dim):
            put(sums, first + d, at(sums, first + d) + load_f32(file, place + 4 * d))
        return
    norm = _norm(file, matrix, row)
    for sub in range(at(matrix, N_SUB)):
        place, n = _sub_vector(file, matrix, row, sub)
        to = first + sub * at(matrix, SUB_DIM)
        for d in range(n):
            put(sums, to + d, at(sums, to + d) + norm * load_f32(file, place + 4 * d))


@helper
def dot_row(file, matrix, dim, row, hidden):
    total = np.float32(0.0)
    if at(matrix, QUANTISED) == 0:
        place = at(matrix, DATA) + 4 * dim * row
        for d in range(dim):
            total += at(hidden, d) * load_f32(file, place + 4 * d)
        return total
    for sub in range(at(matrix, N_SUB)):
        place, n = _sub_vector(file, matrix, row, sub)
        for d in range(n):
            total += at(hidden, sub * at(matrix, SUB_DIM) + d) * load_f32(file, place + 4 * d)
    return _norm(file, matrix, row) * total
