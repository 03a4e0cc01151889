"""Runs on several machines: an agent on each node runs workers as the local executor does.

Any engine can start the agents:

executor.py        ClusterExecutor, the base of executors; a subclass names a `Placement` and describes its `Cluster`
session.py         hub, placer and cluster together, for as long as an executor is used; the protocol `Cluster`
placement.py       the placer, a process next to the driver that has the engine start agents; the protocol `Placement`
remote_workers.py  RemoteWorkers: the workers of all nodes, as the engine knows them (engine/workers_interface.py)
hub.py             the driver's side of the connections: agents call it, with a token
messages.py        messages between driver and agents
agent.py           the process on each node: local workers that obey the driver
agent_spec.py      what an agent is started with

Deciding and committing stay with the driver. Documents never go through the engine: workers read and write files that
all nodes see. An engine is imported in the placer and in the processes that it starts, nowhere else. A new one takes a
module with its `Cluster`, its `Placement` and its executor, a line in `_satellites.py`, and a line in
`backends/registry.py`; ray_cluster/ is an example.
"""
