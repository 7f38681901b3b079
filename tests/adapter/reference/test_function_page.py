"""docs/reference/functions.md: each example has the result that it says, and each function has a row.

`GOLDEN=rewrite` writes the results. Examples of aggregates and of window functions are computed over
the rows that the page names, those of functions in FROM as rows.
"""

import os
import re
from pathlib import Path

from foreshore.expr.functions.aggregates import _AGGREGATES as AGGREGATES
from foreshore.expr.functions.function import SCALARS, TABLES
from foreshore.sql.bind.sql_functions import sql_function_names
from tests.adapter.harness import TestEnvironment

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "functions.md"
ROW = re.compile(r"^\| (?P<names>.*?) \| (?P<says>.*) \| `(?P<example>.+)` → `(?P<result>.*)` \|$")
SAMPLE = "(VALUES (1, 'b'), (2, 'a'), (4, NULL)) AS sample(x, s)"
SELECTS = {
    "Aggregates": f"SELECT ({{}})::text FROM {SAMPLE}",
    "Window functions": f"SELECT ({{}} OVER (ORDER BY x))::text FROM {SAMPLE}",
    "Sets of rows": "SELECT answer::text FROM {} AS answer",
}
# What operators are called in plans, and what only the server itself calls.
INNER = re.compile(r"_.*|.*send|pg_stat_get_.*|text|overlaps")


async def test_each_example_has_the_result_that_the_page_says(env: TestEnvironment) -> None:
    lines, section = [], ""
    for line in PAGE.read_text().splitlines():
        section = line[3:] if line.startswith("## ") else section
        match = ROW.match(line)
        if match is not None:
            example = match["example"].replace(r"\|", "|")
            result = await answer(env, SELECTS.get(section, "SELECT ({})::text").format(example))
            line = line[: match.start("result")] + result.replace("|", r"\|") + "` |"
        lines.append(line)
    if os.environ.get("GOLDEN") == "rewrite":
        PAGE.write_text("\n".join(lines) + "\n")
    assert PAGE.read_text().splitlines() == lines


async def answer(env: TestEnvironment, query: str) -> str:
    """Return the rows of a query of one column as the page writes them."""
    *rows, tag = (await env.query("reader", query)).splitlines()
    assert tag.startswith("SELECT "), (query, rows, tag)
    return " / ".join(rows)


def test_each_function_has_a_row() -> None:
    known = {*SCALARS, *TABLES, *sql_function_names(), *AGGREGATES}
    names = {name for name in known if name[0].isalpha() and not INNER.fullmatch(name)}
    written = set(re.findall(r"[a-z_0-9]+", PAGE.read_text()))
    assert sorted(names - written) == []
