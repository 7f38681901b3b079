"""A lifeline: how a process learns that the one that started it is gone, however it went.

The parent holds the writing end of a pipe that is the child's standard input, and never writes.
When the parent ends, be it by SIGKILL, the operating system closes that end and the child reads the
end of the file. No signal has to arrive, no process id is compared, and it works on every Unix.
"""

import asyncio
import sys


async def standard_input_ends() -> None:
    """Return when standard input, which has to be a pipe or a socket, has come to its end."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(4096):
        pass
