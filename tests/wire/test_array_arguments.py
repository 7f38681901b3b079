"""Arguments that are arrays of several dimensions, as drivers send them: declared as plain ones."""

import psycopg
import pytest

from tests.harness import Server

NESTED = [[1, 2], [3, 4]]
# Statements with one argument, and their answers; `m` is int[][], `p` int[].
STATEMENTS = [
    ("INSERT INTO shapes (m) VALUES (%s) RETURNING m", [(NESTED,)]),
    ("INSERT INTO shapes (m) SELECT %s RETURNING array_ndims(m)", [(2,)]),
    ("UPDATE shapes SET m = %s WHERE k = 1 RETURNING m", [(NESTED,)]),
    ("SELECT m || %s FROM shapes WHERE k = 1", [([*NESTED, *NESTED],)]),
    ("SELECT k FROM shapes WHERE m = %s::int[] AND k = 1", [(1,)]),
    ("SELECT %s", [(NESTED,)]),
    ("SELECT array_length(%s::int[], 2)", [(2,)]),
    ("SELECT 3 = ANY (%s)", [(True,)]),
    ("SELECT sum(x) FROM unnest(%s) x", [(10,)]),
    ("SELECT p <@ %s::int[] FROM shapes WHERE k = 2", [(True,)]),
    ("SELECT %s::text[]", [([["1", "2"], ["3", "4"]],)]),
    ("SELECT to_jsonb(%s)", [(NESTED,)]),
]


@pytest.mark.parametrize("form", ["%s", "%t", "%b"])
def test_nested_lists_are_arguments(server: Server, form: str) -> None:
    with server.connect() as connection:
        connection.execute("DROP TABLE IF EXISTS shapes")
        connection.execute("CREATE TABLE shapes (k int, m int[][], p int[])")
        connection.execute("INSERT INTO shapes VALUES (1, '{{7,8}}', NULL), (2, NULL, '{1,4}')")
        for sql, answer in STATEMENTS:
            for _ in range(2):  # a statement is planned for either kind of argument in turns
                found = connection.execute(sql.replace("%s", form), (NESTED,), prepare=True)
                assert found.fetchall() == answer, sql
        plain = connection.execute(f"SELECT {form}", ([1, 2],), prepare=True)
        assert plain.fetchall() == [([1, 2],)]
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="needs a type like integer"):
            connection.execute(f"INSERT INTO shapes (p) VALUES ({form})", (NESTED,))


def test_rows_of_a_binary_copy_may_have_nested_lists(server: Server) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS nested_copied")
        cursor.execute("CREATE TABLE nested_copied (k int, m int[][], p int[])")
        with cursor.copy("COPY nested_copied FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int4", "int4[]", "int4[]"])
            copy.write_row((1, NESTED, [1]))
        assert cursor.execute("SELECT * FROM nested_copied").fetchall() == [(1, NESTED, [1])]

    def write_nested() -> None:
        with cursor.copy("COPY nested_copied FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int4", "int4[]", "int4[]"])
            copy.write_row((1, NESTED, NESTED))

    with (
        server.connect() as connection,
        connection.cursor() as cursor,
        pytest.raises(psycopg.errors.FeatureNotSupported, match="needs a type like integer"),
    ):
        write_nested()
