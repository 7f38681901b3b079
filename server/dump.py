"""`foreshore dump`: print the statements that make the objects of a database again."""

import asyncio
import re

import asyncpg
import click

from foreshore.errors import DatabaseError, Unavailable

_HEAD = """\
-- The objects of database {database}, as statements in the order in which they can be run:
--   psql -v ON_ERROR_STOP=1 -f THIS_FILE URL
-- Data, roles, rights and the values of secrets are not here. Sources begin to read, and sinks to
-- write, as soon as they are created.
"""


def dump_command() -> click.Command:
    """Return the command `dump`."""

    @click.command("dump")
    @click.argument("url")
    @click.option(
        "--without",
        type=click.Choice(["cluster", "connection", "secret", "source", "sink"]),
        multiple=True,
        help="Leave out objects of this kind; may be repeated.",
    )
    def dump(url: str, without: tuple[str, ...]) -> None:
        """Print the definitions of all objects of the database at URL, as SQL.

        Tables, views, indexes, sources, sinks, connections and the rest stand in an order in which
        they can be created. Their data is not printed: `foreshore backup` and pg_dump have it.
        """
        try:
            database, found = asyncio.run(_statements(url))
        except DatabaseError as error:
            raise click.ClickException(error.message) from error
        click.echo(_HEAD.format(database=_one_line(database)))
        for type, sql in found:
            if type not in without:
                click.echo(f"{sql};")

    return dump


async def _statements(url: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the name of the database at `url`, and kinds of objects with their statements."""
    try:
        connection = await asyncpg.connect(url)
        try:
            database = await connection.fetchval("SELECT current_database()")
            rows = await connection.fetch("SHOW CREATE ALL")
        finally:
            await connection.close()
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        raise Unavailable(f"could not ask the server: {error}", sqlstate="08001") from error
    return str(database), [(row["type"], row["create_sql"]) for row in rows]


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)
