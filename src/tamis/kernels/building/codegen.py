"""How numba's LLVM code is collected: each function as it is lowered, a kernel optimised once with all that it calls.

numba optimises every function together with its callees and emits machine code for it, so that a caller may link and
run it. Kernels are never run here, and helpers only as a part of kernels, which are optimised and emitted again: that
was half of the time of compiling.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.registry import cpu_target


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
