"""What the console shows of databases, states, charts, graphs and of an empty server, in Chromium."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.adapter.sources.publisher import options_of
from tests.harness import Server, free_port, program, serving
from tests.server.console.browser import Console, console

pytestmark = [pytest.mark.full]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    program("chromium")
    with serving(tmp_path_factory.mktemp("console") / "data") as server:
        yield server


@pytest.fixture
def shown(server: Server) -> Iterator[Console]:
    with console(server) as shown:
        yield shown
        assert [each for each in shown.errors if "status of 4" not in each] == []


@pytest.fixture(scope="module")
def filled(server: Server) -> Server:
    """Make two databases with objects, after the tests of an empty server."""
    with server.connect() as connection:
        connection.execute("CREATE TABLE here (n int)")
        connection.execute("INSERT INTO here VALUES (1), (2)")
        for number in range(9):
            connection.execute(f"CREATE VIEW v{number} AS SELECT n + {number} AS n FROM here")
        connection.execute("CREATE MATERIALIZED VIEW bad AS SELECT 1 / (n - 1) AS q FROM here")
        connection.execute("CREATE MATERIALIZED VIEW chain AS SELECT n FROM v0")
        for number in range(12):
            name = "chain" if number == 0 else f"chain{number - 1}"
            connection.execute(f"CREATE VIEW chain{number} AS SELECT n FROM {name}")
        connection.execute("CREATE DATABASE elsewhere")
    with psycopg.connect(server.url.rpartition("/")[0] + "/elsewhere", autocommit=True) as other:
        other.execute("CREATE TABLE there (n int)")
        other.execute("INSERT INTO there VALUES (4711)")
    return server


# --- an empty server: these come first -------------------------------------------------------


@pytest.mark.parametrize("step", [0, 2])
@pytest.mark.parametrize("place", ["overview", "objects"])
def test_empty_server_offers_first_steps_that_run(
    shown: Console, server: Server, place: str, step: int
) -> None:
    shown.go(place)
    shown.page.get_by_test_id("first-steps").get_by_text("Open in the editor").nth(step).click()
    shown.page.locator(".CodeMirror").wait_for()
    shown.page.keyboard.press("Control+Enter")
    shown.sees("Done in")
    with server.connect() as connection:
        sources = connection.execute("SELECT count(*) FROM mz_sources WHERE name = 'demo'")
        for drop in ("DROP SOURCE demo CASCADE",) if sources.fetchall() == [(1,)] else ():
            connection.execute(drop)
        connection.execute("DROP TABLE IF EXISTS orders CASCADE")


# --- databases -------------------------------------------------------------------------------


def test_statements_and_objects_of_a_chosen_database(shown: Console, filled: Server) -> None:
    shown.go("sql")
    choice = shown.page.get_by_label("Database").last
    choice.select_option("elsewhere")
    shown.page.locator(".who select").filter(has_text="elsewhere").wait_for()
    shown.run("SELECT n FROM there")
    shown.sees("4711")
    shown.page.reload()
    shown.run("SELECT current_database() || '!'")
    shown.sees("elsewhere!")
    shown.go("objects")
    first = shown.page.locator(".tree .schema").first
    first.filter(has_text="elsewhere.public").wait_for()
    shown.page.locator(".tree").get_by_text("there", exact=True).click()
    shown.sees("1 rows")
    shown.go("objects/foreshore.public.here")  # those of others, too
    shown.sees("2 rows")


def test_dropped_database_gives_way_to_the_first_one(shown: Console, filled: Server) -> None:
    with filled.connect() as connection:
        connection.execute("CREATE DATABASE brief")
        shown.go("sql")
        shown.page.get_by_label("Database").last.locator("option", has_text="brief").wait_for(
            state="attached"
        )
        shown.page.get_by_label("Database").last.select_option("brief")
        shown.run("SELECT current_database() || '!'")
        shown.sees("brief!")
        shown.go("connections")
        shown.page.evaluate("window.stop()")
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'brief'"
        )
        for _ in range(100):
            try:
                connection.execute("DROP DATABASE IF EXISTS brief")
                break
            except psycopg.errors.ObjectInUse:
                shown.page.wait_for_timeout(50)
    shown.page.reload()
    shown.page.locator(".who select").filter(has_text="foreshore").wait_for()
    assert shown.page.locator(".who select").input_value() == "foreshore"


# --- results ---------------------------------------------------------------------------------


def test_chart_is_left_for_a_result_that_has_none(shown: Console, filled: Server) -> None:
    shown.run("SELECT n, n * 2 AS m FROM here")
    shown.page.get_by_role("button", name="Chart").click()
    shown.page.locator(".chart svg").wait_for()
    shown.page.get_by_role("button", name="Explain").click()
    shown.page.get_by_test_id("plan").wait_for()
    shown.run("SELECT 'no number' AS t")
    shown.page.get_by_role("gridcell", name="no number").wait_for()  # not the statement
    shown.page.get_by_role("button", name="Chart", disabled=True).wait_for()
    shown.run("SELECT 'a' AS t, 5 AS five, 6 AS six")
    shown.page.locator(".chart svg").wait_for()
    assert shown.page.get_by_text("A chart needs").count() == 0


@pytest.mark.parametrize("focused", ["Format", "New session", "Saved and history"])
def test_running_statement_is_cancelled_wherever_the_focus_is(
    shown: Console, filled: Server, focused: str
) -> None:
    shown.run("SELECT pg_sleep(3600)")
    shown.sees("Running for")
    shown.page.get_by_role("button", name=focused).focus()
    shown.page.keyboard.press("Control+.")
    shown.sees("Cancelled after")


# --- charts ----------------------------------------------------------------------------------

DRAW = """async ([kind, most]) => {
  const { html, render } = await import("./vendor/htm/preact.js");
  const chart = await import("./js/chart.js");
  const format = await import("./js/format.js");
  const place = document.createElement("div");
  place.style.width = "600px";
  document.body.append(place);
  const now = 1700000000000;
  const series = [{ name: "a", colour: 0, points: [[now, 0], [now + 60000, most]] }];
  render(html`<${chart.LineChart} series=${series} format=${format[kind]} label="drawn" />`, place);
  for (let turn = 0; turn < 200 && !place.querySelector("svg"); turn += 1) await new Promise(requestAnimationFrame);
  const labels = [...place.querySelectorAll("text[text-anchor=end]")];
  const left = place.querySelector("svg").getBoundingClientRect().left;
  const found = labels.map((label) => [label.textContent, label.getBoundingClientRect().left - left]);
  render(null, place);
  place.remove();
  return found;
}"""


@pytest.mark.parametrize(
    ("kind", "most", "expected"),
    [
        ("duration", 0.8, ["0 ms", "0.2 ms", "0.4 ms", "0.6 ms", "0.8 ms"]),
        ("duration", 240, ["0 ms", "50 ms", "100 ms", "150 ms", "200 ms", "250 ms"]),
        ("duration", 61_000, ["0 ms", "15 s", "30 s", "45 s", "1 min"]),
        ("duration", 75_000, ["0 ms", "15 s", "30 s", "45 s", "1 min", "1 min 15 s"]),
        ("duration", 500_000, ["0 ms", "2 min", "4 min", "6 min", "8 min"]),
        ("duration", 9_000_000, ["0 ms", "30 min", "1 h", "1 h 30 min", "2 h", "2 h 30 min"]),
        ("duration", 300_000_000, ["0 ms", "1 d", "2 d", "3 d"]),
        ("bytes", 5 << 30, ["0 B", "1 GB", "2 GB", "3 GB", "4 GB", "5 GB"]),
        ("count", 123_456_789, ["0", "50,000,000", "100,000,000"]),
    ],
)
def test_labels_of_axes_are_round_and_whole(
    shown: Console, server: Server, kind: str, most: float, expected: list[str]
) -> None:
    shown.go("connections")
    shown.sees("Connections")
    found = shown.page.evaluate(DRAW, [kind, most])
    assert [text for text, _ in found] == expected
    assert all(left >= 0 for _, left in found), found


# --- states ----------------------------------------------------------------------------------

HEALTH = """async ([rows, lags, scheduled, uses]) => {
  const { healths } = await import("./js/metrics.js");
  const found = { dataflows: rows, sources: [], sinks: [], scheduled, sample: { lag: new Map(lags) } };
  const data = { uses: new Map(uses) };
  return [...healths(data, found)].map(([id, { state }]) => [id, state]);
}"""


def test_view_that_is_behind_or_failing_is_not_told_to_be_running(
    shown: Console, server: Server
) -> None:
    def row(id: str, state: str, failure: str | None = None) -> dict[str, Any]:
        return {"object_id": id, "state": state, "failure": failure}

    shown.go("connections")
    rows = [
        row("u1", "running"),
        row("u2", "running"),
        row("u3", "running"),
        row("u4", "running"),
        row("u5", "failing", "division by zero"),
        row("u6", "running", "out of memory"),
        row("u7", "hydrating"),
        row("u8", "running"),
        row("u8", "hydrating"),
    ]
    lags = [["u1", 900], ["u2", 180_000], ["u3", 180_000], ["u4", 180_000], ["u5", 180_000]]
    found = shown.page.evaluate(HEALTH, [rows, lags, [{"id": "u3"}], [["u4", ["u3"]]]])
    assert dict(found) == {
        "u1": "running",
        "u2": "behind",
        "u3": "running",  # it waits for its next refresh
        "u4": "running",  # and so does what reads it
        "u5": "failing",
        "u6": "failed",
        "u7": "hydrating",
        "u8": "hydrating",
    }


def test_failing_view_stands_out_in_the_graph_and_the_list(shown: Console, filled: Server) -> None:
    shown.go("objects")
    shown.page.locator(".node.is-bad").filter(has_text="failing").wait_for()
    assert shown.page.locator(".node.is-bad").count() == 1
    shown.go("objects?show=list")
    shown.page.locator("tr").filter(has_text="bad").locator(".badge.bad").wait_for()
    shown.go("overview")
    shown.page.locator(".tile").filter(has_text="1 failing").wait_for()


def test_views_without_a_lag_yet_are_not_told_to_be_none(shown: Console, filled: Server) -> None:
    def without_lag(route: Any) -> None:
        answer = route.fetch()
        found = answer.json()
        for result in found.get("results", []):
            names = [each["name"] for each in result.get("desc", {}).get("columns", [])]
            if names == ["object_id", "lag"]:
                result["rows"] = [[id, None] for id, _ in result["rows"]]
        route.fulfill(response=answer, body=json.dumps(found))

    shown.page.route("**/api/sql", without_lag)
    shown.go("overview")
    tile = shown.page.locator(".tile").filter(has_text="Greatest lag")
    tile.filter(has_text="views are being filled").wait_for()
    shown.page.unroute_all(behavior="ignoreErrors")


# --- graphs ----------------------------------------------------------------------------------

INSIDE = """() => {
  const box = document.querySelector(".graph").getBoundingClientRect();
  return [...document.querySelectorAll(".node")].map((node) => node.getBoundingClientRect())
    .every((at) => at.left >= box.left - 1 && at.right <= box.right + 1 && at.top >= box.top - 1 && at.bottom <= box.bottom + 1);
}"""


def test_graph_begins_whole_and_the_wheel_enlarges_it(shown: Console, filled: Server) -> None:
    shown.go("objects")
    picture = shown.page.locator(".graph svg")
    node = shown.page.locator(".node").filter(has_text="chain11")
    node.wait_for()
    assert shown.page.evaluate(INSIDE)
    scale = float(picture.get_attribute("data-scale") or 0)
    assert scale < 1  # it has more than the window
    before = node.bounding_box()
    assert before is not None
    shown.page.mouse.move(before["x"] + 2, before["y"] + 2)
    shown.page.mouse.wheel(0, -600)
    shown.until(f"document.querySelector('.graph svg').dataset.scale > {scale * 1.5}")
    after = node.bounding_box()
    assert after is not None
    assert abs(after["x"] - before["x"]) < 5  # what is under the pointer stays there
    assert after["width"] > before["width"] * 1.5
    shown.page.mouse.down()
    shown.page.mouse.move(before["x"] - 198, before["y"] + 52, steps=4)
    shown.page.mouse.up()
    moved = node.bounding_box()
    assert moved is not None
    assert abs(moved["x"] - after["x"] + 200) < 3
    assert shown.page.url.endswith("objects")  # dragging a box does not open it
    shown.page.get_by_role("button", name="Fit").click()
    shown.until(INSIDE)
    node.click()
    shown.page.wait_for_url("**chain11*")


# --- what dropped sources have left ----------------------------------------------------------


def test_leftovers_are_shown_and_given_up(
    shown: Console, server: Server, postgres_url: str
) -> None:
    with server.connect() as connection:
        for each in (
            "CREATE TABLE kept (n int PRIMARY KEY)",
            f"CREATE CONNECTION away TO POSTGRES ({options_of(postgres_url)})",
            "CREATE SINK out FROM kept INTO POSTGRES CONNECTION away (TABLE 'public.kept')",
            "WAIT FOR SINKS out",
            f"ALTER CONNECTION away SET (PORT {free_port()}) WITH (VALIDATE = false)",
            "DROP SINK out",
        ):
            connection.execute(each.encode())
    shown.go("connections")
    row = shown.page.locator("tr").filter(has_text="table foreshore.frontiers")
    row.locator(".bad-text").wait_for()
    row.get_by_role("button", name="Give up").click()
    row.get_by_role("button", name="Leave it there?").click()
    row.wait_for(state="detached")
    with server.connect() as connection:
        assert connection.execute("TABLE mz_internal.mz_leftovers").fetchall() == []


def test_overview_calls_each_view_by_the_shortest_name_that_no_other_has(
    shown: Console, filled: Server
) -> None:
    with filled.connect() as connection:
        for sql in (
            "CREATE SCHEMA named",
            "CREATE MATERIALIZED VIEW named.mv AS SELECT n FROM here",
            "CREATE INDEX mv_by_n ON named.mv (n)",
            "CREATE MATERIALIZED VIEW named.twice AS SELECT n FROM here",
            "CREATE MATERIALIZED VIEW twice AS SELECT n FROM here",
            "CREATE VIEW named.plain AS SELECT n FROM here",
            "CREATE INDEX plain_by_n ON named.plain (n)",
        ):
            connection.execute(sql)
    try:
        shown.go("overview")
        names = shown.page.locator("table a.name")
        wanted = {"mv", "mv_by_n", "named.twice", "public.twice", "plain"}
        names.get_by_text("named.twice").wait_for()
        assert wanted <= {text.strip() for text in names.all_inner_texts()}
    finally:
        with filled.connect() as connection:
            connection.execute("DROP SCHEMA named CASCADE")
            connection.execute("DROP MATERIALIZED VIEW twice")
