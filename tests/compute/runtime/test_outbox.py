"""Large tables reach a replica of the same machine through files, in order with all else."""

import asyncio
import gc
import socket
from pathlib import Path

import pyarrow as pa
import pytest

from foreshore.compute.protocol import Command, Feed
from foreshore.ids import GlobalId
from foreshore.processes import outbox
from foreshore.processes.messages import Message
from foreshore.processes.outbox import Outbox, take
from foreshore.processes.transport import Connection, Tables, encode_frame

ROWS = outbox.LARGE // 8 + 1
U1 = GlobalId("u1")


def feed(time: int) -> Feed:
    return Feed(((U1, time, time + 1, True),))


async def sent(
    messages: list[tuple[Message, Tables]], directory: Path
) -> list[tuple[Message, Tables]]:
    """Return what arrives when these are sent at once."""
    got: list[tuple[Message, Tables]] = []
    done = asyncio.Event()

    def deliver(_: object, message: Command, tables: Tables) -> None:
        got.append((message, tables))
        if len(got) == len(messages):
            done.set()

    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    one: Connection[Command] = Connection(Command, lambda *_: None, lambda _: None)
    other: Connection[Command] = Connection(Command, deliver, lambda _: done.set())
    other._files = directory
    await loop.connect_accepted_socket(lambda: other, theirs)
    await loop.create_connection(lambda: one, sock=ours)
    one.outbox = Outbox(directory)
    for message, tables in messages:
        one.send(message, tables)
    await done.wait()
    one.abort()
    other.abort()
    return got


def test_large_tables_arrive_in_order_and_leave_no_file(tmp_path: Path) -> None:
    small, large = pa.table({"a": [1]}), pa.table({"a": pa.array(range(ROWS), pa.int64())})
    messages: list[tuple[Message, Tables]] = [
        (feed(0), (small,)),
        (feed(1), (large, small)),
        (feed(2), (small,)),
        (feed(3), (large,)),
        (feed(4), ()),
    ]
    got = asyncio.run(sent(messages, tmp_path))
    assert got == messages
    assert len(list(tmp_path.iterdir())) == 1  # written once, mapped by nobody any more
    del messages, large
    gc.collect()
    assert not list(tmp_path.iterdir())
    assert got[1][1][0].num_rows == ROWS  # what was mapped stays


def test_a_table_in_a_file_is_a_few_bytes_of_the_frame(tmp_path: Path) -> None:
    large = pa.table({"a": pa.array(range(ROWS), pa.int64())})
    name = Outbox(tmp_path).put(large)
    assert name is not None
    assert sum(len(part) for part in encode_frame(feed(1), [large], {0: name})) < 200
    assert take(tmp_path, name) == large


@pytest.mark.parametrize("name", ["../sent-1.arrow", "sent-/../../x", "table-0.arrow", "sent-\0"])
def test_names_of_other_files_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="no file of a table"):
        take(tmp_path, name)
