"""Names that batches of documents and those who take them apart have in common."""

from __future__ import annotations

ROW_ID = "_tamis_row"  # the hidden row id in tables and frames
SCORES = "\0scores"  # in DocumentBatch.measured, instead of the name of a column: scores that come out as columns
MISSING, NULL, TEXT, OTHER = range(4)  # what DocumentBatch.kinds() says of a value
TOLD = "told: "  # a metric of a stage that begins so is a sentence for the report, with how many documents it is about
