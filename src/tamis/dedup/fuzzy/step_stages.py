"""Fuzzy deduplication in single stages, with the files between them that users know.

MinHashStage              texts -> MinHashStage/*.parquet: the values of a sketch of each document
LSHStage                  -> LSHStage/band_A-band_B/*.parquet: buckets of documents that share a band
BucketsToEdgesStage       -> BucketsToEdgesStage/*.parquet: pairs of documents of a bucket
ConnectedComponentsStage  -> ConnectedComponentsStage/*.parquet: the group of each document
IdentifyDuplicatesStage   -> FuzzyDuplicateIds/*.parquet: of each group all documents but one

The first works on a file at a time; each of the others is one worker that gets all files and holds some 16 bytes per
document (and band of an iteration). Nothing is verified: sharing a band is enough. FuzzyDeduplicationWorkflow finds and
verifies in one call, inside any budget; use these where another tool reads the files.
"""

from __future__ import annotations

import glob
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from tamis import files
from tamis._lazy import np, pa, pc, pq
from tamis.errors import UsageError
from tamis.sizes import check_integer
from tamis.stages.base import ProcessingStage
from tamis.stages.file_partitioning import FilePartitioningStage
from tamis.stages.text.io.formats import check_file_type
from tamis.stages.text.io.options import read_options
from tamis.stages.text.io.reader.ids import CURATOR_DEDUP_ID_STR, CURRENT, ids_of
from tamis.stages.traits import StageTraits
from tamis.tasks import DocumentBatch, FileGroupTask

CURATOR_DEFAULT_MINHASH_FIELD = "_minhash_signature"
CURATOR_LSH_BUCKET_FIELD = "_bucket_id"
CURATOR_FUZZY_DUPLICATE_GROUP_FIELD = "_duplicate_group_id"
DUPLICATE_IDS_SUBDIR = "FuzzyDuplicateIds"
_OURS = b"tamis.fuzzy"  # in the metadata of files written here: those of earlier calls are replaced


class FuzzyStepStage(ProcessingStage[Any, FileGroupTask]):
    """A step that writes Parquet files to a folder of its own, named after it, inside of `output_path`."""

    folder: ClassVar[str]
    columns_in = ()
    columns_out = ()

    def __init__(
        self, output_path: str, read_kwargs: Mapping[str, Any] | None, write_kwargs: Mapping[str, Any] | None
    ) -> None:
        self.name = type(self).__name__
        if "://" in os.fspath(output_path):
            raise UsageError(f"{self.name}: {output_path}: give a local folder")
        if read_options(self.name, read_kwargs)[1] is not None:
            raise UsageError(f"{self.name}: read_kwargs: columns is refused; the stage reads those that it needs")
        self.output_path = os.path.join(os.path.abspath(output_path), self.folder)
        self.read_kwargs, self.write_kwargs = dict(read_kwargs or {}), dict(write_kwargs or {})

    def num_workers(self) -> int | None:
        return 1 if self.traits.takes_all_files else None

    def _write(self, name: str, columns: Mapping[str, pa.Array]) -> str:
        """Write a file, whole or not at all."""
        table = pa.table(dict(columns)).replace_schema_metadata({_OURS: self.name})
        sink = io.BytesIO()
        pq.write_table(table, sink, **{k: v for k, v in self.write_kwargs.items() if k != "storage_options"})
        path = os.path.join(self.output_path, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        files.write_bytes(path, sink.getvalue())
        return path

    def _forget(self) -> None:
        """Remove what an earlier call wrote, which the next step would read, too."""
        for path in glob.glob(os.path.join(glob.escape(self.output_path), "**", "*.parquet"), recursive=True):
            try:
                metadata = pq.read_schema(path).metadata or {}
            except (pa.ArrowException, OSError):
                metadata = {}
            if _OURS not in metadata:
                raise UsageError(f"{self.name}: {path} was not written by this stage; give another output_path")
            files.remove(path)


def _columns(path: str, names: Sequence[str], stage: str) -> list[pa.Array]:
    table = pq.ParquetFile(path).read(columns=list(names), use_threads=False)
    if missing := [name for name in names if name not in table.column_names]:
        raise UsageError(f"{stage}: {path} has no column {missing[0]!r}; it has {pq.read_schema(path).names}")
    return [table.column(name).combine_chunks() for name in names]


class MinHashStage(FuzzyStepStage):
    """The values of a sketch of each text: a list of `num_hashes` numbers; null for a text without a shingle.

    Two documents share so many values as their sets of shingles (`char_ngrams` characters) overlap, as with MinHash.
    Takes files (`read_format`: jsonl, parquet, or None for what they are), whose documents get ids from the id
    generator, or batches of documents that have theirs in `_curator_dedup_id`. `pool` is about GPU memory, which is not
    used.
    """

    folder = "MinHashStage"
    kernel_groups: ClassVar[tuple[str, ...]] = ("sketch",)

    def __init__(
        self,
        output_path: str,
        text_field: str = "text",
        minhash_field: str = CURATOR_DEFAULT_MINHASH_FIELD,
        char_ngrams: int = 24,
        num_hashes: int = 260,
        seed: int = 42,
        use_64bit_hash: bool = False,
        read_format: str | None = None,
        read_kwargs: Mapping[str, Any] | None = None,
        write_kwargs: Mapping[str, Any] | None = None,
        pool: bool = True,
    ) -> None:
        super().__init__(output_path, read_kwargs, write_kwargs)
        for name, value in (("char_ngrams", char_ngrams), ("num_hashes", num_hashes)):
            check_integer(value, f"{self.name}: {name}")
        check_file_type(self.name, "read_format", read_format)
        self.text_field, self.minhash_field, self.char_ngrams = text_field, minhash_field, char_ngrams
        self.num_hashes, self.seed, self.use_64bit_hash = num_hashes, seed, use_64bit_hash
        self.read_format, self.pool = read_format, pool
        self._numbers: dict[str, int] = {}

    def inputs(self) -> Any:
        return {FileGroupTask: (["data"], []), DocumentBatch: (["data"], [CURATOR_DEDUP_ID_STR, self.text_field])}

    def input_columns(self) -> list[str]:
        return [] if self._numbers else [CURATOR_DEDUP_ID_STR, self.text_field]

    def note_files(self, source: FilePartitioningStage) -> None:
        """Take the numbers of the files that a pipeline lists from the id generator of this program."""
        from tamis.formats.input_files.listing import list_files

        source.reach()
        listing = list_files(source.file_paths, source.suffixes(), source.limit, source.leave_out)
        self._numbers = self._numbered([os.fsdecode(path) for path in listing.paths])

    def _numbered(self, paths: Sequence[str]) -> dict[str, int]:
        if not CURRENT:
            raise UsageError(
                f"{self.name}: documents of files get ids from a generator; begin one with "
                "create_id_generator_actor(), or pass batches that have their ids"
            )
        return dict(zip(paths, CURRENT[0].of(paths, known_only=False), strict=True))

    def process(self, task: FileGroupTask | DocumentBatch) -> FileGroupTask:
        if isinstance(task, DocumentBatch):
            if CURATOR_DEDUP_ID_STR not in task.get_columns():
                raise UsageError(f"{self.name}: documents have no field {CURATOR_DEDUP_ID_STR}")
            parts = [(task.column(CURATOR_DEDUP_ID_STR), task)]
            name = task.task_id or f"batch-{pc.min(parts[0][0]).as_py()}"
        else:
            parts, name = list(self._read(task)), task.task_id
        ids = pa.concat_arrays([ids.cast(pa.int64()) for ids, _ in parts])
        signatures = pa.concat_arrays([self._signatures(batch) for _, batch in parts])
        path = self._write(f"{name}.parquet", {CURATOR_DEDUP_ID_STR: ids, self.minhash_field: signatures})
        metadata = {**task._metadata, "minhash_field": self.minhash_field, "num_hashes": self.num_hashes}
        return FileGroupTask(f"{task.dataset_name}_minhash", [path], task._stage_perf, metadata)

    def _read(self, task: FileGroupTask) -> Iterator[tuple[Any, DocumentBatch]]:
        from tamis.formats.whole_file import read_whole_file

        paths = [os.path.abspath(path) for path in task.data]
        unknown = [path for path in paths if path not in self._numbers]
        if unknown and self._notes_of_call is None:  # called outside of a run
            self._numbers |= self._numbered(unknown)
        elif unknown:
            raise UsageError(
                f"{self.name}: {unknown[0]} has no ids: begin the pipeline with a FilePartitioningStage, or with a "
                "reader with _generate_ids=True"
            )
        formats = () if self.read_format is None else (self.read_format,)
        for path in paths:
            batch = read_whole_file(path, formats)
            offsets = batch.places()[1]
            self._note_input(n_records=len(offsets))
            yield pa.array(ids_of(np.full(len(offsets), self._numbers[path], np.int64), offsets)), batch

    def _signatures(self, batch: DocumentBatch) -> pa.Array:
        from tamis.kernels.buffers import string_buffers
        from tamis.kernels.sketch.band_keys import band_keys

        texts = batch.texts(self.text_field).cast(pa.large_string())
        # Bands of one value each: a key is then a hash of that value.
        keys, n_shingles = band_keys(
            string_buffers(texts), n=self.char_ngrams, unit="char", bands=self.num_hashes, rows=1, seed=self.seed,
            wide=self.use_64bit_hash, method="fss",
        )  # fmt: skip
        values = keys if self.use_64bit_hash else (keys >> np.uint64(32)).astype(np.uint32)
        present = np.flatnonzero(n_shingles > 0)
        offsets = np.concatenate([[0], np.cumsum(n_shingles > 0) * self.num_hashes]).astype(np.int64)
        lists = pa.LargeListArray.from_arrays(
            pa.array(offsets), pa.array(np.ascontiguousarray(values[present]).ravel())
        )
        return pc.if_else(pa.array(n_shingles > 0), lists, pa.scalar(None, lists.type))


class LSHStage(FuzzyStepStage):
    """Buckets: the documents (two or more) whose values of one band, `minhashes_per_band` of them, are the same.

    `bands_per_iteration`: bands that are held at a time. The parameters about a shuffle and GPU memory have no meaning
    here.
    """

    folder = "LSHStage"
    traits = StageTraits(takes_all_files=True)

    def __init__(
        self,
        num_bands: int,
        minhashes_per_band: int,
        id_field: str = CURATOR_DEDUP_ID_STR,
        minhash_field: str = CURATOR_DEFAULT_MINHASH_FIELD,
        output_path: str = "./",
        read_kwargs: Mapping[str, Any] | None = None,
        write_kwargs: Mapping[str, Any] | None = None,
        rmm_pool_size: str | int | None = "auto",
        spill_memory_limit: str | int | None = "auto",
        enable_statistics: bool = False,
        bands_per_iteration: int = 5,
        total_nparts: int | None = None,
        use_async_memory: bool = True,
    ) -> None:
        super().__init__(output_path, read_kwargs, write_kwargs)
        for name, value in (("num_bands", num_bands), ("minhashes_per_band", minhashes_per_band)):
            check_integer(value, f"{self.name}: {name}")
        check_integer(bands_per_iteration, f"{self.name}: bands_per_iteration", 1, num_bands)
        self.num_bands, self.minhashes_per_band, self.bands_per_iteration = (
            num_bands, minhashes_per_band, bands_per_iteration,
        )  # fmt: skip
        self.id_field, self.minhash_field = id_field, minhash_field

    def process(self, task: FileGroupTask) -> FileGroupTask:
        self._forget()
        paths = []
        for first in range(0, self.num_bands, self.bands_per_iteration):
            bands = range(first, min(first + self.bands_per_iteration, self.num_bands))
            ids, keys = self._keys(task.data, bands)
            buckets, members = [], []
            for column, band in enumerate(bands):
                for key, group in _groups(keys[:, column]):
                    buckets.append(f"b{band}_{key:016x}")
                    members.append(np.sort(ids[group]))
            if not buckets:
                continue
            offsets = np.concatenate([[0], np.cumsum([len(m) for m in members])]).astype(np.int64)
            lists = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(members)))
            columns = {CURATOR_LSH_BUCKET_FIELD: pa.array(buckets), self.id_field: lists}
            paths.append(self._write(f"band_{bands[0]}-band_{bands[-1] + 1}/part.0.parquet", columns))
        return FileGroupTask(f"{task.dataset_name}{self.name}", paths, task._stage_perf, dict(task._metadata))

    def _keys(self, paths: Sequence[str], bands: range) -> tuple[Any, Any]:
        """Return the ids of all documents with a signature, and a hash of their values in each of these bands."""
        from tamis.kernels.records.hash128 import hash_spans

        ids, keys = [np.empty(0, np.int64)], [np.empty((0, len(bands)), np.uint64)]
        for path in paths:
            numbers, signatures = _columns(path, (self.id_field, self.minhash_field), self.name)
            valid = np.asarray(signatures.is_valid())
            signatures, numbers = signatures.filter(pa.array(valid)), numbers.filter(pa.array(valid))
            values = pc.list_flatten(signatures).to_numpy(zero_copy_only=False)
            n, n_needed = len(signatures), self.num_bands * self.minhashes_per_band
            if n and (len(values) % n or len(values) // n < n_needed):
                raise UsageError(
                    f"{self.name}: {path} has {len(values) // n} values per document, and {self.num_bands} bands of "
                    f"{self.minhashes_per_band} take {n_needed}"
                )
            table = np.ascontiguousarray(values.reshape(n, -1)) if n else np.empty((0, n_needed), np.uint32)
            width, row = self.minhashes_per_band * table.itemsize, table.shape[1] * table.itemsize
            data = table.view(np.uint8).ravel()
            hashes = [
                hash_spans(data, np.arange(n) * row + band * width, np.full(n, width, np.int64))[0] for band in bands
            ]
            ids.append(np.asarray(numbers.to_numpy(zero_copy_only=False), np.int64))
            keys.append(np.stack(hashes, axis=1) if n else keys[0])
        return np.concatenate(ids), np.concatenate(keys)


def _groups(keys: Any) -> Iterator[tuple[int, Any]]:
    """Yield each key that several rows have, ascending, with these rows."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(keys) else np.empty(0, int)
    ends = np.append(starts[1:], len(keys))
    for start, end in zip(starts[ends - starts > 1].tolist(), ends[ends - starts > 1].tolist(), strict=True):
        yield int(ordered[start]), order[start:end]


class BucketsToEdgesStage(FuzzyStepStage):
    """Pairs of documents: each of a bucket with the next one, so that all of it are connected."""

    folder = "BucketsToEdgesStage"

    def __init__(
        self,
        output_path: str,
        document_id_field: str = CURATOR_DEDUP_ID_STR,
        read_kwargs: Mapping[str, Any] | None = None,
        write_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(output_path, read_kwargs, write_kwargs)
        self.document_id_field = document_id_field

    def process(self, task: FileGroupTask) -> FileGroupTask:
        a, b = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for path in task.data:
            (members,) = _columns(path, (self.document_id_field,), self.name)
            values = np.asarray(pc.list_flatten(members).to_numpy(zero_copy_only=False), np.int64)
            bucket = np.repeat(np.arange(len(members)), pc.list_value_length(members).to_numpy(zero_copy_only=False))
            same = np.flatnonzero(bucket[1:] == bucket[:-1])
            a.append(values[same])
            b.append(values[same + 1])
        edges = np.unique(np.stack([np.concatenate(a), np.concatenate(b)], axis=1), axis=0)
        field = self.document_id_field
        columns = {f"{field}_x": pa.array(edges[:, 0].copy()), f"{field}_y": pa.array(edges[:, 1].copy())}
        path = self._write(f"{task.task_id}.parquet", columns)
        return FileGroupTask(f"{task.dataset_name}_edges", [path], task._stage_perf, dict(task._metadata))


class ConnectedComponentsStage(FuzzyStepStage):
    """The group of each document that has an edge: documents that edges connect, directly or by others."""

    folder = "ConnectedComponentsStage"
    traits = StageTraits(takes_all_files=True)
    kernel_groups: ClassVar[tuple[str, ...]] = ("sketch",)

    def __init__(
        self,
        output_path: str,
        source_field: str | None = None,
        destination_field: str | None = None,
        read_kwargs: Mapping[str, Any] | None = None,
        write_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(output_path, read_kwargs, write_kwargs)
        self.source_field = source_field or f"{CURATOR_DEDUP_ID_STR}_x"
        self.destination_field = destination_field or f"{CURATOR_DEDUP_ID_STR}_y"

    def process(self, task: FileGroupTask) -> FileGroupTask:
        return self.process_batch([task])[0]

    def process_batch(self, tasks: list[FileGroupTask]) -> list[FileGroupTask]:
        from tamis.kernels.sketch.components import link, new_parents, roots

        self._forget()
        paths = [path for task in tasks for path in task.data]
        pairs = [np.empty((0, 2), np.int64)]
        for path in paths:
            a, b = (c.to_numpy() for c in _columns(path, (self.source_field, self.destination_field), self.name))
            pairs.append(np.stack([a, b], axis=1).astype(np.int64))
        ids, numbers = np.unique(np.concatenate(pairs), return_inverse=True)
        edges = numbers.reshape(-1, 2).astype(np.uint32)
        parents = new_parents(len(ids))
        link(parents, np.ascontiguousarray(edges[:, 0]), np.ascontiguousarray(edges[:, 1]))
        roots(parents)
        name = FileGroupTask("", paths).task_id
        columns = {
            CURATOR_DEDUP_ID_STR: pa.array(ids),
            CURATOR_FUZZY_DUPLICATE_GROUP_FIELD: pa.array(parents.astype(np.int64)),
        }
        return [FileGroupTask(tasks[0].dataset_name if tasks else "", [self._write(f"{name}.parquet", columns)])]


class IdentifyDuplicatesStage(FuzzyStepStage):
    """The ids of all documents of each group but the first, for TextDuplicatesRemovalWorkflow.

    The parameters about a shuffle and GPU memory have no meaning here.
    """

    folder = DUPLICATE_IDS_SUBDIR
    traits = StageTraits(takes_all_files=True)

    def __init__(
        self,
        duplicate_group_field: str = CURATOR_FUZZY_DUPLICATE_GROUP_FIELD,
        document_id_field: str = CURATOR_DEDUP_ID_STR,
        total_nparts: int | None = None,
        output_path: str = "./",
        read_kwargs: Mapping[str, Any] | None = None,
        write_kwargs: Mapping[str, Any] | None = None,
        rmm_pool_size: str | int | None = "auto",
        spill_memory_limit: str | int | None = "auto",
        enable_statistics: bool = False,
    ) -> None:
        super().__init__(output_path, read_kwargs, write_kwargs)
        self.duplicate_group_field, self.document_id_field = duplicate_group_field, document_id_field

    def process(self, task: FileGroupTask) -> FileGroupTask:
        self._forget()
        names = (self.document_id_field, self.duplicate_group_field)
        parts = [np.stack([c.to_numpy() for c in _columns(p, names, self.name)], axis=1) for p in task.data]
        rows = np.unique(np.concatenate([np.empty((0, 2), np.int64), *parts]), axis=0)
        rows = rows[np.lexsort((rows[:, 0], rows[:, 1]))]
        goes = np.concatenate([[False], rows[1:, 1] == rows[:-1, 1]]) if len(rows) else np.empty(0, bool)
        ids = np.sort(rows[goes, 0])
        path = self._write("part.0.parquet", {self.document_id_field: pa.array(ids)})
        metadata = {**task._metadata, "num_removal_ids": len(ids)}
        return FileGroupTask(f"{task.dataset_name}{self.name}", [path], task._stage_perf, metadata)
