"""What a person meets in a day's work with the console, in Chromium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness import Server, program, serving
from tests.server.console.browser import Console, console

pytestmark = [pytest.mark.full]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    program("chromium")
    with serving(tmp_path_factory.mktemp("day") / "data") as server:
        with server.connect() as connection:
            for sql in (
                "CREATE TABLE orders (id int PRIMARY KEY, item text)",
                "INSERT INTO orders VALUES (1, 'tea'), (2, 'coffee')",
                "CREATE SCHEMA past",
                "CREATE TABLE past.orders (id int)",
                "CREATE MATERIALIZED VIEW counts AS SELECT item, count(*) AS n FROM orders GROUP BY 1",
                "CREATE SOURCE auctions_only FROM LOAD GENERATOR AUCTION",
            ):
                connection.execute(sql.encode())
        yield server


@pytest.fixture
def shown(server: Server) -> Iterator[Console]:
    with console(server) as shown:
        shown.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        yield shown
        assert shown.errors == []


def written(shown: Console) -> str:
    """Return what is in the editor."""
    return str(shown.page.evaluate("document.querySelector('.CodeMirror').CodeMirror.getValue()"))


def copied(shown: Console) -> str:
    """Return what is on the clipboard."""
    return str(shown.page.evaluate("navigator.clipboard.readText()"))


def test_error_names_its_statement_and_what_was_rolled_back(shown: Console, server: Server) -> None:
    shown.run(
        "CREATE TABLE gone (a int);\nINSERT INTO gone VALUES (1);\nSELECT 1 / (a - 1)\nFROM gone"
    )
    shown.sees("division by zero")
    shown.sees("these were rolled back: CREATE TABLE, INSERT 0 1.")
    shown.page.locator(".sql-error-line").get_by_text("3", exact=True).wait_for()
    shown.page.get_by_role("button", name="Statement 3 of 3, line 3").click()
    shown.page.keyboard.type("-- here ")
    assert "\n-- here SELECT 1" in written(shown)
    with server.connect() as connection:
        found = connection.execute("SELECT count(*) FROM pg_class WHERE relname = 'gone'")
        assert found.fetchone() == (0,)


def test_error_of_explain_is_marked_where_it_is(shown: Console) -> None:
    shown.run("SELECT 1;\nSELECT wrong FROM orders")
    shown.page.get_by_role("button", name="Statement 2 of 2, line 2").wait_for()
    shown.page.get_by_role("button", name="Explain").click()
    shown.page.get_by_role("button", name="Line 2", exact=True).wait_for()
    assert shown.page.locator(".sql-error").inner_text() == "wrong"


def test_enter_behind_a_whole_word_begins_a_line(shown: Console) -> None:
    shown.go("sql")
    hints = shown.page.locator(".CodeMirror-hints")
    shown.page.locator(".CodeMirror").click()
    shown.page.keyboard.press("Control+a")
    shown.page.keyboard.type("SELECT item FROM order")
    hints.get_by_text("orders", exact=True).first.wait_for()
    shown.page.keyboard.type("s")
    hints.wait_for(state="detached")
    shown.page.keyboard.press("Enter")
    # Neither names within literals nor with digits in their middle are offered.
    shown.page.keyboard.type("WHERE item = 'ord' LIMIT 10")
    shown.page.keyboard.press("Enter")
    assert written(shown) == "SELECT item FROM orders\nWHERE item = 'ord' LIMIT 10\n"


def test_range_of_cells_is_copied(shown: Console) -> None:
    shown.run(
        "SELECT i, repeat('x', i / 1000) AS x, i::numeric AS n FROM generate_series(1, 20000) i"
    )
    shown.page.get_by_test_id("rows").filter(has_text="20,000 rows").wait_for()
    shown.page.get_by_role("gridcell", name="3", exact=True).first.click()
    shown.page.keyboard.press("Shift+ArrowDown")
    shown.page.get_by_role("row").nth(4).get_by_role("gridcell").nth(2).click(modifiers=["Shift"])
    assert shown.page.locator("td.chosen").count() == 6
    shown.page.keyboard.press("Control+c")
    assert copied(shown) == "3\t\t3\n4\t\t4"
    shown.page.keyboard.press("Control+a")
    shown.page.keyboard.press("Control+c")
    assert copied(shown).count("\n") == 19_999
    # Widths are those of the last rows, too.
    shown.page.keyboard.press("Control+End")
    last = shown.page.locator("tr[aria-rowindex='20001'] td")
    last.first.wait_for()
    assert last.evaluate_all("cells => cells.every(c => c.scrollWidth <= c.clientWidth)")
    shown.page.get_by_text("Download", exact=True).click()
    shown.page.get_by_role("button", name="Copy for a spreadsheet").click()
    shown.until("navigator.clipboard.readText().then(text => text.startsWith('i\\tx\\tn\\n1\\t'))")


TEXTS = {
    "SELECT 1": "SELECT 1",
    "select a.item,count(*) as n from orders a left join past.orders b on a.id=b.id and b.id is"
    " not distinct from 3 where a.item like 'x  y' and a.id between 1 and 2 or a.id in (select id"
    " from past.orders where id > 7 and id < 99) group by 1;": "select a.item, count(*) as n\n"
    "from orders a\n"
    "left join past.orders b on a.id=b.id and b.id is not distinct from 3\n"
    "where a.item like 'x  y'\n"
    "  and a.id between 1 and 2\n"
    "  or a.id in (\n"
    "    select id\n"
    "    from past.orders\n"
    "    where id > 7 and id < 99\n"
    "  )\n"
    "group by 1;",
    "SELECT 1 -- one\n;SELECT $$ a;  b $$ /* c /* d */ */ , E'\\'' FROM orders WHERE true": "SELECT 1"
    " -- one\n;\n\n"
    "SELECT $$ a;  b $$ /* c /* d */ */, E'\\''\nFROM orders\nWHERE true",
    "SELECT (1": "SELECT (1",
}


def test_format_puts_statements_into_lines(shown: Console) -> None:
    for text, lines in TEXTS.items():
        shown.go("sql")
        shown.page.locator(".CodeMirror").click()
        shown.page.keyboard.press("Control+a")
        shown.page.keyboard.insert_text(text)
        shown.page.keyboard.press("Shift+Alt+F")
        assert written(shown) == lines
        shown.page.keyboard.press("Shift+Alt+F")
        assert written(shown) == lines
    shown.go("objects/foreshore.public.counts?tab=definition")
    definition = shown.page.locator(".sql-text code")
    definition.wait_for()
    assert "\nGROUP BY" in definition.inner_text()


def test_format_leaves_what_it_does_not_understand(shown: Console) -> None:
    shown.go("overview")
    found = shown.page.evaluate(
        """async () => {
        const { formatted } = await import("./js/sql_format.js");
        const deep = "SELECT  " + "(".repeat(5000) + "1" + ")".repeat(5000);
        return [deep, "SELECT  'a'\\n'b'", "SELECT  1"].map(text => formatted(text) === text);
      }"""
    )
    assert found == [True, True, False]


def test_statement_that_was_saved_is_there_after_a_reload(shown: Console) -> None:
    shown.run("SELECT 4712 AS kept")
    shown.page.get_by_role("gridcell", name="4712").wait_for()
    shown.page.get_by_role("button", name="Saved and history").click()
    shown.page.get_by_label("Name for what is in the editor").fill("the number")
    shown.page.keyboard.press("Enter")
    shown.page.get_by_role("list", name="Saved").get_by_text("the number").wait_for()
    shown.run("SELECT 1")
    shown.page.reload()
    shown.page.get_by_role("list", name="Ran").get_by_text("SELECT 4712").wait_for()
    shown.page.get_by_role("list", name="Saved").get_by_text("the number").click()
    assert written(shown) == "SELECT 4712 AS kept"
    shown.page.get_by_role("button", name="Remove the number").click()
    shown.page.get_by_text("the number").wait_for(state="detached")


def test_session_that_is_lost_while_idle_is_told(shown: Console, server: Server) -> None:
    shown.run("BEGIN; UPDATE orders SET item = 'milk' WHERE id = 1")
    shown.sees("in a transaction")
    with server.connect() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'foreshore console editor'"
        )
    shown.sees("session lost: the transaction was rolled back")
    shown.run("SELECT item FROM orders WHERE id = 1")
    shown.page.get_by_role("gridcell", name="tea").wait_for()
    assert shown.page.get_by_text("session lost").count() == 0


def test_objects_of_one_name_are_told_apart(shown: Console) -> None:
    shown.go("objects")
    for name in ("public.orders", "past.orders", "counts"):
        shown.page.get_by_role("link", name=name, exact=True).first.wait_for()


def test_source_without_tables_says_how_to_make_them(shown: Console) -> None:
    shown.go("objects/foreshore.public.auctions_only")
    shown.sees("CREATE TABLE … FROM SOURCE auctions_only")


def test_times_and_durations_are_written_in_units(shown: Console) -> None:
    shown.go("overview")
    found = shown.page.evaluate(
        """async () => {
        const f = await import("./js/format.js");
        const now = new Date(2026, 6, 4, 12);
        return [[119_700, 59_970, 3_599_999, 86_399_000].map(f.duration),
          ["00:00:00.207", "1 day 00:00:01", "-00:00:01", "1 mon", null].map(f.intervalMs),
          ["2026-11-27 13:00:00.5-05:30", "2026-11-27 13:00:00.5", "2026-11-27"].map(
            text => f.when(f.wall(text), now)),
          f.when(new Date(2026, 6, 4, 9, 5, 6), now), f.when(new Date(2026, 6, 3, 9, 5, 6), now)];
      }"""
    )
    assert found == [
        ["2 min", "1 min", "1 h", "23 h 59 min"],
        [207, 86_401_000, -1000, None, None],
        ["2026-11-27 13:00:00", "2026-11-27 13:00:00", "2026-11-27 00:00:00"],
        "09:05:06",
        "2026-07-03 09:05:06",
    ]


def test_tables_are_sorted_by_their_columns(shown: Console) -> None:
    shown.run("SELECT * FROM (VALUES (2, 'b'), (10, NULL), (9, 'a')) AS v (n, t)")
    first = shown.page.locator("[role=grid] tbody tr td:first-child")

    def follow_each_other(*numbers: str) -> None:
        shown.until(
            "numbers => [...document.querySelectorAll('[role=grid] tbody tr td:first-child')]"
            ".map(cell => cell.innerText).join() === numbers.join()",
            list(numbers),
        )

    first.first.wait_for()
    headers = shown.page.locator("[role=grid] th button")
    for order in (("2", "9", "10"), ("10", "9", "2"), ("2", "10", "9")):
        headers.nth(0).click()
        follow_each_other(*order)
    headers.nth(1).click()
    follow_each_other("9", "2", "10")
    first.first.click()
    shown.page.keyboard.press("s")
    follow_each_other("2", "9", "10")
    shown.go("objects?show=list")
    listed = shown.page.get_by_role("table", name="Objects")
    listed.get_by_role("button", name="Name").click()
    listed.locator("th[aria-sort=ascending]").get_by_text("Name").wait_for()
    names = listed.locator("tbody tr td:first-child").all_inner_texts()
    assert names == sorted(names)
    listed.get_by_role("button", name="Size").click()
    listed.locator("th[aria-sort=descending]").get_by_text("Size").wait_for()


def test_tabs_keep_texts_of_their_own_and_one_history(shown: Console) -> None:
    other = shown.page.context.new_page()
    other.goto(f"{shown.base}#/sql")
    shown.run("SELECT 'mine'")
    shown.page.get_by_role("gridcell", name="mine").wait_for()
    other.locator(".CodeMirror").click()
    other.keyboard.press("Control+a")
    other.keyboard.insert_text("SELECT 'other'")
    other.keyboard.press("Control+Enter")
    other.get_by_role("gridcell", name="other").wait_for()
    shown.page.reload()
    shown.page.locator(".CodeMirror-line").get_by_text("'mine'").wait_for()
    shown.page.get_by_role("button", name="Saved and history").click()
    ran = shown.page.get_by_role("list", name="Ran")
    for text in ("SELECT 'mine'", "SELECT 'other'"):
        ran.get_by_text(text).wait_for()


def test_wide_rows_are_shown_by_part_and_reached_by_keys(shown: Console) -> None:
    columns = ", ".join(f"i * 1000 + {n} AS c{n}" for n in range(300))
    shown.run(f"SELECT {columns} FROM generate_series(1, 3) i")
    shown.page.get_by_role("gridcell", name="1000", exact=True).click()
    assert shown.page.locator("[role=grid] th").count() < 60
    shown.page.keyboard.press("End")
    last = shown.page.get_by_role("gridcell", name="1299", exact=True)
    last.wait_for()
    shown.page.keyboard.press("ArrowDown")
    shown.page.keyboard.press("Control+c")
    assert copied(shown) == "2299"
    box, grid = last.bounding_box(), shown.page.get_by_role("grid").bounding_box()
    assert box is not None
    assert grid is not None
    assert grid["x"] <= box["x"] < grid["x"] + grid["width"]
    shown.page.keyboard.press("Home")
    shown.page.get_by_role("gridcell", name="1000", exact=True).wait_for()


def test_text_without_a_statement_is_not_called_running(shown: Console) -> None:
    shown.run("-- nothing yet")
    shown.sees("There is no statement in the text.")


def test_plan_of_a_view_is_drawn_whole(shown: Console, server: Server) -> None:
    with server.connect() as connection:
        connection.execute(
            "CREATE MATERIALIZED VIEW joined AS SELECT o.item, n FROM orders o JOIN counts c"
            " ON o.item = c.item UNION ALL SELECT item, id FROM orders"
        )
    shown.run("EXPLAIN PHYSICAL PLAN FOR MATERIALIZED VIEW joined")
    plan = shown.page.get_by_test_id("plan")
    plan.get_by_role("button", name="Delta join").first.wait_for()
    plan.get_by_role("button", name="Union").first.wait_for()
    # All is one picture: each operator but the last feeds another one.
    nodes = plan.locator("g[role=button]").count()
    assert plan.locator("path.edge").count() >= nodes - 1
