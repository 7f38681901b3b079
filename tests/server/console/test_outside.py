"""Sources and sinks in the console: of which kind they are, what they do, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlparse

import psycopg
import pytest

from tests.harness import Server, program, serving
from tests.server.console.browser import Console, console

pytestmark = [pytest.mark.full]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    program("chromium")
    with serving(tmp_path / "data") as server:
        yield server


@pytest.fixture
def shown(server: Server) -> Iterator[Console]:
    with console(server) as shown:
        yield shown


def test_source_shows_its_tables(shown: Console, server: Server) -> None:
    with server.connect() as connection:
        connection.execute(
            "CREATE SOURCE house FROM LOAD GENERATOR AUCTION (UP TO 3) FOR ALL TABLES"
        )
    shown.go("objects/foreshore.public.house")
    shown.sees("The rows of this source are in its tables")
    assert shown.page.locator(".about").inner_text().startswith("Source")
    shown.page.locator(".below").get_by_role("link", name="bids").click()
    shown.page.get_by_role("columnheader", name="auction_id").wait_for()
    shown.go("objects/foreshore.public.bids?tab=definition")
    shown.sees("FROM SOURCE")
    assert shown.errors == []


def test_sink_shows_state_and_error(shown: Console, server: Server, postgres_url: str) -> None:
    where = urlparse(postgres_url)
    database, user = where.path[1:] or "postgres", where.username or "postgres"
    reach = f"HOST '{where.hostname}', PORT {where.port}, DATABASE '{database}', USER '{user}'"
    with (
        server.connect() as connection,
        psycopg.connect(postgres_url, autocommit=True) as target,
    ):
        target.execute("DROP SCHEMA IF EXISTS console CASCADE; CREATE SCHEMA console")
        connection.execute(f"CREATE CONNECTION pg TO POSTGRES ({reach})")
        connection.execute("CREATE TABLE t (k int PRIMARY KEY)")
        connection.execute(
            "CREATE SINK away FROM t INTO POSTGRES CONNECTION pg (TABLE 'console.t')"
        )
        shown.go("objects/foreshore.public.away")
        shown.sees("running")
        assert shown.page.locator(".about").inner_text().startswith("Sink")
        shown.sees("CREATE SINK foreshore.public.away")
        target.execute("DROP TABLE console.t")
        connection.execute("INSERT INTO t VALUES (1)")
        failure = shown.page.get_by_role("alert").filter(has_text="does not exist")
        failure.wait_for()
        shown.go("overview")
        row = shown.page.get_by_role("row").filter(has_text="away")
        row.get_by_text("stalled").wait_for()
        target.execute("CREATE TABLE console.t (k int PRIMARY KEY)")
        row.get_by_text("running").wait_for()
    assert shown.errors == []
