"""Stages that number, split and join documents."""

from tamis.stages.text.modules.add_id import AddId
from tamis.stages.text.modules.joiner import DocumentJoiner
from tamis.stages.text.modules.splitter import DocumentSplitter

__all__ = ["AddId", "DocumentJoiner", "DocumentSplitter"]
