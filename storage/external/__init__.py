"""External systems: how sources and sinks alike reach them, and the processes that do.

environment                                     a process for each cluster
ClusterProcesses ── commands ──────────────────► Serving, a task for each source or sink
answer_to ── a request ──► a process of its own ── an answer
"""
