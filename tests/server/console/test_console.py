"""The console in Chromium, over a server of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from tests.harness import Server, program, serving
from tests.server.console.browser import Console, console

pytestmark = [pytest.mark.full]

HOSTILE = "<img src=x onerror=alert(1)>"
PLACES = {
    "overview": "Greatest lag",
    "sql": "Results appear here",
    "objects": "All objects",
    "objects?show=list": "Materialized view",
    "objects/foreshore.public.totals": "live",
    "objects/foreshore.public.totals?tab=columns": "Default",
    "objects/foreshore.public.totals?tab=definition": "CREATE MATERIALIZED VIEW",
    "objects/foreshore.public.totals?tab=dependencies": "Made of",
    "objects/foreshore.public.totals?tab=dataflow": "Reduce",
    "objects/foreshore.public.totals?tab=freshness": "Behind the clock",
    "objects/foreshore.public.totals?tab=rights": "owner foreshore",
    "connections": "There is no connection",
    "roles": "an arrow leads",
    "roles/foreshore": "A superuser may do everything",
    "roles/nobody": "There is no role nobody",
    "clusters": "online",
    "clusters/quickstart": "What it maintains",
    "sessions": "active",
    "sessions?tab=history": "Statements since",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    program("chromium")
    with serving(tmp_path_factory.mktemp("console") / "data") as server:
        with server.connect() as connection:
            connection.execute("CREATE TABLE orders (item text, amount int)")
            connection.execute(
                "CREATE MATERIALIZED VIEW totals AS"
                " SELECT item, sum(amount) AS total FROM orders GROUP BY item"
            )
            connection.execute("INSERT INTO orders VALUES ('tea', 3), ('coffee', 4)")
        yield server


@pytest.fixture
def shown(server: Server) -> Iterator[Console]:
    with console(server) as shown:
        yield shown


@pytest.mark.parametrize("place", PLACES)
def test_page_loads_without_errors(shown: Console, place: str) -> None:
    shown.go(place)
    shown.sees(PLACES[place])
    assert shown.errors == []


def test_person_creates_looks_and_sees_changes(shown: Console, server: Server) -> None:
    shown.run(
        "CREATE TABLE visits (page text);\n"
        "CREATE MATERIALIZED VIEW hits AS SELECT page, count(*) AS n FROM visits GROUP BY page;"
    )
    shown.sees("Done in")
    shown.page.get_by_role("link", name="Objects").first.click()
    shown.page.locator(".tree").get_by_text("hits").click()
    shown.page.get_by_test_id("live-count").filter(has_text="0 rows").wait_for()
    with server.connect() as connection:
        connection.execute("INSERT INTO visits VALUES ('home'), ('home'), ('about')")
        shown.sees("about")
        connection.execute("DELETE FROM visits WHERE page = 'about'")
        shown.page.get_by_role("gridcell", name="about").wait_for(state="detached")
    cells = shown.page.get_by_role("gridcell").all_inner_texts()
    assert cells == ["home", "2"]
    assert shown.errors == []


def test_running_query_is_cancelled_in_editor(shown: Console) -> None:
    shown.run("SELECT pg_sleep(600)")
    shown.sees("Running for")
    shown.page.keyboard.press("Control+.")
    shown.sees("Cancelled after")
    shown.run("SELECT 41 + 1 AS answer")
    shown.page.get_by_role("gridcell", name="42").wait_for()
    assert shown.errors == []


def test_running_query_is_cancelled_on_sessions_page(shown: Console) -> None:
    shown.run("SELECT pg_sleep(601)")
    shown.sees("Running for")
    shown.page.get_by_role("link", name="Sessions").click()
    row = shown.page.get_by_role("row").filter(has_text="pg_sleep(601)")
    row.get_by_role("button", name="Cancel").click()
    shown.sees("Cancelled session")
    shown.page.get_by_role("link", name="SQL").click()
    shown.sees("canceling statement due to user request")
    assert shown.errors == []


def test_subscription_shows_live_rows(shown: Console, server: Server) -> None:
    shown.run("SUBSCRIBE (SELECT item, amount FROM orders WHERE amount > 1000)")
    shown.page.locator(".badge", has_text="live").wait_for()
    with server.connect() as connection:
        connection.execute("INSERT INTO orders VALUES ('ship', 5000)")
    shown.page.get_by_role("gridcell", name="ship").wait_for()
    shown.page.get_by_role("button", name="Cancel").click()
    shown.sees("Cancelled after")
    assert shown.errors == []


def test_connect_dialog_has_texts_that_work(shown: Console, server: Server) -> None:
    shown.go("overview")
    shown.page.get_by_role("button", name="Connect", exact=True).click()
    shown.sees(f"psql {server.url}")
    for tab, text in (
        ("Python", f'psycopg.connect("{server.url}")'),
        ("JDBC", f"jdbc:postgresql://127.0.0.1:{server.port}/foreshore?user=foreshore"),
        ("Node", f'connectionString: "{server.url}"'),
        ("BI tools", f"Port      {server.port}"),
        ("Agents (MCP)", f"http://127.0.0.1:{server.http_port}/api/mcp/agent"),
        ("HTTP", "Authorization: Bearer"),
    ):
        shown.page.get_by_role("tab", name=tab).click()
        shown.page.locator("dialog").get_by_text(text).first.wait_for()
    assert shown.errors == []


def test_roles_show_rights_through_membership(shown: Console, server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE ROLE analysts; CREATE ROLE ann LOGIN; GRANT analysts TO ann")
        connection.execute("GRANT SELECT ON totals TO analysts")
    shown.go("roles")
    shown.page.get_by_role("group", name="Roles and their members").get_by_role(
        "link", name="ann"
    ).click()
    row = shown.page.get_by_role("row").filter(has_text="foreshore.public.totals")
    row.filter(has_text="SELECT").get_by_role("link", name="analysts").wait_for()
    assert shown.errors == []


def test_replica_that_crashed_is_marked(shown: Console, server: Server) -> None:
    shown.go("clusters/quickstart")
    shown.page.get_by_role("img", name="CPU of quickstart").wait_for()
    (replica,) = (
        pid
        for pid in server.children()
        if b"compute.replica.main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    os.kill(replica, signal.SIGKILL)
    shown.page.get_by_role("cell", name="its process has ended").first.wait_for()
    shown.page.locator(".chart .mark").first.wait_for(state="attached")
    assert shown.errors == []


def test_statement_shows_its_plan(shown: Console, server: Server) -> None:
    with server.connect() as connection:
        connection.execute("SELECT item, 4711 FROM totals")
    shown.go("sessions?tab=history")
    shown.page.get_by_role("button", name="SELECT item, 4711 FROM totals").click()
    shown.page.get_by_role("button", name="Show its plan").click()
    plan = shown.page.locator("dialog").get_by_test_id("plan")
    plan.get_by_role("button", name="totals", exact=True).wait_for()
    shown.page.get_by_text("As text").click()
    shown.page.locator("dialog pre.value").get_by_text("4711").wait_for()
    assert shown.errors == []


def test_error_is_marked_where_it_is(shown: Console) -> None:
    shown.run("SELECT 1;\nSELECT item, '\U0001f9ca' AS ice, wrong FROM orders")
    shown.sees('column "wrong" does not exist')
    assert shown.page.locator(".sql-error").inner_text() == "wrong"


def test_many_rows_are_shown_by_part_and_reached(shown: Console) -> None:
    shown.run("SELECT a FROM generate_series(1, 60000) AS a ORDER BY a")
    shown.page.get_by_test_id("rows").filter(has_text="60,000 rows").wait_for()
    grid = shown.page.get_by_role("grid")
    assert grid.get_by_role("gridcell").count() < 200
    grid.focus()
    shown.page.keyboard.press("Control+End")
    shown.page.get_by_role("gridcell", name="60000", exact=True).wait_for()
    assert shown.errors == []


def test_hostile_names_and_values_stay_text(shown: Console, server: Server) -> None:
    alerts: list[str] = []

    def dismiss(dialog: Any) -> None:
        alerts.append(dialog.message)
        dialog.dismiss()

    shown.page.on("dialog", dismiss)
    with server.connect() as connection:
        connection.execute(f'CREATE TABLE "{HOSTILE}" ("{HOSTILE}" text)')
        connection.execute(f'INSERT INTO "{HOSTILE}" VALUES (%s)', (HOSTILE,))
    shown.run(f'SELECT * FROM "{HOSTILE}"')
    shown.page.get_by_role("gridcell", name=HOSTILE).wait_for()
    shown.go("objects")
    shown.page.locator(".tree").get_by_text(HOSTILE).click()
    shown.page.get_by_role("heading", name=HOSTILE).wait_for()
    shown.page.get_by_role("tab", name="Definition").click()
    shown.sees("CREATE TABLE")
    assert shown.page.locator("img[onerror]").count() == 0
    assert alerts == []
    assert shown.errors == []


def hostile_objects(connection: Any) -> None:
    """Name everything that the console shows, and comment on it, in HTML that would run."""
    text = HOSTILE.replace("'", "''")
    for statement in (
        'CREATE ROLE "{}" LOGIN',
        'GRANT "{}" TO foreshore',
        'CREATE SCHEMA "{}"',
        "CREATE CLUSTER \"{}\" (SIZE 'embedded')",
        "CREATE SECRET \"{}\" AS 'x'",
        "CREATE CONNECTION \"{}\" TO KAFKA (BROKER '127.0.0.1:1', SECURITY PROTOCOL 'plaintext')"
        " WITH (VALIDATE = false)",
        'CREATE TABLE "{}"."{}" ("{}" text PRIMARY KEY DEFAULT \'{}\', n int)',
        'ALTER TABLE "{}"."{}" OWNER TO "{}"',
        'CREATE POLICY "{}" ON "{}"."{}" USING ("{}" <> \'{}\')',
        'INSERT INTO "{}"."{}" VALUES (\'{}\', 0)',
        'CREATE VIEW "{}"."v{}" AS SELECT "{}", 1 / n AS "a{}" FROM "{}"."{}"',
        'CREATE MATERIALIZED VIEW "{}"."m{}" AS'
        ' SELECT "{}", 1 / n AS "b{}", \'{}\' AS c FROM "{}"."{}"',
        'CREATE INDEX "i{}" ON "{}"."m{}" ("{}")',
        'COMMENT ON TABLE "{}"."{}" IS \'{}\'',
        'COMMENT ON COLUMN "{}"."{}"."{}" IS \'{}\'',
        'GRANT SELECT ON "{}"."m{}" TO "{}"',
        "SET application_name = '{}'",
    ):
        connection.execute(statement.replace("{}", text))


def test_hostile_text_stays_text_on_every_page(shown: Console, server: Server) -> None:
    quoted = [quote(each + HOSTILE, safe="") for each in ("", "v", "m")]
    objects = [f"objects/foreshore.{quoted[0]}.{each}" for each in quoted]
    tabs = ("", "columns", "definition", "dependencies", "dataflow", "freshness", "rights")
    with server.connect(application_name=HOSTILE) as connection:
        hostile_objects(connection)
        with pytest.raises(psycopg.Error):
            connection.execute(f"SELECT '{HOSTILE}'::int")
        for place in [
            *("overview", "objects", "objects?show=list", "connections", "roles", "clusters"),
            *("sessions", "sessions?tab=history"),
            *(f"{kind}/{quoted[0]}" for kind in ("roles", "clusters", "connections")),
            *(f"{each}?tab={tab}" for each in objects for tab in tabs),
            *(f"roles/{each}nobody" for each in quoted),
        ]:
            shown.go(place)
            shown.page.wait_for_load_state("networkidle")
            shown.page.get_by_text(HOSTILE).first.wait_for(state="attached")
            assert shown.page.locator("[onerror]").count() == 0, place
        for text in (f"SELECT '{HOSTILE}'::int", f'SELECT "{HOSTILE}"', f"SELECT '{HOSTILE}' x"):
            shown.run(text)
            shown.sees(HOSTILE)
            assert shown.page.locator("[onerror]").count() == 0, text
    assert [each for each in shown.errors if "Content Security Policy" in each] == []


def test_password_is_asked_for(tmp_path: Path) -> None:
    program("chromium")
    rules = tmp_path / "hba.conf"
    rules.write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
    server = Server(tmp_path / "data", ("--hba-file", str(rules)))
    server.environment["FORESHORE_PASSWORD"] = "sesame"
    try:
        server.start()
        with console(server) as shown:
            shown.go("overview")
            shown.sees("Sign in to Foreshore")
            for password, then in (("wrong", "password authentication failed"), ("sesame", "SQL")):
                shown.page.get_by_label("Role").fill("foreshore")
                shown.page.get_by_label("Password").fill(password)
                shown.page.get_by_role("button", name="Sign in").click()
                shown.sees(then)
            shown.run("CREATE ROLE lesser LOGIN PASSWORD 'pw'; SELECT current_user AS who")
            shown.page.get_by_role("gridcell", name="foreshore").wait_for()
            # Who signs in next has neither the session nor the results of the role before.
            shown.page.evaluate(
                "document.querySelector('.CodeMirror').CodeMirror.setValue('CREATE SECRET s AS 1')"
            )
            kept = (
                "[sessionStorage, localStorage].map(each => each.getItem('foreshore.editor') || '')"
            )
            assert ["SECRET" in each for each in shown.page.evaluate(kept)] == [True, False]
            shown.page.get_by_role("button", name="Sign out").click()
            assert not any("SECRET" in each for each in shown.page.evaluate(kept))
            assert shown.page.get_by_label("Role").input_value() == "foreshore"
            shown.page.get_by_label("Role").fill("lesser")
            shown.page.get_by_label("Password").fill("pw")
            shown.page.get_by_role("button", name="Sign in").click()
            shown.sees("Results appear here")
            shown.run("SELECT current_user AS who")
            shown.page.get_by_role("gridcell", name="lesser").wait_for()
    finally:
        server.stop()
