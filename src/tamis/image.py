"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.image is not part of Tamis: images are not here yet; filter their captions as text", name="tamis.image"
)
