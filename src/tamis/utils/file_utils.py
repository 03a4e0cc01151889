"""Files and folders, local or remote, for users' own code. All paths may be URLs that fsspec knows.

Tamis itself reads and writes through `tamis.stores`; fsspec comes with the extra `fsspec`.
"""

from __future__ import annotations

import json
import logging
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tamis.errors import UsageError, optional
from tamis.sizes import parse_size
from tamis.utils.client_utils import is_remote_url

log = logging.getLogger("tamis.files")

_WITH_BUCKETS = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss", "cos", "obs", "r2", "b2", "tos"}

FILETYPE_TO_DEFAULT_EXTENSIONS: dict[str, list[str]] = {
    "parquet": [".parquet"],
    "jsonl": [".jsonl", ".json"],
    "megatron": [".bin", ".idx"],
}


def get_default_file_extensions(input_filetype: str) -> list[str]:
    """Return the suffixes of files of a type.

    >>> get_default_file_extensions("jsonl")
    ['.jsonl', '.json']
    """
    try:
        return list(FILETYPE_TO_DEFAULT_EXTENSIONS[input_filetype])
    except KeyError:
        names = ", ".join(FILETYPE_TO_DEFAULT_EXTENSIONS)
        raise UsageError(f"unknown file type {input_filetype!r}; known: {names}") from None


def get_fs(path: str, storage_options: Mapping[str, Any] | None = None) -> Any:
    """Return the fsspec file system that a path belongs to."""
    fsspec = optional("fsspec", "tamis.utils.file_utils", "fsspec")
    return fsspec.core.url_to_fs(path, **(storage_options or {}))[0]


def _fs(path: str, fs: Any, storage_options: Mapping[str, Any] | None) -> Any:
    if fs is not None and storage_options is not None:
        raise UsageError("give fs or storage_options, not both")
    return get_fs(path, storage_options) if fs is None else fs


def read_json_file(path: str, fs: Any) -> Any:
    """Return the content of a JSON file."""
    with fs.open(path, "rb") as file:
        return json.loads(file.read())


def write_json_file(path: str, payload: Any, fs: Any) -> None:
    """Write a JSON file. On a local disk it appears whole or not at all; object stores do so by themselves."""
    if _is_local(fs):
        from tamis.utils.atomic_io import write_json_atomically

        write_json_atomically(fs._strip_protocol(path), payload)
        return
    with fs.open(path, "wb") as file:
        file.write(json.dumps(payload).encode())


def is_not_empty(path: str, fs: Any = None, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Return True if `path` is a folder with anything in it."""
    fs = _fs(path, fs, storage_options)
    return bool(fs.exists(path) and fs.isdir(path) and fs.ls(path, detail=False))


def delete_dir(path: str, fs: Any = None, storage_options: Mapping[str, Any] | None = None) -> None:
    """Remove a folder and all in it.

    What is no folder stays; the root of a file system is refused, and a whole bucket.
    """
    fs = _fs(path, fs, storage_options)
    below = str(fs._strip_protocol(path)).strip("/")
    if not below:
        raise UsageError(f"delete_dir: {path!r} is the root of a file system; refused")
    if _has_buckets(fs) and "/" not in below:
        raise UsageError(f"delete_dir: {path!r} is a whole bucket; refused, give a folder in it")
    if fs.exists(path) and fs.isdir(path):
        fs.rm(path, recursive=True)


def create_or_overwrite_dir(path: str, fs: Any = None, storage_options: Mapping[str, Any] | None = None) -> None:
    """Create an empty folder, **removing existing contents**."""
    fs = _fs(path, fs, storage_options)
    if is_not_empty(path, fs):
        log.warning("%s is not empty; it is removed", path)
        delete_dir(path, fs)
    fs.makedirs(path, exist_ok=True)


def filter_files_by_extension(files_list: Iterable[str], keep_extensions: str | Sequence[str]) -> list[str]:
    """Return the files with these extensions, with or without a dot in `keep_extensions`.

    >>> filter_files_by_extension(["a.jsonl", "b.txt"], "jsonl")
    ['a.jsonl']
    """
    files = list(files_list)
    suffixes = [keep_extensions] if isinstance(keep_extensions, str) else keep_extensions
    endings = tuple(e if e.startswith(".") else f".{e}" for e in suffixes)
    matching = [f for f in files if f.endswith(endings)]
    if len(matching) < len(files):
        log.warning(
            "%d of %d files are left out: their names do not end in %s",
            len(files) - len(matching),
            len(files),
            ", ".join(endings),
        )
    return matching


def get_all_file_paths_under(
    path: str,
    recurse_subdirectories: bool = False,
    keep_extensions: str | Sequence[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    fs: Any = None,
) -> list[str]:
    """Return sorted paths of the files in a folder (or of one file, or of a pattern).

    With their protocol, if they are remote.
    """
    return sorted(p for p, _ in _listed(path, recurse_subdirectories, keep_extensions, storage_options, fs))


def get_all_file_paths_and_size_under(
    path: str,
    recurse_subdirectories: bool = False,
    keep_extensions: str | Sequence[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    fs: Any = None,
    sort_by_size: bool = True,
) -> list[tuple[str, int]]:
    """Return paths as `get_all_file_paths_under` does, with sizes in bytes (-1: not known).

    They are sorted smallest first, or by path.
    """
    files = _listed(path, recurse_subdirectories, keep_extensions, storage_options, fs)
    return sorted(files, key=lambda item: (item[1], item[0]) if sort_by_size else (0, item[0]))


def _listed(
    path: str,
    recurse: bool,
    keep_extensions: str | Sequence[str] | None,
    storage_options: Mapping[str, Any] | None,
    fs: Any,
) -> list[tuple[str, int]]:
    fs = fs if fs is not None else get_fs(path, storage_options)
    extensions = [keep_extensions] if isinstance(keep_extensions, str) else keep_extensions
    endings = None if extensions is None else {e.casefold().lstrip(".") for e in extensions}
    files: dict[str, int] = {}
    for root in fs.expand_path(path, recursive=False):
        if fs.isdir(root):
            entries = fs.find(root, maxdepth=None if recurse else 1, withdirs=False, detail=True)
        else:
            entries = {root: fs.info(root)}
        for name, info in entries.items():
            if endings is None or _ends_in(name, endings):
                size = info.get("size")
                files[fs.unstrip_protocol(name) if is_remote_url(path) else name] = -1 if size is None else int(size)
    return list(files.items())


def _ends_in(name: str, endings: set[str]) -> bool:
    """Return True if a name has one of these extensions, given in lower case and without the first dot.

    An extension is single ("gz"), or several ("jsonl.gz").
    """
    if posixpath.splitext(name)[1][1:].casefold() in endings:
        return True
    several = tuple("." + ending for ending in endings if "." in ending)
    return bool(several) and posixpath.basename(name).casefold().endswith(several)


def infer_protocol_from_paths(paths: Iterable[str]) -> str | None:
    """Return the protocol of the first path that is not local.

    >>> infer_protocol_from_paths(["a.jsonl", "s3://bucket/b.jsonl"]), infer_protocol_from_paths(["/a", "file:///b"])
    ('s3', None)
    """
    return next((str(path).partition("://")[0] for path in paths if is_remote_url(path)), None)


def pandas_select_columns(df: Any, columns: Sequence[str] | None, file_path: str) -> Any:
    """Return the frame with those of the columns that it has, or None if it has none of them.

    Missing columns are reported.
    """
    if columns is None:
        return df
    present = [c for c in columns if c in df.columns]
    if len(present) < len(columns):
        missing = [c for c in columns if c not in df.columns]
        log.warning("%s has no column %s; it has %s", file_path, ", ".join(map(repr, missing)), list(df.columns))
    return df[present] if present else None


def check_output_mode(mode: str, fs: Any, path: str, append_mode_implemented: bool = False) -> None:
    """Prepare an output folder: "overwrite" removes it, "error" refuses one that exists, "ignore" makes it if need be.

    "append" is for writers that say that they can (`append_mode_implemented`).
    """
    normalized = mode.strip().lower()
    if normalized not in ("overwrite", "append", "error", "ignore"):
        raise UsageError(f"mode: expected overwrite, append, error or ignore, got {mode!r}")
    if normalized == "append" and not append_mode_implemented:
        raise NotImplementedError("append mode is not implemented by this writer")
    if normalized == "error" and fs.exists(path):
        raise FileExistsError(f"{path} exists already; choose another folder or another mode")
    if normalized == "overwrite":
        delete_dir(path, fs)
    if normalized == "ignore":
        fs.makedirs(path, exist_ok=True)


def infer_dataset_name_from_path(path: str, path_kind: str = "file") -> str:
    """Derive a dataset name from its path: the folder of a file, or the folder itself (`path_kind="dir"`).

    >>> infer_dataset_name_from_path("/data/Wiki/a.jsonl"), infer_dataset_name_from_path("s3://bucket/Wiki", "dir")
    ('wiki', 'wiki')
    """
    if path_kind not in ("file", "dir", "directory"):
        raise UsageError(f"path_kind: expected 'file' or 'dir', got {path_kind!r}")
    pure = Path(str(path).partition("://")[2] or str(path))
    folder = pure.name if path_kind != "file" else pure.parent.name
    return (folder or pure.stem or "dataset").lower()


def check_disallowed_kwargs(
    kwargs: Mapping[str, Any], disallowed_keys: Sequence[str], raise_error: bool = True
) -> None:
    """Refuse options (or, with `raise_error=False`, warn of them)."""
    disallowed = sorted(set(kwargs) & set(disallowed_keys))
    if not disallowed:
        return
    if raise_error:
        raise UsageError(f"these options cannot be given here: {', '.join(disallowed)}")
    log.warning("these options cannot be given here: %s", ", ".join(disallowed))


def tar_safe_extract(tar: Any, path: str) -> None:
    """Unpack a tar file.

    Members that would land outside of `path`, devices and links that lead out of it are refused.
    """
    import tarfile

    if not hasattr(tarfile, "data_filter"):
        raise UsageError("this Python cannot unpack archives safely; it takes 3.11.4 or later")
    tar.extractall(path, filter="data")


def parse_bytes_string_to_int(size: str | int) -> int:
    """Parse a size in bytes. MB is 10^6, MiB is 2^20.

    >>> parse_bytes_string_to_int("2MiB"), parse_bytes_string_to_int(5)
    (2097152, 5)
    """
    return parse_size(size, "size")


def _is_local(fs: Any) -> bool:
    return not {"file", "local"}.isdisjoint(_protocols(fs))


def _has_buckets(fs: Any) -> bool:
    """Return True if the first part of a path is a bucket (or a container), which is not a folder."""
    return not _WITH_BUCKETS.isdisjoint(_protocols(fs))


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)
