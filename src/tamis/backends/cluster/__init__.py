"""Runs on several machines: an agent on each runs workers as the local executor does; deciding and committing stay with the driver.

messages.py    what driver and agents say to each other
hub.py         the driver's side: a socket that agents call, with a token
agent.py       the process on each node: local workers that do what the driver says
remote_workers.py  RemoteWorkers: all those workers, as the engine knows them (engine/workers_interface.py)
placer.py      a process beside the driver that talks to Ray and has it start agents; placing/ has one file for each way to do that
head.py        a Ray cluster of our own on this machine, which ends with whoever started it
session.py     hub, placer and cluster together, for as long as an executor is used

Documents never go through Ray: workers read and write files that all nodes see. Ray is imported in the placer and in what it starts, nowhere
else.
"""
