"""Types in the signatures of kernels, as plain data: only compiling needs numba's own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scalar:
    """A number, by numba's name.

    Called with the types of arguments it gives the signature of a function that returns it.
    """

    name: str

    def __call__(self, *arguments: Scalar | Array) -> Signature:
        return Signature(self, arguments)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Array:
    """A one-dimensional array without gaps. Read-only ones take any array, others only such as may be written to."""

    dtype: Scalar
    readonly: bool = False

    def __str__(self) -> str:
        return f"{'in' if self.readonly else 'out'} {self.dtype}[]"


@dataclass(frozen=True)
class Signature:
    returns: Scalar
    arguments: tuple[Scalar | Array, ...]

    def __str__(self) -> str:
        return f"{self.returns}({', '.join(map(str, self.arguments))})"


def signature_of(text: str) -> Signature:
    """Parse a signature from its printed form.

    >>> str(signature_of("int64(in uint8[], out float64[], boolean)"))
    'int64(in uint8[], out float64[], boolean)'
    """
    returns, _, rest = text.removesuffix(")").partition("(")
    arguments: list[Scalar | Array] = []
    for part in rest.split(", ") if rest else []:
        how, _, dtype = part.rpartition(" ")
        arguments.append(Array(Scalar(dtype.removesuffix("[]")), readonly=how == "in") if how else Scalar(part))
    return Signature(Scalar(returns), tuple(arguments))


def entry_symbol(name: str, signature: Signature) -> str:
    """Return the symbol of a kernel's entry in its library.

    It includes the signature, so a kernel of the same name with other arguments does not match.
    """
    return f"{name}:{signature}".replace(" ", "_")


void, boolean = Scalar("void"), Scalar("boolean")
uint8, uint16, uint32, uint64 = Scalar("uint8"), Scalar("uint16"), Scalar("uint32"), Scalar("uint64")
int16, int32, int64 = Scalar("int16"), Scalar("int32"), Scalar("int64")
float32, float64 = Scalar("float32"), Scalar("float64")

U8_IN, U16_IN, U32_IN, U64_IN = (Array(kind, readonly=True) for kind in (uint8, uint16, uint32, uint64))
I16_IN, I32_IN, I64_IN = (Array(kind, readonly=True) for kind in (int16, int32, int64))
U8_OUT, U32_OUT, U64_OUT = Array(uint8), Array(uint32), Array(uint64)
I16_OUT, I32_OUT, I64_OUT = Array(int16), Array(int32), Array(int64)
F32_OUT, F64_OUT = Array(float32), Array(float64)
