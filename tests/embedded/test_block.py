"""The end of a block, by the tag that the server answers COMMIT with."""

import asyncio
from typing import Any

import pytest

from foreshore.embedded.block import Block
from foreshore.errors import DatabaseError


class Answering:
    """A connection whose server answers COMMIT with a tag."""

    def __init__(self, tag: str) -> None:
        self.tag = tag

    async def execute(self, statement: str) -> str:
        return self.tag if statement == "COMMIT" else statement

    def is_closed(self) -> bool:
        return False


def block_of(tag: str) -> Block:
    connection: Any = Answering(tag)
    return Block(connection, is_savepoint=False)


def test_commit_that_rolls_back_is_an_error() -> None:
    asyncio.run(block_of("COMMIT").end(commit=True))
    with pytest.raises(DatabaseError, match="was rolled back") as caught:
        asyncio.run(block_of("ROLLBACK").end(commit=True))
    assert caught.value.sqlstate == "25P02"
    asyncio.run(block_of("ROLLBACK").end(commit=False))  # as asked
