"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError("tamis.stages.image is not part of Tamis: images are not here yet", name="tamis.stages.image")
