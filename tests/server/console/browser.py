"""A page of the console in a real browser, and what a person does with it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.harness import Server, program, until

pytest.importorskip("playwright")

from playwright.sync_api import Page, sync_playwright

ARGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run"
    " --disable-background-networking --disable-component-update --disable-sync"
).split()


@dataclass
class Console:
    """A page, and the errors that the browser has reported of it."""

    page: Page
    base: str
    errors: list[str] = field(default_factory=list)

    def go(self, place: str) -> None:
        """Show a page of the console."""
        self.page.goto(f"{self.base}#/{place}")

    def run(self, text: str) -> None:
        """Put statements into the editor, as a person would, and press Ctrl Enter."""
        if "#/sql" not in self.page.url:
            self.go("sql")
        self.page.locator(".CodeMirror").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(text)
        self.page.keyboard.press("Control+Enter")

    def sees(self, text: str, within_s: float = 60) -> None:
        """Wait until a text is on the page."""
        self.page.get_by_text(text).first.wait_for(timeout=within_s * 1000)

    def until(self, script: str, given: object = None) -> None:
        """Wait until a script is true.

        `wait_for_function` looks a second time from within the page, whose policy forbids that.
        """
        until(lambda: bool(self.page.evaluate(script, given)), script)


@contextlib.contextmanager
def console(server: Server) -> Iterator[Console]:
    """Open the console in a Chromium; skips where there is none."""
    path = program("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGS)
        page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
        page.set_default_timeout(60_000)
        shown = Console(page, f"http://127.0.0.1:{server.http_port}/console/")
        page.on("pageerror", lambda error: shown.errors.append(str(error)))
        page.on("console", lambda m: shown.errors.append(m.text) if m.type == "error" else None)
        try:
            yield shown
        finally:
            browser.close()
