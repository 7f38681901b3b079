"""Texts with literals give what they give when each of them is planned."""

import asyncio
import random
import re
from collections.abc import Sequence
from typing import Any

import pytest

from foreshore.adapter.client import Rows
from foreshore.adapter.session.shaped_texts import ShapedTexts
from foreshore.errors import DatabaseError
from foreshore.sql.parse.script import Script, Unread
from foreshore.sql.planner import plan_statement
from tests.adapter.harness import TestEnvironment, told
from tests.effort import examples

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


# Expressions over a row of the table; `<int>`, `<key>`, `<dec>` and `<str>` are literals.
EXPRESSIONS = (
    "<int>", "<dec>", "<str>", "NULL", "k + <int>", "big - <int>", "n * <dec>", "<int> / <key>", "-<key>", "small % <key>",
    "f + <dec>", "f * <int>", "t || <str>", "<str> || v", "<int>::text", "<str>::int", "<dec>::int", "<str>::varchar(3)",
    "<str>::date", "<str>::numeric(6, 2)", "<dec>::numeric(5, 1)", "<int>::int2", "<day>::timestamptz", "<str>::bool",
    "d + <key>", "d - DATE <day>", "coalesce(t, <str>)", "coalesce(<int>, k)", "nullif(k, <key>)",
    "greatest(k, <key>, <int>)", "CASE WHEN k > <key> THEN <str> ELSE <str> END", "CASE k WHEN <key> THEN <int> ELSE <dec> END",
    "round(n, <key>)", "round(<dec>, <key>)", "substr(t, <key>, <key>)", "left(<str>, <key>)", "upper(<str>)", "length(<str>)",
    "k IN (<key>, <key>, <int>)", "t IN (<str>, <str>)", "k NOT IN (<key>)", "k BETWEEN <key> AND <int>", "t LIKE <str>",
    "n = <dec>", "n > <str>", "f <= <dec>", "big = <str>", "d < <str>", "c = <str>", "v <> <str>", "b = <str>",
    "ARRAY[<key>, <int>]", "k = ANY (ARRAY[<key>, <key>])", "k = ANY (<keys>)", "<keys>::int[]", "INTERVAL <span>",
    "d + <span>::interval", "extract(<field> FROM d)", "date_trunc(<field>, d::timestamp)", "to_char(d, <str>)",
    "to_char(n, <str>)", "<json>::jsonb -> <str>", "<json>::jsonb ->> <key>", "(<int> + <int>)", "<int> + <dec>",
    "<dec> * <dec>", "(k, n) = (<key>, <dec>)", "EXISTS (SELECT 1 FROM shaped WHERE k = <key>)",
    "(SELECT t FROM shaped WHERE k = <key>)", "k = <str>", "s + <str>", "t = <int>::text", "<str> = t", "concat(t, <int>)",
    "k IS DISTINCT FROM <key>", "d = <moment>", "t ~ <str>", "position(<str> IN t)", "power(<key>, <key>)", "abs(-<int>)",
    "current_setting(<str>, true)", "(<str>::regclass)::text", "format(<str>, k)", "string_to_array(t, <str>)", "repeat(<str>, <key>)",
    "max(k) OVER (ORDER BY k ROWS <key> PRECEDING)", "lag(k, <key>) OVER (ORDER BY k)", "ntile(<key>) OVER (ORDER BY k)",
    "d::timestamp AT TIME ZONE <zone>", "1 = <key>", "<key> < <key>",
)  # fmt: skip
CONDITIONS = """b|k = <key>|k < <int>|n = <dec>|n > <dec>|f <= <dec>|big = <str>|d < <str>|c = <str>|v <> <str>|b = <str>|k = <str>|<str> = t
    |t LIKE <str>|t NOT LIKE <str>|k IN (<key>, <key>, <int>)|t IN (<str>, <str>)|k NOT IN (<key>)|k BETWEEN <key> AND <int>
    |k = ANY (ARRAY[<key>, <key>])|k = ANY (<keys>)|(k, n) = (<key>, <dec>)|k IS DISTINCT FROM <key>|d = <moment>|t ~ <str>
    |EXISTS (SELECT 1 FROM shaped s WHERE s.k = shaped.k + <key>)|1 = <key>|k > <dec>|big = <int>|small = <int>|f > <int>
    |k IN (<list>)|k NOT IN (<list>)|big IN (<list>)|small IN (<list>)|n IN (<list>)|f IN (<list>)|t IN (<words>)|v IN (<words>)
    |d IN (<words>)|k IN (<words>)|(k, small) IN (<pairs>)|k + <key> = <int>|coalesce(b, <str>)|d + <key> > <day>|length(t) = <key>|NOT k = <key>|n = <str>|TRUE""".split(
    "|"
)
QUERIES = (
    "SELECT {0}, {1} FROM shaped ORDER BY k",
    "SELECT {0} AS x FROM shaped WHERE k = <key>",
    "SELECT k, {0} FROM shaped WHERE {2} ORDER BY k",
    "SELECT {0} FROM shaped ORDER BY k, 1",
    "SELECT k FROM shaped ORDER BY {0}, k LIMIT <key>",
    "SELECT k, {0} FROM shaped ORDER BY <place>, 1 LIMIT <key> OFFSET <key>",
    "SELECT {0}, count(*) FROM shaped GROUP BY {0} ORDER BY 2, 1",
    "SELECT {0}, k FROM shaped GROUP BY k, <place> ORDER BY k",
    "SELECT DISTINCT {0} FROM shaped ORDER BY 1",
    "SELECT count(*), sum(k), string_agg(t, <str> ORDER BY k) FROM shaped WHERE {2}",
    "SELECT {0} FROM shaped WHERE k = <key> UNION ALL SELECT {0} FROM shaped WHERE k = <key> ORDER BY 1",
    "WITH x AS (SELECT * FROM shaped WHERE k < <int>) SELECT {0} FROM x AS shaped ORDER BY k LIMIT <key>",
    "SELECT a.k, b.t, <int> FROM shaped a LEFT JOIN shaped b ON b.k = a.k + <key> ORDER BY 1",
    "SELECT k FROM shaped WHERE k = <key> AND {2} LIMIT 1",
    "SELECT k FROM shaped WHERE {2} OR {3} ORDER BY k",
    "SELECT k FROM shaped WHERE k = <key> AND ({2} OR {3})",
    "SELECT x, y FROM shaped, LATERAL (VALUES ({0}, <str>), ({0}, <str>)) v (x, y) WHERE k = <key> ORDER BY 1, 2",
    "SELECT k + g FROM shaped, generate_series(<key>, <key>) g WHERE k = <key> ORDER BY 1",
    "SELECT /* note <int> */ {0} FROM shaped WHERE k = <key> -- it's <str>",
    "SELECT /* it's /* <int> */ a */ {0} FROM shaped /* /* */ */ WHERE k = <key>",
    "SELECT <int>, <dec>, <str>, -<key>, NULL",
    "SELECT k IN ({keys}), {{0}} FROM shaped ORDER BY k".format(keys=", ".join(70 * ["<key> + 0"])),
)
# Literals, of one class for each text of a form; those that stand first are taken more often.
CLASSES = {"int": ("int", "int", "negative", "long"), "dec": ("dec", "hundredths", "minus")}
FILLS: dict[str, tuple[str, ...]] = {
    "int": ("0", "1", "2", "7", "40000", "2147483647"),
    "negative": ("-1", "-7", "- 2", "-40000", "-2147483647", "-2147483648"),
    "long": ("2147483648", "-2147483649", "100000000000000000"),
    "place": ("1", "1", "2", "3"),
    "key": ("0", "1", "2", "3", "4", "5"),
    "dec": ("0.5", "1.5", "0.0", "3.0", "99999.9"),
    "hundredths": ("2.25", "7.10", "007.00", "99999.99"),
    "minus": ("-2.5", "-0.0", "-7.5"),
    "str": ("''", "'a'", "'ab'", "'it''s'", "'5'", "' 7 '", "'1.5'", "'2020-02-29'", "'2020-02-30'", "'t'", "'a%'", "'a\\'", "'NaN'", "'shaped'", "'(%s)'", "'now'", "'a''b'", r"E'it\'s'", r"E'a\x62'", r"e'\\'", "E'5'", r"E'\xff'"),
    "day": ("'2020-02-29'", "'2021-01-01'", "'2021-02-30'"),
    "keys": ("'{1,2}'", "'{}'", "'{3,4,5}'", "'{{1}}'", "'{NULL}'", "'x'"),
    "span": ("'1 day'", "'2 hours'", "'-3 months'", "'x'"),
    "field": ("'day'", "'year'", "'epoch'", "'x'"),
    "json": ("""'{"a": 1}'""", "'[1, 2]'", "'x'"),
    "moment": ("'today'", "'2020-02-29'", "'tomorrow'", "'infinity'"),
    "list": (*[", ".join(map(str, range(n))) for n in (33, 40, 64)], ",".join(35 * ["7"]), ", ".join(map(str, range(-20, 20))), ", ".join(["3000000000", *map(str, range(40))])),
    "words": (*[", ".join(f"'{i}'" for i in range(n)) for n in (33, 50)], ", ".join(40 * ["'it''s'", "'ab'"]), ", ".join(40 * ["'2020-02-29'"])),
    "pairs": (", ".join(f"({i}, {i})" for i in range(40)),),
    "zone": ("'UTC'", "'Europe/Berlin'", "'x'"),
}  # fmt: skip
ROWS = """INSERT INTO shaped (k, small, big, t, c, v, n, d, b, f, s) VALUES
    (1, 1, 2147483648, 'ab', 'a', '5', 1.50, '2020-02-29', true, 0.5, 3),
    (2, -1, 5, 'it''s', 'abc', '', 99.99, '2021-01-01', false, 'NaN', 0),
    (3, 7, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), (5, 5, 5, 'a%', '5', '5', 5, '1999-12-31', true, 5, 5)"""


def queries(seed: int, forms: int, of_each: int) -> list[str]:
    """Return texts of so many forms in turn."""
    chosen = random.Random(seed)
    hole = re.compile("<([a-z]+)>")

    def form() -> str:
        pairs = 2 * [EXPRESSIONS] + 2 * [CONDITIONS]
        text = chosen.choice(QUERIES).format(*map(chosen.choice, pairs))
        return hole.sub(classed, text)

    def classed(found: re.Match[str]) -> str:
        return f"<{chosen.choice(CLASSES.get(found[1], (found[1],)))}>"

    found = [form() for _ in range(forms)]
    return [
        hole.sub(lambda found: chosen.choice(FILLS[found[1]]), each)
        for _ in range(of_each)
        for each in found
    ]


async def answer(env: TestEnvironment, name: str, text: str) -> list[str]:
    """Return what a client gets: names and types of columns, rows, tags, errors with positions."""
    session, lines = await env.session(name), list[str]()
    try:
        async for execution in session.simple(text):
            if isinstance(execution, Rows):
                pairs = zip(execution.desc.names, execution.desc.columns, strict=True)
                lines.append(", ".join(f"{name} {column.type}" for name, column in pairs))
            lines += await told(execution)
    except DatabaseError as error:
        await session.fail(error)
        said = error.sqlstate, error.message, error.detail, error.hint, error.position
        lines.append(" ".join(map(str, said)))
    return [*lines, session.transaction_status]


async def answers(env: TestEnvironment, name: str, texts: Sequence[str]) -> list[list[str]]:
    await env.query(name, "DROP TABLE IF EXISTS shaped")
    await env.ran(name, TABLE, ROWS)
    found = []
    for number, text in enumerate(texts):
        if number % 10 == 0:
            await env.query(name, "COMMIT" if number % 20 else "BEGIN")
        found.append(await answer(env, name, text))
        if found[-1][-1] == "E":
            await env.query(name, "ROLLBACK")
    await env.query(name, "COMMIT")
    return [*found, await answer(env, name, "SELECT * FROM shaped ORDER BY k")]


@pytest.mark.parametrize("seed", range(examples(3)))
async def test_shapes_stand_for_their_texts(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    texts = [*statements(seed, 250), *queries(seed, 50, 6)]
    random.Random(seed).shuffle(texts)
    shapes = env.environment.shapes
    before = shapes.hits["shape"]
    with_shapes = await answers(env, "with", texts)
    assert shapes.hits["shape"] - before > 100
    monkeypatch.setattr("foreshore.adapter.session.shaped_texts.shape_of", lambda *args: None)
    planned = await answers(env, "without", texts)
    for text, ours, theirs in zip((*texts, "rows"), with_shapes, planned, strict=True):
        assert ours == theirs, text


async def test_statements_of_known_shapes_in_a_text_of_several_are_not_parsed(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = random.Random(7)
    texts = [
        *queries(7, 12, 8),
        *statements(7, 60),
        "SELECT 1; ",
        " SELECT 'a;b'",
        "BEGIN",
        "COMMIT",
    ]
    texts += ["SELECT 1 +", "SELECT 2 + /* ; */ 3", "SELECT E';'", "", "TABLE shaped ORDER BY k"]
    scripts = [chosen.choice((";", " ;\n")).join(chosen.choices(texts, k=6)) for _ in range(60)]
    scripts.append("; ".join(f"SELECT {n}, 'x{n}'" for n in range(1500)))
    read: list[Unread] = []
    parse = Script.read

    def noted(self: Script, each: Unread) -> Any:
        read.append(each)
        return parse(self, each)

    monkeypatch.setattr(Script, "read", noted)
    with_shapes = await answers(env, "with", scripts)
    assert len(read) < 200  # of all statements
    monkeypatch.setattr("foreshore.sql.parse.script.shape_of", lambda *args: None)
    monkeypatch.setattr("foreshore.adapter.session.shaped_texts.shape_of", lambda *args: None)
    planned = await answers(env, "without", scripts)
    for text, ours, theirs in zip((*scripts, "rows"), with_shapes, planned, strict=True):
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
    await session.extended.parse("", "UPDATE certain SET v = $1 WHERE k = $2", (0, 23))
    answer = await env.query("two", changed.format(12345678))
    assert "DETAIL: A field with precision 6, scale 2" in answer


async def test_what_others_do_while_a_shape_is_planned_counts(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    await env.ran("a", "CREATE TABLE hidden (k int PRIMARY KEY)", "INSERT INTO hidden VALUES (1)")
    await env.ran("a", "CREATE ROLE shy", "GRANT SELECT ON hidden TO shy")
    await env.ran("b", "SET ROLE shy")
    learn = ShapedTexts.learn

    async def slowly(self: ShapedTexts, *args: Any, **more: Any) -> None:
        await learn(self, *args, **more)
        monkeypatch.undo()
        await env.query("a", "ALTER TABLE hidden ENABLE ROW LEVEL SECURITY", alone=False)

    monkeypatch.setattr(ShapedTexts, "learn", slowly)
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
        "INSERT INTO once VALUES (1, 10)",  # with parameters for its literals
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


@pytest.mark.parametrize("digits", [1, 9, 10, 15, 16, 18, 19])
async def test_numbers_of_any_length_are_parameters(own_env: TestEnvironment, digits: int) -> None:
    env, first = own_env, 10 ** (digits - 1)
    await env.query("s", "CREATE TABLE t (a bigint PRIMARY KEY, n numeric, f float)")
    for each in range(1, 8):
        text = f"INSERT INTO t VALUES ({first + each}, {first + each}, {first + each}.5)"
        assert await env.query("s", text) == "INSERT 0 1"
    assert env.environment.shapes.hits["shape"] == 5


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
    given = {"int2": "int", "int": "int8"}.get(type, "numeric")
    await own_env.query("a", f"PREPARE narrowed ({given}) AS UPDATE narrow SET v = $1 WHERE k = 1")
    assert await own_env.query("a", f"EXECUTE narrowed ({fits})") == "UPDATE 0"
    assert (await own_env.query("a", f"EXECUTE narrowed ({wrong})")).startswith("ERROR 22003")


async def test_hits_and_misses_are_counted_with_their_reasons(own_env: TestEnvironment) -> None:
    async def counted() -> dict[str, int]:
        answer = await own_env.query("b", "SELECT reason, count FROM mz_internal.mz_plan_lookups")
        lines = (line.rpartition("|") for line in answer.splitlines() if "|" in line)
        return {reason: int(count) for reason, _, count in lines}

    async def rise(*texts: str) -> dict[str, int]:
        before = await counted()
        await own_env.ran("a", *texts)
        after = await counted()
        after["text"] -= 1  # of the question itself
        return {each: n - before.get(each, 0) for each, n in after.items() if n != before.get(each)}

    await own_env.ran("a", "CREATE TABLE counted (k int PRIMARY KEY, t text, d date)")
    await own_env.ran("b", *2 * ["SELECT reason, count FROM mz_internal.mz_plan_lookups"])
    by_key = "SELECT t FROM counted WHERE k = {}"
    assert await rise(*(by_key.format(k) for k in range(5))) == {"new shape": 2, "shape": 3}
    assert await rise("SELECT count(*) FROM counted") == {"new text without literals": 1}
    assert await rise("SELECT count(*) FROM counted") == {"text": 1}
    assert await rise("SELECT B'1'") == {"text has no shape": 1}
    by_place = "SELECT k, t FROM counted ORDER BY {}"
    assert await rise(*map(by_place.format, (1, 1, 2))) == {"text": 1, "new shape": 2}
    grouped = "SELECT k + {0} FROM counted GROUP BY k + {0} HAVING count(*) > {1}"
    texts = [grouped.format(1, n) for n in range(4, 8)]  # equal literals need another look
    assert await rise(*texts) == {"new shape": 3, "shape": 1}
    assert await rise(*(grouped.format(2, n) for n in range(3, 6))) == {
        "new value of a literal that decides the plan": 2,
        "shape": 1,
    }
    by_keys = "SELECT k FROM counted WHERE k IN ({})"
    lists = [", ".join(map(str, range(1000, 1000 + n))) for n in (50, 51, 99, 300)]
    assert await rise(*map(by_keys.format, lists)) == {"new shape": 2, "shape": 2}
    by_day = "SELECT k FROM counted WHERE k = 1 AND d = '{}'"
    days = ("2020-01-01", "2020-01-02", "today", "2020-01-03")
    assert await rise(*map(by_day.format, days)) == {
        "new shape": 2,
        "literal is no value of the plan's type": 1,
        "shape": 1,
    }
    await own_env.ran("a", "ALTER TABLE counted ALTER COLUMN t TYPE varchar(5)")
    assert await rise(by_key.format(6), by_key.format(7)) == {
        "catalog or settings changed": 1,
        "shape": 1,
    }


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
async def test_what_follows_a_line_with_a_comment_counts(
    own_env: TestEnvironment, end: str
) -> None:
    for number in range(4):
        assert await own_env.ran("a", f"SELECT {number} -- x{end} + 1") == f"{number + 1}\nSELECT 1"
    for number in range(4):
        assert await own_env.ran("b", f"SELECT {number} -- y") == f"{number}\nSELECT 1"
        several = f"SELECT {number} -- x{end}; SELECT 2"
        assert await own_env.ran("b", several) == f"{number}\nSELECT 1\n2\nSELECT 1"
