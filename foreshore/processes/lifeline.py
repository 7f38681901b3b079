"""The lifeline: a pipe through which a process notices that its parent has ended.

The parent holds the writing end of a pipe that is the child's standard input, and writes nothing.
When the parent ends, even by SIGKILL, the operating system closes that end, and the child reads the
end of the file. This needs no signal or process id, and works on every Unix.

A program that does not read its standard input is tied to its parent by `tied_process.py`.
"""

import asyncio
import sys


async def standard_input_ends() -> None:
    """Return at the end of standard input, which must be a pipe or a socket."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(4096):
        pass
