"""The limit of the memory of a process that reaches external systems.

What they send may take any amount: a file of a few kilobytes may have gigabytes of values, and a
message any length. An allocation beyond the limit fails, and with it one source, sink or request.
"""

import os

import pyarrow as pa

from foreshore.errors import OutOfMemory
from foreshore.memory import give_back, limit_more, physical_bytes
from foreshore.memory_shares import of_connectors

VARIABLE = "FORESHORE_CONNECTOR_MEMORY"  # in megabytes


def limit_memory() -> None:
    """Let allocations of this process fail beyond its limit.

    Arrow takes memory from the system's allocator, as others keep what they have reserved.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    given = os.environ.get(VARIABLE)
    megabytes = of_connectors(physical_bytes()) if given is None else int(given)
    limit_more(megabytes << 20)


def out_of_memory() -> OutOfMemory:
    """Return the error for a MemoryError, after what was freed is given back to the system."""
    give_back()
    return OutOfMemory(
        "The process of sources or sinks needs more memory than it may take.",
        "The server's option --connector-memory sets the limit.",
    )
