"""Who may take how much memory by default: one table, of the shares that are spread over processes.

Of `--query-memory` (Q, 256 MB), which the server has, and each replica:

    Q / 2                a query alone; the n-th has one of n + 1 parts (query_memory.py)
    Q / 2                what can be on disk, of all queries together
    Q, at least 512 MB   DuckDB in the server, for all of its queries, and in a process apart
                         (`of_engine`); it spills
    4 Q, at least 1 GB   a process apart as a whole; the server has so many: `APART`

Of the machine's memory, or its cgroup's (M):

    80 %                 a replica (`of_replica`), as MEMORY LIMIT of its cluster
    a half of that       DuckDB in it, for its queries and hydrations: at most 2 GB (`of_bulk`)
    a quarter            a process of sources or sinks, at least 1 GB (`of_connectors`)

Fixed: a process of functions in Python has `--python-function-memory`, their compiler 512 MB. What
a session keeps, or leaves on disk, is bounded by settings (docs/security.md, What is bounded).
"""

MB, GB = 1 << 20, 1 << 30
QUERIES = 256 * MB  # --query-memory
APART = 4  # processes apart at once
MOST_BULK = 2 * 10**9


def of_engine(queries: int) -> int:
    """Return the bytes of DuckDB in the server, or in a process apart; it spills what is more."""
    return max(queries, 512 * MB)


def of_process_apart(queries: int) -> int:
    """Return the bytes that an evaluation in a process apart may take in all."""
    return max(4 * queries, GB)


def of_replica(machine: int) -> int:
    """Return the bytes of a replica that was given no limit, in whole MB."""
    return int(0.8 * machine) // 10**6 * 10**6


def of_bulk(replica: int | None) -> int:
    """Return the bytes of DuckDB in a replica with this limit, None if it has none."""
    return MOST_BULK if replica is None else min(MOST_BULK, replica // 2)


def of_connectors(machine: int) -> int:
    """Return the megabytes of a process of sources or sinks."""
    return max(GB, machine // 4) // MB
