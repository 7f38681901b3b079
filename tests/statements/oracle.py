"""Random statements, run side by side by rows, by columns and by PostgreSQL.

Of one seed come the tables, some statements over them, and how each is sent: as a text, prepared,
or with others in a pipeline. All servers get the same bytes, one after the other, so that what they
answer, and in the end their tables, are equal.
"""

import asyncio
import os
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol
from unittest.mock import patch
from urllib.parse import urlsplit

from foreshore.adapter.plans.prepared import Programs
from foreshore.adapter.plans.row_read import RowRead
from tests.adapter.harness import TestEnvironment
from tests.memory_client import SYNC, MemoryClient, bind, execute, frame, parse, query
from tests.statements.changes import Changes
from tests.statements.compare_answers import Answer, answers, difference
from tests.statements.schema import Schema
from tests.statements.values import RUNS, Statement, encoded

DESCRIBE = frame(b"D", b"P\0")
SETTINGS = (
    "SET client_min_messages = error",
    "SET timezone = 'UTC'",
    "SET statement_timeout = '60s'",
)


class Server(Protocol):
    """Something that answers the bytes of a client."""

    name: str

    async def send(self, data: bytes) -> bytes:
        """Return what is answered up to ReadyForQuery."""


class Postgres:
    """A session of PostgreSQL."""

    name = "postgresql"

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, url: str) -> "Postgres":
        """Return a session at an address whose server trusts it."""
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        found = cls(reader, writer)
        user, name = parts.username or "", parts.path[1:]
        body = struct.pack("!i", 196608) + f"user\0{user}\0database\0{name}\0\0".encode()
        await found.send(struct.pack("!i", len(body) + 4) + body)
        return found

    async def send(self, data: bytes) -> bytes:
        """Return what is answered up to ReadyForQuery."""
        self._writer.write(data)
        answer = bytearray()
        while True:
            head = await self._reader.readexactly(5)
            body = await self._reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)
            if head[0] == ord("R"):
                continue
            if head[0] not in b"KS":
                answer += head + body
            if head.startswith(b"Z"):
                return bytes(answer)

    async def close(self) -> None:
        """End the session."""
        self._writer.close()


class Foreshore:
    """A session in an environment in this process."""

    def __init__(self, name: str, client: MemoryClient) -> None:
        self.name, self._client = name, client

    @classmethod
    async def connect(cls, env: TestEnvironment, *, by_columns: bool) -> "Foreshore":
        """Return a session whose plans are compiled to programs over rows, or never are."""
        session = await env.session("random")
        if by_columns:
            session.planner._compile = lambda *_: Programs()  # type: ignore[method-assign]
        return cls("columns" if by_columns else "rows", await MemoryClient.connect(session))

    async def send(self, data: bytes) -> bytes:
        """Return what is answered up to ReadyForQuery."""
        return await self._client.send(data)

    async def close(self) -> None:
        """End the session."""
        await self._client.close()


@dataclass(frozen=True, slots=True)
class Found:
    """A difference."""

    seed: int
    number: int  # of the statement
    kind: str
    between: tuple[str, str]
    sql: str
    how: str
    answers: tuple[str, str]

    def __str__(self) -> str:
        a, b = self.between
        return (
            f"seed {self.seed} statement {self.number} [{self.kind}, {self.how}]\n  {self.sql}\n"
            f"  {a}: {self.answers[0][:1500]}\n  {b}: {self.answers[1][:1500]}\n"
        )


@dataclass
class Count:
    """What was run, and what differed."""

    statements: int = 0
    executions: int = 0
    failed: int = 0
    by_rows: int = 0  # answers of programs over rows
    gave_up: int = 0  # runs of such programs that left the answer to columns
    codes: Counter[str] = field(default_factory=Counter)
    found: list[Found] = field(default_factory=list)


class Round:
    """The statements of one seed on several servers."""

    def __init__(self, seed: int, servers: Sequence[Any], count: Count) -> None:
        self.seed, self.servers, self.count = seed, servers, count
        self.random = Random(seed)
        self.schema = Schema(self.random, is_large=seed % 4 == 3)
        self.schema.make()
        self.number = 0
        self.diverged = False
        self.named: dict[str, Statement] = {}
        self.status = "I"  # of the transaction, as the first server says

    async def prepare(self) -> None:
        """Make the tables on all servers."""
        for server in self.servers:
            ours = server.name != "postgresql"
            name = f"random_statements_{os.getpid()}"
            for sql in (
                "ROLLBACK",
                "DEALLOCATE ALL",
                *SETTINGS,
                *(() if ours else ("SET plan_cache_mode = force_custom_plan",)),
                f"DROP SCHEMA IF EXISTS {name} CASCADE",
                f"CREATE SCHEMA {name}",
                f"SET search_path = {name}",
                *self.schema.statements(ours=ours),
            ):
                (answer,) = answers(await server.send(query(sql)))
                assert answer.error is None, (self.seed, server.name, sql[:3000], answer.error)

    async def run(self, statements: int) -> None:
        """Run so many statements."""
        await self.prepare()
        for _ in range(statements):
            if self.diverged:
                break
            await self._step()
        if not self.diverged:
            await self._ask("ROLLBACK")
            for table in self.schema.tables:
                await self._text(Statement(f"SELECT * FROM {table.name}", ()), 0)

    async def _ask(self, sql: str) -> None:
        await self._text(Statement(sql, (), "none", changes=True), 0)

    @property
    def _maker(self) -> Changes:
        return Changes(self.random, self.schema)

    def _next(self) -> Statement:
        chance = self.random.random()
        return self._maker.change() if chance < 0.3 else self._maker.query()

    async def _step(self) -> None:
        """Run some statements in one of the ways in which clients send them."""
        chance = self.random.random()
        if self.status == "E" and chance < 0.7:
            await self._ask(self.random.choice(("ROLLBACK", "ROLLBACK TO a")))
        elif self.status == "T" and chance < 0.25:
            words = (
                "SAVEPOINT a",
                "SAVEPOINT a",
                "ROLLBACK TO a",
                "RELEASE a",
                "COMMIT",
                "ROLLBACK",
            )
            await self._ask(self.random.choice(words))
        elif self.status == "I" and chance < 0.08:
            await self._ask("BEGIN")
        elif chance < 0.09:
            zone = self.random.choice(("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"))
            await self._ask(f"SET timezone = '{zone}'")
        elif chance < 0.27:
            await self._pipeline([self._next() for _ in range(self.random.randint(2, 4))])
        elif chance < 0.31:
            await self._many(self._maker.many())
        elif chance < 0.34:
            await self._in_parts(self._maker.query())
        elif chance < 0.42:
            await self._named()
        elif chance < 0.43 and self.status == "I":
            await self._text(self._maker.definition(), 0)
        elif chance < 0.45:
            await self._each(self._maker.catalog())
        elif chance < 0.48:
            await self._texts([self._next() for _ in range(self.random.randint(2, 3))])
        elif chance < 0.5:
            await self._cursor(self._maker.query())
        elif chance < 0.52:
            await self._by_name(self._maker.query())
        elif chance < 0.54:
            await self._wrong(self._next())
        else:
            await self._each(self._next())

    async def _each(self, statement: Statement) -> None:
        """Run a query in each way, or a change in one."""
        self._count(1)
        if statement.changes:
            await (self._text if self.random.random() < 0.5 else self._prepared)(statement, 0)
        else:
            await self._text(statement, 0)
            await self._prepared(statement, 0)
            await self._prepared(statement, 1)
            await self._text(statement, 2)

    def _count(self, statements: int) -> None:
        self.count.statements += statements
        self.number += statements

    async def _named(self) -> None:
        """Run one of the statements that are prepared under names."""
        name = self.random.choice("pqrst")
        self._count(1)
        if name not in self.named or self.random.random() < 0.25:
            statement = self._next()
            self.named[name] = statement
            data = frame(b"C", b"S" + name.encode() + b"\0") + parse(name, statement.prepared())
            await self._compare(
                data + SYNC, [statement.prepared()], ["none"], f"parse {name}", statement
            )
        statement = self.named[name]
        for _ in range(2):
            args = statement.some_args(self.random)
            await self._compare(
                self._bound(name, args) + DESCRIBE + execute() + SYNC,
                [statement.prepared()],
                [statement.order],
                f"named {name} {args}",
                statement,
            )

    @staticmethod
    def _bound(name: str, args: Sequence[str | None]) -> bytes:
        return bind(name, [None if each is None else each.encode() for each in args])

    async def _many(self, statement: Statement) -> None:
        """Run a change with many arguments, as `executemany` of drivers does."""
        self._count(1)
        text = statement.prepared()
        count = self.random.choice((2, 25, 40))
        args = [statement.some_args(self.random) for _ in range(count)]
        described = frame(b"D", b"S\0")
        data = (
            parse("", text)
            + described
            + b"".join(self._bound("", each) + execute() for each in args)
        )
        texts = [f"{text} {each}" for each in args]
        await self._compare(data + SYNC, texts, ["none"] * count, "many", statement)

    async def _texts(self, statements: Sequence[Statement]) -> None:
        """Run several statements as one text."""
        self._count(len(statements))
        texts = [each.literal(0) for each in statements]
        orders = [each.order for each in statements]
        of = next((each for each in statements if each.changes), statements[0])
        await self._compare(query("; ".join(texts)), texts, orders, "texts", of)

    async def _cursor(self, statement: Statement) -> None:
        """Fetch the rows of a query by a cursor; all if nothing says which come first."""
        if "FOR " in statement.text:
            return
        self._count(1)
        step = "FETCH 2 FROM c" if statement.order == "total" else "FETCH ALL FROM c"
        declared = f"DECLARE c CURSOR FOR {statement.literal(0)}"
        texts = ["BEGIN", declared, step, step, "CLOSE c", "COMMIT"]
        if self.status == "T":
            texts = texts[1:-1]
        await self._compare(
            query("; ".join(texts)), texts, [statement.order] * len(texts), "cursor", statement
        )

    async def _by_name(self, statement: Statement) -> None:
        """Run PREPARE and EXECUTE."""
        self._count(1)
        texts = [f"PREPARE x AS {statement.prepared()}"]
        for _ in range(2):
            args = ", ".join(
                "NULL" if each is None else "'" + each.replace("'", "''") + "'"
                for each in statement.some_args(self.random)
            )
            texts.append(f"EXECUTE x({args})" if args else "EXECUTE x")
        texts.append("DEALLOCATE x")
        for text in texts:
            await self._compare(query(text), [text], [statement.order], "execute", statement)

    async def _wrong(self, statement: Statement) -> None:
        """Run a statement with types of parameters, or arguments, that need not suit it."""
        self._count(1)
        text, args, oids = statement.prepared(), statement.args(0), statement.oids()
        if self.random.random() < 0.5:
            oids = [self.random.choice((0, 20, 23, 25, 1700, 1043)) for _ in oids]
        else:
            oids = []
            args = [self.random.choice((each, each, each, "x", "1", "")) for each in args]
        data = parse("", text, oids) + self._bound("", args) + DESCRIBE + execute() + SYNC
        await self._compare(data, [text], [statement.order], f"wrong {oids} {args}", statement)

    async def _in_parts(self, statement: Statement) -> None:
        """Run a query whose rows are fetched in two parts."""
        self._count(1)
        args = statement.some_args(self.random)
        text = statement.prepared()
        data = parse("", text) + self._bound("", args) + DESCRIBE + execute(2) + execute() + SYNC
        await self._compare(data, [text], [statement.order], f"in parts {args}", statement)

    async def _text(self, statement: Statement, run: int) -> None:
        sql = statement.literal(run)
        await self._compare(query(sql), [sql], [statement.order], "text", statement)

    def _messages(self, statement: Statement, run: int, *, binary: bool = False) -> bytes:
        is_typed = self.random.random() < 0.4
        pairs = zip(statement.types(), statement.args(run), strict=True)
        sent = [encoded(*each, binary=is_typed and binary) for each in pairs]
        args, formats = [each for each, _ in sent], [each for _, each in sent]
        bound = bind("", args, formats, results=[1] if binary else [])
        oids = statement.oids() if is_typed else []
        return parse("", statement.prepared(), oids) + bound + DESCRIBE + execute()

    async def _prepared(self, statement: Statement, run: int) -> None:
        binary = self.random.random() < 0.2
        data = self._messages(statement, run, binary=binary) + SYNC
        how = f"prepared {statement.args(run)}{' binary' if binary else ''}"
        await self._compare(data, [statement.prepared()], [statement.order], how, statement)

    async def _pipeline(self, statements: Sequence[Statement]) -> None:
        self._count(len(statements))
        run = self.random.randrange(RUNS)
        data = b"".join(self._messages(each, run) for each in statements) + SYNC
        texts = [f"{each.prepared()} {each.args(run)}" for each in statements]
        orders = [each.order for each in statements]
        changing = next((each for each in statements if each.changes), statements[0])
        await self._compare(data, texts, orders, "pipeline", changing)

    async def _compare(
        self, data: bytes, texts: Sequence[str], orders: Sequence[str], how: str, of: Statement
    ) -> None:
        """Send bytes to all servers, and compare what they answer."""
        self.count.executions += len(texts)
        received = await asyncio.gather(
            *(self._sent(server, data, texts) for server in self.servers)
        )
        self.status = chr(received[0][-1])
        told = [answers(each) for each in received]
        for each in told[0]:
            if each.error:
                self.count.failed += 1
                self.count.codes[each.error[0]] += 1
        pairs = [(0, 1)]
        if len(told) > 2 and not of.is_of_catalog:
            pairs.append((0, 2))
        for i, j in pairs:
            if self._note(i, j, told, texts, orders, how):
                for server in self.servers:  # some may be in a failed block
                    await server.send(query("ROLLBACK"))
                if of.changes and self.count.found[-1].kind not in ("sqlstate", "message"):
                    self.diverged = True
                break

    async def _sent(self, server: Server, data: bytes, texts: Sequence[str]) -> bytes:
        try:
            return await server.send(data)
        except TimeoutError as error:
            raise AssertionError(f"{self.seed}: {server.name} does not answer {texts}") from error

    def _note(
        self,
        i: int,
        j: int,
        told: Sequence[Sequence[Answer]],
        texts: Sequence[str],
        orders: Sequence[str],
        how: str,
    ) -> bool:
        names = self.servers[i].name, self.servers[j].name
        for at in range(max(len(told[i]), len(told[j]))):
            if at >= min(len(told[i]), len(told[j])):
                kind, shown = "answers", (str(len(told[i])), str(len(told[j])))
            else:
                a, b = told[i][at], told[j][at]
                kind = difference(
                    a,
                    b,
                    orders[min(at, len(orders) - 1)],
                    same="postgresql" not in names,
                    wrong=how.startswith("wrong"),
                )
                shown = str(a), str(b)
            if kind:
                text = texts[min(at, len(texts) - 1)]
                if len(texts) > 1:
                    text = " ;; ".join(texts[: at + 1])
                found = Found(self.seed, self.number, kind, names, text, how, shown)
                last = self.count.found[-1] if self.count.found else None
                if last is None or (last.seed, last.number, last.kind) != (
                    self.seed,
                    self.number,
                    kind,
                ):
                    self.count.found.append(found)
                return True
        return False


@contextmanager
def counting_reads(count: Count) -> Iterator[None]:
    """Count what programs over rows answer, and where they leave it to columns."""
    read = RowRead.rows

    def rows(self: RowRead, *args: Any) -> Any:
        found = read(self, *args)
        if found is None:
            count.gave_up += 1
        else:
            count.by_rows += 1
        return found

    with patch.object(RowRead, "rows", rows):
        yield


async def run_rounds(
    directory: Path,
    postgres_url: str | None,
    seeds: Sequence[int],
    statements: int,
    report: Any = None,
) -> Count:
    """Run the rounds of seeds, each with so many statements."""
    count = Count()
    envs = []
    servers: list[Any] = []
    for by_columns in (False, True):
        env = TestEnvironment(directory / ("columns" if by_columns else "rows"))
        env.data_dir.mkdir(parents=True, exist_ok=True)
        await env.open()
        envs.append(env)
        servers.append(await Foreshore.connect(env, by_columns=by_columns))
    if postgres_url is not None:
        servers.append(await Postgres.connect(postgres_url))
    try:
        with counting_reads(count):
            for seed in seeds:
                known = len(count.found)
                await Round(seed, servers, count).run(statements)
                if report is not None:
                    report(seed, count, count.found[known:])
    finally:
        for server in servers:
            await server.close()
        for env in envs:
            await env.close()
    return count
