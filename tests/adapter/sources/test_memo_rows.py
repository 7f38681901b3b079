"""Which rows of a memo's input are the same, and what a function may return for them."""

from typing import Any

import pyarrow as pa

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.test_memo import answers, reaches

MODULE = "tests.adapter.sources.test_memo_rows"


def seen(row: dict[str, Any]) -> str:
    """Return what the function has got."""
    return repr(list(row.values()))


def documents(rows: pa.Table) -> list[dict[str, int]]:
    """Return a document for each row."""
    return [{"n": n} for n in rows.column("n").to_pylist()]


def misspelt(row: dict[str, Any]) -> dict[str, Any]:
    """Return a result without one of its columns."""
    return {"answer": "x", "lenght": 1}


async def test_rows_that_look_like_null_have_answers_of_their_own(
    own_env: TestEnvironment,
) -> None:
    env = own_env
    env.environment.let_import([MODULE])
    await env.ran(
        "a",
        "CREATE TABLE q (d jsonb, t timestamptz, l timestamptz[])",
        "INSERT INTO q (d) VALUES (NULL), ('null'), ('\"null\"')",
        "INSERT INTO q (t) VALUES ('infinity'), ('-infinity')",
        "INSERT INTO q (l) VALUES ('{infinity}'), ('{NULL}')",
        f"CREATE SOURCE a (got text) FROM PYTHON '{MODULE}:seen' OVER q",
    )
    await reaches(env, "SELECT count(*) + (SELECT count(*) FROM a_errors) FROM a", "7")


async def test_results_are_values_of_one_column_or_have_all_columns(
    own_env: TestEnvironment,
) -> None:
    env = own_env
    env.environment.let_import([MODULE])
    await env.ran(
        "a",
        "CREATE TABLE q (n int)",
        "INSERT INTO q VALUES (1), (2)",
        f"CREATE SOURCE a (d jsonb) FROM PYTHON '{MODULE}:documents' OVER q (BATCH 9)",
        f"CREATE SOURCE b (answer text, length int) FROM PYTHON '{MODULE}:misspelt' OVER q"
        " (RETRIES 0)",
    )
    await reaches(env, "SELECT count(*) FROM a", "2")
    assert await answers(env, "SELECT * FROM a ORDER BY n") == ['1|{"n": 1}', '2|{"n": 2}']
    await reaches(env, "SELECT count(*) FROM b_errors", "2")
    told = await answers(env, "SELECT DISTINCT error FROM b_errors")
    assert told == ["the function must return a dictionary with answer, length"]
    assert await answers(env, "SELECT * FROM b") == []
