"""A script of statements by several roles, with PostgreSQL's answers.

    reader: SELECT b FROM t
    -> 42501 permission denied for table t

Each step has a role and a statement; the answer is the error's code and message, or `ok`. `GRANT`
and `REVOKE` of the role `admin`, and what makes roles, are written into the catalog here. The
answers are PostgreSQL's: `python -m tests.adapter.rights.script DSN` records them.
"""

import re
import sys
from pathlib import Path

from tests.adapter.harness import TestEnvironment
from tests.adapter.rights import house

SCRIPT = Path(__file__).parent / "denied.txt"
_GRANT = re.compile(r"GRANT ([A-Z, ]+?)(?: \(([\w, ]+)\))? ON (?:(\w+) )?(\w+) TO (\w+)\Z")
_ROLE = re.compile(r"CREATE ROLE (\w+)(.*)\Z")
_MEMBER = re.compile(r"GRANT (\w+) TO (\w+)\Z")
_REVOKE = re.compile(r"REVOKE ALL ON (?:\w+ )?(\w+) FROM (\w+)\Z")


def steps() -> list[tuple[str, str, str]]:
    """Return the steps of the script: a role, a statement and its answer."""
    text = SCRIPT.read_text()
    return [
        (match[1], " ".join(match[2].split()), match[3])
        for match in re.finditer(r"^(\w+): (.*)\n-> (.*)$", text, re.M)
    ]


async def ran(env: TestEnvironment, role: str, sql: str) -> str:
    """Return the answer to a step, here."""
    if (match := _ROLE.match(sql)) is not None:
        words = match[2].split()
        attributes = {"CREATEDB": "create_db", "CREATEROLE": "create_role"}
        house.role(env, match[1], **{attributes[each]: True for each in words})
        house.grant(env, match[1], "CREATE", "quickstart")  # PostgreSQL has no clusters
    elif (match := _GRANT.match(sql)) is not None:
        columns = re.findall(r"\w+", match[2] or "")
        house.grant(env, match[5], match[1], match[4], *columns)
    elif (match := _MEMBER.match(sql)) is not None:
        house.role(env, match[2], match[1])
    elif (match := _REVOKE.match(sql)) is not None:
        house.revoke(env, match[2], match[1])
    else:
        if role != "admin" and role not in env.sessions:
            await house.session_as(env, role)
        answer = await env.query(role, sql)
        error = re.search(r"^ERROR (\w+): (.*)$", answer, re.M)
        if error is not None:
            await env.query(role, "ROLLBACK")
            return f"{error[1]} {error[2]}"
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
