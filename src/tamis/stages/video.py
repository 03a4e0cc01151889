"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError("tamis.stages.video is not part of Tamis: video is not here yet", name="tamis.stages.video")
