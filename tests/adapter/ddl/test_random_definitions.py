"""Random definitions, with names of all kinds, keep their meaning after renames and a restart."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from foreshore.sql.parse.keywords import quote_identifier
from tests.adapter.harness import TestEnvironment

RESERVED = "user order select table group values left".split()
MISPARSED = "alter of cube exclude qualify".split()
NAMES = [*RESERVED, *MISPARSED, *"a b t tas public name é A Or_der x$1 _y".split(), "Or der", 'q"q']


class Writer:
    """Writes statements over three tables, each with three columns of numbers."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        names = self.random.sample(NAMES, 14)
        self.schema = names[12]
        self.tables = {
            (("public" if i else self.schema), names[i]): names[3 + 3 * i : 6 + 3 * i]
            for i in range(3)
        }

    def word(self, name: str) -> str:
        """Return a name, quoted or, where that is possible, not."""
        quoted = '"' + name.replace('"', '""') + '"'
        return self.random.choice([quoted, quoted, quote_identifier(name)])

    def dotted(self, *names: str) -> str:
        return ".".join(map(self.word, names))

    def spaced(self, text: str) -> str:
        """Return `text` with blanks beside quotes left out, here and there."""
        pieces = text.split(" ")
        joined = pieces[0]
        for piece in pieces[1:]:
            is_clear = (joined[-1:] == '"') != (piece[:1] == '"')
            joined += ("" if is_clear and self.random.random() < 0.7 else " ") + piece
        return joined

    def column(self, table: tuple[str, str], depth: int) -> str:
        """Return a column by up to `depth` names before its own."""
        qualifier = ("foreshore", *table)[3 - self.random.randint(0, depth) :]
        return self.dotted(*qualifier, self.random.choice(self.tables[table]))

    def condition(self, table: tuple[str, str], depth: int) -> str:
        c = [self.column(table, depth) for _ in range(3)]
        return self.random.choice(
            [
                f"NOT {c[0]} < 0 AND {c[1]} >=0 OR {c[2]} IS NULL",
                f"1=1 AND {c[0]} BETWEEN {c[1]} AND {c[1]} OR {c[2]} IN (0,1,2)",
                f"CASE WHEN {c[0]} >0 THEN {c[1]} ELSE {c[2]} END <3",
            ]
        )

    def query(self) -> str:
        one, two = self.random.sample(sorted(self.tables), 2)
        c, d = self.column(one, 3), self.column(two, 3)
        a, b = self.dotted("foreshore", *one), self.dotted(*two)
        alias, own = self.word(self.random.choice(NAMES)), self.word(self.tables[two][0])
        return self.random.choice(
            [
                f"SELECT {c} AS x FROM {a} WHERE {self.condition(one, 3)}",
                f"SELECT * FROM {b} AS {alias} WHERE {alias}.{own} >0",
                f"TABLE {a}",
                f"SELECT {c} AS x,{d} AS y FROM {a} JOIN {b} ON {c} = {d}",
                f"SELECT {c} AS x,count( {self.dotted(*one)}.*) AS n FROM {a} GROUP BY {c}",
            ]
        )

    def made(self) -> list[str]:
        """Return the statements that make and fill tables, with indexes."""
        statements = [f"CREATE SCHEMA {self.word(self.schema)}"]
        for table, columns in self.tables.items():
            name = self.dotted(*table)
            checks = ", ".join(f"CHECK ({self.condition(table, 2)} )" for _ in range(2))
            defined = ", ".join(f"{self.word(column)} int" for column in columns)
            statements += [
                f"CREATE TABLE {name} ({defined}, {checks})",
                f"INSERT INTO {name} VALUES (1,1,1),(0,1,2),(2,1,0)",
                f"CREATE INDEX ON {name} (( {self.condition(table, 2)} ),{self.column(table, 0)})",
            ]
        return statements

    def renames(self) -> list[str]:
        """Return statements that rename tables, columns and a schema, and do so to `tables`."""
        statements = []
        now: dict[tuple[str, str], list[str]] = {}
        for (schema, name), columns in self.tables.items():
            taken = {*columns, *(table[1] for table in (*self.tables, *now))}
            new, column = self.random.sample(sorted({*NAMES} - taken), 2)
            table = self.dotted(schema, name)
            statements += [
                f"ALTER TABLE {table} RENAME {self.word(columns[0])} TO {self.word(column)}",
                f"ALTER TABLE {table} RENAME TO {self.word(new)}",
            ]
            now[schema, new] = [column, *columns[1:]]
        then, self.schema = self.schema, f"{self.schema}'s"
        statements.append(f"ALTER SCHEMA {self.word(then)} RENAME TO {self.word(self.schema)}")
        self.tables = {
            (self.schema if schema == then else schema, name): columns
            for (schema, name), columns in now.items()
        }
        return statements


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2))]
)
def test_definitions_are_unchanged_after_renames_and_restart(tmp_path: Path, seed: int) -> None:
    writer = Writer(seed)
    views = [f"V{i}" for i in range(8)]

    async def seen(env: TestEnvironment) -> list[str]:
        found = [
            "\n".join(sorted((await env.query("a", f'TABLE "{view}"')).splitlines()))
            for view in views
        ]
        for table in writer.tables:
            name = ".".join(map(quote_identifier, table))
            for row in ("-1,1,1", "1,-1,5", "4,4,4", "3,-1,3", "1,3,-1"):
                answer = await env.query("a", f"INSERT INTO {name} VALUES ({row})")
                found.append(answer[:11])
                assert answer.startswith(("INSERT", "ERROR 23514")), answer
                await env.query("a", f"DELETE FROM {name}; INSERT INTO {name} VALUES (1,1,1)")
        return found

    async def play() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()

        async def done(statements: list[str]) -> None:
            for sql in statements:
                written = writer.spaced(sql)
                answer = await env.query("a", written)
                assert "ERROR" not in answer, (written, answer)

        await done(writer.made())
        await done([f'CREATE VIEW "{view}" AS {writer.query()}' for view in views])
        filled = [await env.query("a", f'TABLE "{view}"') for view in views]
        assert not any("ERROR" in each for each in filled), filled
        await seen(env)
        before = await seen(env)
        await done(writer.renames())
        assert await seen(env) == before
        await env.reopen()
        assert await seen(env) == before
        await done(writer.renames())
        assert await seen(env) == before
        await env.close()

    asyncio.run(play())
