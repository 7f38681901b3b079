"""Types, ways to nest their values, and what compares values: the walk over equality.

A case is a type and a nesting. It has tables `t` and `s` with a column `x` of the nested type, in
which some values are equal and written differently. Answers have numbers of rows only, so they do
not depend on which of equal values is shown.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

VALUES: dict[str, Sequence[str]] = {
    "bool": ("t", "f"),
    "int2": ("0", "1", "-1", "32767"),
    "int4": ("0", "1", "-1", "2147483647"),
    "int8": ("0", "1", "-1", "9223372036854775807"),
    "numeric": (
        *("0", "0.0", "-0", "1", "1.0", "1.000", "10", "1e1", "NaN", "Infinity", "-Infinity"),
        *("123456789012345678901234567890123456789012.50", "0.00000000000000000000000001"),
        *("123456789012345678901234567890123456789012.5", "0.000000000000000000000000010"),
    ),
    "numeric(10,2)": ("0", "-0", "1", "1.00", "1.004", "10"),
    "float4": ("0", "-0", "NaN", "1", "1e0", "Infinity", "-Infinity", "1e-40"),
    "float8": ("0", "-0", "NaN", "1", "1e0", "Infinity", "-Infinity", "1e-320"),
    "text": ("", "a", "a ", "A", "ä", "z", "0", "0.0", "\x01"),
    "varchar(5)": ("", "a", "a ", "A", "ä"),
    "char(4)": ("", "a", "a ", "a  ", "A", "ä"),
    "bytea": ("", r"\x00", r"\x0000", r"\x0001", "a"),
    "date": ("2000-01-01", "infinity", "-infinity", "1999-12-31"),
    "time": ("00:00", "24:00", "12:00", "12:00:00.0"),
    "timetz": ("12:00+00", "13:00+01", "11:00-01", "24:00+00", "00:00+00", "00:00-01"),
    "timestamp": ("2000-01-01", "2000-01-01 00:00", "infinity", "-infinity"),
    "timestamptz": ("2000-01-01 00:00+00", "2000-01-01 01:00+01", "infinity", "-infinity"),
    "interval": (
        *("1 month", "30 days", "720 hours", "1 day", "24:00", "0", "-1 month", "-30 days"),
        *("1 year", "360 days", "1 mon -30 days"),
    ),
    "uuid": ("00000000-0000-0000-0000-000000000000", "0f000000-0000-0000-0000-00000000000a"),
    "jsonb": (
        *("0", "0.0", "-0", "0e5", "-0.00", "1", "1.0", "1e0", "10", "1e1", '"0"', "null", "true"),
        *("[]", "{}", "[0]", "[0.0]", "[[0]]", '{"a":1}', '{"a":1.0}', '{"a":[1.00,2]}'),
        *('{"a":[1,2.0]}', '{"aa":1}', '{"b":1}', "123456789012345678901234567890.10"),
        *("123456789012345678901234567890.1", '"a"', '"1.0"', '["a","1.0"]', "1e-30", "1.0e-30"),
    ),
    "money": ("0", "-0", "1", "1.00"),
    "inet": ("10.0.0.1", "10.0.0.1/32", "10.0.0.1/8", "10.0.0.0/8", "::1", "::1/128"),
    "cidr": ("10.0.0.0/8", "10.0.0.0/16", "10/8", "::/0"),
    "macaddr": ("08:00:2b:01:02:03", "08002b010203", "08-00-2b-01-02-04"),
    "bit(3)": ("000", "001", "111"),
    "varbit": ("", "0", "00", "1", "10"),
    "oid": ("0", "1", "4294967295"),
    "mood": ("sad", "happy"),
    "int4range": ("[1,5)", "[1,4]", "(0,4]", "empty", "[3,3)", "[1,)", "(,)"),
    "numrange": ("[1,2)", "[1.0,2.00)", "[1,2]", "empty", "[1,1)", "[0,)", "[-0.0,)"),
    "daterange": ("[2000-01-01,2000-01-03)", "[2000-01-01,2000-01-02]", "empty"),
    "tsrange": ("[2000-01-01,2000-01-03)", "[2000-01-01 00:00,2000-01-03)", "empty"),
    "int4multirange": ("{[1,3),[3,5)}", "{[1,4]}", "{}", "{[1,2)}"),
    "nummultirange": ("{[1,2),[2.0,3)}", "{[1.0,3.0)}", "{}", "{[1,2)}"),
}


def _plain(type: str, values: Sequence[str]) -> tuple[str, list[str]]:
    return type, list(values)


def _array(type: str, values: Sequence[str]) -> tuple[str, list[str]]:
    pairs = [f"ARRAY[{values[0]}, {v}]" for v in values[:4]]
    return f"{type}[]", [
        *(f"ARRAY[{v}]" for v in values),
        *pairs,
        f"ARRAY[]::{type}[]",
        f"ARRAY[NULL, {values[0]}]",
    ]


def _matrix(type: str, values: Sequence[str]) -> tuple[str, list[str]]:
    pairs = [f"ARRAY[ARRAY[{values[0]}, {v}], ARRAY[{v}, NULL]]" for v in values[:4]]
    return f"{type}[][]", [
        *(f"ARRAY[ARRAY[{v}]]" for v in values),
        *pairs,
        f"ARRAY[]::{type}[]",
        f"ARRAY[ARRAY[{values[0]}], ARRAY[{values[1]}]]",
        f"ARRAY[ARRAY[{values[0]}, {values[1]}]]",
    ]


def _record(type: str, values: Sequence[str]) -> tuple[str, list[str]]:
    return "made", [
        *(f"ROW({v}, 1)::made" for v in values),
        *(f"ROW({v}, 2)::made" for v in values[:3]),
        "ROW(NULL, 1)::made",
        f"ROW({values[0]}, NULL)::made",
    ]


def _records(type: str, values: Sequence[str]) -> tuple[str, list[str]]:
    return "made[]", [
        *(f"ARRAY[ROW({v}, 1)::made]" for v in values),
        "ARRAY[NULL::made]",
        "ARRAY[ROW(NULL, 1)::made]",
    ]


def _holder(type: str, values: Sequence[str]) -> tuple[str, list[str]]:
    return "holder", [
        *(f"ROW(ARRAY[{v}], 1)::holder" for v in values),
        f"ROW(ARRAY[]::{type}[], 1)::holder",
        "ROW(NULL, 1)::holder",
    ]


def _jsonb(type: str, values: Sequence[str]) -> tuple[str, list[str]]:
    return "jsonb", [
        *(f"jsonb_build_object('k', {v})" for v in values),
        *(f"to_jsonb(ARRAY[{values[0]}, {v}])" for v in values[:3]),
        "jsonb 'null'",
    ]


NESTINGS = {
    "plain": _plain,
    "array": _array,
    "matrix": _matrix,
    "record": _record,
    "records": _records,  # an array of composite values
    "holder": _holder,  # a composite value with an array
    "jsonb": _jsonb,
}

# Queries over the tables: all of numbers, so that PostgreSQL's answers are ours.
QUERIES = {
    "group by": "SELECT min(id), count(*), sum(id) FROM t GROUP BY x",
    "distinct": "SELECT count(*) FROM (SELECT DISTINCT x FROM t) AS d",
    "count distinct": "SELECT count(DISTINCT x), count(DISTINCT (x, id % 2)) AS pairs FROM t",
    "grouped count distinct": "SELECT id % 2, count(DISTINCT x) FROM t GROUP BY id % 2",
    "array_agg distinct": "SELECT cardinality(array_agg(DISTINCT id)) FROM t GROUP BY x",
    "join": "SELECT t.id, s.id AS other FROM t JOIN s ON t.x = s.x",
    "join beside": "SELECT t.id, s.id AS other FROM t JOIN s ON t.x = s.x AND t.id = s.id",
    "left join": "SELECT t.id, s.id AS other FROM t LEFT JOIN s ON t.x = s.x",
    "null-safe join": "SELECT t.id, s.id AS other FROM t JOIN s ON t.x IS NOT DISTINCT FROM s.x",
    "exists": "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.x = t.x)",
    "not exists": "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.x = t.x)",
    "in": "SELECT id FROM t WHERE x IN (SELECT x FROM s)",
    "not in": "SELECT id FROM t WHERE x NOT IN (SELECT x FROM s WHERE x IS NOT NULL)",
    "partition": "SELECT id, count(*) OVER (PARTITION BY x) FROM t",
    "rank": "SELECT id, rank() OVER (ORDER BY x), dense_rank() OVER (ORDER BY x DESC) FROM t",
    "ranked by partition": "SELECT id, row_number() OVER (PARTITION BY x ORDER BY id) FROM t",
    "except": "SELECT count(*) FROM (SELECT x FROM t EXCEPT SELECT x FROM s) AS e",
    "except all": "SELECT count(*) FROM (SELECT x FROM t EXCEPT ALL SELECT x FROM s) AS e",
    "intersect": "SELECT count(*) FROM (SELECT x FROM t INTERSECT SELECT x FROM s) AS e",
    "intersect all": "SELECT count(*) FROM (SELECT x FROM t INTERSECT ALL SELECT x FROM s) AS e",
    "union": "SELECT count(*) FROM (SELECT x FROM t UNION SELECT x FROM s) AS u",
    "top": "SELECT id FROM (SELECT id FROM t ORDER BY x, id LIMIT 4) AS o",
    "distinct on": "SELECT id FROM (SELECT DISTINCT ON (x) x, id FROM t ORDER BY x, id) AS o",
    "order in aggregate": "SELECT array_agg(id ORDER BY x, id)::text FROM t",
    "compare": "SELECT t.id, s.id AS other FROM t, s WHERE t.x < s.x AND s.id < 5",
    "unequal": "SELECT t.id, s.id AS other FROM t, s WHERE t.x <> s.x AND s.id < 4",
    "case": "SELECT id, CASE x WHEN (SELECT x FROM s WHERE id = 1) THEN 1 END FROM t",
    "grouping sets": "SELECT min(id), count(*) FROM t GROUP BY GROUPING SETS ((x), ())",
}
# Queries whose answers come in an order.
ORDERED = {
    "order by": "SELECT id FROM t ORDER BY x, id",
    "order by desc": "SELECT id FROM t ORDER BY x DESC NULLS LAST, id LIMIT 9",
}
# What a group shows is for Foreshore to choose: its engines agree.
SHOWN = {
    "shown by group": "SELECT x::text, count(*) FROM t GROUP BY x",
    "shown by distinct": "SELECT x::text FROM (SELECT DISTINCT x FROM t) AS d",
    "shown by except": "SELECT x::text FROM (SELECT x FROM t EXCEPT SELECT x FROM s) AS e",
    "shown by union": "SELECT x::text FROM (SELECT x FROM t UNION SELECT x FROM s) AS u",
    "shown rows": "SELECT id, x::text FROM t",
}


# A numrange has no trailing zeros here, so in documents equal ones are the same text; arrays of
# enums have one dimension.
LEFT_OUT = {("numrange", "jsonb"), ("nummultirange", "jsonb"), ("mood", "matrix")}


@dataclass(frozen=True, slots=True)
class Case:
    """The values of a type, nested."""

    type: str
    nesting: str

    @property
    def name(self) -> str:
        """Return what identifies the case."""
        return f"{self.type} {self.nesting}"

    def column(self) -> tuple[str, list[str]]:
        """Return the type of the column and SQL for its values."""
        values = [f"CAST({_quoted(value)} AS {self.type})" for value in VALUES[self.type]]
        return NESTINGS[self.nesting](self.type, values)

    def prepared(self) -> Iterator[str]:
        """Yield the statements that make and fill the tables."""
        column, values = self.column()
        if self.type == "mood":
            yield "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')"
        if self.nesting in ("record", "records"):
            yield f"CREATE TYPE made AS (v {self.type}, n int4)"
        if self.nesting == "holder":
            yield f"CREATE TYPE holder AS (v {self.type}[], n int4)"
        yield f"CREATE TABLE t (id int4, x {column})"
        yield f"CREATE TABLE s (id int4, x {column})"
        yield f"CREATE TABLE p (x {column} PRIMARY KEY, n int4)"
        # PostgreSQL's checks of a foreign key fail with "operator does not exist" for bit(3)[] and
        # all other arrays whose elements have a modifier.
        checked = "" if "(" in column and column.endswith("[]") else "REFERENCES p"
        yield f"CREATE TABLE f (id int4, x {column} {checked})"
        rows = [*values, "NULL"]
        yield from _insert("t", rows, 1)
        yield from _insert("t", [*values[:2], "NULL"], 101)
        yield from _insert("s", [*rows[::2], "NULL"], 1)

    def changes(self) -> Iterator[str]:
        """Yield statements that change the tables; the last ones change one writing to another."""
        _, values = self.column()
        yield "DELETE FROM t WHERE id % 3 = 1"
        yield from _insert("t", values[1::2], 201)
        yield "DELETE FROM s WHERE id IN (1, 2)"
        yield from _insert("s", values[1:4], 301)
        for number, value in enumerate(values[:3]):
            yield f"UPDATE t SET x = {value} WHERE id = {number + 101}"

    def keyed(self) -> Iterator[str]:
        """Yield statements about keys; each returns rows or fails, and PostgreSQL's are ours."""
        _, values = self.column()
        yield (
            "INSERT INTO p SELECT x, id FROM t WHERE x IS NOT NULL ORDER BY id"
            " ON CONFLICT DO NOTHING"
        )
        yield "SELECT n FROM p"
        few = [value for value in values if "NULL" not in value][:6]
        for value in few:
            yield f"INSERT INTO p VALUES ({value}, 1000)"
            yield f"SELECT n FROM p WHERE x = {value}"
            yield f"SELECT id FROM t WHERE x = {value}"
            yield f"SELECT id FROM t WHERE x IN ({value}, {values[0]})"
            yield f"SELECT id FROM t WHERE x NOT IN ({value}, {values[0]})"
            yield f"SELECT {value} = {values[0]}, {value} < {values[0]}, {value} >= {values[1]}"
            yield f"SELECT {value} IS NOT DISTINCT FROM {values[0]}, {value} IN ({values[1]})"
        for value in few[:4]:
            yield f"DELETE FROM p WHERE x = {value} RETURNING n"
            yield f"INSERT INTO p VALUES ({value}, 7)"
        for number, value in enumerate(few):
            yield (
                f"INSERT INTO p VALUES ({value}, {number})"
                " ON CONFLICT (x) DO UPDATE SET n = p.n * 10 + excluded.n RETURNING n"
            )
        for value in few[:3]:
            yield f"INSERT INTO f VALUES (1, {value})"
            yield f"UPDATE p SET n = n + 1 WHERE x = {value} RETURNING n"
            yield f"DELETE FROM p WHERE x = {value}"
        yield "SELECT count(*) FROM f JOIN p USING (x)"
        yield f"SELECT count(*) FROM (VALUES ({values[0]}), ({values[1]}), ({values[2 % len(values)]})) v (x) GROUP BY x"
        yield f"SELECT count(*) FROM (SELECT {values[0]} UNION SELECT {values[1]}) AS u"


def cases() -> list[Case]:
    """Return all cases."""
    every = (Case(type, nesting) for type in VALUES for nesting in NESTINGS)
    return [case for case in every if (case.type, case.nesting) not in LEFT_OUT]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _insert(table: str, values: Sequence[str], first: int) -> Iterator[str]:
    """Yield a statement for each row, so that each has a type of its own."""
    for number, value in enumerate(values, first):
        yield f"INSERT INTO {table} VALUES ({number}, {value})"
