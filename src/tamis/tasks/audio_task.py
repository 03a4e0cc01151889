"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.tasks.audio_task is not part of Tamis: audio is not here yet", name="tamis.tasks.audio_task"
)
