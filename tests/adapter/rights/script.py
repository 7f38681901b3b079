"""A script of statements by several roles, with PostgreSQL's answers.

    reader: SELECT b FROM t
    -> 42501 permission denied for table t

Each step has a role and a statement; the answer is the error's code and message, or `ok`. In a
script with rows it is `a|b; c|d; SELECT 2` instead: the rows, sorted, and the tag. The answers are
PostgreSQL's: `python -m tests.adapter.rights.script DSN denied.txt` records them.
"""

import re
import sys
from pathlib import Path

from tests.adapter.harness import TestEnvironment

DENIED = Path(__file__).parent / "denied.txt"
POLICIES = Path(__file__).parent / "policies.txt"  # with rows


def steps(script: Path) -> list[tuple[str, str, str]]:
    """Return the steps of a script: a role, a statement and its answer."""
    text = script.read_text()
    return [
        (match[1], " ".join(match[2].split()), match[3])
        for match in re.finditer(r"^(\w+): (.*)\n->(?: (.*))?$", text, re.M)
    ]


async def ran(env: TestEnvironment, role: str, sql: str, *, rows: bool = False) -> str:
    """Return the answer to a step, here."""
    if role not in env.sessions:
        await env.session(role)
        if role != "admin":
            await env.ran(role, f"SET SESSION AUTHORIZATION {role}")
    answer = await env.query(role, sql)
    error = re.search(r"^ERROR (\w+): (.*)$", answer, re.M)
    if error is not None:
        await env.query(role, "ROLLBACK")
        return f"{error[1]} {error[2]}"
    if sql == "CREATE ROLE owner":  # PostgreSQL has no clusters
        await env.ran("admin", "GRANT CREATE ON CLUSTER quickstart TO owner")
    return _with_rows(answer) if rows else "ok"


def _with_rows(answer: str) -> str:
    """Return the rows of an answer, sorted, and its tag; without notices."""
    answer = re.sub(r"^(NOTICE|WARNING): .*", "", answer, flags=re.M | re.S)
    lines = answer.removesuffix("\nT").strip().split("\n")  # T: in a transaction block
    return "; ".join([*sorted(lines[:-1]), lines[-1]])


def record(dsn: str, script: Path) -> None:
    """Write a script anew with the answers of a PostgreSQL."""
    from psycopg import Connection, pq

    def connected(role: str) -> Connection:
        connection = Connection.connect(dsn, autocommit=True)
        if role != "admin":
            connection.execute(f"SET SESSION AUTHORIZATION {role}".encode())
        return connection

    connections: dict[str, Connection] = {}
    answers = []
    for role, sql, _ in steps(script):
        connection = connections.get(role) or connected(role)
        connections[role] = connection
        result = connection.pgconn.exec_(sql.encode())
        if result.status == pq.ExecStatus.FATAL_ERROR:
            fields = (pq.DiagnosticField.SQLSTATE, pq.DiagnosticField.MESSAGE_PRIMARY)
            answers.append(" ".join((result.error_field(each) or b"").decode() for each in fields))
            connection.pgconn.exec_(b"ROLLBACK")
        elif script == POLICIES:
            lines = [
                "|".join(
                    "NULL" if value is None else value.decode()
                    for value in (result.get_value(row, i) for i in range(result.nfields))
                )
                for row in range(result.ntuples)
            ]
            tag = (result.command_status or b"").decode()
            if result.status == pq.ExecStatus.COPY_OUT:
                while (got := connection.pgconn.get_copy_data(0))[0] > 0:
                    lines.append(bytes(got[1]).decode().rstrip().replace("\t", "|"))
                ended = connection.pgconn.get_result()
                assert ended is not None
                tag = (ended.command_status or b"").decode()
                while connection.pgconn.get_result() is not None:
                    pass
            answers.append("; ".join([*sorted(lines), tag]))
        else:
            answers.append("ok")
        if result.status == pq.ExecStatus.COPY_IN or (
            result.status == pq.ExecStatus.COPY_OUT and script != POLICIES
        ):
            connections.pop(role).close()
    given = iter(answers)
    script.write_text(
        re.sub(r"^->.*$", lambda _: f"-> {next(given)}".rstrip(), script.read_text(), flags=re.M)
    )


if __name__ == "__main__":
    record(sys.argv[1], Path(__file__).parent / sys.argv[2])
