"""Operations that CPUs with wide vectors do in one step, for loops that otherwise go byte by byte or word by word.

Each has a plain counterpart where it is used; the CPU level decides which one is compiled (`HAS_...`). Bit k of a
mask belongs to byte index + k.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from tamis.kernels.language.intrinsics import address, in_every_lane, loaded, stored
from tamis.kernels.language.jit import COMPILING, FLAGS, intrinsic

if COMPILING:
    import llvmlite.binding as llvm
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils

    _I1, _I8, _I64 = ir.IntType(1), ir.IntType(8), ir.IntType(64)
    _V64, _BITS, _EIGHT = ir.VectorType(_I8, 64), ir.VectorType(_I1, 64), ir.VectorType(_I64, 8)
    HAS_COMPRESS = "avx512_vbmi2" in FLAGS and llvm.llvm_version_info[0] >= 19
    HAS_PRODUCTS = "avx512dq" in FLAGS  # of eight 64-bit numbers
else:
    HAS_COMPRESS = HAS_PRODUCTS = False

_MEANINGS = {
    "b": 8,
    "t": 9,
    "n": 10,
    "f": 12,
    "r": 13,
}  # of letters after a backslash; other characters mean themselves


def _splat(kind, value):
    return ir.Constant(kind, [value] * kind.count)


def _compress(builder, vector, bits, kind):
    """Return the lanes at the set bits, packed contiguously."""
    name = f"llvm.experimental.vector.compress.v{kind.count}i{kind.element.width}"
    mask = ir.VectorType(_I1, kind.count)
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind, mask, kind]), name)
    return builder.call(function, [vector, bits, ir.Constant(kind, None)])


@intrinsic()
def store_unescaped(typingctx, target, target_index, source, source_index, escaped, kept):
    """Store those of the 64 bytes at source_index that are at `kept`, packed contiguously.

    Bytes at `escaped` are replaced by their meaning after a backslash. 64 bytes of the target are always written.
    """

    def codegen(context, builder, sig, args):
        block = loaded(context, builder, sig, args, 2, _V64)
        letters, made = builder.bitcast(args[4], _BITS), block
        for letter, meaning in _MEANINGS.items():
            is_it = builder.and_(builder.icmp_unsigned("==", block, _splat(_V64, ord(letter))), letters)
            made = builder.select(is_it, _splat(_V64, meaning), made)
        return stored(context, builder, sig, args, 0, _compress(builder, made, builder.bitcast(args[5], _BITS), _V64))

    return types.void(target, types.int64, source, types.int64, types.uint64, types.uint64), codegen


def _store_places(first, last):
    def codegen(context, builder, sig, args):
        items = sig.args[0].dtype.bitwidth
        lanes, item = 512 // items, ir.IntType(items)
        some = ir.VectorType(item, lanes)
        places = _compress(builder, ir.Constant(_V64, list(range(64))), builder.bitcast(args[3], _BITS), _V64)
        base = args[2] if items == 64 else builder.trunc(args[2], item)
        begin = in_every_lane(builder, some, base)
        for k in range(first, last, lanes):
            chosen = ir.Constant(ir.VectorType(ir.IntType(32), lanes), list(range(k, k + lanes)))
            part = builder.zext(builder.shuffle_vector(places, places, chosen), some)
            to = address(context, builder, sig.args[0], args[0], builder.add(args[1], ir.Constant(_I64, k)), some)
            builder.store(builder.add(part, begin), to, align=items // 8)
        return context.get_dummy_value()

    return codegen


@intrinsic()
def store_places(typingctx, target, index, base, bits):
    """Write base + k for each set bit k to target[index:]: the first 32 of them, and always 32 items."""
    return types.void(target, types.int64, types.int64, types.uint64), _store_places(0, 32)


@intrinsic()
def store_more_places(typingctx, target, index, base, bits):
    """Store the positions that `store_places` leaves out, those after the first 32, at target[index + 32:]."""
    return types.void(target, types.int64, types.int64, types.uint64), _store_places(32, 64)


def _constant(value):
    return _splat(_EIGHT, value)


def _low_bytes(builder, words, n_bytes):
    """Return the first n_bytes (1 to 8) of each word, with the others zero."""
    shift = builder.sub(_constant(64), builder.shl(n_bytes, _constant(3)))
    return builder.lshr(builder.shl(words, shift), shift)


def _load_eight(context, builder, sig, args, marks, shift):
    """Load the 8 bytes at each of eight marks, every second one, offset by `shift`.

    They are loaded one by one: gathering takes as long.
    """
    words = ir.Constant(_EIGHT, ir.Undefined)
    for k in range(8):
        place = builder.load(builder.gep(marks, [ir.Constant(_I64, 2 * k)]))
        at = address(context, builder, sig.args[0], args[0], builder.add(place, ir.Constant(_I64, shift)), _I64)
        word = builder.load(at, align=1)
        words = builder.insert_element(words, word, ir.Constant(ir.IntType(32), k))
    return words


@intrinsic()
def hash_eight(typingctx, source, marks, index, out, out_index, k1, k2, k3):
    """Hash eight words like `_words.hash_word`, by begin and end from marks[index:], to out[out_index:].

    Bits of those that are too long.

    Sixteen bytes from the begin of every word must be there to be read. What is written for words of more than 16 is
    nothing.
    """

    def codegen(context, builder, sig, args):
        pairs = address(context, builder, sig.args[1], args[1], args[2])
        both = ir.VectorType(_I64, 16)
        bounds = builder.load(builder.bitcast(pairs, both.as_pointer()), align=8)
        begins, ends = (
            builder.shuffle_vector(bounds, bounds, ir.Constant(ir.VectorType(ir.IntType(32), 8), list(range(k, 16, 2))))
            for k in (0, 1)
        )
        n_bytes = builder.sub(ends, begins)
        is_short = builder.icmp_signed("<=", n_bytes, _constant(8))
        first = _load_eight(context, builder, sig, args, pairs, 0)
        first = _low_bytes(builder, first, builder.select(is_short, n_bytes, _constant(8)))
        second = _load_eight(context, builder, sig, args, pairs, 8)
        second = _low_bytes(builder, second, builder.select(is_short, _constant(1), builder.sub(n_bytes, _constant(8))))
        second = builder.select(is_short, _constant(0), second)
        k1, k2, k3 = (in_every_lane(builder, _EIGHT, value) for value in args[5:8])
        h = builder.mul(first, k1)
        h = builder.mul(builder.add(builder.xor(h, builder.lshr(h, _constant(32))), second), k2)
        h = builder.mul(builder.xor(builder.xor(h, builder.lshr(h, _constant(29))), n_bytes), k3)
        h = builder.xor(h, builder.lshr(h, _constant(32)))
        builder.store(h, address(context, builder, sig.args[3], args[3], args[4], _EIGHT), align=8)
        too_long = builder.icmp_signed(">", n_bytes, _constant(16))
        return builder.zext(builder.bitcast(too_long, _I8), _I64)

    number = types.uint64
    return number(source, marks, types.int64, out, types.int64, number, number, number), codegen
