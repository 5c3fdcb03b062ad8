"""One training in several processes of this host, each with a GPU of its own where there are any.

The task's process (`parent`) keeps the lease, the checkpoints and the progress. It starts the others (`rank`) and talks
with them through pipes and files without a name: nothing of the records is left behind, however a process ends.
"""
