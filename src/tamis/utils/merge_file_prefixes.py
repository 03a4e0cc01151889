"""Several pairs of .bin and .idx files (see MegatronTokenizerWriter) into one.

python -m tamis.utils.merge_file_prefixes --input-dir tokens/ --output-prefix all/tokens
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Sequence
from typing import Any

from tamis import files
from tamis._lazy import np
from tamis.errors import FormatError, UsageError
from tamis.formats.megatron.index import read_index, write_index

_COPY_BYTES = 8 << 20


def extract_index_contents(idx_path: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], Any]:
    """Return (lengths of sequences, document marks, token type as a numpy type) of an index."""
    lengths, documents, dtype = read_index(idx_path)
    return lengths, documents, np.dtype(dtype).type


class IndexedDatasetBuilder:
    """Puts pairs one behind the other. Both files get their names in `finalize`, the index last."""

    def __init__(self, bin_path: str, dtype: Any) -> None:
        self._bin_path, self._dtype = os.fspath(bin_path), np.dtype(dtype)
        os.makedirs(os.path.dirname(self._bin_path) or ".", exist_ok=True)
        self._file = open(self._bin_path + ".part", "wb")  # noqa: SIM115 (closed by finalize)
        self._lengths: list[Any] = []
        self._documents: list[Any] = [np.zeros(1, np.int64)]
        self._n_sequences = 0

    def add_index(self, path_prefix: str) -> None:
        """Add all of `<path_prefix>.bin` and `.idx`."""
        lengths, documents, dtype = read_index(path_prefix + ".idx")
        if np.dtype(dtype) != self._dtype:
            raise FormatError(f"{path_prefix}: its tokens are {dtype}, those before it {self._dtype}; merge them apart")
        expected, actual = (
            int(lengths.sum(dtype=np.int64)) * self._dtype.itemsize,
            os.path.getsize(path_prefix + ".bin"),
        )
        if expected != actual:
            raise FormatError(
                f"{path_prefix}.bin has {actual:,} bytes where its index tells {expected:,}; it is damaged"
            )
        with open(path_prefix + ".bin", "rb") as source:
            shutil.copyfileobj(source, self._file, _COPY_BYTES)
        self._lengths.append(lengths)
        self._documents.append(documents[1:] + self._n_sequences)
        self._n_sequences += len(lengths)

    def finalize(self, idx_path: str) -> None:
        """Write the index and name both files."""
        self._file.close()
        lengths = np.concatenate([np.empty(0, np.int32), *self._lengths])
        with open(os.fspath(idx_path) + ".part", "wb") as file:
            write_index(file, lengths, str(self._dtype), np.concatenate(self._documents))
        files.finish(self._bin_path + ".part", self._bin_path)
        files.finish(os.fspath(idx_path) + ".part", os.fspath(idx_path))

    def abort(self) -> None:
        self._file.close()
        os.unlink(self._bin_path + ".part")


def merge_file_prefixes(input_dir: str, output_prefix: str) -> None:
    """Merge all pairs in a folder, by name, into `<output_prefix>.bin` and `.idx`, which must not be among them."""
    prefixes = _pairs(input_dir)
    _refuse_own_result(prefixes, output_prefix)
    builder = IndexedDatasetBuilder(output_prefix + ".bin", extract_index_contents(prefixes[0] + ".idx")[2])
    try:
        for prefix in prefixes:
            builder.add_index(prefix)
    except BaseException:
        builder.abort()
        raise
    builder.finalize(output_prefix + ".idx")


def _refuse_own_result(prefixes: Sequence[str], output_prefix: str) -> None:
    """Raise UsageError if a pair with the result's name is in the input.

    It is unknown whether that pair is an earlier result or an input: merged, its tokens would be there twice,
    or it would be replaced.
    """
    target = os.path.join(os.path.realpath(os.path.dirname(output_prefix) or "."), os.path.basename(output_prefix))
    for prefix in prefixes:
        if os.path.join(os.path.realpath(os.path.dirname(prefix) or "."), os.path.basename(prefix)) == target:
            raise UsageError(
                f"{output_prefix}: this pair is in the input folder already, so that its tokens would be merged into "
                "themselves; give an "
                "output prefix in another folder, or remove the pair if it is an earlier result"
            )


def _pairs(folder: str) -> list[str]:
    names = {n for n in os.listdir(folder) if os.path.isfile(os.path.join(folder, n))}
    stems = sorted({os.path.splitext(n)[0] for n in names if n.endswith((".bin", ".idx"))})
    for stem in stems:
        for ending in (".bin", ".idx"):
            if stem + ending not in names:
                raise UsageError(
                    f"{os.path.join(folder, stem)}: there is no {ending} file; restore it, or remove the other one"
                )
    if not stems:
        raise UsageError(f"{folder} holds no pairs of .bin and .idx files")
    return [os.path.join(folder, stem) for stem in stems]


def get_args(args: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the options of the command."""
    parser = argparse.ArgumentParser("python -m tamis.utils.merge_file_prefixes", description=__doc__)
    parser.add_argument("--input-dir", required=True, help="the folder with the pairs")
    parser.add_argument("--output-prefix", required=True, help="path of the result, without an ending")
    return parser.parse_args(args)


if __name__ == "__main__":
    from tamis.errors import TamisError

    options = get_args()
    try:
        merge_file_prefixes(options.input_dir, options.output_prefix)
    except (TamisError, OSError) as exc:
        raise SystemExit(f"error: {exc}") from exc
