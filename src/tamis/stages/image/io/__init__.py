"""Reading and writing images."""

from tamis.stages.image.io.convert import ConvertImageBatchToDocumentBatchStage
from tamis.stages.image.io.image_reader import ImageReader, ImageReaderStage
from tamis.stages.image.io.image_writer import ImageWriterStage

__all__ = ["ConvertImageBatchToDocumentBatchStage", "ImageReader", "ImageReaderStage", "ImageWriterStage"]
