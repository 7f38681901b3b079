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

A `view` is a materialised view of the session's cluster in Foreshore and a plain view in PostgreSQL,
so that after each change both must answer the same. Rows are compared sorted by their text, or as
they come after `query ordered`. `GOLDEN=rewrite` writes the answers anew, from PostgreSQL where
one is at hand: they are its answers, not ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
    """A session that answers in text; `is_foreshore` says how a `view` is made."""

    def __init__(self, url: str, *, is_foreshore: bool) -> None:
        self.connection = pq.PGconn.connect(url.encode())
        assert self.connection.status == pq.ConnStatus.OK, self.connection.error_message
        self.is_foreshore = is_foreshore

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
    """Yield each step with the answer that `database` gives to it."""
    for step in steps:
        command, *rest = step.command.split(maxsplit=1)
        sql = step.sql.strip()
        match command:
            case "statement":
                database.run(sql)
                yield step
            case "view":
                database.view(rest[0], sql)
                yield step
            case "error":
                try:
                    database.run(sql)
                except Failed as failed:
                    yield replace(step, command=f"error {failed.sqlstate} {failed.message}")
                else:
                    yield replace(step, command="statement")
            case "query":
                rows = database.run(sql)
                yield replace(step, answer=tuple(rows if rest == ["ordered"] else sorted(rows)))
            case _:
                raise AssertionError(f"no such command: {step.command}")
