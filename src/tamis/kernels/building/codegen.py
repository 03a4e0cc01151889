"""Compile kernels to one object file: collect LLVM code from numba, optimise it, add entries, emit machine code.

numba optimises every function together with its callees and emits machine code for it, so that a caller may link and
run it. Kernels are never run here, and helpers only as a part of kernels, which are optimised and emitted again: that
was half of the time of compiling. So the code of each function is collected as it is lowered, and a kernel is optimised
once, with all that it calls.

Python calls a kernel through a small function, its entry, that takes all arguments as one row of 8-byte slots. Slot 0
is the address for the result. A number takes one further slot, an array two: address and length. A function that
numba compiled returns a status; its arguments are the address of the result, the address of the description of an
exception, and then every number as it is and every array as seven values: owner and parent (none here), items, bytes
per item, address, length, step.

Only entries are visible from outside the library. Their names contain the signature, so that none is called with
other arguments. Only for compiling: imports numba. See also: link.py, which makes a shared library of the object file.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core.codegen import JITCodeLibrary
from numba.core.registry import cpu_target

from tamis.kernels.language.types import Array, Scalar, Signature, entry_symbol
from tamis.kernels.loading.levels import CpuLevel


class UnoptimizedLibrary(JITCodeLibrary):
    """The LLVM code of one function: neither optimised nor emitted until `optimized_code` is called."""

    def finalize(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0, as for any symbol that the library does not define: nothing here has an address."""
        return 0

    def optimized_code(self) -> str:
        """Link in all functions that this one calls, directly or not, and optimise them together."""
        pending, linked = [*reversed(self._linking_libraries)], {self}
        while pending:
            library: Any = pending.pop()
            if library not in linked:
                linked.add(library)
                self._final_module.link_in(library._get_module_for_linking(), preserve=True)
                pending += reversed(library._linking_libraries)
        # Twice, as code is that numba links from optimised functions: once alone costs kernels of text 3 % of their
        # speed, twice takes a sixth of compiling.
        self._optimize_final_module()
        self._optimize_final_module()
        self._final_module.verify()
        return str(self._final_module)


def collect_only() -> None:
    """Have numba use `UnoptimizedLibrary` for everything that this process compiles from here on."""
    # numba's runtime library is compiled when the target context is created, and needs real addresses.
    codegen = cpu_target.target_context.codegen()
    codegen._library_class = UnoptimizedLibrary
    codegen.set_env = lambda name, env: None  # the address of a Python object, to be stored into emitted code


# -- machine code ------------------------------------------------------------------------------------------------------
_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_BYTES = _I8.as_pointer()
_TYPES: dict[str, Any] = {
    "boolean": _I8,
    "uint8": _I8,
    "uint16": ir.IntType(16),
    "int16": ir.IntType(16),
    "uint32": _I32,
    "int32": _I32,
    "uint64": _I64,
    "int64": _I64,
    "float32": ir.FloatType(),
    "float64": ir.DoubleType(),
}
_ITEM_BYTES = {
    "uint8": 1,
    "uint16": 2,
    "int16": 2,
    "uint32": 4,
    "int32": 4,
    "uint64": 8,
    "int64": 8,
    "float32": 4,
    "float64": 8,
}
_NEVER = "NRT_MemInfo_call_dtor"  # ends what the owner of an array holds: no array has an owner here


class Compiled(NamedTuple):
    """A kernel as numba left it: optimised LLVM code in which `symbol` is the kernel's own function."""

    name: str
    signature: Signature
    symbol: str
    code: str


def machine_code(kernels: list[Compiled], level: CpuLevel) -> bytes:
    """Return one relocatable, position-independent object file with the kernels and their entries.

    It is compiled for CPUs of this level.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    whole = llvm.parse_assembly(_entries(kernels))
    for kernel in kernels:
        part = llvm.parse_assembly(kernel.code)
        # Helpers of two kernels may have the same name and not be the same: each stays inside its own.
        _hide(part, but={kernel.symbol})
        whole.link_in(part)
    _hide(whole, but={entry_symbol(kernel.name, kernel.signature) for kernel in kernels})
    _remove_unused(whole)
    whole.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=level.cpu, features=level.features, opt=3, reloc="pic", codemodel="small"
    )
    object_code: bytes = machine.emit_object(whole)
    return object_code


def _hide(module: llvm.ModuleRef, but: set[str]) -> None:
    for one in [*module.functions, *module.global_variables]:
        if one.name not in but and not one.is_declaration:
            one.linkage = llvm.Linkage.internal


def _remove_unused(module: llvm.ModuleRef) -> None:
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    builder = llvm.create_pass_builder(
        llvm.Target.from_default_triple().create_target_machine(), llvm.create_pipeline_tuning_options(0)
    )
    passes.run(module, builder)


def _entries(kernels: list[Compiled]) -> str:
    module = ir.Module("tamis_kernels")
    module.triple = llvm.get_default_triple()
    for kernel in kernels:
        _add_entry(module, kernel)
    never = ir.Function(module, ir.FunctionType(ir.VoidType(), [_BYTES]), _NEVER)
    builder = ir.IRBuilder(never.append_basic_block())
    builder.call(module.declare_intrinsic("llvm.trap", (), ir.FunctionType(ir.VoidType(), [])), [])
    builder.unreachable()
    return str(module)


def _add_entry(module: ir.Module, kernel: Compiled) -> None:
    arguments = kernel.signature.arguments
    entry = ir.Function(module, ir.FunctionType(_I32, [_I64.as_pointer()]), entry_symbol(kernel.name, kernel.signature))
    builder = ir.IRBuilder(entry.append_basic_block())
    slots = iter(range(1, 1 + sum(2 if isinstance(kind, Array) else 1 for kind in arguments)))

    def slot(number: int, kind: Any) -> Any:
        place = builder.gep(entry.args[0], [ir.Constant(_I64, number)])
        return builder.load(builder.bitcast(place, kind.as_pointer()))

    result, raised = builder.alloca(_I64), builder.alloca(_BYTES)
    builder.store(ir.Constant(_I64, 0), result)
    values = [builder.bitcast(result, _BYTES), builder.bitcast(raised, _BYTES)]
    for kind in arguments:
        if isinstance(kind, Scalar):
            values.append(slot(next(slots), _TYPES[kind.name]))
            continue
        none, item_bytes = ir.Constant(_BYTES, None), ir.Constant(_I64, _ITEM_BYTES[kind.dtype.name])
        address, length = slot(next(slots), _BYTES), slot(next(slots), _I64)
        values += [none, none, length, item_bytes, address, length, item_bytes]
    called = ir.Function(module, ir.FunctionType(_I32, [value.type for value in values]), kernel.symbol)
    status = builder.call(called, values)
    builder.store(builder.load(result), builder.inttoptr(slot(0, _I64), _I64.as_pointer()))
    builder.ret(status)
