"""foreshore.js as a package for npm, its types, and the page in docs that uses it."""

from __future__ import annotations

import functools
import http.server
import io
import json
import re
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from foreshore.server.http.script import FILES, package
from tests.harness import ROOT, program, serving
from tests.server.http.serving import Http, over_environment


def test_package_has_module_types_and_a_version() -> None:
    data = package()
    assert data == package()
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        assert sorted(archive.getnames()) == [
            "package/foreshore.d.ts",
            "package/foreshore.js",
            "package/package.json",
        ]
        member = archive.extractfile("package/package.json")
        assert member is not None
        about = json.loads(member.read())
    assert re.fullmatch(r"\d+\.\d+\.\d+", about["version"])
    assert about["version"] != "0.0.0"


def test_types_declare_what_the_module_exports() -> None:
    module, types = ((FILES / f"foreshore.{kind}").read_text() for kind in ("js", "d.ts"))
    exported = set(re.findall(r"^export (?:async )?(?:function|class) (\w+)", module, re.M))
    declared = set(re.findall(r"^export (?:function|class) (\w+)", types, re.M))
    assert exported == declared == {"ForeshoreError", "live"}
    (address,) = re.findall(r"function addressOf\(query, \{ (.*?) \}\)", module)
    options = {*re.findall(r"this\.#options\.(\w+)", module), *address.split(", ")}
    assert len(options) >= 7
    for name in options:
        assert re.search(rf"^  {name}\??:", types, re.M), name


def test_files_are_sent_again_only_if_they_have_changed(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        for path in ("/foreshore.js", "/foreshore.d.ts", "/foreshore.tgz", "/api/openapi.json"):
            first = await http.client.get(path)
            assert first.status_code == 200
            assert first.content
            tag = first.headers["etag"]
            again = await http.client.get(path, headers={"if-none-match": f'"other", W/{tag}'})
            assert (again.status_code, again.content) == (304, b"")
            other = await http.client.get(path, headers={"if-none-match": '"other"'})
            assert other.content == first.content

    over_environment(tmp_path, go)


@pytest.mark.full
def test_npm_installs_the_package_from_the_server(tmp_path: Path) -> None:
    npm, node = program("npm"), program("node")
    with serving(tmp_path / "data") as server:
        url = f"http://127.0.0.1:{server.http_port}"
        app = tmp_path / "app"
        app.mkdir()
        (app / "package.json").write_text('{"type": "module"}')
        install = [npm, "install", "--offline=false", "--no-audit", "--no-fund"]
        cache = ["--cache", str(tmp_path / "npm"), f"{url}/foreshore.tgz"]
        subprocess.run([*install, *cache], cwd=app, check=True, timeout=120, capture_output=True)
        (app / "app.js").write_text(
            'import { live } from "foreshore";\n'
            f'const copy = live("SELECT 1 AS id", {{ key: "id", url: "{url}" }});\n'
            "console.log(JSON.stringify((await copy.ready).get(1)));\n"
        )
        ran = subprocess.run([node, "app.js"], cwd=app, check=True, timeout=60, capture_output=True)
        assert json.loads(ran.stdout) == {"id": 1}


@contextmanager
def _served(folder: Path) -> Iterator[int]:
    """Serve a folder's files by a web server that is not the database's."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.full
def test_page_of_the_docs_follows_a_query_through_a_kill_of_the_server(tmp_path: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = program("chromium")
    with _served(ROOT / "docs" / "examples") as port:
        origin = f"http://127.0.0.1:{port}"
        with serving(tmp_path / "data", "--http-origin", origin) as server:
            with server.connect() as connection:
                connection.execute("CREATE TABLE orders (item text, amount int)")
                connection.execute(
                    "CREATE MATERIALIZED VIEW totals AS"
                    " SELECT item, sum(amount) AS total FROM orders GROUP BY item"
                )
                connection.execute("INSERT INTO orders VALUES ('tea', 3)")
            with sync_api.sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
                )
                page = browser.new_page()
                page.goto(f"{origin}/live.html?server=http://127.0.0.1:{server.http_port}")
                page.get_by_role("row", name="tea 3").wait_for(timeout=60_000)
                server.kill()
                page.get_by_text("trying again").wait_for(timeout=60_000)
                server.start()
                with server.connect() as connection:
                    connection.execute("INSERT INTO orders VALUES ('tea', 4), ('milk', 1)")
                page.get_by_role("row", name="tea 7").wait_for(timeout=60_000)
                page.get_by_role("row", name="milk 1").wait_for(timeout=60_000)
                assert page.locator("tbody tr").count() == 2
                browser.close()


REACHED = """
import { live } from "SCRIPT";
let send;
const body = new ReadableStream({
  start: (controller) => (send = (text) => controller.enqueue(new TextEncoder().encode(text))),
});
const progress = (time) => send(`event: progress\\nid: ${time}-x\\ndata: {"time":"${time}"}\\n\\n`);
const copy = live("SELECT 1", { url: "http://x", fetch: async () => ({ ok: true, body }) });
const rows = (time, rows) => ({ time, desc: { columns: [{ name: "a" }] }, rows });
send(`event: rows\\ndata: ${JSON.stringify(rows("5", [[1, [3]]]))}\\n\\n`);
progress(5);
await copy.ready;
const said = [];
copy.reached(7).then((found) => said.push(["seven", String(found.time), found.size]));
const nine = copy.reached("9").catch((error) => said.push(["nine", error.message]));
said.push((await copy.reached(5n)) === copy);
progress(6);
await copy.reached(6);
said.push(said.length);
send(`event: rows\\ndata: ${JSON.stringify(rows("8", [[1, [4]]]))}\\n\\n`);
progress(8);
await copy.reached(8);
copy.close();
await nine;
await copy.reached(9).catch((error) => said.push(error.message));
console.log(JSON.stringify(said));
"""


def test_copy_tells_when_it_has_reached_a_time() -> None:
    script = REACHED.replace("SCRIPT", (FILES / "foreshore.js").as_uri())
    command = [program("node"), "--input-type=module", "--eval", script]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == [True, 1, ["seven", "8", 2], ["nine", "closed"], "closed"]
