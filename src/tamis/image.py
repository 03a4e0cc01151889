"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.image is not part of Tamis: use tamis.stages.image (ImageEmbeddingStage, ImageAestheticFilterStage, ...)",
    name="tamis.image",
)
