"""Key indexes are built when a statement needs them, or when nothing more urgent is to be done."""

import asyncio

import pyarrow as pa
import pytest

from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.key_indexes import KeyIndexes
from foreshore.constraint import Unique
from foreshore.errors import DatabaseError, UndefinedObject
from foreshore.storage.corruption import Corruptions
from foreshore.storage.external import retries
from tests.compute.keys.test_key_index import DESC, T, table
from tests.logged import logged_by


@pytest.mark.parametrize("by", ["a statement", "quiet"])
def test_keys_are_built_once_they_are_needed_or_it_is_quiet(by: str) -> None:
    read = []

    async def work() -> None:
        keys = KeyIndexes(lambda _: 0, Corruptions())
        is_quiet = asyncio.Event()

        async def quiet() -> None:
            await is_quiet.wait()

        async def rows() -> pa.Table:
            read.append(by)
            return table([((1, "x", 2), 1)]).table

        constraint = Unique("key", (0, 1))
        index = KeyIndex(T, constraint, DESC, 5)
        building = asyncio.create_task(keys.build([index], rows, lambda: 7, quiet))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not read
        assert T in keys._building
        if by == "quiet":
            is_quiet.set()
        else:
            await keys.ready(T)
            assert keys.of(T) == {"key": index}
        await building
        assert read == [by]
        assert keys.of(T) == {"key": index}
        assert index.readable(5)
        assert index.readable(7)
        keys.close()

    asyncio.run(work())


@pytest.mark.parametrize("when", ["before", "while"])
def test_keys_of_a_table_that_is_dropped_are_not_built(
    when: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its rows cannot be read any more, which is no error."""

    async def work() -> None:
        keys = KeyIndexes(lambda _: 0, Corruptions())

        async def quiet() -> None:
            if when == "before":
                await asyncio.Event().wait()

        async def rows() -> pa.Table:
            keys.drop(T)
            raise UndefinedObject("the shard does not exist")

        index = KeyIndex(T, Unique("key", (0, 1)), DESC, 5)
        building = asyncio.create_task(keys.build([index], rows, lambda: 7, quiet))
        await asyncio.sleep(0)
        if when == "before":
            keys.drop(T)
        await building
        await keys.ready(T)
        assert keys.of(T) == {}
        keys.close()

    asyncio.run(work())
    assert not logged_by(caplog, "foreshore")


def test_build_that_fails_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A statement that needs the keys fails with the error of the build; the next one waits again."""
    tries: list[Exception | None] = [MemoryError("no room"), OSError("no file"), None]

    async def work() -> None:
        keys = KeyIndexes(lambda _: 0, Corruptions())

        async def quiet() -> None:
            await asyncio.Event().wait()

        async def rows() -> pa.Table:
            if (error := tries.pop(0)) is not None:
                raise error
            return table([((1, "x", 2), 1)]).table

        index = KeyIndex(T, Unique("key", (0, 1)), DESC, 5)
        building = asyncio.create_task(keys.build([index], rows, lambda: 7, quiet))
        for text in ("no room", "no file"):
            with pytest.raises(DatabaseError, match=text):
                await keys.ready(T)
        await keys.ready(T)
        await building
        assert keys.of(T) == {"key": index}
        keys.close()

    asyncio.run(work())
    assert len(logged_by(caplog, "foreshore")) == 2


def test_build_that_nobody_waits_for_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FIRST_WAIT_SECONDS", 0.001)
    tries: list[Exception | None] = [OSError("no file"), OSError("no file"), None]

    async def work() -> None:
        keys = KeyIndexes(lambda _: 0, Corruptions())

        async def rows() -> pa.Table:
            if (error := tries.pop(0)) is not None:
                raise error
            return table([((1, "x", 2), 1)]).table

        async def quiet() -> None:
            """Views have resumed already."""

        index = KeyIndex(T, Unique("key", (0, 1)), DESC, 5)
        await keys.build([index], rows, lambda: 7, quiet)
        assert keys.of(T) == {"key": index}
        keys.close()

    asyncio.run(work())
