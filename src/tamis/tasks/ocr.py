"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.tasks.ocr is not part of Tamis: reading text from images is not here", name="tamis.tasks.ocr"
)
