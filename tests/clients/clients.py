"""The clients that are tried: how each program starts, what it needs, what is known to fail with Foreshore."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.harness import NOT_INSTALLED, ROOT

PROGRAMS = Path(__file__).parent / "programs"

# Where `make clients` puts the clients that are no dependencies of the project.
TOOLS = Path(os.environ.get("FORESHORE_CLIENTS", ROOT / "build" / "clients"))
NODE_MODULES = TOOLS / "node" / "node_modules"
JARS = Path("/usr/share/java")
GO = Path("/usr/share/gocode")


@dataclass(frozen=True)
class Client:
    """A program of `programs/`, with what has to be there for it to start.

    Args:
        program: the file's name; its ending tells the language.
        modules: what a program of Python or Go imports, or one of Node requires.
        binaries: other programs that it calls.
        jars: archives of Java.
        fails: steps known to fail with Foreshore, each with the reason.
        for_postgres: whether the client works with PostgreSQL.
    """

    program: str
    modules: tuple[str, ...] = ()
    binaries: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()
    fails: dict[str, str] = field(default_factory=dict)
    for_postgres: bool = True

    @property
    def name(self) -> str:
        """Return the name of its tests."""
        return self.program.partition(".")[0].strip("_")

    def command(self) -> list[str]:
        """Return how to start it, less the address; skips the test where something is missing."""
        for binary in self.binaries:
            if (
                shutil.which(
                    binary, path=f"{os.environ['PATH']}:/usr/sbin:/usr/lib/postgresql/15/bin"
                )
                is None
            ):
                pytest.skip(f"{NOT_INSTALLED}{binary}")
        path = str(PROGRAMS / self.program)
        match self.program.rpartition(".")[2]:
            case "py":
                return [self._python(), path]
            case "js":
                self._need_node_modules()
                return ["node", path]
            case "java":
                return ["java", "-cp", ":".join(self._jars()), path]
            case "go":
                missing = [name for name in self.modules if not (GO / "src" / name).exists()]
                if missing:
                    pytest.skip(f"{NOT_INSTALLED}{', '.join(missing)}")
                return ["go", "run", path]
            case "rb":
                return ["ruby", path]
            case "pl":
                return ["perl", path]
            case "php":
                return ["php", path]
        raise AssertionError(self.program)

    def environment(self) -> dict[str, str]:
        """Return the environment of its process."""
        return {
            **os.environ,
            "NODE_PATH": str(NODE_MODULES),
            "GOPATH": str(GO),
            "GO111MODULE": "off",
        }

    def _python(self) -> str:
        """Return an interpreter that can import all of `modules`, ours or that of the tools."""
        code = f"import {', '.join(('sys', *self.modules))}"
        for found in (sys.executable, str(TOOLS / "python" / "bin" / "python")):
            if not Path(found).exists():
                continue
            if (
                subprocess.run([found, "-c", code], capture_output=True, cwd=PROGRAMS).returncode
                == 0
            ):
                return found
        pytest.skip(f"{NOT_INSTALLED}{', '.join(self.modules)} (make clients)")

    def _need_node_modules(self) -> None:
        if shutil.which("node") is None:
            pytest.skip(f"{NOT_INSTALLED}node")
        missing = [name for name in self.modules if not (NODE_MODULES / name).exists()]
        if missing:
            pytest.skip(f"{NOT_INSTALLED}{', '.join(missing)} (make clients)")

    def _jars(self) -> list[str]:
        found = []
        for name in self.jars:
            places = [folder / name for folder in (TOOLS, JARS) if (folder / name).exists()]
            if not places:
                pytest.skip(f"{NOT_INSTALLED}{name}")
            found.append(str(places[0]))
        return found


# A fixed sample, of what is installed anyway: part of `make test-full`.
SAMPLE = (
    Client("psql.py", binaries=("psql",)),
    Client("psycopg3.py", modules=("psycopg",)),
    Client("asyncpg_.py", modules=("asyncpg",)),
    Client("pgbench.py", binaries=("pgbench", "psql")),
)

# All others: part of `make test-slow`.
OTHERS = (
    Client("psycopg2_.py", modules=("psycopg2",)),
    Client("pg8000_.py", modules=("pg8000",)),
    Client(
        "sqlalchemy_.py",
        modules=("sqlalchemy", "alembic", "psycopg", "psycopg2", "pg8000", "asyncpg"),
        fails={"orm_over_asyncpg": "reflection over asyncpg gives identity columns a default"},
    ),
    Client("django_.py", modules=("django", "psycopg")),
    Client(
        "dataframes.py",
        modules=("pandas", "polars", "adbc_driver_postgresql", "connectorx", "sqlalchemy"),
    ),
    Client("adbc.py", modules=("adbc_driver_postgresql", "pyarrow")),
    Client(
        "node_pg.js",
        modules=("pg", "pg-cursor", "pg-copy-streams", "pg-query-stream"),
    ),
    Client("postgres_js.js", modules=("postgres",)),
    Client(
        "node_orms.js",
        modules=("knex", "sequelize", "typeorm", "drizzle-orm", "pg"),
        fails={"sequelize": "DO"},
    ),
    Client(
        "Jdbc.java",
        binaries=("java",),
        jars=("postgresql.jar", "HikariCP.jar", "slf4j-api.jar"),
    ),
    Client("pgbouncer.py", modules=("psycopg", "psycopg_pool"), binaries=("pgbouncer",)),
    Client("dbt_.py", modules=("dbt.adapters.postgres",)),
    Client("dbt_blue_green.py", modules=("dbt.adapters.postgres",), for_postgres=False),
    Client("dbt_materialize.py", modules=("dbt.adapters.materialize",), for_postgres=False),
    Client("pgcli_.py", modules=("pgcli", "pgspecial")),
    Client("peewee_.py", modules=("peewee", "psycopg2")),
    Client("pony_.py", modules=("pony", "psycopg2")),
    Client("tortoise_.py", modules=("tortoise", "asyncpg")),
    Client("odbc.py", modules=("pyodbc",), binaries=("odbcinst",)),
    Client("prisma.js", modules=("prisma", "@prisma/client", "@prisma/adapter-pg", "pg")),
    Client("libpq.go", modules=("github.com/lib/pq",), binaries=("go",)),
    Client("pgx.go", modules=("github.com/jackc/pgx/v4",), binaries=("go",)),
    Client("perl.pl", binaries=("perl",)),
    Client("php.php", binaries=("php",)),
    Client("ruby.rb", binaries=("ruby",)),
)
