"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError("tamis.tasks.video is not part of Tamis: video is not here yet", name="tamis.tasks.video")
