"""Classifiers. Importing this loads neither torch nor transformers: a model is loaded when a run begins."""

from tamis.stages.text.classifiers.aegis import AegisClassifier, InstructionDataGuardClassifier
from tamis.stages.text.classifiers.base import DistributedDataClassifier
from tamis.stages.text.classifiers.content_type import ContentTypeClassifier
from tamis.stages.text.classifiers.domain import DomainClassifier, MultilingualDomainClassifier
from tamis.stages.text.classifiers.fasttext import FastTextClassifier
from tamis.stages.text.classifiers.fineweb_edu import (
    FineWebEduClassifier,
    FineWebMixtralEduClassifier,
    FineWebNemotronEduClassifier,
)
from tamis.stages.text.classifiers.prompt_task_complexity import PromptTaskComplexityClassifier
from tamis.stages.text.classifiers.quality import QualityClassifier

__all__ = [
    "AegisClassifier",
    "ContentTypeClassifier",
    "DistributedDataClassifier",
    "DomainClassifier",
    "FastTextClassifier",
    "FineWebEduClassifier",
    "FineWebMixtralEduClassifier",
    "FineWebNemotronEduClassifier",
    "InstructionDataGuardClassifier",
    "MultilingualDomainClassifier",
    "PromptTaskComplexityClassifier",
    "QualityClassifier",
]
