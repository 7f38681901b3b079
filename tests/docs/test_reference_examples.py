"""The examples of docs/reference run, and return what the pages say.

Those that need another system are bound only, so that their options and columns are checked.

`GOLDEN=rewrite` writes the output into the pages anew, to be reviewed.
"""

import asyncio
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from foreshore.adapter.client import CopyOut, Execution, Rows, Startup
from foreshore.adapter.session.session import Session
from foreshore.datum import from_array
from foreshore.errors import DatabaseError, UndefinedObject, UndefinedTable
from foreshore.sql.parse.parse import Statement
from foreshore.sql.planner import plan_statement
from foreshore.text import format_text
from tests.adapter.harness import TestEnvironment
from tests.docs.pages import INDEX, PAGES, Step, blocks, outputs, statements, steps

WITHIN_SECONDS = 120  # of a page, on a busy machine


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def env(
    runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TestEnvironment]:
    env = TestEnvironment(tmp_path_factory.mktemp("env"))
    runner.run(env.open())
    env.environment.unlock_secrets(bytes(32))
    yield env
    runner.run(env.close())


@pytest.mark.parametrize("page", [*PAGES, INDEX], ids=lambda page: page.stem)
def test_examples_run_and_return_what_the_page_says(
    page: Path, env: TestEnvironment, runner: asyncio.Runner
) -> None:
    runner.run(asyncio.wait_for(_check(page, env), WITHIN_SECONDS))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_that_are_not_run_say_why_and_parse(page: Path) -> None:
    for block in blocks(page):
        assert not block.info.startswith("sql") or block.is_example, block.info
        if block.is_example:
            assert statements(block), block.text


async def _check(page: Path, env: TestEnvironment) -> None:
    database = f"of_{page.stem.lower().replace('-', '_')}"
    await env.ran("admin", f"CREATE DATABASE {database}")
    session = await env.environment.connect(Startup("foreshore", database, {}))
    expected, found = outputs(page), dict[int, str]()
    skipped: list[str] = []
    for number, block in enumerate(blocks(page)):
        if block.is_run:
            shown = [await _run(session, each) for each in steps(block)]
            if number in expected:
                found[number] = shown[-1]
        elif block.is_example:
            for statement in statements(block):
                _bind(session, statement, skipped)
                skipped.append(statement.text)
    if session.transaction_status != "I":
        await _run(session, Step("ROLLBACK", None))
    await session.close()
    await env.ran("admin", f"DROP DATABASE {database} CASCADE")
    if os.environ.get("GOLDEN") == "rewrite":
        _rewrite(page, found)
    else:
        assert found == {number: block.text for number, block in expected.items()}


def _bind(session: Session, statement: Statement, skipped: Sequence[str]) -> None:
    """Bind a statement that cannot run; it may name what earlier ones would have created."""
    missing = ""
    try:
        plan_statement(statement, session.planner.reader())
    except (UndefinedTable, UndefinedObject) as error:
        missing = error.message
    for name in re.findall(r'"([^"]+)"', missing):
        creates = re.compile(rf"CREATE [A-Z ]+ {name}\b")
        assert any(creates.search(each) for each in skipped), f"{statement.text}\n{missing}"


def _rewrite(page: Path, found: dict[int, str]) -> None:
    """Put the output that was found into the page."""
    text, expected = page.read_text(), outputs(page)
    for number in sorted(found, reverse=True):
        block = expected[number]
        text = text[: block.start] + found[number] + text[block.end :]
    page.write_text(text)


async def _run(session: Session, step: Step) -> str:
    """Run a statement; return its rows as psql shows them, or the error that it has to have."""
    shown, failed = "", ""
    try:
        async for execution in session.simple(step.text):
            shown = await _shown(execution)
    except DatabaseError as error:
        await session.fail(error)
        failed = error.sqlstate
        shown = f"ERROR:  {error.message}\n"
    assert failed == (step.error or ""), f"{step.text}\n{failed} {shown}"
    return shown


async def _shown(execution: Execution) -> str:
    if not isinstance(execution, Rows | CopyOut):
        return ""
    rows: list[list[str]] = [list(execution.desc.names)]
    async for batch in execution.batches:
        columns = [
            ["" if datum is None else format_text(datum, each.type) for datum in datums]
            for datums, each in (
                (from_array(column, each.type), each)
                for column, each in zip(batch.columns, execution.desc.columns, strict=True)
            )
        ]
        rows += map(list, zip(*columns, strict=True))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines.insert(1, "-+-".join("-" * width for width in widths))
    return "".join(f" {line}".rstrip() + "\n" for line in lines)
