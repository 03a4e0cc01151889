"""The stages of fuzzy deduplication: band keys of a sketch for every document, then the texts of candidates."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from tamis._dataclasses import dataclass
from tamis._lazy import np, pa
from tamis.dedup.exact.stages import TextKeys
from tamis.dedup.normalization import NORMALIZATION_VERSION, check_mode, normalized
from tamis.errors import UsageError
from tamis.sizes import check_integer
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch

SIGNATURE_VALUES = 256  # of a signature, one byte each


@dataclass(frozen=True)
class Sketch:
    """Parameters of the comparison. `n` characters (code points) or words are one shingle."""

    n: int = 24
    unit: str = "char"
    bands: int = 20
    rows: int = 13
    seed: int = 42
    wide: bool = False  # 64-bit values instead of 32
    method: str = "fss"  # or "permutations": plain MinHash, for comparison

    def __post_init__(self) -> None:
        for name, low, high in (("n", 1, 1000), ("bands", 1, 1000), ("rows", 1, 1000), ("seed", 0, (1 << 63) - 1)):
            check_integer(getattr(self, name), f"fuzzy deduplication: {name}", low, high)
        if self.unit not in ("char", "word"):
            raise UsageError(f"fuzzy deduplication: unit must be 'char' or 'word', got {self.unit!r}")
        if self.method not in ("fss", "permutations"):
            raise UsageError(f"fuzzy deduplication: method must be 'fss' or 'permutations', got {self.method!r}")

    @property
    def midpoint(self) -> float:
        """The similarity at which half of all pairs share a band: (1 - 0.5^(1/bands))^(1/rows).

        >>> round(Sketch(bands=20, rows=13).midpoint, 3), round(Sketch(bands=14, rows=8).midpoint, 3)
        (0.771, 0.685)
        """
        return float((1 - 0.5 ** (1 / self.bands)) ** (1 / self.rows))


@dataclass(repr=False)
class DocumentSketches(TextKeys):
    """Records (keys.py): key_0 is the exact hash, key_1 ... the bands first to last (not included).

    A document with fewer than `min_shingles` has no band keys: only equal texts are its duplicates. `signed`: the first
    pass adds a signature of every document for an index: a byte of each of 256 values of a sketch, in columns of 8
    bytes.
    """

    kernel_groups: ClassVar[tuple[str, ...]] = ("sketch",)

    text_field: str = "text"
    n: int = 24
    unit: str = "char"
    bands: int = 20
    rows: int = 13
    seed: int = 42
    wide: bool = False
    method: str = "fss"
    normalize_text: str | bool = False
    min_shingles: int = 10
    keep: str = "longest"
    keep_by: str | None = None
    first: int = 0
    last: int | None = None
    signed: bool = False
    name: str = "document_sketches"
    version: int = NORMALIZATION_VERSION

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer(self.min_shingles, "fuzzy deduplication: min_shingles", 0)
        self.sketch()

    def sketch(self) -> Sketch:
        return Sketch(self.n, self.unit, self.bands, self.rows, self.seed, self.wide, self.method)

    def setup(self, worker_metadata: Any = None) -> None:
        """Prepare the GPU if it is used.

        One that cannot be used is an error for `gpu`; with `auto` the CPU makes the keys.
        """
        if self._backend != "cpu" and self._device is None:
            from tamis.dedup.fuzzy.gpu_sketch import Differs, GpuSketcher

            try:
                self.__dict__["_device"] = GpuSketcher(self.sketch())
            except Exception as exc:  # whatever the libraries of this node raise: the CPU makes the same keys
                if self._backend == "gpu" and not isinstance(exc, Differs):
                    raise
                print(f"{self.name}: sketches are computed on the CPU: {exc}", file=sys.stderr, flush=True)

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        """Load the compiled code before any memory cap is set."""
        self._keys(pa.array(["one two three"], pa.large_string()))

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.dedup.keys import hash_columns, position_columns, record_batch, sorted_keys

        written = batch.texts(self.text_field)
        texts = normalized(written, str(self.normalize_text))
        columns = position_columns(batch)
        if self.first == 0:
            columns |= hash_columns(batch, written, texts, self.keep, self.keep_by)
        keys, n_shingles = self._keys(texts)
        enough = n_shingles >= max(1, self.min_shingles)
        last = self.bands if self.last is None else self.last
        for k in range(self.first, last):
            columns[f"key_{k + 1}"], columns[f"row_{k + 1}"] = sorted_keys(keys[:, k], enough)
        records = record_batch(batch, columns)
        if self.signed and self.first == 0:
            for i, words in enumerate(self._signatures(texts).T):
                records = records.with_column(f"sig_{i}", pa.array(np.ascontiguousarray(words)))
        return records

    def _signatures(self, texts: Any) -> Any:
        from tamis.kernels.buffers import string_buffers
        from tamis.kernels.sketch.band_keys import band_keys

        # Bands of one value each: a key is then a hash of that value.
        parameters = vars(self.sketch()) | {"bands": SIGNATURE_VALUES, "rows": 1}
        keys, _ = band_keys(string_buffers(texts), **parameters)
        return np.ascontiguousarray((keys & np.uint64(0xFF)).astype(np.uint8)).view(np.uint64)

    def _keys(self, texts: Any) -> tuple[Any, Any]:
        from tamis.kernels.buffers import string_buffers
        from tamis.kernels.sketch.band_keys import band_keys

        if self._device is not None:
            keys: tuple[Any, Any] = self._device(string_buffers(texts))
            return keys
        return band_keys(string_buffers(texts), **vars(self.sketch()))


@dataclass(repr=False)
class CandidateTexts(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Replaces candidates, which share a band with another document, by their texts, compressed one by one.

    `places`: a table of their positions, as decisions.py writes it for removal.
    """

    places: str
    text_field: str = "text"
    normalize_text: str | bool = False
    name: str = "candidate_texts"
    columns_in = ("text_field",)

    def __post_init__(self) -> None:
        self.normalize_text = check_mode(self.name, self.normalize_text)

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.dedup.keys import position_columns, record_batch
        from tamis.dedup.position_table import listed_rows
        from tamis.formats.compression.zstd import Packer

        rows, _ = listed_rows(self.places, *batch.places())
        batch = batch.take(np.sort(rows))
        texts = normalized(batch.texts(self.text_field), str(self.normalize_text))
        compress = Packer(level=1).pack
        packed = pa.array([compress((t or "").encode()) for t in texts.to_pylist()], pa.large_binary())
        batch = record_batch(batch, position_columns(batch)).with_column("text", packed)
        return batch.select(["file", "offset", "text"])
