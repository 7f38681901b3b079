"""Export: the changes of a shard are written to an external system, each once.

    environment                                export process, one for each cluster with sinks
    ExportController ◄── Resumes(frontier) ────  Sink ── Exporter.resume()
       reads the shard ── Changes + tables ───►         Exporter.write(rows, upper)
       (from the frontier on)  ◄── Exported ───         (rows and frontier in one transaction)

The external system keeps the *frontier*: it has all changes before it. The exporter writes it in
the transaction of the rows, so whatever ends in between, each change is there once. The database
keeps a frontier of its own that may be behind, and holds the history from there on.
"""
