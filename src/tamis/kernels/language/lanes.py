"""Products and sums of 96 16-bit numbers at a time, and 8 x 8 transposition: the operations for scaling images.

Numbers are fixed point: a product is (a * b + 2**14) >> 15, one x86 instruction for all lanes of a register, with the
same result on every CPU. Callers prove the bounds. `plain.py` has the same operations in plain Python.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from tamis.kernels.language import plain
from tamis.kernels.language.intrinsics import address, in_every_lane
from tamis.kernels.language.jit import COMPILING, FLAGS, intrinsic

LANES = 32
AT_ONCE = 3 * LANES
POINT_BITS = 7  # below the point of a brightness: 255 is 255 << 7, the most that there is room for
_MOST = 255 << (POINT_BITS - 1)  # of a sum, which has one bit less and so room for what goes beyond

if COMPILING:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils

    _I8, _I16, _I32, _I64 = (ir.IntType(n) for n in (8, 16, 32, 64))
    _BYTES, _SHORTS, _WORDS = (ir.VectorType(kind, LANES) for kind in (_I8, _I16, _I32))
    _EIGHT = ir.VectorType(_I16, 8)
    # What multiplies, rounds and shifts in one step, and for how many lanes.
    _STEP = next(
        (
            step
            for flag, step in (
                ("avx512bw", ("llvm.x86.avx512.pmul.hr.sw.512", 32)),
                ("avx2", ("llvm.x86.avx2.pmul.hr.sw", 16)),
                ("ssse3", ("llvm.x86.ssse3.pmul.hr.sw.128", 8)),
            )
            if flag in FLAGS
        ),
        None,
    )


def _splat(kind, value):
    return ir.Constant(kind, [value] * kind.count)


def _chosen(builder, a, b, lanes):
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_I32, len(lanes)), lanes))


def _product(builder, a, b):
    if _STEP is None:
        wide = builder.mul(builder.sext(a, _WORDS), builder.sext(b, _WORDS))
        wide = builder.ashr(builder.add(wide, _splat(_WORDS, 1 << 14)), _splat(_WORDS, 15))
        return builder.trunc(wide, _SHORTS)
    name, n = _STEP
    some = ir.VectorType(_I16, n)
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(some, [some, some]), name)
    parts = [
        builder.call(function, [_chosen(builder, v, v, list(range(k, k + n))) for v in (a, b)])
        for k in range(0, LANES, n)
    ]
    while len(parts) > 1:
        parts = [
            _chosen(builder, x, y, list(range(2 * x.type.count))) for x, y in zip(parts[::2], parts[1::2], strict=True)
        ]
    return parts[0]


def _limited(builder, value):
    for predicate, bound in ((">", 0), ("<", _MOST)):
        edge = _splat(_SHORTS, bound)
        value = builder.select(builder.icmp_signed(predicate, value, edge), value, edge)
    return builder.shl(value, _splat(_SHORTS, 1))


@intrinsic(plain.store_weighted)
def store_weighted(typingctx, target, target_index, source, index, step, weights, weight_index, n):
    """Store the weighted sums of n rows of 96 numbers at target[target_index:].

    Each sum is over k of the 96 numbers at source[index + k * step] times weights[weight_index + k], for n of them.

    A source of bytes is brightness, one of 16 bits is brightness with POINT_BITS below the point, as is the target:
    from 0
    to 255. Weights have 14 bits below the point, as they may be a little more than 1.
    """
    of_bytes = source.dtype.bitwidth == 8

    def codegen(context, builder, sig, args):
        first = address(context, builder, sig.args[2], args[2], args[3])
        factors = address(context, builder, sig.args[5], args[5], args[6])
        totals = [cgutils.alloca_once_value(builder, ir.Constant(_SHORTS, None)) for _ in range(AT_ONCE // LANES)]
        with cgutils.for_range(builder, args[7], intp=_I64) as loop:
            place = builder.gep(first, [builder.mul(loop.index, args[4])])
            one = builder.load(builder.gep(factors, [loop.index]))
            factor = in_every_lane(builder, _SHORTS, one)
            for i, total in enumerate(totals):
                here = builder.gep(place, [ir.Constant(_I64, i * LANES)])
                if of_bytes:
                    block = builder.load(builder.bitcast(here, _BYTES.as_pointer()), align=1)
                    block = builder.shl(builder.zext(block, _SHORTS), _splat(_SHORTS, POINT_BITS))
                else:
                    block = builder.load(builder.bitcast(here, _SHORTS.as_pointer()), align=2)
                builder.store(builder.add(builder.load(total), _product(builder, block, factor)), total)
        to = address(context, builder, sig.args[0], args[0], args[1])
        for i, total in enumerate(totals):
            here = builder.gep(to, [ir.Constant(_I64, i * LANES)])
            builder.store(_limited(builder, builder.load(total)), builder.bitcast(here, _SHORTS.as_pointer()), align=2)
        return context.get_dummy_value()

    i64 = types.int64
    return types.void(target, i64, source, i64, i64, weights, i64, i64), codegen


@intrinsic(plain.turn_eight)
def turn_eight(typingctx, target, target_index, target_step, source, index, step):
    """target[target_index + j * target_step + i] = source[index + i * step + j], for i and j from 0 to 7."""

    def codegen(context, builder, sig, args):
        place = address(context, builder, sig.args[3], args[3], args[4])
        rows = []
        for i in range(8):
            at = builder.gep(place, [builder.mul(args[5], ir.Constant(_I64, i))])
            rows.append(builder.load(builder.bitcast(at, _EIGHT.as_pointer()), align=2))
        low, high = [0, 8, 1, 9, 2, 10, 3, 11], [4, 12, 5, 13, 6, 14, 7, 15]
        for _ in range(3):  # pairs that are four apart, interleaved: three times over, and rows are columns
            rows = [_chosen(builder, rows[i], rows[i + 4], lanes) for i in range(4) for lanes in (low, high)]
        to = address(context, builder, sig.args[0], args[0], args[1])
        for j in range(8):
            at = builder.gep(to, [builder.mul(args[2], ir.Constant(_I64, j))])
            builder.store(rows[j], builder.bitcast(at, _EIGHT.as_pointer()), align=2)
        return context.get_dummy_value()

    i64 = types.int64
    return types.void(target, i64, i64, source, i64, i64), codegen
