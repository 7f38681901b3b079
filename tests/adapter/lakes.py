"""What tests of lake tables share: places and catalogs, statements, and waits for rows."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.adapter.harness import TestEnvironment
from tests.iceberg_catalog import CLIENT, SECRET, IcebergCatalog, serving


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[IcebergCatalog]:
    """Serve an empty catalog, whose tables are below a directory."""
    (tmp_path / "lake").mkdir()
    with serving(tmp_path / "lake") as catalog:
        yield catalog


@pytest.fixture
def place(own_env: TestEnvironment, tmp_path: Path) -> Path:
    """Return a new directory that COPY and sinks may write."""
    place = tmp_path / "out"
    place.mkdir()
    own_env.environment.let_copy([str(place)], tmp_path / "data")
    return place


async def connected(
    env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> TestEnvironment:
    """Return an environment with a connection to the catalog, where sinks may write its tables."""
    await equipped(env, tmp_path)
    await env.ran("a", f"CREATE SECRET k AS '{CLIENT}:{SECRET}'", connection("c", catalog, "k"))
    return env


async def equipped(env: TestEnvironment, tmp_path: Path) -> None:
    """Let an environment use secrets and the directory of the catalog."""
    env.environment.unlock_secrets(bytes(32))
    env.environment.let_copy([str(tmp_path / "lake")], tmp_path / "data")
    await env.environment.equip_sources()


def connection(name: str, catalog: IcebergCatalog, secret: str) -> str:
    """Return a statement that creates a connection."""
    return (
        f"CREATE CONNECTION {name} TO ICEBERG CATALOG (CATALOG TYPE 'rest', URL '{catalog.url}'"
        f", CREDENTIAL SECRET {secret})"
    )


def into(table: str, more: str = "", name: str = "c") -> str:
    """Return what follows FROM of a sink."""
    place = f"(NAMESPACE 'n', TABLE '{table}', LOCAL FILES)"
    return f"INTO ICEBERG CATALOG CONNECTION {name} {place} {more} WITH (COMMIT INTERVAL '10 ms')"


def reading(table: str, options: str = ", LOCAL FILES", name: str = "c") -> str:
    """Return what follows the name of a source."""
    place = f"(NAMESPACE 'n', TABLE '{table}', POLL INTERVAL '10 ms'{options})"
    return f"FROM ICEBERG CATALOG CONNECTION {name} {place}"


def delta_rows(table: Path) -> list[tuple[Any, ...]]:
    """Return the rows of a Delta table, sorted as text."""
    import deltalake

    found = deltalake.DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


async def until_rows(rows: Callable[[], list[Any]], *wanted: Any) -> None:
    """Wait until a table has these rows."""
    expected = sorted(wanted, key=repr)
    while True:
        if await asyncio.to_thread(rows) == expected:
            return
        await asyncio.sleep(0.05)
