"""How Python comes into compiled kernels: for each one a small function that takes all arguments as one row of 8-byte slots.

Slot 0 is the address for the result. Then follow the arguments: a number takes one slot, an array two, address and length. What numba
compiled returns a status; its arguments are where to put the result, where to put what an exception says, and then every number
as it is and every array as seven: owner and parent (none here), items, bytes per item, address, length, step. Only for compiling.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from tamis.kernels._types import Array, Scalar, Signature

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_BYTES = _I8.as_pointer()
_TYPES: dict[str, Any] = {
    "boolean": _I8, "uint8": _I8, "uint16": ir.IntType(16), "uint32": _I32, "int32": _I32, "uint64": _I64, "int64": _I64,
    "float32": ir.FloatType(), "float64": ir.DoubleType(),
}  # fmt: skip
_ITEM_BYTES = {"uint8": 1, "uint16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8, "float32": 4, "float64": 8}


def entry_symbol(symbol: str) -> str:
    return f"tamis_entry_{symbol}"


def entries(kernels: list[tuple[str, Signature]]) -> bytes:
    """Machine code of the entries of some kernels, given by symbol and signature."""
    module = ir.Module("tamis_entries")
    for symbol, signature in kernels:
        _add_entry(module, symbol, signature)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        opt=2, reloc="default", codemodel="jitdefault", jit=True
    )
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    made: bytes = machine.emit_object(parsed)
    return made


def _add_entry(module: ir.Module, symbol: str, signature: Signature) -> None:
    entry = ir.Function(module, ir.FunctionType(_I32, [_I64.as_pointer()]), entry_symbol(symbol))
    builder = ir.IRBuilder(entry.append_basic_block())
    slots = iter(range(1, 1 + sum(2 if isinstance(kind, Array) else 1 for kind in signature.arguments)))

    def slot(number: int, kind: Any) -> Any:
        place = builder.gep(entry.args[0], [ir.Constant(_I64, number)])
        return builder.load(builder.bitcast(place, kind.as_pointer()))

    result, raised = builder.alloca(_I64), builder.alloca(_BYTES)
    builder.store(ir.Constant(_I64, 0), result)
    values = [builder.bitcast(result, _BYTES), builder.bitcast(raised, _BYTES)]
    for kind in signature.arguments:
        if isinstance(kind, Scalar):
            values.append(slot(next(slots), _TYPES[kind.name]))
            continue
        none, item_bytes = ir.Constant(_BYTES, None), ir.Constant(_I64, _ITEM_BYTES[kind.dtype.name])
        address, length = slot(next(slots), _BYTES), slot(next(slots), _I64)
        values += [none, none, length, item_bytes, address, length, item_bytes]
    kernel = ir.Function(module, ir.FunctionType(_I32, [value.type for value in values]), symbol)
    status = builder.call(kernel, values)
    builder.store(builder.load(result), builder.inttoptr(slot(0, _I64), _I64.as_pointer()))
    builder.ret(status)
