"""Short statements that compute long: by widths, digits, exponents, patterns and paths."""

import asyncio
from contextlib import suppress
from random import Random

import asyncpg

from tests.hostile.kinds.registry import Target, kind

PATIENCE_S = 3.0
_DEEP = "[" * 200 + "]" * 200
_CONSTANTS = ", ".join(f"lpad('x', {40_000 + i})" for i in range(25))
_SOURCE = "def f(): return " + "'a'*4000+" * 700 + "''"

STATEMENTS = {
    "format": "SELECT length(format('%1000000s', 'x'))",
    "lpad": "SELECT length(lpad('x', 10000000))",
    "repeat": "SELECT length(repeat('x', 10000000))",
    "exp": "SELECT exp(5999.5)",
    "ln": f"SELECT ln({'9' * 480}.5)",
    "factorial": "SELECT factorial(32177)",
    "power": "SELECT power(7.3, 100000)",
    "power of a fraction": "SELECT power(('0.' || repeat('0', 400) || '7')::numeric, 1.5)",
    "long numbers": "SELECT ('1e130000'::numeric + 1) * ('1e1000'::numeric + 1) % 7",
    "array of long numbers": "SELECT '{" + ",".join(["1e130000"] * 40) + "}'::numeric[]",
    "counted pattern": "SELECT repeat('b', 400) ~ '(a{0,200}){0,50}'",
    "path": f"SELECT jsonb_path_query_array('{_DEEP}', '${'.**' * 50}')",
    "series of times": "SELECT count(*) FROM generate_series(now(), '-infinity', '-1 day')",
    "many constants": f"SELECT {_CONSTANTS}",
    "to_char": f"SELECT to_char(1e100000, '{'9' * 400}')",
    "CREATE FUNCTION": f"CREATE FUNCTION f() RETURNS text LANGUAGE python AS $${_SOURCE}$$",
}


def _register(name: str, sql: str) -> None:
    @kind(f"functions: {name}")
    async def attack(target: Target, chance: Random) -> None:
        with suppress(asyncpg.PostgresError, OSError, TimeoutError):
            connection = await asyncpg.connect(target.url, timeout=PATIENCE_S)
            try:
                await asyncio.wait_for(connection.execute(sql), PATIENCE_S)
            finally:
                connection.terminate()


for _name, _sql in STATEMENTS.items():
    _register(_name, _sql)
