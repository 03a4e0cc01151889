"""Loads, stores and 64-byte vector comparisons that numba has no spelling for.

All of them index without numba's wrap-around of negative indices and without bounds checks: the callers' loops prove
the bounds. Arrays or pointers are taken alike. The comparisons are plain LLVM vectors of 64 bytes, so the same source
gives AVX-512, AVX2, SSE2 or NEON code. Bit k of a mask belongs to byte index + k; every buffer given to a mask must
hold 64 bytes. Hosts are little-endian, as are all that numba runs on. What each one means in plain Python is in
`plain.py`, for TAMIS_KERNELS=python.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from tamis.kernels.language import plain
from tamis.kernels.language.jit import COMPILING, intrinsic

if COMPILING:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils

    _I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
    _V64 = ir.VectorType(_I8, 64)


def address(context, builder, array_type, array, index, kind=None):
    """Return the address of an item of an array or pointer, cast to a pointer to `kind` if one is given."""
    if not isinstance(array_type, types.CPointer):
        array = context.make_array(array_type)(context, builder, value=array).data
    place = builder.gep(array, [index])
    return place if kind is None else builder.bitcast(place, kind.as_pointer())


def loaded(context, builder, sig, args, at, kind):
    """Load the `kind` of value that begins at an item, at any alignment.

    args[at] is the array, args[at + 1] the index.
    """
    return builder.load(address(context, builder, sig.args[at], args[at], args[at + 1], kind), align=1)


def stored(context, builder, sig, args, at, value):
    """Store a value at an item, at any alignment: args[at] is the array, args[at + 1] the index."""
    builder.store(value, address(context, builder, sig.args[at], args[at], args[at + 1], value.type), align=1)
    return context.get_dummy_value()


def in_every_lane(builder, kind, value):
    """Return a vector of this kind with one value in every lane."""
    nothing, number = ir.Constant(kind, ir.Undefined), ir.IntType(32)
    alone = builder.insert_element(nothing, value, ir.Constant(number, 0))
    return builder.shuffle_vector(alone, nothing, ir.Constant(ir.VectorType(number, kind.count), [0] * kind.count))


@intrinsic(plain.pointer)
def pointer(typingctx, array):
    """Return the address of the first item, to pass to helpers: an array is reference-counted atomically at each call.

    With arrays the scanner took 650 ns for a record of 25 bytes, with pointers a tenth of that.
    """

    def codegen(context, builder, sig, args):
        return context.make_array(sig.args[0])(context, builder, value=args[0]).data

    return types.CPointer(array.dtype)(array), codegen


@intrinsic(plain.at)
def at(typingctx, array, index):
    """array[index] for a 1-d C array, without wrap-around."""

    def codegen(context, builder, sig, args):
        return context.unpack_value(builder, sig.args[0].dtype, address(context, builder, sig.args[0], *args))

    return array.dtype(array, types.int64), codegen


@intrinsic(plain.put)
def put(typingctx, array, index, value):
    """array[index] = value for a 1-d C array, without wrap-around."""

    def codegen(context, builder, sig, args):
        place = address(context, builder, sig.args[0], args[0], args[1])
        context.pack_value(builder, sig.args[0].dtype, args[2], place)
        return context.get_dummy_value()

    return types.void(array, types.int64, array.dtype), codegen


@intrinsic(plain.prefetch)
def prefetch(typingctx, array, index):
    """Ask for the cache line of an item that will be read soon."""

    def codegen(context, builder, sig, args):
        place = address(context, builder, sig.args[0], args[0], args[1], _I8)
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(ask, [place, ir.Constant(number, 0), ir.Constant(number, 3), ir.Constant(number, 1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


@intrinsic(plain.load_u64)
def load_u64(typingctx, array, index):
    """Load eight bytes from a uint8 array, little-endian, at any alignment."""

    def codegen(context, builder, sig, args):
        return loaded(context, builder, sig, args, 0, _I64)

    return types.uint64(array, types.int64), codegen


@intrinsic(plain.store_u64)
def store_u64(typingctx, array, index, value):
    """Store eight bytes into a uint8 array, at any alignment."""

    def codegen(context, builder, sig, args):
        return stored(context, builder, sig, args, 0, args[2])

    return types.void(array, types.int64, types.uint64), codegen


def _compare(predicate):
    def codegen(context, builder, sig, args):
        block = loaded(context, builder, sig, args, 0, _V64)
        return builder.bitcast(builder.icmp_unsigned(predicate, block, in_every_lane(builder, _V64, args[2])), _I64)

    return codegen


@intrinsic(plain.mask_eq)
def mask_eq(typingctx, array, index, byte):
    """Return a mask of which of the 64 bytes at `index` equal `byte`."""
    return types.uint64(array, types.int64, types.uint8), _compare("==")


@intrinsic(plain.mask_lt)
def mask_lt(typingctx, array, index, byte):
    """Return a mask of which of the 64 bytes at `index` are below `byte` (unsigned)."""
    return types.uint64(array, types.int64, types.uint8), _compare("<")


@intrinsic(plain.mask_ge)
def mask_ge(typingctx, array, index, byte):
    """Return a mask of which of the 64 bytes at `index` are `byte` or above (unsigned)."""
    return types.uint64(array, types.int64, types.uint8), _compare(">=")


def _least(n_items):
    def codegen(context, builder, sig, args):
        block = loaded(context, builder, sig, args, 0, ir.VectorType(_I32, n_items))
        half = n_items // 2
        while half:  # halves are compared until one lane is left
            lower, upper = (
                builder.shuffle_vector(block, block, ir.Constant(ir.VectorType(_I32, half), list(range(k, k + half))))
                for k in (0, half)
            )
            block = builder.select(builder.icmp_unsigned("<", lower, upper), lower, upper)
            half //= 2
        return builder.extract_element(block, ir.Constant(_I32, 0))

    return codegen


@intrinsic(plain.least_of_16)
def least_of_16(typingctx, array, index):
    """Return the least of 16 items of a uint32 array."""
    return types.uint32(array, types.int64), _least(16)


@intrinsic(plain.least_of_64)
def least_of_64(typingctx, array, index):
    """Return the least of 64 items of a uint32 array."""
    return types.uint32(array, types.int64), _least(64)


@intrinsic(plain.copy_block)
def copy_block(typingctx, target, target_index, source, source_index):
    """Copy 64 bytes in one step; both sides must have them."""

    def codegen(context, builder, sig, args):
        return stored(context, builder, sig, args, 0, loaded(context, builder, sig, args, 2, _V64))

    return types.void(target, types.int64, source, types.int64), codegen


@intrinsic(plain.copy_bytes)
def copy_bytes(typingctx, target, target_index, source, source_index, n_bytes):
    """Copy bytes between two uint8 arrays that do not overlap (memcpy)."""

    def codegen(context, builder, sig, args):
        to = address(context, builder, sig.args[0], args[0], args[1])
        at_ = address(context, builder, sig.args[2], args[2], args[3])
        cgutils.raw_memcpy(builder, to, at_, args[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), codegen


@intrinsic(plain.lowest_bit)
def lowest_bit(typingctx, mask):
    """Return the position of the lowest set bit of a uint64 that is not zero."""

    def codegen(context, builder, sig, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), codegen


@intrinsic(plain.highest_bit)
def highest_bit(typingctx, mask):
    """Return the position of the highest set bit of a uint64 that is not zero."""

    def codegen(context, builder, sig, args):
        return builder.sub(ir.Constant(_I64, 63), builder.ctlz(args[0], ir.Constant(ir.IntType(1), 1)))

    return types.int64(types.uint64), codegen


@intrinsic(plain.count_bits)
def count_bits(typingctx, mask):
    """Count the set bits of a uint64."""

    def codegen(context, builder, sig, args):
        return builder.ctpop(args[0])

    return types.int64(types.uint64), codegen


@intrinsic(plain.rotl64)
def rotl64(typingctx, value, n_bits):
    """Rotate a uint64 left by 0 < n_bits < 64."""

    def codegen(context, builder, sig, args):
        right = builder.sub(ir.Constant(_I64, 64), args[1])
        return builder.or_(builder.shl(args[0], args[1]), builder.lshr(args[0], right))

    return types.uint64(types.uint64, types.uint64), codegen
