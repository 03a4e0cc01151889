"""Names of columns in the files of fuzzy deduplication."""

from tamis.dedup.fuzzy.step_stages import (
    CURATOR_DEFAULT_MINHASH_FIELD,
    CURATOR_FUZZY_DUPLICATE_GROUP_FIELD,
    CURATOR_LSH_BUCKET_FIELD,
)

__all__ = ["CURATOR_DEFAULT_MINHASH_FIELD", "CURATOR_FUZZY_DUPLICATE_GROUP_FIELD", "CURATOR_LSH_BUCKET_FIELD"]
