"""Large files into smaller ones.

Tamis itself needs none of this (it splits any file where it reads it); other tools do.

    python -m tamis.utils.split_large_files --input-path big/ --file-type jsonl --output-path small/ \
        --target-size-mb 128

The same as `tamis split`, for a file or a whole folder: cut between records, in bounded memory, chunks appear together.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tamis.errors import Incomplete, TamisError, UsageError, optional
from tamis.formats.compression.codecs import SUFFIXES
from tamis.formats.registry import FILE_TYPES
from tamis.formats.splitting import ChunkLimit, split_file
from tamis.terminal import printable
from tamis.utils.file_utils import get_all_file_paths_under, get_default_file_extensions


class RemoteFunction:
    """A function that can also be sent to a Ray cluster: `ray.get([f.remote(path, ...) for path in paths])`."""

    def __init__(self, function: Callable[..., list[str]]) -> None:
        functools.update_wrapper(self, function)
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> list[str]:
        return self._function(*args, **kwargs)

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Start the function as a task of Ray, and return the reference to its result."""
        ray: Any = optional("ray", f"{self._function.__name__}.remote()", "ray")
        return ray.remote(self._function).remote(*args, **kwargs)


@RemoteFunction
def split_parquet_file_by_size(
    input_file: str, output_path: str, target_size_mb: int, storage_options: Mapping[str, Any] | None = None
) -> list[str]:
    """Split one Parquet file into chunks of at most `target_size_mb` MB (10^6 bytes, decoded); returns their paths."""
    return _split(input_file, output_path, target_size_mb, storage_options)


@RemoteFunction
def split_jsonl_file_by_size(
    input_file: str, output_path: str, target_size_mb: int, storage_options: Mapping[str, Any] | None = None
) -> list[str]:
    """Split one JSONL file, plain or compressed, as `split_parquet_file_by_size` does.

    Lines are copied byte for byte.
    """
    return _split(input_file, output_path, target_size_mb, storage_options)


def _split(source: str, target: str, size_mb: float, storage_options: Mapping[str, Any] | None) -> list[str]:
    if storage_options or "://" in source or "://" in target:
        raise UsageError(f"{source}: remote files are not split by this version; copy them to a local folder first")
    if size_mb <= 0:
        raise UsageError(f"target_size_mb: expected more than 0, got {size_mb}")
    result = split_file(Path(source), Path(target), ChunkLimit(int(size_mb * 10**6)))
    if result.faults:
        raise Incomplete(f"{source} is damaged: {result.faults[0]}; the chunks hold everything else")
    return [str(path) for path in result.paths]


def parse_args(args: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the options of the command."""
    parser = argparse.ArgumentParser(
        "python -m tamis.utils.split_large_files", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--input-path", required=True, help="a file, or a folder (with its subfolders)")
    parser.add_argument("--file-type", choices=FILE_TYPES, required=True, help="what the files are")
    parser.add_argument(
        "--output-path", required=True, help="the folder for the chunks, with the subfolders of the input"
    )
    parser.add_argument("--target-size-mb", type=int, default=128, help="largest size of a chunk, decoded")
    parser.add_argument(
        "--storage-options", type=json.loads, default=None, help="refused: remote files are not split yet"
    )
    return parser.parse_args(args)


def main(args: argparse.Namespace | Sequence[str] | None = None) -> None:
    """Split every file of the type, those of a subfolder into one of the same name.

    A file that cannot be split does not keep the others from it, and is named at the end.
    """
    options = args if isinstance(args, argparse.Namespace) else parse_args(args)
    endings = get_default_file_extensions(options.file_type)
    if options.file_type == "jsonl":
        endings = [e + c for e in (*endings, ".ndjson") for c in ("", *SUFFIXES)]
    paths = get_all_file_paths_under(options.input_path, recurse_subdirectories=True)
    files = [p for p in paths if p.endswith(tuple(endings))]
    source, output = (Path(os.path.abspath(p)) for p in (options.input_path, options.output_path))
    if source in output.parents:  # these are chunks of an earlier call
        files = [p for p in files if output not in Path(os.path.abspath(p)).parents]
    if not files:
        raise UsageError(f"{options.input_path} holds no file that ends in {', '.join(endings)}")
    failed = []
    top = os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in files])
    root = os.path.abspath(options.input_path) if os.path.isdir(options.input_path) else top
    for path in files:
        try:
            below = os.path.relpath(os.path.dirname(os.path.abspath(path)), root)  # names repeat in subfolders
            target = os.path.normpath(os.path.join(options.output_path, below))
            chunks = _split(path, target, options.target_size_mb, options.storage_options)
            print(printable(f"{path}: {len(chunks)} files"))
        except TamisError as exc:
            failed.append(path)
            print(printable(f"{path}: {exc}"))
    if failed:
        raise Incomplete(f"{len(failed)} of {len(files)} files were not split as they should: {', '.join(failed[:5])}")


if __name__ == "__main__":
    try:
        main()
    except TamisError as exc:
        raise SystemExit(f"error: {exc}") from exc
