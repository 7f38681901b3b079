"""A script of statements by several roles, with PostgreSQL's answers.

    reader: SELECT b FROM t
    -> 42501 permission denied for table t

Each step has a role and a statement; the answer is the error's code and message, or `ok`. The
answers are PostgreSQL's: `python -m tests.adapter.rights.script DSN` records them.
"""

import re
import sys
from pathlib import Path

from tests.adapter.harness import TestEnvironment

SCRIPT = Path(__file__).parent / "denied.txt"


def steps() -> list[tuple[str, str, str]]:
    """Return the steps of the script: a role, a statement and its answer."""
    text = SCRIPT.read_text()
    return [
        (match[1], " ".join(match[2].split()), match[3])
        for match in re.finditer(r"^(\w+): (.*)\n-> (.*)$", text, re.M)
    ]


async def ran(env: TestEnvironment, role: str, sql: str) -> str:
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
    return "ok"


def record(dsn: str) -> None:
    """Write the script anew with the answers of a PostgreSQL."""
    from psycopg import Connection, pq

    def connected(role: str) -> Connection:
        connection = Connection.connect(dsn, autocommit=True)
        if role != "admin":
            connection.execute(f"SET SESSION AUTHORIZATION {role}".encode())
        return connection

    connections: dict[str, Connection] = {}
    answers = []
    for role, sql, _ in steps():
        connection = connections.get(role) or connected(role)
        connections[role] = connection
        result = connection.pgconn.exec_(sql.encode())
        if result.status == pq.ExecStatus.FATAL_ERROR:
            fields = (pq.DiagnosticField.SQLSTATE, pq.DiagnosticField.MESSAGE_PRIMARY)
            answers.append(" ".join((result.error_field(each) or b"").decode() for each in fields))
            connection.pgconn.exec_(b"ROLLBACK")
        else:
            answers.append("ok")
        if result.status in (pq.ExecStatus.COPY_IN, pq.ExecStatus.COPY_OUT):
            connections.pop(role).close()
    given = iter(answers)
    SCRIPT.write_text(
        re.sub(r"^-> .*$", lambda _: f"-> {next(given)}", SCRIPT.read_text(), flags=re.M)
    )


if __name__ == "__main__":
    record(sys.argv[1])
