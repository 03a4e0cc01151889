"""Checks `read_kwargs` and `write_kwargs`: each option is honoured, or rejected by name.

Options that request the only behaviour (`lines=True`) or another library with the same result (`engine`) are accepted
and have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tamis.errors import UsageError, check_choice
from tamis.formats.compression.codecs import CODECS, SUFFIXES_TEXT
from tamis.sizes import check_optional_integer
from tamis.stages.io import check_options
from tamis.stores.options import check

# Options with one behaviour: the values that request it, and the reason against others.
_FIXED: dict[str, tuple[tuple[Any, ...], str]] = {
    "lines": ((True,), "a record is one line"),
    "orient": (("records", None), "a record is one object"),
    "encoding": (("utf-8", "utf8", "UTF-8", None), "files are UTF-8"),
    "index": ((False, None), "a frame's index is not written; make it a column"),
    "force_ascii": ((False,), "text is written as in the record, in UTF-8"),
    "date_format": (("iso", None), "times are written in ISO 8601"),
    "dtype_backend": (("pyarrow", "numpy_nullable", None), "frames hold the values as they are"),
}
_ENGINES = ("pyarrow", "pyarrow_direct", "pandas", "ujson", "auto", "cudf", None)
_CODECS = {name: codec.name for codec in CODECS.values() for name in (*codec.aliases, codec.name)}
_READ = (*_FIXED, "columns", "dtype", "engine", "compression", "storage_options")


def read_options(
    stage: str, read_kwargs: Mapping[str, Any] | None, parameter: str = "read_kwargs"
) -> tuple[dict[str, Any], list[str] | None]:
    """Return the checked options, and the fields that they select (`columns`).

    `parameter`: the name of the parameter that contained them, for messages.
    """
    options = dict(read_kwargs or {})
    _check(stage, parameter, options, _READ)
    if options.get("compression", "infer") not in ("infer", None):
        raise UsageError(
            f"{stage}: {parameter}: the name of a file determines its compression ({SUFFIXES_TEXT}); leave the option "
            "out"
        )
    columns = options.get("columns")
    return options, list(columns) if columns is not None else None


def jsonl_options(stage: str, write_kwargs: Mapping[str, Any] | None) -> tuple[dict[str, Any], str | None]:
    """Return the checked options, and the codec that they request."""
    options = dict(write_kwargs or {})
    _check(stage, "write_kwargs", options, (*_FIXED, "engine", "compression", "storage_options"))
    codec = options.get("compression", "infer")
    if codec in ("infer", None):
        return options, None
    if codec not in _CODECS:
        raise UsageError(f"{stage}: write_kwargs: compression must be one of {', '.join(_CODECS)}, got {codec!r}")
    return options, _CODECS[codec]


def rows_options(
    stage: str, write_kwargs: Mapping[str, Any] | None, compressions: Sequence[str], more: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the checked options, with `compression` in the spelling of the writer; by default its first one.

    `more`: options that only this writer has.
    """
    options = {"compression": compressions[0], **(write_kwargs or {})}
    _check(stage, "write_kwargs", options, ("compression", "engine", "index", "storage_options", *more))
    check_optional_integer(options.get("row_group_size"), f"{stage}: write_kwargs: row_group_size")
    if options["compression"] is None:
        options["compression"] = "none"
    check_choice(f"{stage}: compression", options["compression"], compressions)
    return options


def _check(stage: str, parameter: str, options: Mapping[str, Any], known: tuple[str, ...]) -> None:
    check_options(stage, parameter, options, known)
    for name, value in options.items():
        if name in _FIXED and value not in _FIXED[name][0] and value != {}:
            raise UsageError(f"{stage}: {parameter}: {name}={value!r} is not supported: {_FIXED[name][1]}")
    check(options.get("storage_options"), f"{stage}: {parameter}: storage_options")
    if options.get("engine") not in _ENGINES:
        raise UsageError(f"{stage}: {parameter}: unknown engine {options['engine']!r}; leave it out")
