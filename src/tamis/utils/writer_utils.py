"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.utils.writer_utils is not part of Tamis: tamis.utils.atomic_io writes JSON", name="tamis.utils.writer_utils"
)
