"""The public path of the id generator; the code is in tamis/dedup."""

from tamis.dedup.nemo_compat.id_generator import (
    CURATOR_DEDUP_ID_STR,
    IdGenerator,
    IdGeneratorBase,
    create_id_generator_actor,
    get_id_generator_actor,
    kill_id_generator_actor,
    write_id_generator_to_disk,
)

__all__ = [
    "CURATOR_DEDUP_ID_STR",
    "IdGenerator",
    "IdGeneratorBase",
    "create_id_generator_actor",
    "get_id_generator_actor",
    "kill_id_generator_actor",
    "write_id_generator_to_disk",
]
