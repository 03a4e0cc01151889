"""The first pass of exact deduplication of images: a hash of the pixels of each."""

from __future__ import annotations

from typing import Any, ClassVar

from tamis._dataclasses import dataclass
from tamis._lazy import np
from tamis.images.decode import check_libraries, decode
from tamis.images.faults import ImageFault
from tamis.stages.base import ProcessingStage
from tamis.stages.image.pixels import Where, each, places, stored_bytes
from tamis.stages.traits import StageTraits
from tamis.tasks import DocumentBatch

KEEP = ("first", "largest")
_AT_ONCE = 8


@dataclass(repr=False)
class ImageHashes(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Replaces images by their records (dedup/keys.py): XXH3-128 of the size and the decoded pixels (RGB, 8 bits).

    The same pixels stored as PNG and as lossless WebP are equal. An image that cannot be decoded goes to quarantine.
    `keep`: of equal images the first in the input, or the one stored in the most bytes (largest).
    """

    keep: str = "first"
    name: str = "image_hashes"
    traits: ClassVar[StageTraits] = StageTraits(judges_input=True)

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        check_libraries()

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.dedup.keys import position_columns, record_batch, sorted_keys

        hashes: list[Any] = []
        for block in each(places(self.name, batch), _hash, _AT_ONCE, None):
            hashes += block
        bad = [i for i, number in enumerate(hashes) if isinstance(number, ImageFault)]
        self._note_bad(batch.serial[bad], [str(hashes[i]) for i in bad])
        good = np.ones(batch.num_items, bool)
        good[bad] = False
        batch = batch.filter(good)
        numbers = [number for number in hashes if not isinstance(number, ImageFault)]
        hi = np.array([n >> 64 for n in numbers], np.uint64)
        lo = np.array([n & (2**64 - 1) for n in numbers], np.uint64)
        length = batch.column("length").to_numpy(zero_copy_only=False).astype(np.int64)
        rank = np.zeros(len(numbers), np.uint64)
        if self.keep == "largest":
            rank = np.uint64(1 << 62) - length.astype(np.uint64)
        key, row = sorted_keys(hi, np.ones(len(numbers), bool))
        columns = position_columns(batch) | {
            "hi": hi,
            "lo": lo,
            "length": length,
            "rank": rank,
            "key_0": key,
            "row_0": row,
        }
        return record_batch(batch, columns)


def _hash(where: Where) -> int:
    """Hash height, width and pixels by XXH3-128."""
    import xxhash

    pixels = decode(stored_bytes(where))
    digest = xxhash.xxh3_128(np.array(pixels.shape[:2], np.int64).tobytes())
    digest.update(np.ascontiguousarray(pixels).data)
    return int(digest.intdigest())
