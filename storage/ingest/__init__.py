"""Ingestion: what sources read from outside becomes updates of shards, each once.

    environment                              ingestion process, one for each cluster with sources
    IngestController ── StartSource ───────► Worker ── Connector.run(position)
       commit(batch) ◄── Ingested + tables ──┘  reads the external system, makes rows
       (rows and position in one append) ── Committed ──► and may let it forget what was read

A *position* says how far a source has read each *part* of the external system: a partition's next
offset, a log's position. The rows of a batch and the position after it are written in one append at
one time, so the shard of the position is the durable map from external positions to times. A
process that starts goes on from the position there. A batch that begins at another position than
the one that is durable is refused: a process that was thought dead cannot write twice.
"""
