"""Errors of the arguments of EXECUTE say where the argument is, as PostgreSQL 15's do."""

import pytest

from foreshore.errors import DatabaseError
from tests.adapter.harness import TestEnvironment


@pytest.mark.parametrize(
    ("type", "call", "sqlstate", "at"),
    [
        ("int[]", "EXECUTE p('{nope}')", "22P02", "'{nope}'"),
        ("int", "EXECUTE   p  ('y')", "22P02", "'y'"),
        ("date", "EXECUTE p('2020-13-01')", "22008", "'2020-13-01'"),
        ("date", "EXECUTE p(1)", "42804", "1)"),
        ("int", "EXECUTE p('a' || 'b')", "42804", "'a'"),
        ("int2", "EXECUTE p('100000')", "22003", "'100000'"),
        ("jsonb", "EXECUTE p('{')", "22P02", "'{'"),
        # those of an evaluation have no place
        ("int2", "EXECUTE p(100000)", "22003", None),
        ("int", "EXECUTE p(1 / 0)", "22012", None),
    ],
)
async def test_error_of_an_argument_has_its_position(
    env: TestEnvironment, type: str, call: str, sqlstate: str, at: str | None
) -> None:
    session = await env.session("a")
    await env.ran("a", "DEALLOCATE ALL", f"PREPARE p({type}) AS SELECT $1")
    with pytest.raises(DatabaseError) as error:
        async for _ in session.simple(call):
            pass
    await session.fail(error.value)
    place = None if at is None else call.index(at) + 1
    assert (error.value.sqlstate, error.value.position) == (sqlstate, place)
