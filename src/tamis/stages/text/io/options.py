"""`read_kwargs` and `write_kwargs`, as the documentation of other systems shows them: each is honoured, or refused by name.

Some ask for what happens anyway (`lines=True`), some for another library that gives the same documents (`engine`): these are
honoured by doing nothing, which is all there is to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tamis.errors import UsageError
from tamis.formats.compression.codecs import CODECS, SUFFIXES_TEXT
from tamis.stages.io import refuse_unknown
from tamis.stores.options import check

# option -> the values that ask for what happens anyway, and why others are refused
_ANYWAY: dict[str, tuple[tuple[Any, ...], str]] = {
    "lines": ((True,), "a record is one line"),
    "orient": (("records", None), "a record is one object"),
    "encoding": (("utf-8", "utf8", "UTF-8", None), "files are UTF-8"),
    "index": ((False, None), "a frame's index is not written; make it a column"),
    "force_ascii": ((False,), "text is written as it stands in the record, in UTF-8"),
    "dtype_backend": (("pyarrow", "numpy_nullable", None), "frames hold the values as they are"),
}
_ENGINES = ("pyarrow", "pyarrow_direct", "pandas", "ujson", "auto", "cudf", None)
_CODECS = {name: codec.name for codec in CODECS.values() for name in (*codec.aliases, codec.name)}
_READ = (*_ANYWAY, "columns", "engine", "compression", "storage_options")


def read_options(
    stage: str, given: Mapping[str, Any] | None, called: str = "read_kwargs"
) -> tuple[dict[str, Any], list[str] | None]:
    """Return the options, checked, and the fields that they select (`columns`).

    `called`: the name of the parameter in which they were given.
    """
    options = dict(given or {})
    _check(stage, called, options, _READ)
    if options.get("compression", "infer") not in ("infer", None):
        raise UsageError(
            f"{stage}: {called}: the name of a file determines its compression ({SUFFIXES_TEXT}); leave the option out"
        )
    columns = options.get("columns")
    return options, list(columns) if columns is not None else None


def jsonl_options(stage: str, given: Mapping[str, Any] | None) -> tuple[dict[str, Any], str | None]:
    """Return the options, checked, and the codec that they ask for."""
    options = dict(given or {})
    _check(stage, "write_kwargs", options, (*_ANYWAY, "engine", "compression", "storage_options"))
    codec = options.get("compression", "infer")
    if codec in ("infer", None):
        return options, None
    if codec not in _CODECS:
        raise UsageError(f"{stage}: write_kwargs: compression must be one of {', '.join(_CODECS)}, got {codec!r}")
    return options, _CODECS[codec]


def rows_options(stage: str, given: Mapping[str, Any] | None, compressions: Sequence[str]) -> dict[str, Any]:
    """Return the options, checked, with `compression` as the writer spells it."""
    options = dict(given or {})
    _check(stage, "write_kwargs", options, ("compression", "engine", "index", "storage_options"))
    if options.get("compression", "zstd") is None:
        options["compression"] = "none"
    if options.get("compression", "zstd") not in compressions:
        raise UsageError(f"{stage}: compression must be {', '.join(compressions[:-1])} or {compressions[-1]}")
    return options


def _check(stage: str, what: str, options: Mapping[str, Any], known: tuple[str, ...]) -> None:
    refuse_unknown(stage, what, options, known)
    for name, value in options.items():
        if name in _ANYWAY and value not in _ANYWAY[name][0] and value != {}:
            raise UsageError(f"{stage}: {what}: {name}={value!r} is refused: {_ANYWAY[name][1]}")
    check(options.get("storage_options"), f"{stage}: {what}: storage_options")
    if options.get("engine") not in _ENGINES:
        raise UsageError(f"{stage}: {what}: unknown engine {options['engine']!r}; leave it out")
