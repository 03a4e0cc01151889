"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError("tamis.tasks.image is not part of Tamis: images are not here yet", name="tamis.tasks.image")
