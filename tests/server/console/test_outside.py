"""Sources and sinks in the console: of which kind they are, what they do, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlparse

import psycopg
import pytest

from tests.broker import serving as broker
from tests.harness import Server, free_port, program, serving
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
        shown.page.get_by_role("tab", name="Definition").click()
        shown.sees("CREATE SINK foreshore.public.away")
        target.execute("ALTER TABLE console.t RENAME TO absent")
        connection.execute("INSERT INTO t VALUES (1)")
        failure = shown.page.get_by_role("alert").filter(has_text="does not exist")
        failure.wait_for()
        shown.go("overview")
        row = shown.page.get_by_role("row").filter(has_text="away")
        row.get_by_text("stalled").wait_for()
        target.execute("ALTER TABLE console.absent RENAME TO t")
        row.get_by_text("running").wait_for()
    assert shown.errors == []


def test_connections_are_validated_and_name_their_users(
    shown: Console, server: Server, postgres_url: str
) -> None:
    where = urlparse(postgres_url)
    database, user = where.path[1:] or "postgres", where.username or "postgres"
    reach = f"DATABASE '{database}', USER '{user}', PASSWORD SECRET hidden"
    with (
        server.connect() as connection,
        psycopg.connect(postgres_url, autocommit=True) as target,
    ):
        target.execute("DROP TABLE IF EXISTS validated; CREATE TABLE validated (k int PRIMARY KEY)")
        connection.execute("CREATE SECRET hidden AS 'unseen-4711'")
        connection.execute(
            f"CREATE CONNECTION pg TO POSTGRES (HOST '{where.hostname}', PORT {where.port}, {reach})"
        )
        connection.execute(
            f"CREATE CONNECTION away TO POSTGRES (HOST '127.0.0.1', PORT {free_port()}, {reach})"
            " WITH (VALIDATE = false)"
        )
        connection.execute("CREATE TABLE t (k int PRIMARY KEY)")
        connection.execute(
            "CREATE SINK out FROM t INTO POSTGRES CONNECTION pg (TABLE 'public.validated')"
        )
    shown.go("connections")
    row = shown.page.get_by_role("row").filter(has=shown.page.get_by_role("link", name="pg"))
    row.get_by_role("link", name="out").get_by_text("running").wait_for()
    shown.page.get_by_role("button", name="Validate pg").click()
    shown.sees("reached in")
    shown.page.get_by_role("button", name="Validate away").click()
    shown.page.get_by_role("alert").filter(has_text="could not connect").wait_for()
    secrets = shown.page.get_by_role("table", name="Secrets")
    secrets.get_by_role("link", name="away").wait_for()
    shown.page.get_by_role("table", name="Connections").get_by_role("link", name="pg").click()
    shown.sees("PASSWORD = SECRET foreshore.public.hidden")
    assert "unseen-4711" not in shown.page.content()
    with server.connect() as connection:
        connection.execute("CREATE CONNECTION bastion TO SSH TUNNEL (HOST 'b', USER 'u')")
        keys = connection.execute("SELECT public_key_1 FROM mz_ssh_tunnel_connections").fetchone()
    assert keys is not None
    shown.go("objects/foreshore.public.bastion")
    shown.sees(str(keys[0]))
    assert shown.errors == []


def test_source_has_charts_and_states(shown: Console, server: Server, tmp_path: Path) -> None:
    with broker(tmp_path / "broker") as kafka, server.connect() as connection:
        kafka.create("clicks", 1)
        connection.execute(f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')")
        connection.execute(
            "CREATE SOURCE clicks FROM KAFKA CONNECTION k (TOPIC 'clicks') FORMAT JSON"
        )
        shown.go("objects/foreshore.public.clicks?tab=activity")
        producer = kafka.producer()
        for number in range(100):
            producer.produce("clicks", b"%d" % number)
        producer.flush()
        shown.page.get_by_role("img", name="Rows per second").wait_for()
        shown.page.get_by_role("img", name="Offsets behind the external system").wait_for()
        shown.page.locator(".tile").filter(has_text="Messages").get_by_text("100").wait_for()
        states = shown.page.get_by_role("table", name="States")
        states.get_by_text("running").first.wait_for()
        kafka.stop()
        shown.page.locator(".chart .mark").first.wait_for(state="attached")
        states.get_by_text("stalled").first.wait_for()
        kafka.start()
    assert shown.errors == []
