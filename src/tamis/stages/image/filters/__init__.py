"""Filters of images."""

from tamis.stages.image.filters.aesthetic_filter import ImageAestheticFilterStage
from tamis.stages.image.filters.base import BaseFilterStage
from tamis.stages.image.filters.nsfw_filter import ImageNSFWFilterStage
from tamis.stages.image.filters.size_filter import ImageSizeFilterStage

__all__ = ["BaseFilterStage", "ImageAestheticFilterStage", "ImageNSFWFilterStage", "ImageSizeFilterStage"]
