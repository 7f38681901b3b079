"""Texts with literals give what they give when each of them is planned."""

import asyncio
import random
import re
from collections.abc import Sequence
from typing import Any

import pytest

from foreshore.adapter.session.planner import SessionPlanner
from foreshore.sql.parse.shapes import Shapes
from foreshore.sql.planner import plan_statement
from tests.adapter.harness import TestEnvironment

TABLE = """
    CREATE TABLE shaped (k int PRIMARY KEY, small int2, big int8, t text, c char(3), v varchar(4),
        n numeric(6, 2), d date, b bool, f float8, s int CHECK (s > -50))"""
NUMBERS = (0, 1, 2, 3, 7, -1, -60, 40_000, 2**31 - 1, -(2**31), 2**31, -(2**31) - 1, 10**17)
DECIMALS = ("0.5", "-1.50", "007.25", "-0.00", "99999.99", "3.0", "1234567.125")
CASTS = ("", "", "", "::text", "::int8", "::numeric", "::float8", "::date", "::int", "::varchar(2)")
STRINGS = ("", "a", "ab ", "it''s", "abcdef", "5", " 7 ", "2020-02-30", "2020-02-29", "t", "NULL")
COLUMNS = ("k", "small", "big", "t", "c", "v", "n", "d", "b", "f", "s")


def statements(seed: int, count: int) -> list[str]:
    """Return texts, of which many have one shape."""
    chosen = random.Random(seed)

    def literal() -> str:
        cast = chosen.choice(CASTS)
        return chosen.choice((f"<int>{cast}", "<int>", f"<dec>{cast}", f"<str>{cast}", "NULL"))

    def key() -> str:
        return "<key>"

    def filled(hole: re.Match[str]) -> str:
        match hole[1]:
            case "int":
                number = chosen.choice(NUMBERS)
                return f"({number})" if number < 0 and hole[2] else str(number)
            case "dec":
                decimal = chosen.choice(DECIMALS)
                return f"({decimal})" if decimal[0] == "-" and hole[2] else decimal
            case "str":
                return f"'{chosen.choice(STRINGS)}'"
            case _:
                return str(chosen.randint(0, 5))

    def column() -> str:
        return chosen.choice(COLUMNS)

    def text() -> str:
        match chosen.randrange(13):
            case 0:
                return f"INSERT INTO shaped (k, {chosen.choice(COLUMNS[1:])}) VALUES ({key()}, {literal()})"
            case 1:
                return f"UPDATE shaped SET {chosen.choice(COLUMNS[1:])} = {literal()} WHERE k = {key()}"
            case 2:
                name = chosen.choice(("small", "big", "s", "n", "f"))
                sign = chosen.choice("+-*")
                return f"UPDATE shaped SET {name} = {name} {sign} {literal()} WHERE k = {key()}"
            case 3:
                return f"DELETE FROM shaped WHERE k = {key()} AND s < {literal()}"
            case 4:
                return f"SELECT * FROM shaped WHERE k = {literal()}"
            case 5:
                return f"SELECT {column()}, 1 FROM shaped WHERE {column()} > {literal()} AND k = {key()}"
            case 6:
                return f"SELECT k FROM shaped WHERE k = {key()} OR k = {key()} ORDER BY 1 LIMIT 1"
            case 7:
                return f"SELECT {literal()}, k + {literal()} FROM shaped WHERE {literal()} = k"
            case 8:
                return f"INSERT INTO shaped VALUES ({key()}, 1, {literal()}, 'x', 'y', 'z', 1.5)"
            case 9:
                name = chosen.choice(COLUMNS[1:])
                rows = f"({key()}, {literal()}), (<int>, {literal()})"
                return f"INSERT INTO shaped (k, {name}) VALUES {rows} RETURNING k, {name}"
            case 10:
                name = chosen.choice(COLUMNS[1:])
                update = chosen.choice((f"{name} = {literal()}", "big = shaped.big + 7"))
                action = chosen.choice(("NOTHING", f"UPDATE SET {update}"))
                return (
                    f"INSERT INTO shaped (k, big, {name}) VALUES ({key()}, 1, {literal()})"
                    f" ON CONFLICT (k) DO {action}"
                )
            case 11:
                return f"UPDATE shaped SET n = {literal()} WHERE k = {key()} RETURNING *, s AS one"
            case _:
                return f"DELETE FROM shaped WHERE n = {literal()} AND k = {key()} RETURNING n + s"

    forms = [text() for _ in range(count // 12)]
    hole = re.compile("<(int|dec|str|key)>(?=(:?))")
    return [hole.sub(filled, chosen.choice(forms)) for _ in range(count)]


async def told(env: TestEnvironment, name: str, texts: Sequence[str]) -> list[str]:
    await env.query(name, "DROP TABLE IF EXISTS shaped")
    await env.query(name, TABLE)
    answers = []
    for number, text in enumerate(texts):
        if number % 10 == 0:
            await env.query(name, "COMMIT" if number % 20 else "BEGIN")
        answers.append(await env.query(name, text, alone=False))
    await env.query(name, "COMMIT")
    return [*answers, await env.query(name, "SELECT * FROM shaped ORDER BY k")]


async def test_shapes_stand_for_their_texts(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = statements(1, 500)
    stood: list[bool] = []
    stands = Shapes.stands

    def noted(self: Shapes, *args: Any) -> bool:
        stood.append(stands(self, *args))
        return stood[-1]

    monkeypatch.setattr(Shapes, "stands", noted)
    with_shapes = await told(env, "with", texts)
    assert sum(stood) > 80
    monkeypatch.setattr(Shapes, "stands", lambda self, shape: False)
    monkeypatch.setattr(Shapes, "is_due", lambda self, shape: False)
    planned = await told(env, "without", texts)
    for text, ours, theirs in zip((*texts, "rows"), with_shapes, planned, strict=True):
        assert ours == theirs, text


async def test_plans_that_clients_prepare_stand_for_no_uncertain_strings(
    env: TestEnvironment,
) -> None:
    changed = "UPDATE certain SET v = '{}' WHERE k = 1"
    await env.ran("one", "CREATE SCHEMA one", "CREATE SCHEMA two", "SET search_path = one")
    await env.ran("one", "CREATE TABLE certain (k int PRIMARY KEY, v text)")
    await env.ran("one", *(changed.format(each) for each in "ab"))  # the shape stands here
    await env.ran("two", "SET search_path = two")
    await env.ran("two", "CREATE TABLE certain (k int PRIMARY KEY, v numeric(6, 2))")
    await env.ran("two", "INSERT INTO certain VALUES (1, 1)")
    session = await env.session("two")
    await session.parse("", "UPDATE certain SET v = $1 WHERE k = $2", (0, 23))
    answer = await env.query("two", changed.format(12345678))
    assert "DETAIL: A field with precision 6, scale 2" in answer


async def test_what_others_do_while_a_shape_is_planned_counts(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    await env.ran("a", "CREATE TABLE hidden (k int PRIMARY KEY)", "INSERT INTO hidden VALUES (1)")
    await env.ran("a", "CREATE ROLE shy", "GRANT SELECT ON hidden TO shy")
    await env.ran("b", "SET ROLE shy")
    learn = SessionPlanner.learn_shape

    async def slowly(self: SessionPlanner, *args: Any) -> None:
        await learn(self, *args)
        monkeypatch.undo()
        await env.query("a", "ALTER TABLE hidden ENABLE ROW LEVEL SECURITY", alone=False)

    monkeypatch.setattr(SessionPlanner, "learn_shape", slowly)
    assert await env.query("b", "SELECT k FROM hidden WHERE k = 1") == "SELECT 0"


def test_texts_of_one_shape_are_planned_once(
    runner: asyncio.Runner, env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[str] = []

    def plan(syntax: Any, *args: Any, **more: Any) -> Any:
        planned.append(syntax.text)
        return plan_statement(syntax, *args, **more)

    monkeypatch.setattr("foreshore.adapter.session.planner.plan_statement", plan)

    def ask(text: str) -> str:
        told = runner.run(env.query("asks", text)).splitlines()
        return next(line for line in reversed(told) if not line.startswith("SELECT"))

    ask("CREATE TABLE once (k int PRIMARY KEY, v int)")
    planned.clear()
    for k in range(5):
        assert ask(f"INSERT INTO once VALUES ({k}, {10 * k})") == "INSERT 0 1"
    assert planned == [
        "INSERT INTO once VALUES (0, 0)",
        "INSERT INTO once VALUES (1, 10)",
        "INSERT INTO once VALUES ($1, $2)",
    ]
    for k in range(5):
        assert ask(f"UPDATE once SET v = v - {k} WHERE k = {k}") == "UPDATE 1"
    ask("ALTER TABLE once ALTER COLUMN v TYPE numeric(9, 1)")
    planned.clear()
    for k in range(5):
        assert ask(f"UPDATE once SET v = v - {k} WHERE k = {k}") == "UPDATE 1"
    assert len(planned) == 2
    assert ask("SELECT v FROM once WHERE k = 3") == "24.0"
    assert ask("DROP TABLE once") == "DROP TABLE"
    assert "42P01" in ask("UPDATE once SET v = v - 1 WHERE k = 1")


async def test_too_long_constant_fails_an_update_of_no_row(own_env: TestEnvironment) -> None:
    await own_env.ran("a", "CREATE TABLE short (k int PRIMARY KEY, v varchar(3), c char(2))")
    for number in range(4):
        assert await own_env.query("a", f"UPDATE short SET v = 'abc' WHERE k = {number}") == (
            "UPDATE 0"
        )
        for column, value in (("v", "abcd"), ("c", "xyz")):
            text = f"UPDATE short SET {column} = '{value}' WHERE k = {number}"
            assert (await own_env.query("a", text)).startswith("ERROR 22001"), text
        blanks = f"UPDATE short SET v = 'abc  ', c = 'x' WHERE k = {number}"
        assert await own_env.query("a", blanks) == "UPDATE 0"


@pytest.mark.parametrize(
    ("type", "fits", "wrong"),
    [("int2", "4", "40000"), ("numeric(4, 2)", "4.5", "4000.5"), ("int", "5", "3000000000::int8")],
)
async def test_number_out_of_range_fails_a_change_of_no_row(
    own_env: TestEnvironment, type: str, fits: str, wrong: str
) -> None:
    await own_env.ran("a", f"CREATE TABLE narrow (k int PRIMARY KEY, v {type})")
    insert = "INSERT INTO narrow VALUES ({0}, 1) ON CONFLICT (k) DO UPDATE SET v = {1}"
    for number in range(4):
        fitting = f"{fits}::int8" if "::" in wrong else fits
        update = "UPDATE narrow SET v = {1} WHERE k = {0}"
        assert await own_env.query("a", update.format(number, fitting)) == "UPDATE 0"
        for text in (update, insert):
            answer = await own_env.query("a", text.format(number, wrong))
            assert answer.startswith("ERROR 22003"), (text, number)
        assert await own_env.query("a", insert.format(number + 100, fitting)) == "INSERT 0 1"
