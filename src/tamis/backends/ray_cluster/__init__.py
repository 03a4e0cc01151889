"""The common parts of the executors on Ray (ray_actor_pool, ray_data, xenna).

executor.py  RayExecutor: which cluster is used, and one of our own where there is none
head.py      that cluster: `ray start --head` on this machine; keeper.py is the process that ends all of it
nodes.py     nodes of a cluster and the agents on them, as seen by the placer
leases.py    turns of work, for engines that stream items through stages

Ray is imported in the placer (cluster/placement.py) and in the processes that Ray starts, never in the driver.
"""
