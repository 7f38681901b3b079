"""`foreshore dump`: print the statements that make the objects of a database again.

They are those of SHOW CREATE ALL; the verifiers of passwords are in pg_authid.
"""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass

import asyncpg
import click

from foreshore.errors import DatabaseError, Unavailable

_HEAD = """\
-- The objects of database {database}, as statements in the order in which they can be run:
--   psql -v ON_ERROR_STOP=1 -f THIS_FILE URL
-- Data{passwords} and values of secrets are not here. Sources begin to read, and sinks to write, as
-- soon as they are created.
"""
_KINDS = ("cluster", "connection", "network-policy", "role", "secret", "sink", "source", "system")


@dataclass(frozen=True, slots=True)
class _Statement:
    """A statement of SHOW CREATE ALL: the kind of its object, and what it says of it."""

    type: str
    part: str
    sql: str


def dump_command() -> click.Command:
    """Return the command `dump`."""

    @click.command("dump")
    @click.argument("url")
    @click.option(
        "--without",
        type=click.Choice(_KINDS),
        multiple=True,
        help="Leave out objects of this kind, or settings of the system; may be repeated.",
    )
    @click.option("--no-owner", is_flag=True, help="Leave out who owns what.")
    @click.option("--no-privileges", is_flag=True, help="Leave out rights and default rights.")
    @click.option(
        "--role-passwords", is_flag=True, help="Print verifiers of passwords, as superusers may."
    )
    def dump(
        url: str,
        without: tuple[str, ...],
        no_owner: bool,
        no_privileges: bool,
        role_passwords: bool,
    ) -> None:
        """Print the definitions of all objects of the database at URL, as SQL.

        Roles, tables, views, indexes, sources, sinks, connections and the rest stand in an order in
        which they can be created, then their owners and rights. Their data is not printed:
        `foreshore backup` and pg_dump have it.
        """
        try:
            database, found, passwords = asyncio.run(_asked(url, passwords=role_passwords))
        except DatabaseError as error:
            raise click.ClickException(error.message) from error
        lacks = "" if role_passwords else ", passwords"
        click.echo(_HEAD.format(database=_one_line(database), passwords=lacks))
        kinds = {each.replace("-", " ") for each in without}
        parts = {"owner"} if no_owner else set()
        parts |= {"privilege"} if no_privileges else set()
        shown = (each for each in found if each.type not in kinds and each.part not in parts)
        for sql in _with_passwords(shown, passwords):
            click.echo(f"{sql};")

    return dump


async def _asked(url: str, *, passwords: bool) -> tuple[str, list[_Statement], list[str]]:
    """Return the name of the database at `url`, its statements, and those that set passwords.

    Raises Unavailable.
    """
    try:
        connection = await asyncpg.connect(url)
        try:
            database = await connection.fetchval("SELECT current_database()")
            rows = await connection.fetch("SHOW CREATE ALL")
            kept = await connection.fetch(_VERIFIERS) if passwords else []
        finally:
            await connection.close()
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        raise Unavailable(f"could not ask the server: {error}", sqlstate="08001") from error
    found = [_Statement(row["type"], row["part"], row["create_sql"]) for row in rows]
    return str(database), found, [row["sql"] for row in kept]


_VERIFIERS = """
    SELECT format('ALTER ROLE %I PASSWORD %L', rolname, rolpassword) AS sql
    FROM pg_authid WHERE rolpassword IS NOT NULL ORDER BY rolname
"""


def _with_passwords(statements: Iterator[_Statement], passwords: list[str]) -> Iterator[str]:
    """Yield statements, and the passwords after the first ones of roles."""
    has_roles = False
    for each in statements:
        if has_roles and each.type != "role":
            yield from passwords
            passwords = []
        has_roles = has_roles or each.type == "role"
        yield each.sql
    if has_roles:
        yield from passwords


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)
