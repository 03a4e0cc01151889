"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.backends.ray_actor_pool.raft_adapter is not part of Tamis: not needed: stages run in the engine's own worker loop, on one machine or many (docs/cluster.md)",
    name="tamis.backends.ray_actor_pool.raft_adapter",
)
