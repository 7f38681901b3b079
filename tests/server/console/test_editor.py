"""What a person does with results, plans and views that fail, in Chromium."""

from __future__ import annotations

import base64
import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pyarrow.parquet as pq
import pytest

from tests.harness import Server, program, serving
from tests.server.console.browser import Console, console

pytestmark = [pytest.mark.full]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    program("chromium")
    with serving(tmp_path_factory.mktemp("editor") / "data") as server:
        with server.connect() as connection:
            for sql in (
                "CREATE TABLE orders (id int PRIMARY KEY, item text, amount numeric)",
                "COMMENT ON TABLE orders IS 'What was bought'",
                "INSERT INTO orders SELECT i, 'item ' || i, i % 7 FROM generate_series(1, 3000) i",
                "CREATE MATERIALIZED VIEW totals AS"
                " SELECT item, sum(amount) AS total FROM orders GROUP BY item",
                "CREATE MATERIALIZED VIEW shares (id, x, CONSTRAINT small EXPECT (x < 50))"
                " AS SELECT id, 100 / (id - 3) AS x FROM orders",
                "CREATE SOURCE hook FROM WEBHOOK BODY FORMAT JSON",
            ):
                connection.execute(sql.encode())
        yield server


@pytest.fixture
def shown(server: Server) -> Iterator[Console]:
    with console(server) as shown:
        yield shown
        assert shown.errors == []


def downloaded(shown: Console, name: str, number: int = 0) -> Path:
    """Return the file that a person downloads; `number` counts buttons of one name."""
    shown.page.get_by_text("Download", exact=True).click()
    with shown.page.expect_download() as download:
        shown.page.locator(".menu-items").get_by_role("button", name=name, exact=True).nth(
            number
        ).click()
    return Path(download.value.path())


def test_results_are_saved_in_several_formats(shown: Console) -> None:
    shown.run("SELECT id, item, amount FROM orders WHERE id <= 2500 ORDER BY id")
    shown.page.get_by_test_id("rows").filter(has_text="2,500 rows").wait_for()
    lines = list(csv.DictReader(downloaded(shown, "CSV").read_text().splitlines()))
    assert [lines[0], len(lines)] == [{"id": "1", "item": "item 1", "amount": "1"}, 2500]
    objects = json.loads(downloaded(shown, "JSON").read_text())
    assert [objects[1], len(objects)] == [{"id": 2, "item": "item 2", "amount": "2"}, 2500]
    table = pq.read_table(downloaded(shown, "Parquet"))
    assert table.num_rows == 2500
    assert table["id"].to_pylist()[:3] == [1, 2, 3]
    whole = list(csv.DictReader(downloaded(shown, "CSV", 1).read_text().splitlines()))
    assert whole == lines


def test_change_is_not_run_again_by_a_download(shown: Console) -> None:
    shown.run("UPDATE orders SET item = item WHERE id = 1 RETURNING id")
    shown.page.get_by_test_id("rows").filter(has_text="1 row").wait_for()
    shown.page.get_by_text("Download", exact=True).click()
    assert shown.page.locator(".menu-items button").all_inner_texts() == [
        "Copy for a spreadsheet",
        "CSV",
        "JSON",
    ]


def test_statement_at_the_cursor_runs_alone_and_is_explained(shown: Console) -> None:
    text = "SELECT 'a;b\\' AS first;\nSELECT item, count(*) FROM orders JOIN totals USING (item) GROUP BY 1"
    shown.run(text)
    shown.page.get_by_role("tab", name="2: SELECT 3000").wait_for()
    shown.page.keyboard.press("Control+Home")
    shown.page.keyboard.press("Control+Shift+Enter")
    shown.page.get_by_role("gridcell", name="a;b\\").wait_for()
    assert shown.page.locator(".results [role=tab]").count() == 0
    shown.page.locator(".CodeMirror").click()
    shown.page.keyboard.press("Control+End")
    shown.page.get_by_role("button", name="Explain").click()
    plan = shown.page.get_by_test_id("plan")
    for name in ("orders", "totals", "Join"):
        plan.get_by_role("button", name=name, exact=True).first.wait_for()
    plan.get_by_role("button", name="Join", exact=True).click()
    plan.locator(".detail pre").get_by_text("on=").wait_for()
    assert plan.locator("path.edge").count() >= 3
    shown.page.get_by_role("button", name="Table", exact=True).click()
    shown.page.get_by_role("gridcell", name="Get foreshore.public.totals").wait_for()


def test_names_are_completed(shown: Console) -> None:
    shown.go("sql")
    shown.page.locator(".CodeMirror").click()
    shown.page.keyboard.press("Control+a")
    for typed, offered in (
        ("SELECT o.am", "amount"),
        ("SELECT * FROM tot", "totals"),
        ("SELECT date_tr", "date_trunc"),
        ("SELECT * FROM mz_internal.mz_view_er", "mz_view_errors"),
    ):
        shown.page.keyboard.press("Control+a")
        if typed.startswith("SELECT o."):
            shown.page.keyboard.insert_text("SELECT  FROM orders AS o")
            shown.page.keyboard.press("Home")
            for _ in range(7):
                shown.page.keyboard.press("ArrowRight")
            shown.page.keyboard.type(typed.removeprefix("SELECT "))
        else:
            shown.page.keyboard.type(typed)
        shown.page.keyboard.press("Control+Space")
        shown.page.locator(".CodeMirror-hint").get_by_text(offered, exact=True).first.wait_for()
        shown.page.keyboard.press("Escape")
        shown.page.locator(".CodeMirror").click()


def test_view_that_fails_is_called_so_and_says_why(shown: Console, server: Server) -> None:
    shown.go("overview")
    # The view that counts violations reads the same rows.
    shown.page.get_by_text("2 failing").wait_for()
    link = shown.page.get_by_role("link", name="shares", exact=True)
    row = shown.page.get_by_role("row").filter(has=link).filter(has_text="failing")
    row.get_by_role("link", name="division by zero").click()
    shown.page.get_by_role("tab", name="Errors", selected=True).wait_for()
    errors = shown.page.get_by_role("table", name="Errors in the data")
    errors.get_by_role("row").filter(has_text="22012").wait_for()
    shown.page.get_by_text("SELECT * FROM FAILING_ROWS(public.shares)").wait_for()
    expected = shown.page.get_by_role("table", name="Expectations").get_by_role("row")
    expected.filter(has_text="small").filter(has_text="x < 50").wait_for()
    with server.connect() as connection:
        connection.execute("DELETE FROM orders WHERE id = 3")
        shown.page.get_by_text("it can be read").wait_for()
        shown.page.locator(".tile").get_by_text("running").wait_for()
        past = shown.page.get_by_role("table", name="History of errors")
        past.get_by_text("it could be read").first.wait_for()
        connection.execute("INSERT INTO orders VALUES (3, 'item 3', 3)")
    errors.get_by_role("row").filter(has_text="22012").wait_for()


def test_webhook_shows_what_it_has_received(shown: Console, server: Server) -> None:
    shown.go("objects/foreshore.public.hook")
    shown.page.get_by_text("nothing received since the start").wait_for()
    shown.page.get_by_text("running").first.wait_for()
    url = f"http://127.0.0.1:{server.http_port}/api/webhook/foreshore/public/hook"
    assert shown.page.request.post(url, data='{"a": 1}').status == 200
    assert shown.page.request.post(url, data="{").status == 400
    shown.page.get_by_text("1 received, the last").wait_for()
    shown.page.get_by_text("1 refused, the last").wait_for()


def test_object_shows_comment_keys_and_history(shown: Console) -> None:
    shown.go("objects/foreshore.public.orders?tab=columns")
    shown.page.get_by_text("What was bought").wait_for()
    keys = shown.page.get_by_role("table", name="Constraints and indexes")
    keys.get_by_text("PRIMARY KEY (id)").wait_for()
    shown.go("objects/foreshore.public.totals?tab=freshness")
    shown.page.get_by_text("Greatest lag of each minute").wait_for()
    shown.page.get_by_role("img", name="Memory over time").wait_for()


@pytest.mark.parametrize("place", ["overview", "sql", "objects", "clusters", "sessions", "roles"])
def test_narrow_window_is_not_wider_than_it_is(shown: Console, place: str) -> None:
    shown.page.set_viewport_size({"width": 390, "height": 844})
    shown.go(place)
    shown.page.locator("main h1").first.wait_for(state="attached")
    shown.page.locator("main .loading").wait_for(state="detached")
    assert shown.page.evaluate("document.querySelector('main').scrollWidth") <= 390


BRIGHTNESS = """async (png) => {
  const image = new Image();
  image.src = "data:image/png;base64," + png;
  await image.decode();
  const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
  context.drawImage(image, 0, 0);
  const bytes = context.getImageData(image.width - 4, 4, 1, 1).data;
  return bytes[0] + bytes[1] + bytes[2];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_table_that_is_cut_has_a_shade_where_there_is_more(
    shown: Console, scheme: Literal["light", "dark"]
) -> None:
    shown.page.set_viewport_size({"width": 390, "height": 844})
    shown.page.emulate_media(color_scheme=scheme)
    shown.go("clusters")
    table = shown.page.locator(".table-scroll").first
    table.get_by_role("row").nth(1).wait_for()
    browser = shown.page.context.browser
    assert browser is not None
    reader = browser.new_page()

    def edge() -> int:
        png = base64.b64encode(table.screenshot()).decode()
        return int(reader.evaluate(BRIGHTNESS, png))

    cut = edge()
    table.evaluate("each => each.scrollTo(each.scrollWidth, 0)")
    assert cut < edge() - 20
    reader.close()


def test_two_thousand_objects_are_listed_in_parts_and_found(shown: Console, server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE SCHEMA many")
        connection.execute(
            ";".join(f"CREATE VIEW many.v{i:04} AS SELECT {i} AS n" for i in range(2000)).encode()
        )
    shown.go("objects")
    shown.page.get_by_text("objects", exact=False).first.wait_for()
    listed = shown.page.get_by_role("table", name="Objects")
    listed.get_by_role("row").nth(150).wait_for()
    assert listed.get_by_role("row").count() <= 201
    shown.page.get_by_role("button", name="Show more").click()
    listed.get_by_role("row").nth(350).wait_for()
    shown.page.get_by_label("Find in the list").fill("v1987")
    listed.get_by_role("link", name="v1987").click()
    shown.page.get_by_role("heading", name="v1987").wait_for()
    # The tree has it, too, and has scrolled to it.
    row = shown.page.locator(".tree .object[aria-current=page]")
    row.wait_for()
    assert row.inner_text() == "v1987"
    assert row.evaluate(
        """row => { const [a, b] = [row, row.closest('.tree')].map(e => e.getBoundingClientRect());
        return a.top >= b.top && a.bottom <= b.bottom; }"""
    )
