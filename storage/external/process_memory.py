"""The limit of the memory of a process that reaches external systems.

What they send may take any amount: a file of a few kilobytes may have gigabytes of values, and a
message any length. An allocation beyond the limit fails, and with it one source, sink or request.
"""

import os

import pyarrow as pa

from foreshore.errors import OutOfMemory
from foreshore.memory import give_back, limit_more, physical_bytes

VARIABLE = "FORESHORE_CONNECTOR_MEMORY"  # in megabytes
SHARE = 4  # of the machine's memory, a part of which each process may take
LEAST_MEGABYTES = 1024


def default_megabytes(machine: int) -> int:
    """Return the limit for a machine with so many bytes of memory."""
    return max(LEAST_MEGABYTES, (machine >> 20) // SHARE)


def limit_memory() -> None:
    """Let allocations of this process fail beyond its limit.

    Arrow takes memory from the system's allocator, as others keep what they have reserved.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    given = os.environ.get(VARIABLE)
    megabytes = default_megabytes(physical_bytes()) if given is None else int(given)
    limit_more(megabytes << 20)


def out_of_memory() -> OutOfMemory:
    """Return the error for a MemoryError, after what was freed is given back to the system."""
    give_back()
    return OutOfMemory(
        "The process of sources or sinks needs more memory than it may take.",
        "The server's option --connector-memory sets the limit.",
    )
