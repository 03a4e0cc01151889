"""Curation: filters, changes and deduplications in order, over one input, in as few passes as possible.

Curation([GopherQuality(), ExactDuplicates(), FuzzyDuplicates()], "data/", "clean/").run(memory="1GB")
"""

from tamis.curation.curation import Curation
from tamis.curation.images import ExactImageDuplicates, SemanticImageDuplicates
from tamis.curation.mixing import Source
from tamis.curation.result import CurationResult
from tamis.curation.steps import DuplicateLines, ExactDuplicates, FuzzyDuplicates, RepeatedPassages

__all__ = [
    "Curation",
    "CurationResult",
    "DuplicateLines",
    "ExactDuplicates",
    "ExactImageDuplicates",
    "FuzzyDuplicates",
    "RepeatedPassages",
    "SemanticImageDuplicates",
    "Source",
]
