"""Pages of functions and types: each example has the result that it says, and each has a row.

`GOLDEN=rewrite` writes the results. Examples of aggregates and of window functions are computed over
the rows that the page names, those of functions in FROM as rows.
"""

import os
import re
from pathlib import Path

import pytest

from foreshore.expr.functions.aggregates import _AGGREGATES as AGGREGATES
from foreshore.expr.functions.function import SCALARS, TABLES
from foreshore.sql.bind.sql_functions import sql_function_names
from foreshore.types import TYPES
from tests.adapter.harness import TestEnvironment
from tests.adapter.reference.generated import REFERENCE

FUNCTIONS, TYPE_NAMES = REFERENCE / "functions.md", REFERENCE / "types.md"
ROW = re.compile(r"^\| (?P<names>.*?) \| (?P<says>.*) \| `(?P<example>.+)` → `(?P<result>.*)` \|$")
SAMPLE = "(VALUES (1, 'b'), (2, 'a'), (4, NULL)) AS sample(x, s)"
SELECTS = {
    "Aggregates": f"SELECT ({{}})::text FROM {SAMPLE}",
    "Window functions": f"SELECT ({{}} OVER (ORDER BY x))::text FROM {SAMPLE}",
    "Sets of rows": "SELECT answer::text FROM {} AS answer",
}
# What operators are called in plans, and what only the server itself calls.
INNER = re.compile(r"_.*|.*send|pg_stat_get_.*|text|overlaps")


@pytest.mark.parametrize("page", [FUNCTIONS, TYPE_NAMES], ids=lambda page: page.stem)
async def test_each_example_has_the_result_that_the_page_says(
    env: TestEnvironment, page: Path
) -> None:
    lines, section = [], ""
    written = page.read_text().splitlines()  # noqa: ASYNC240 - nothing else runs
    for line in written:
        section = line[3:] if line.startswith("## ") else section
        match = ROW.match(line)
        if match is not None:
            example = match["example"].replace(r"\|", "|")
            result = await answer(env, SELECTS.get(section, "SELECT ({})::text").format(example))
            line = line[: match.start("result")] + result.replace("|", r"\|") + "` |"
        lines.append(line)
    if os.environ.get("GOLDEN") == "rewrite":
        page.write_text("\n".join(lines) + "\n")  # noqa: ASYNC240 - nothing else runs
    else:
        assert written == lines


async def answer(env: TestEnvironment, query: str) -> str:
    """Return the rows of a query of one column as the page writes them."""
    *rows, tag = (await env.query("reader", query)).splitlines()
    assert tag.startswith("SELECT "), (query, rows, tag)
    return " / ".join(rows)


def test_each_function_has_a_row() -> None:
    known = {*SCALARS, *TABLES, *sql_function_names(), *AGGREGATES}
    names = {name for name in known if name[0].isalpha() and not INNER.fullmatch(name)}
    written = set(re.findall(r"[a-z_0-9]+", FUNCTIONS.read_text()))
    assert sorted(names - written) == []


def test_each_type_has_a_row() -> None:
    inner = {"shaped", "number", "array", "enum", "list", "map"}
    written = set(re.findall(r"[a-z_0-9]+", TYPE_NAMES.read_text()))
    assert sorted({*TYPES} - inner - written) == []
