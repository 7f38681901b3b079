"""Long VALUES whose rows have several forms: answers in the order of the rows."""

from tests.adapter.harness import TestEnvironment

FORMS = (
    "({i}, '2024-01-{d:02}'::date, E'a\\n{i}')",
    "(CAST({i} AS int), DATE '2024-01-{d:02}', $$b{i}$$)",
    "({i}, DEFAULT, NULL)",
    "({i}, '2024-02-01', lower('C') || {i})",
)


def rows(count: int = 60) -> str:
    """Return rows in runs of several forms, and comments between some."""
    parts = [FORMS[i // 7 % 4].format(i=i, d=1 + i % 28) for i in range(count)]
    parts[10] = f"/* ten /* nested */ */ {parts[10]} -- and"
    return ", ".join(part + "\n" * (part[-1] == "d") for part in parts)


def answer(i: int) -> str:
    """Return the line that a row becomes."""
    day = f"2024-01-{1 + i % 28:02}"
    return (
        f"{i}|{day}|a\\n{i}",
        f"{i}|{day}|b{i}",
        f"{i}|1999-12-31|NULL",
        f"{i}|2024-02-01|c{i}",
    )[i // 7 % 4].replace("\\n", "\n")


async def test_rows_of_several_forms_are_returned_in_their_order(own_env: TestEnvironment) -> None:
    env = own_env
    await env.query("s", "CREATE TABLE t (a int PRIMARY KEY, d date DEFAULT '1999-12-31', t text)")
    found = await env.query("s", f"INSERT INTO t VALUES {rows()} RETURNING a, d, t")
    assert found == "\n".join([*map(answer, range(60)), "INSERT 0 60"])
    assert await env.query("s", f"SELECT * FROM (VALUES {rows().replace('DEFAULT', 'NULL')}) AS v "
                                "WHERE column1 = 59") == "59|2024-01-04|a\n59\nSELECT 1"  # fmt: skip
    changed = await env.query(
        "s", f"INSERT INTO t VALUES {rows()} ON CONFLICT (a) DO UPDATE SET t = excluded.t || t.t"
    )
    assert changed == "INSERT 0 60"
    assert await env.query("s", "SELECT t FROM t WHERE a = 9") == "b9b9\nSELECT 1"
    await env.query("s", "DROP TABLE t")


async def test_serial_keys_follow_the_rows_of_all_forms(own_env: TestEnvironment) -> None:
    env = own_env
    await env.query("s", "CREATE TABLE t (a serial, b int)")
    mixed = [f"(DEFAULT, {i})" if i % 3 else f"({1000 + i}, {i}::int)" for i in range(60)]
    found = await env.query("s", f"INSERT INTO t VALUES {', '.join(mixed)} RETURNING b, a")
    numbers = iter(range(1, 100))
    lines = [f"{i}|{next(numbers) if i % 3 else 1000 + i}" for i in range(60)]
    assert found == "\n".join([*lines, "INSERT 0 60"])
    await env.query("s", "DROP TABLE t")


async def test_types_of_a_view_are_qualified_in_each_row(own_env: TestEnvironment) -> None:
    env = own_env
    await env.query("s", "CREATE SCHEMA q; CREATE TYPE q.mood AS ENUM ('sad', 'happy')")
    await env.query("s", "SET search_path TO q, public")
    values = ", ".join(["('sad'::mood, 1)", "('happy'::mood, 2)"] * 25)
    await env.query("s", f"CREATE VIEW public.v AS VALUES {values}")
    await env.query("s", "SET search_path TO public")
    assert await env.query("s", "SELECT count(*) FROM v WHERE column1 = 'happy'") == "25\nSELECT 1"
    shown = await env.query("s", "SHOW CREATE VIEW v")
    assert shown.count("::foreshore.q.mood") == 50, shown
    await env.query("s", "RESET search_path; DROP VIEW v; DROP SCHEMA q CASCADE")


async def test_wrong_row_of_a_form_fails_alone(own_env: TestEnvironment) -> None:
    env = own_env
    await env.query("s", "CREATE TABLE t (a int, d date)")
    parts = [f"({i}, '2024-01-01'::date)" for i in range(60)]
    parts[40] = "(40, '2024-02-30'::date)"
    text = f"INSERT INTO t VALUES {', '.join(parts)}"
    found = await env.query("s", text)
    assert found.startswith('ERROR 22008: date/time field value out of range: "2024-02-30"'), found
    assert await env.query("s", "SELECT count(*) FROM t") == "0\nSELECT 1"
    await env.query("s", "DROP TABLE t")
