"""SQL logic scripts: statements with their answers, told to be PostgreSQL's and held to it.

    # What follows shows that NULL groups with NULL.
    statement
    INSERT INTO t VALUES (1, NULL)

    view v
    SELECT b, count(*) FROM t GROUP BY b

    query
    SELECT * FROM v
    ----
    NULL|1

    error 22012 division by zero
    SELECT 1/0

    # Steps belong to the session that is named last; `waits` begins a statement that has to wait.
    session a

    waits
    LOCK TABLE t

    session b

    statement
    COMMIT

    ends a

A `view` is a materialised view of the session's cluster in Foreshore and a plain view in PostgreSQL,
so that after each change both must answer the same. Rows are compared sorted by their text, or as
they come after `query ordered`. `GOLDEN=rewrite` writes the answers anew, from PostgreSQL where
one is at hand: they are its answers, not ours. `ends` has the rows of what waited, if there are
any, or says `ends a error SQLSTATE MESSAGE`.
"""

from __future__ import annotations

import re
import select
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from psycopg import pq
from psycopg.pq import abc

STEP = re.compile(
    r"(?P<before>(?:#.*\n|\n)*)(?P<command>.+)\n(?P<sql>(?:(?!----\n)(?!\n).*\n)*)(?P<answer>----\n(?:.+\n)*)?"
)


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a script, with the comments and empty lines before it."""

    before: str
    command: str
    sql: str
    answer: tuple[str, ...] | None

    def text(self) -> str:
        """Return the step as it stands in the script."""
        answer = (
            "" if self.answer is None else "".join(f"{row}\n" for row in ("----", *self.answer))
        )
        return f"{self.before}{self.command}\n{self.sql}{answer}"


def read(path: Path) -> list[Step]:
    """Return the steps of a script; fails where it has another form."""
    text = path.read_text()
    matches = list(STEP.finditer(text))
    assert "".join(match[0] for match in matches) == text, f"{path}: not a script"
    return [
        Step(
            match["before"],
            match["command"],
            match["sql"],
            tuple(match["answer"].splitlines()[1:]) if match["answer"] else None,
        )
        for match in matches
    ]


MOMENT_SECONDS = 0.1  # after which a statement counts as waiting
LONGEST_SECONDS = 30.0


class Failed(Exception):
    """A statement failed, with PostgreSQL's code and message."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(f"{sqlstate} {message}")
        self.sqlstate, self.message = sqlstate, message


def rows_of(result: abc.PGresult) -> list[str]:
    """Return the rows as lines of text, columns joined by `|`.

    Raises Failed, and ConnectionError if it is not the server that says what is wrong.
    """
    if result.status == pq.ExecStatus.FATAL_ERROR:
        code = result.error_field(pq.DiagnosticField.SQLSTATE)
        if code is None:
            raise ConnectionError(result.error_message.decode())
        message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
        raise Failed(code.decode(), message.decode())
    return [
        "|".join(
            "NULL" if value is None else value.decode() or "(empty)"
            for value in (result.get_value(i, j) for j in range(result.nfields))
        )
        for i in range(result.ntuples)
    ]


class Database:
    """A session that answers in text; `is_foreshore` says how a `view` is made.

    `settings` are statements that begin each session of a script, this one and those beside it.
    """

    def __init__(self, url: str, *, is_foreshore: bool, settings: tuple[str, ...] = ()) -> None:
        self.connection = pq.PGconn.connect(url.encode())
        assert self.connection.status == pq.ConnStatus.OK, self.connection.error_message
        self.url = url
        self.is_foreshore = is_foreshore
        self.settings: tuple[str, ...] = ()
        for sql in settings:
            self.set(sql)

    def set(self, sql: str) -> None:
        """Run a statement here, and at the beginning of each session beside this one."""
        self.run(sql)
        self.settings = (*self.settings, sql)

    def beside(self) -> Database:
        """Return another session of the same database, with the same settings."""
        return Database(self.url, is_foreshore=self.is_foreshore, settings=self.settings)

    def begin(self, sql: str) -> None:
        """Begin a statement; it must not have ended after a moment."""
        self.connection.send_query(sql.encode())
        assert not self._ends_within(MOMENT_SECONDS), f"this does not wait: {sql}"

    def end(self) -> list[str]:
        """Return the rows of the statement that was begun; raises Failed."""
        assert self._ends_within(LONGEST_SECONDS), "this waits for ever"
        results = []
        while (result := self.connection.get_result()) is not None:
            results.append(result)
        return [rows_of(result) for result in results][-1]

    def _ends_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.connection.is_busy():
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.connection.socket], [], [], left)[0]:
                return False
            self.connection.consume_input()
        return True

    def run(self, sql: str, data: str = "") -> list[str]:
        """Return the rows as lines of text, columns joined by `|`; raises Failed.

        COPY FROM STDIN reads `data`; the lines of COPY TO STDOUT are rows.
        """
        result = self.connection.exec_(sql.encode())
        if result.status == pq.ExecStatus.COPY_IN:
            self.connection.put_copy_data(data.encode())
            self.connection.put_copy_end()
            return rows_of(self._last())
        if result.status == pq.ExecStatus.COPY_OUT:
            lines = []
            while (size_and_line := self.connection.get_copy_data(0))[0] > 0:
                lines.append(bytes(size_and_line[1]).decode().rstrip("\n"))
            return rows_of(self._last()) or lines
        return rows_of(result)

    def _last(self) -> abc.PGresult:
        """Return the answer at the end of a COPY."""
        last = self.connection.get_result()
        assert last is not None
        assert self.connection.get_result() is None
        return last

    @property
    def status(self) -> pq.TransactionStatus:
        """Whether it is in a block."""
        return pq.TransactionStatus(self.connection.transaction_status)

    def view(self, name: str, query: str) -> None:
        """Make a view that keeps up with its inputs."""
        kind = "MATERIALIZED VIEW" if self.is_foreshore else "VIEW"
        self.run(f"CREATE {kind} {name} AS {query}")

    def close(self) -> None:
        """End the session."""
        self.connection.finish()


def answers(database: Database, steps: list[Step]) -> Iterator[Step]:
    """Yield each step with the answer that `database`, or a session beside it, gives to it."""
    sessions: dict[str, Database] = {}
    with ExitStack() as stack:
        for step in steps:
            command, *rest = step.command.split(maxsplit=1)
            if command == "session":
                (name,) = rest
                if name not in sessions:
                    sessions[name] = database.beside()
                    stack.callback(sessions[name].close)
                database = sessions[name]
                yield step
            elif command == "ends":
                name = rest[0].split()[0]
                yield ended(sessions[name], name, step)
            else:
                yield answered(database, step)


def ended(database: Database, name: str, step: Step) -> Step:
    """Return the step with the end of the statement that waited."""
    try:
        rows = database.end()
    except Failed as failed:
        return replace(step, command=f"ends {name} error {failed.sqlstate} {failed.message}")
    return replace(step, command=f"ends {name}", answer=tuple(sorted(rows)) or None)


def answered(database: Database, step: Step) -> Step:
    """Return the step with the answer of one session."""
    command, *rest = step.command.split(maxsplit=1)
    sql = step.sql.strip()
    match command:
        case "statement":
            database.run(sql)
            return step
        case "view":
            database.view(rest[0], sql)
            return step
        case "error":
            try:
                database.run(sql)
            except Failed as failed:
                return replace(step, command=f"error {failed.sqlstate} {failed.message}")
            else:
                return replace(step, command="statement")
        case "waits":
            database.begin(sql)
            return step
        case "query":
            rows = database.run(sql)
            return replace(step, answer=tuple(rows if rest == ["ordered"] else sorted(rows)))
        case _:
            raise AssertionError(f"no such command: {step.command}")
