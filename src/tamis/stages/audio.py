"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError("tamis.stages.audio is not part of Tamis: audio is not here yet", name="tamis.stages.audio")
