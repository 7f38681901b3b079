"""Numbers of 200,000 digits, wherever a statement can hold one, fail as a user's error, at once."""

import pytest

from tests.harness import Server
from tests.loop_guard import is_slow
from tests.sqllogic.runner import Database, Failed

DIGITS = "1" * 200_000
LIMIT_S = 1.0  # of the processor
STATEMENTS = {
    "SELECT @": "22003",
    "SELECT -@": "22003",
    "SELECT 0.@": "22003",
    "SELECT @::float8": "22003",
    "SELECT 1 LIMIT @": "22003",
    "SELECT 1 OFFSET @": "22003",
    "SELECT 1 ORDER BY @": "42601",
    "SELECT 1 GROUP BY @": "42601",
    "SELECT 'a'::varchar(@)": "42601",
    "SELECT $@": "42P02",
    "SELECT (ARRAY[1])[@]": "22003",
    "SELECT '@'::int": "22003",
    "SELECT '@'::numeric": "22003",
    "SELECT '[@:2]={1}'::int[]": "22P02",
    "SELECT '@ days'::interval": "22007",
    "SELECT '1:@'::interval": "22007",
    "SELECT '@'::date": "22007",
    "SELECT '1:2:3.@'::time": "22007",
    "SELECT '2020-01-01 00:00:00+@'::timestamptz": "22007",
    "SELECT format('%@s', 1)": "22003",
    "SELECT 'a' ~ 'a{@}'": "2201B",
    "CREATE SEQUENCE s START @": "22003",
    "SET statement_timeout = @": "22023",
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_number_of_very_many_digits_is_refused_at_once(statement: str, server: Server) -> None:
    database = Database(server.url, is_foreshore=True)
    try:
        database.run("SELECT 1")
        before = server.processor_seconds()
        with pytest.raises(Failed) as failed:
            database.run(statement.replace("@", DIGITS))
        took = server.processor_seconds() - before
    finally:
        database.close()
    assert failed.value.sqlstate == STATEMENTS[statement]
    assert not is_slow(took, LIMIT_S), took
