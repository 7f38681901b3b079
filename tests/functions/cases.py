"""Cases to compare with PostgreSQL: functions over rows of text with declared types.

A case is one function over one list of argument types and many rows. A type written `=text` makes
the argument a constant of the statement, not a column; units, patterns and numbers of digits are
mostly constants. Such rows are run one by one.
"""

from dataclasses import dataclass
from itertools import product

from tests.functions import jsonpath_cases, number_cases, template_cases, time_range_cases

Row = tuple[str | None, ...]


@dataclass(frozen=True)
class Case:
    name: str  # name of a function or operator, or `cast TYPE`
    types: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def key(self) -> str:
        return f"{self.name}({', '.join(self.types)})"


POOLS: dict[str, list[str | None]] = {
    "bool": ["t", "f", None],
    "int2": ["0", "1", "-1", "7", "-7", "3", "32767", "-32768", None],
    "int4": ["0", "1", "-1", "7", "-7", "3", "2147483647", "-2147483648", None],
    "int8": ["0", "1", "-1", "7", "-7", "9223372036854775807", "-9223372036854775808", None],
    "float4": ["0", "-0", "1.5", "-2.5", "3.4e38", "1e-45", "NaN", "Infinity", "-Infinity", None],
    "float8": ["0", "-0", "1.5", "-2.5", "0.1", "1e308", "1e-308", "NaN", "Infinity", "-Infinity", "123456789.125", None],
    "numeric(10,2)": ["0", "1.50", "-1.50", "2.25", "99999999.99", "-99999999.99", "0.01", None],
    "numeric(20,6)": ["0", "1.000001", "-3.5", "12345678901234.567891", "0.000001", None],
    "numeric": ["0", "1.5", "-2.5", "3", "0.00000001", "123456789012345.5", None],
    "number": number_cases.NUMBERS,
    "text": ["", "a", "B", "abc", "Hello wORLD-foo", "héé straße", "a_c%", "  x ", "日本", None],
    "date": ["1970-01-01", "2024-02-29", "2024-12-30", "2013-07-04", "1900-01-01", "0044-03-15 BC", "infinity", "-infinity", None],
    "time": ["00:00", "12:34:56.789", "23:59:59.999999", None],
    "timestamp": ["1970-01-01", "2024-02-29 12:34:56.789", "2013-12-31 23:59:59.999999", "1969-07-20 20:17:40", "0044-03-15 01:02:03 BC", "infinity", "-infinity", None],
    "timestamptz": ["1970-01-01+00", "2024-02-29 12:34:56.789+00", "2013-11-03 05:30+00", "infinity", None],
    "interval": ["0", "1 day", "-1 day", "1 mon", "1 year 2 mons 3 days 04:05:06.7", "30 days", "24:00", "-1 mon +25:00:00.000001", None],
    "uuid": ["00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", None],
    "bytea": ["\\x", "\\x00ff", "\\x6162", None],
    "jsonb": ['{"a": 1, "b": {"c": [1, 2, "x"]}}', "[1, 2, null, \"a\"]", '"a"', "1", "1.0", "null", "true", "{}", "[]", '{"b": null, "a": 2}', '[{"a": 1}, [1]]', "-1e2", None],
    "int4[]": ["{}", "{1}", "{1,2,3}", "{1,NULL,3}", "{3,2,1}", "{NULL}", None],
    "text[]": ["{}", "{a}", "{a,b}", '{a,NULL,"b c"}', None],
    "bpchar(3)": ["a", "ab ", "", None],
}  # fmt: skip


def pairs(a: str, b: str) -> tuple[Row, ...]:
    return tuple(product(POOLS[a], POOLS[b]))


def singles(a: str) -> tuple[Row, ...]:
    return tuple((v,) for v in POOLS[a])


def case(name: str, types: str, *rows: str | Row) -> Case:
    r"""Return a case; rows as `a | b` or tuples, NULL as `\\N`; without rows, all of the pools."""
    kinds = tuple(types.split(" / ")) if types else ()
    if not rows:
        return Case(name, kinds, tuple(product(*(POOLS[t] for t in kinds))))
    made = [
        tuple(None if v == "\\N" else v for v in (r.split(" | ") if isinstance(r, str) else r))
        for r in rows
    ]
    assert all(len(r) == len(kinds) for r in made), (name, types, made)
    return Case(name, kinds, tuple(made))


COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
CASES: list[Case] = []


def add(name: str, types: str, *rows: str | Row) -> None:
    CASES.append(case(name, types, *rows))


for _t in ("int2", "int4", "int8", "float4", "float8", "numeric(10,2)", "numeric"):
    for _op in ("+", "-", "*", "/"):
        add(_op, f"{_t} / {_t}")
    for _op in ("=", "<", ">="):
        add(_op, f"{_t} / {_t}")
    add("-", _t)
    add("abs", _t)
for _t in ("int2", "int4", "int8", "numeric(10,2)", "numeric"):
    add("%", f"{_t} / {_t}")
for _t in ("int4", "int8"):
    for _op in ("&", "|", "#"):
        add(_op, f"{_t} / {_t}")
    add("~", _t)
    add("gcd", f"{_t} / {_t}")
    add("lcm", f"{_t} / {_t}")
    add("<<", f"{_t} / int4", "1 | 33", "-1 | 3", "5 | 1", "1 | 31", "1 | -1")
    add(">>", f"{_t} / int4", "1 | 33", "-8 | 1", "5 | 1", "100 | 3")
add("+", "int2 / int4")
add("*", "int4 / int8")
add("/", "int8 / int2")
add("+", "numeric(10,2) / numeric(20,6)")
add("*", "numeric(10,2) / numeric(20,6)")
add("/", "numeric(10,2) / numeric(20,6)")
add("/", "numeric(20,6) / int4")
add("/", "int4 / numeric(10,2)")
add("<", "numeric(10,2) / numeric(20,6)")
add("=", "numeric(10,2) / numeric")
add(">", "numeric / int8")
add("+", "numeric / float8")
add("+", "float4 / float8")
add("=", "float4 / float8")
for _op in COMPARISONS:
    for _t in (
        "bool",
        "text",
        "date",
        "timestamp",
        "interval",
        "uuid",
        "bytea",
        "jsonb",
        "int4[]",
        "bpchar(3)",
    ):
        add(_op, f"{_t} / {_t}")
add("=", "date / timestamp")
add("<", "date / timestamptz")
add("=", "timestamp / timestamptz")
add("=", "text[] / text[]")
add("<", "text[] / text[]")
add("=", "time / time")

for _f in ("round", "trunc", "ceil", "floor", "sign"):
    add(_f, "numeric(10,2)")
    add(_f, "numeric(20,6)", "2.5", "-2.5", "0.5", "-0.5", "1.499999", "3.500000")
    add(_f, "float8")
for _f in ("round", "trunc"):
    add(
        _f,
        "numeric(20,6) / =int4",
        "1.005 | 2",
        "-1.005 | 2",
        "1234.5678 | -2",
        "1250 | -2",
        "1.5 | 10",
        "0 | 0",
        "999.999999 | 3",
    )
    add(_f, "numeric(20,6) / int4", "1.005 | 2", "1234.5678 | -2", "1.5 | 6", "7 | 0")
add("div", "numeric(10,2) / numeric(10,2)")
_POSITIVE = ("0", "1", "2", "0.5", "10", "123.456", "-1", "0.000001", "99999")
for _f in ("sqrt", "ln", "log", "exp"):
    add(_f, "numeric(20,6)", *(v for v in _POSITIVE if not (_f == "exp" and v == "99999")), "3.7")
    add(_f, "float8", *_POSITIVE)
add(
    "power",
    "numeric(20,6) / numeric(20,6)",
    "2 | 0.5",
    "2 | 10",
    "10 | -2",
    "0 | 0",
    "0 | -1",
    "-2 | 3",
    "-2 | 0.5",
    "1.5 | 2.5",
    "7 | 0",
)
add(
    "power",
    "float8 / float8",
    "2 | 0.5",
    "2 | 10",
    "0 | -1",
    "-8 | 0.5",
    "10 | 400",
    "10 | -400",
    "NaN | 0",
    "1 | NaN",
    "Infinity | 2",
    "0 | 0",
)
_BUCKETS = (
    *(f"{x} | 1 | 9 | 4" for x in ("0", "1", "2.999", "3", "8.999", "9", "10", "-1e30")),
    *(f"{x} | 9 | 1 | 4" for x in ("0", "1", "3", "8.5", "9", "10")),
    "5.35 | 0.024 | 10.06 | 5",
    "9 | 1 | 10 | 2147483647",
    "99 | 1 | 10 | 2147483647",
    "-99 | 1 | 10 | 2147483647",
    "3 | 1 | 1 | 4",
    "3 | 1 | 9 | 0",
    "3 | 1 | 9 | -1",
)
add(
    "width_bucket",
    "numeric(20,6) / numeric(20,6) / numeric(20,6) / int4",
    *(r for r in _BUCKETS if "e" not in r),
)
add(
    "width_bucket",
    "float8 / float8 / float8 / int4",
    *_BUCKETS,
    "NaN | 1 | 9 | 4",
    "3 | NaN | 9 | 4",
    "3 | 1 | Infinity | 4",
    "Infinity | 1 | 9 | 4",
    "-Infinity | 9 | 1 | 4",
    "0.9999999999999999 | 0 | 1 | 3",
)
add("^", "int4 / int4", "2 | 10", "3 | 2", "0 | 0")
add("cbrt", "float8", "27", "-8")
add("degrees", "float8", "1", "3.141592653589793")
add("atan2", "float8 / float8", "1 | 2", "-1 | -1")

for _f in ("jsonb_path_query_array", "jsonb_path_exists", "jsonb_path_match"):
    CASES.append(Case(_f, ("jsonb", "jsonpath", "jsonb", "bool"), jsonpath_cases.ROWS))
CASES.append(
    Case(
        "cast jsonpath",
        ("text",),
        tuple((p,) for p in (*jsonpath_cases.PATHS, *jsonpath_cases.WRONG)),
    )
)

for _op in number_cases.BINARY:
    add(_op, "number / number")
for _f in number_cases.UNARY:
    add(_f, "number")
for _op in ("+", "*", "/", "<"):
    add(_op, "number / numeric(10,2)")
add("-", "int4 / number")
add("power", "number / number", *number_cases.POWERS)
add("log", "number / number", *number_cases.LOGARITHMS)
for _f in ("scale", "min_scale"):
    add(_f, "number")
    add(_f, "numeric(10,2)")
for _f in ("gcd", "lcm"):
    add(_f, "number / number", *number_cases.DIVISORS)
    add(_f, "numeric(10,2) / numeric(20,6)")
add("factorial", "int8", "0", "1", "5", "20", "21", "100", "-1", "32178", "\\N")
add("exp", "number", *number_cases.EXPONENTS)
for _f in ("round", "trunc"):
    add(_f, "number / int4", *number_cases.DIGITS)
for _target in number_cases.CASTS:
    add(f"cast {_target}", "number")
add("cast number", "text", *number_cases.TEXTS)
add("cast number", "float8", *number_cases.FLOATS)
add("cast number", "float4", *number_cases.FLOATS[:2])

for _source, _targets in {
    "int2": "int4 int8 float4 float8 numeric numeric(3,1) text bool?",
    "int4": "int2 int8 float4 float8 numeric numeric(5,2) text bool varchar(3) oid",
    "int8": "int2 int4 float4 float8 numeric text",
    "float4": "int2 int4 int8 float8 numeric text",
    "float8": "int2 int4 int8 float4 numeric numeric(10,2) text",
    "numeric(10,2)": "int2 int4 int8 float4 float8 numeric(5,1) numeric(12,4) numeric(4,2) text",
    "numeric": "int2 int4 int8 float8 text",
    "bool": "int4 text",
    "date": "timestamp timestamptz text",
    "timestamp": "date time timestamptz text timestamp(0) timestamp(3)",
    "timestamptz": "date time timestamp text",
    "time": "interval text time(1)",
    "interval": "time text",
    "uuid": "text",
    "bytea": "text",
    "jsonb": "text bool int4 int8 float8 numeric(10,2)",
    "int4[]": "text int8[] text[] numeric[]",
    "text[]": "text",
    "bpchar(3)": "text varchar(2)",
    "text": "varchar(2) bpchar(2) name",
}.items():
    for _target in _targets.replace(" bool?", "").split():
        add(f"cast {_target}", _source)
add("cast int4", "text", "42", " 42 ", "-7", "abc", "", "2147483648", "+5", "1.5", "0x1F", "\\N")
add("cast int8", "text", "42", "9223372036854775808", "x")
add("cast numeric(10,2)", "text", "1.005", " 7 ", "1e3", "abc", "123456789.1")
add("cast float8", "text", "1.5", "NaN", "infinity", "1e400", "x", "1e-400", "-0")
add("cast float4", "text", "1.5", "0.1", "1e40")
add("cast bool", "text", "t", "yes", "on", "off", "0", "1", "maybe", " TRUE ", "\\N")
add(
    "cast date",
    "text",
    "2024-02-29",
    "2024-02-30",
    "20240101",
    "Jan 5 2020",
    "infinity",
    "abc",
    "2024-13-01",
)
add(
    "cast timestamp", "text", "2024-02-29 12:00", "2024-02-29T12:00:00.5", "xyz", "2024-02-29 25:00"
)
add(
    "cast timestamptz",
    "text",
    "2024-02-29 12:00+02",
    "2024-02-29 12:00",
    "2024-02-29 12:00 America/New_York",
)
add("cast interval", "text", "1 day", "P1Y2M", "02:03", "abc", "1.5 months")
add(
    "cast uuid",
    "text",
    "a0eebc999c0b4ef8bb6d6bb9bd380a11",
    "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
    "zz",
)
add("cast jsonb", "text", '{"b":1,"a":2,"b":3}', "[1, 1.50]", "{", '"\\u0041"', "nul")
add("cast bytea", "text", "\\x6162", "abc", "\\xzz")
add("cast int4[]", "text", "{1,2,NULL}", "{}", "{a}", "1")
add("cast time", "text", "12:34:56", "25:00")

for _f in (
    "length",
    "octet_length",
    "upper",
    "lower",
    "initcap",
    "reverse",
    "ascii",
    "md5",
    "btrim",
    "ltrim",
    "rtrim",
    "quote_literal",
    "quote_ident",
):
    add(_f, "text")
add("quote_ident", "text", "select", "Abc", "a b", 'a"b', "_x1")
add("quote_literal", "text", "O'Reilly", "a\\b")
add("substring", "text / int4", *(f"abcdef | {n}" for n in (0, 1, 3, -2, 7)), "héé | 2")
add(
    "substring",
    "text / int4 / int4",
    *(f"abcdef | {n} | {m}" for n in (0, -1, 2, 5) for m in (0, 3, 10, -1)),
    "日本語 | 2 | 1",
    "abc | 2 | 2147483647",
)
for _f in ("left", "right"):
    add(_f, "text / int4", *(f"abcdef | {n}" for n in (0, 2, -2, 10, -10)), "héé | 2")
for _f in ("lpad", "rpad"):
    add(_f, "text / int4", "abc | 2", "abc | 5", "abc | 0", "abc | -1", "héé | 5")
    add(_f, "text / int4 / text", "abc | 8 | xy", "abc | 2 | xy", ("abc", "5", ""), "a | 4 | 日本")
for _f in ("btrim", "ltrim", "rtrim"):
    add(_f, "text / text", "xxaxx | x", "xyxa | xy", ("abc", ""), "日a日 | 日")
add(
    "replace",
    "text / text / text",
    "abcabc | b | X",
    ("abc", "", "X"),
    "aaa | aa | b",
    "日本 | 本 | x",
)
add(
    "translate",
    "text / text / text",
    "abc | ab | x",
    "abcba | ab | xy",
    ("abc", "b", ""),
    "héé | é | e",
)
add("repeat", "text / int4", "ab | 3", "ab | 0", "ab | -1")
add(
    "split_part",
    "text / text / int4",
    *(f"a,b,c | , | {n}" for n in (1, 2, 3, 4, -1, -3, -4, 0)),
    ("abc", "", "1"),
    ("abc", "", "2"),
    ("", ",", "1"),
    "a--b | -- | 2",
)
add("starts_with", "text / text", "abc | ab", "abc | b", ("abc", ""))
add("strpos", "text / text", "abc | c", "abc | z", ("abc", ""), "日本 | 本")
add("chr", "int4", "65", "233", "26085", "0", "-1", "1114112", "55296")
add("to_hex", "int4", "255", "-1", "0")
add("to_hex", "int8", "255", "-1")
add(
    "overlay",
    "text / text / int4 / int4",
    "abcdef | ZZ | 2 | 3",
    "abcdef | ZZ | 1 | 0",
    "abcdef | Z | 0 | 1",
    "abc | Z | 10 | 1",
)
add("overlay", "text / text / int4", "abcdef | ZZ | 2", "abcdef | ZZ | 6")
add("||", "text / text")
add("||", "text / int4", "a | 1", ("", "-5"), "a | \\N")
add("||", "float8 / text", "1e20 | x", "0.1 | x")
add("||", "bytea / bytea")
add("concat", "text / int4 / bool", "a | 1 | t", "\\N | 1 | f", "\\N | \\N | \\N")
add("concat_ws", "text / text / int4", ", | a | 1", ", | \\N | 1", "\\N | a | 1")
add(
    "format",
    "text / text",
    "Hello %s | x",
    "%I | a b",
    "%L | O'x",
    "%% %s | y",
    "%s %s | z",
    "%1$s %1$s | q",
    "%10s| | ab",
    "%-5s| | ab",
    "%I | \\N",
    "%L | \\N",
)
add(
    "encode",
    "bytea / =text",
    "\\x6162ff | hex",
    "\\x6162ff | base64",
    "\\x6100ff5c | escape",
    "\\x | foo",
)
add("decode", "text / =text", "6162 | hex", "YWI= | base64", "a\\\\b | escape", "zz | hex")
add(
    "string_to_array",
    "text / text",
    "a,b | ,",
    ("", ","),
    "abc | \\N",
    ("abc", ""),
    "a,,b | ,",
    "\\N | ,",
)
add("string_to_array", "text / text / text", "a,b,a | , | a", ("a,,b", ",", ""))
add("array_to_string", "int4[] / text", "{1,NULL,3} | ,", "{} | ,", "\\N | ,")
add("array_to_string", "text[] / text / text", "{a,NULL,b} | , | *", "{a,NULL,b} | , | \\N")

for _op in ("~~", "!~~", "~~*", "!~~*"):
    for _form in ("text / text", "text / =text"):
        add(
            _op,
            _form,
            "abc | a%",
            "abc | _b_",
            "abc | ABC",
            "a_c | a\\_c",
            "abc | a\\_c",
            "abc | abc\\",
            "a%c | a\\%c",
            ("", "%"),
            "日本 | 日_",
            "a\nb | a%b",
            "abc | \\N",
            "ABC | a%",
            "É | é",
        )
for _op in ("~", "!~", "~*", "!~*"):
    for _form in ("text / text", "text / =text"):
        add(
            _op,
            _form,
            "abc | b",
            "abc | B",
            "abc | ^a.c$",
            "a1 | \\d",
            "abc | (b|x)c",
            "abc | [[:alpha:]]+",
            "foo bar | \\mbar\\M",
            "abc | a(",
            "a\nb | a.b",
            "a\n | a$",
            "héé | ^h\\w+$",
            "abc | x*",
            "ab | a{1,2}b",
            "a.b | a\\.b",
            "abc | [^a]",
            "\\N | a",
        )
add(
    "regexp_replace",
    "text / text / text",
    "abcabc | b | X",
    "abc | (b) | [\\1]",
    "abc | b | <\\&>",
    "foobar | o+ | 0",
    "abc | x | y",
    ("abab", "a|ab", "X"),
    "xaaay | a+? | b",
    "abc | ^ | >",
    "abc | (a)(b)? | \\2\\1",
    "a\\b | b | \\\\",
)
add(
    "regexp_replace",
    "text / text / text / text",
    "abcabc | b | X | g",
    "abcABC | b | X | gi",
    ("abc", "", "-", "g"),
    "abc | x* | - | g",
    "a1b22 | [0-9]+ | # | g",
)
add(
    "regexp_match",
    "text / text",
    "foobar | o(b)",
    "foobar | o+",
    "foobar | x",
    "foobar | (f)(o+)(z)?",
    "abcd | (a|ab)(c|bcd)",
    "2024-05 | (\\d+)-(\\d+)",
)
add("regexp_split_to_array", "text / text", "a b  c | \\s+", "abc | b", "hello | ", "a,b | ,")
add("similar_to_escape", "text", "%b%", "a_c", "(a|b)%", "a.c")
add("substring", "text / text", "foobar | o.b", "foobar | o(.)b", "foobar | x")

for _unit in (
    "year",
    "quarter",
    "month",
    "week",
    "day",
    "hour",
    "minute",
    "second",
    "milliseconds",
    "decade",
    "century",
    "millennium",
):
    add("date_trunc", "=text / timestamp", *((_unit, v) for v in POOLS["timestamp"]))
    add("date_trunc", "=text / timestamptz", *((_unit, v) for v in POOLS["timestamptz"]))
    add("date_trunc", "=text / interval", *((_unit, v) for v in POOLS["interval"]))
_BINS = (
    "15 minutes | 2024-02-29 12:34:56.789 | 2001-01-01",
    "15 minutes | 2024-02-29 12:30 | 2001-01-01",
    "1 day 2 hours | 2024-02-29 12:34:56.789 | 2001-01-01 00:02:30",
    "7 days | 2000-12-31 23:59:59.999999 | 2001-01-01",
    "1 microsecond | 1969-07-20 20:17:40.000001 | 1970-01-01",
    "-1 day 48:00 | 2024-02-29 12:34 | 2001-01-01",
    "1 hour | infinity | 2001-01-01",
    "1 hour | -infinity | 2001-01-01",
    "1 month | infinity | 2001-01-01",
    "1 hour | 2024-01-01 | infinity",
    "1 month | 2024-01-01 | 2001-01-01",
    "1 year 1 day | 2024-01-01 | 2001-01-01",
    "0 | 2024-01-01 | 2001-01-01",
    "-1 hour | 2024-01-01 | 2001-01-01",
    "\\N | 2024-01-01 | 2001-01-01",
    "1 hour | \\N | 2001-01-01",
    "1 hour | 2024-01-01 | \\N",
)
for _type in ("timestamp", "timestamptz"):
    add("date_bin", f"interval / {_type} / {_type}", *_BINS)
add(
    "date_trunc",
    "text / timestamp",
    "day | 2024-02-29 12:34",
    "month | 2024-02-29 12:34",
    "foo | 2024-02-29",
    "dow | 2024-02-29",
    "\\N | 2024-01-01",
    "epoch | 2024-01-01",
    "timezone | 2024-01-01",
    "HOUR | 2024-02-29 12:34",
    "days | 2024-02-29 12:34",
)
add(
    "date_trunc",
    "=text / timestamptz / =text",
    "day | 2024-02-29 02:34+00 | America/New_York",
    "hour | 2013-11-03 05:30+00 | Asia/Kolkata",
    "day | 2024-01-01+00 | Nowhere/X",
)
for _unit in (
    "year",
    "quarter",
    "month",
    "week",
    "day",
    "hour",
    "minute",
    "second",
    "milliseconds",
    "microseconds",
    "decade",
    "century",
    "millennium",
    "dow",
    "isodow",
    "doy",
    "isoyear",
    "epoch",
    "julian",
    "timezone",
    "foo",
):
    for _f in ("extract", "date_part"):
        for _t in ("timestamp", "timestamptz", "interval", "time", "date"):
            if (_f, _t) != ("date_part", "date"):
                add(
                    _f,
                    f"=text / {_t}",
                    *(
                        (_unit, v)
                        for v in POOLS[_t]
                        if _unit != "timezone" or "inf" not in (v or "")
                    ),
                )
add(
    "extract",
    "text / timestamp",
    "day | 2024-02-29 12:34",
    "epoch | 2024-02-29 12:34:01.5",
    "foo | 2024-02-29",
)

for _t in ("timestamp", "timestamptz", "date"):
    add("+", f"{_t} / interval")
    add("-", f"{_t} / interval")
    add("-", f"{_t} / {_t}")
add("+", "interval / timestamp", "1 mon | 2024-01-31")
add(
    "+",
    "timestamp / interval",
    "2024-01-31 | 1 mon",
    "2024-02-29 | 1 year",
    "2024-03-31 10:00 | -1 mon",
    "294000-01-01 | 1000 years",
    "4700-01-01 BC | -100 years",
    "2024-01-31 | 13 mons -1 day",
)
for _op in ("+", "-"):
    add(
        _op,
        "date / int4",
        "2024-02-28 | 2",
        "infinity | 1",
        "2024-01-01 | 2147483647",
        "2024-01-01 | -400",
        "\\N | 1",
    )
    add(_op, "time / interval")
add("-", "time / time")
add("+", "date / time", "2024-02-29 | 12:34", "infinity | 01:00")
for _op in ("+", "-"):
    add(_op, "interval / interval")
add("-", "interval")
add(
    "*",
    "interval / float8",
    *(
        f"{i} | {f}"
        for i in ("1 day", "1 mon", "1 year 2 mons 3 days 04:05:06.7", "-1 mon")
        for f in ("1.5", "2", "-0.5", "0", "1e300", "NaN")
    ),
)
add(
    "/",
    "interval / float8",
    *(
        f"{i} | {f}"
        for i in ("1 day", "1 mon", "1 year 2 mons 3 days 04:05:06.7")
        for f in ("1.5", "2", "-3", "0")
    ),
)
for _f in ("justify_hours", "justify_days", "justify_interval"):
    add(_f, "interval")
    add(
        _f,
        "interval",
        "35 days",
        "-35 days",
        "1 mon -1 hour",
        "36:00",
        "-36:00",
        "1 mon -31 days",
        "30 days 25:00",
    )
add(
    "age",
    "timestamp / timestamp",
    "2024-03-01 | 2023-01-15",
    "2023-01-15 | 2024-03-01",
    "2024-03-31 | 2024-02-29",
    "2024-02-29 | 2024-03-31",
    "2001-04-10 | 1957-06-13",
    "2024-01-01 10:00 | 2024-01-02 09:00",
    "2024-05-31 | 2024-04-30 12:00",
)
add(
    "make_date",
    "int4 / int4 / int4",
    "2024 | 2 | 29",
    "2023 | 2 | 29",
    "0 | 1 | 1",
    "-44 | 3 | 15",
    "2024 | 13 | 1",
)
add(
    "make_time",
    "int4 / int4 / float8",
    "12 | 34 | 56.789",
    "24 | 0 | 0",
    "25 | 0 | 0",
    "1 | 60 | 0",
)
add("make_timestamp", "int4 / int4 / int4 / int4 / int4 / float8", "2024 | 2 | 29 | 1 | 2 | 3.5")
add("make_interval", "int4 / int4 / int4 / int4", "1 | 2 | 3 | 4")
add(
    "to_timestamp",
    "float8",
    "1700000000",
    "0",
    "-1.5",
    "1700000000.123456",
    "Infinity",
    "NaN",
    "1e20",
)
add(
    "timezone",
    "=text / timestamptz",
    "America/New_York | 2024-05-17 12:00+00",
    "Asia/Kolkata | 2024-05-17 12:00+00",
    "UTC | 2024-05-17 12:00+00",
    "+02 | 2024-05-17 12:00+00",
    "2 | 2024-05-17 12:00+00",
    "-03:30 | 2024-05-17 12:00+00",
    "Nowhere | 2024-05-17 12:00+00",
    "UTC | infinity",
)
add(
    "timezone",
    "=text / timestamp",
    "America/New_York | 2024-05-17 12:00",
    "America/New_York | 2024-03-10 02:30",
    "America/New_York | 2024-11-03 01:30",
)

for _op in ("->", "->>"):
    add(_op, "jsonb / text", *((v, k) for v in POOLS["jsonb"] for k in ("a", "b", "x")))
    add(_op, "jsonb / int4", *((v, k) for v in POOLS["jsonb"] for k in ("0", "-1", "9")))
for _op in ("#>", "#>>"):
    add(
        _op,
        "jsonb / text[]",
        *((v, k) for v in POOLS["jsonb"] for k in ("{}", "{b,c,1}", "{0}", "{0,a}", "{a}")),
    )
for _op in ("@>", "<@"):
    add(_op, "jsonb / jsonb")
add("?", "jsonb / text", *((v, k) for v in POOLS["jsonb"] for k in ("a", "b")))
for _op in ("?|", "?&"):
    add(_op, "jsonb / text[]", *((v, k) for v in POOLS["jsonb"] for k in ("{a,b}", "{x}", "{}")))
add("||", "jsonb / jsonb")
add("-", "jsonb / text", *((v, "a") for v in POOLS["jsonb"]))
add("-", "jsonb / int4", *((v, k) for v in POOLS["jsonb"] for k in ("0", "-1", "5")))
add("-", "jsonb / text[]", *((v, "{a,b}") for v in POOLS["jsonb"]))
add("#-", "jsonb / text[]", *((v, k) for v in POOLS["jsonb"] for k in ("{b,c}", "{0}", "{0,a}")))
for _f in ("jsonb_typeof", "jsonb_array_length", "jsonb_strip_nulls", "jsonb_pretty"):
    add(_f, "jsonb")
for _t in (
    "int4",
    "float8",
    "numeric(10,2)",
    "text",
    "bool",
    "timestamp",
    "timestamptz",
    "date",
    "jsonb",
    "int4[]",
    "text[]",
    "interval",
    "uuid",
):
    add("to_jsonb", _t)
add(
    "jsonb_build_object",
    "text / int4 / text / bool",
    "a | 1 | b | t",
    "a | \\N | b | f",
    "\\N | 1 | b | t",
)
add("jsonb_build_array", "int4 / text / jsonb", '1 | a | {"x": 1}', "\\N | \\N | \\N")
add(
    "jsonb_set",
    "jsonb / text[] / jsonb",
    '{"a": 1} | {a} | 2',
    '{"a": 1} | {b} | 2',
    "[1,2] | {5} | 3",
    "[1,2] | {-9} | 3",
    '{"a": {"b": 1}} | {a,b} | [1]',
    "1 | {a} | 2",
    "[1] | {x} | 1",
)
add(
    "jsonb_insert",
    "jsonb / text[] / jsonb",
    '{"a": 1} | {b} | 2',
    "[1,2] | {1} | 3",
    '{"a": 1} | {a} | 2',
)
add("jsonb_extract_path_text", "jsonb / text / text", '{"a": {"b": "x"}} | a | b')

add("array_length", "int4[] / int4", *((v, d) for v in POOLS["int4[]"] for d in ("1", "2")))
add("cardinality", "int4[]")
add("array_append", "int4[] / int4", *((v, d) for v in POOLS["int4[]"] for d in ("9", None)))
add("array_prepend", "int4 / int4[]", *((d, v) for v in POOLS["int4[]"] for d in ("9", None)))
add("array_cat", "int4[] / int4[]")
add("||", "int4[] / int4", "{1,2} | 3")
add("||", "int4 / int4[]", "3 | {1,2}")
add("||", "int4[] / int4[]")
for _op in ("@>", "<@", "&&"):
    add(_op, "int4[] / int4[]")
add("array_remove", "int4[] / int4", "{1,2,1} | 1", "{1,NULL} | \\N", "\\N | 1")
add("array_replace", "int4[] / int4 / int4", "{1,2,1} | 1 | 9", "{1,NULL} | \\N | 0")
add("array_position", "int4[] / int4", "{1,2,1} | 1", "{1,NULL} | \\N", "{1} | 5")
add("array_positions", "int4[] / int4", "{1,2,1} | 1", "{1} | 5")
add(
    "array_subscript",
    "int4[] / int4",
    *((v, d) for v in POOLS["int4[]"] for d in ("1", "0", "3", "4")),
)
for _f in ("coalesce", "greatest", "least"):
    for _t in ("int4", "float8", "text", "numeric(10,2)", "date", "interval"):
        add(_f, f"{_t} / {_t}")
    add(_f, "int4 / numeric(10,2)")
for _t in ("int4", "float8", "text", "numeric(10,2)", "interval", "jsonb"):
    add("nullif", f"{_t} / {_t}")
    add("is distinct from", f"{_t} / {_t}")
    add("is not distinct from", f"{_t} / {_t}")
add(
    "format_type",
    "oid / int4",
    "23 | -1",
    "1043 | 14",
    "1700 | 655366",
    "1007 | -1",
    "99999 | -1",
    "1184 | 3",
    "1043 | \\N",
    "1042 | -1",
    "1042 | \\N",
    "1042 | 8",
    "1014 | -1",
    "1014 | \\N",
)

_TEMPLATES = (
    "YYYY-MM-DD HH24:MI:SS", "DD Mon YYYY", "FMMonth FMDD, YYYY", "Day DDD D Dy dy DAY", "HH12:MI:SS.MS AM", "YY Q WW W IW IYYY ID J CC",
    "US FF3 SSSS", 'YYYY "year" MM', "DDth FMMMth", "month MONTH Month|mon", "yyyymmdd", "HH:MI pm", "Y,YYY", "xx YYYY zz",
)  # fmt: skip
add(
    "to_char",
    "timestamp / text",
    *(
        (t, f)
        for f in _TEMPLATES
        for t in ("2024-05-07 13:04:05.678901", "1999-12-31 00:30:00", "0044-03-15 01:02:03 BC")
    ),
    ("infinity", "YYYY"),
)
add(
    "to_date",
    "text / text",
    "17/05/2024 | DD/MM/YYYY",
    "20240229 | YYYYMMDD",
    "2024-02-30 | YYYY-MM-DD",
    "5 Jan 2020 | DD Mon YYYY",
    "January 5, 2020 | Month DD, YYYY",
    "2024-060 | YYYY-DDD",
    "xx | YYYY",
)
add(
    "to_timestamp",
    "text / text",
    "2024-05-17 13:45:10 | YYYY-MM-DD HH24:MI:SS",
    "2024-05-17 01:45 PM | YYYY-MM-DD HH12:MI AM",
    "2024-05-17 13:45:10.25 | YYYY-MM-DD HH24:MI:SS.MS",
    "2024-05-17 25:00 | YYYY-MM-DD HH24:MI",
)

add("to_char", "timestamp / text", *template_cases.OF_TIMESTAMP)
add("to_char", "timestamptz / text", *template_cases.OF_MOMENT)
add("to_char", "interval / text", *template_cases.OF_INTERVAL)
add("to_date", "text / text", *template_cases.DATES)
for (_name, _types), _rows in time_range_cases.ROWS.items():
    add(_name, _types, *_rows)
add("to_timestamp", "text / text", *template_cases.TIMESTAMPS)

for _text in (
    "1: / 1- / 1- 2 3: / 1-2 3 4::.5 / 1 millenniums 2 centuries / 1.5 second 42 milliseconds"
    " / 1 second 42 milliseconds / 1.5 second 42 microseconds / 1 ms 1 us 1 s / 1:2:3 4 ms"
    " / 3 microsecondsss / 1 yearx / 2 1: / -13-10 15 -16::.27"
).split(" / "):
    add("cast interval", "text", _text)
add("normalize", "text", "a\u0308", "\u00e4", "\ufb01", "")
add(
    "normalize",
    "text / text",
    *(f"\ufb01\u00e4 | {form}" for form in ("NFC", "NFD", "NFKC", "NFKD")),
)
add("width_bucket", "int4 / int4[]", "5 | {1,3,7}", "0 | {1,3,7}", "7 | {1,3,7}", "5 | {}")
add("width_bucket", "text / text[]", "b | {a,c}", "b | {a,NULL}")
add("num_nulls", "int4 / text", "1 | a", "\\N | a", "\\N | \\N")
add("num_nonnulls", "int4 / text", "1 | a", "\\N | a", "\\N | \\N")
add("json_object", "text[]", '{a,1,b,NULL,c,"x y"}', "{a}", "{NULL,1}", "{}")
add("json_object", "text[] / text[]", "{a,b} | {1,NULL}", "{a,b} | {1}")
add("pg_size_pretty", "numeric(20,6)", "10", "-10.5", "12345.67", "1000000000000")
add("pg_size_pretty", "number", "10", "-10.50", "1e30", "12345.678")
add(
    "pg_size_bytes", "text", "1.5 GB", "1 kB", "-1.5 kb", "12", "12 x", "", "1 PB", "1e3", "1e30 PB"
)
add("array_fill", "int4 / int4[]", "1 | \\N", "\\N | {2}", "1 | {2}")

# --- angles, templates of numbers, octets, names, regular expressions --------------------------

_ANGLES = (
    "0",
    "30",
    "-30",
    "45",
    "60",
    "90",
    "135",
    "180",
    "225",
    "270",
    "300",
    "360",
    "400.5",
    "-725",
    "NaN",
    "Infinity",
)
for _f in ("sind", "cosd", "tand", "cotd"):
    add(_f, "float8", *_ANGLES)
for _f in ("asind", "acosd", "atanh"):
    add(_f, "float8", "0", "0.5", "-0.5", "1", "-1", "0.3", "0.9", "1.1", "NaN")
add("atand", "float8", "0", "1", "-1", "2.5", "Infinity")
add("atan2d", "float8 / float8", "1 | 1", "-1 | 0", "0 | -1", "3 | 4")
add("acosh", "float8", "1", "2", "10.5", "0.5", "NaN", "Infinity")
add("asinh", "float8", "0", "2", "-10.5", "NaN", "-Infinity")
add("cot", "float8", "0", "0.5", "-0.5", "NaN", "Infinity")
_NUMBER_TEMPLATES = (
    "9",
    "99",
    "000",
    "9.9",
    "99.99",
    "0.9",
    "FM9.9",
    "FM990.099",
    "FM999,999.99",
    "9G999G999D99",
    "S999",
    "999S",
    "SG999",
    "MI999",
    "999MI",
    "PL999",
    "FM999MI",
    "999PR",
    "FM999PR",
    "RN",
    "FMRN",
    "rn",
    "99TH",
    "99th",
    "9.9EEEE",
    "99V99",
    '"x"999',
    "L999",
    "0999",
    "09.90",
    "S9,999.99",
    "00.00S",
    "9.99PR",
    "FM.99",
    "999.000",
    "9.9.9",
    "9V9.9",
    "S9S",
    "9PR9",
    "FM9,999S",
)
_WRITTEN = (
    "0",
    "1",
    "-1",
    "12.34",
    "-12.345",
    "485",
    "0.1",
    "-0.1",
    "1234567.891",
    "999.995",
    "3999",
    "11",
)
for _t in ("numeric(20,6)", "float8", "float4", "int8"):
    add(
        "to_char",
        f"{_t} / text",
        *(
            f"{v} | {m}"
            for v in _WRITTEN
            if _t != "int8" or "." not in v
            for m in _NUMBER_TEMPLATES
        ),
    )
add(
    "to_number",
    "text / text",
    *(
        f"{v} | {m}"
        for v in (
            "12",
            "-12",
            "12-",
            "+12",
            "1,234.50",
            "-1,234.5",
            "<12>",
            "12.345",
            "$12",
            "12th",
            "abc",
            ".5",
            "12 -",
        )
        for m in (
            "99",
            "99.99",
            "9,999.99",
            "S9999.99",
            "9999.99S",
            "MI999",
            "999PR",
            "L999",
            "99th",
            "99V99",
            "9G999D99",
            "FM9999",
        )
    ),
    ("12", ""),
)
add(
    "get_byte", "bytea / int4", "\\x1234 | 0", "\\x1234 | 1", "\\x1234 | 2", "\\x | 0", "\\x12 | -1"
)
add("set_byte", "bytea / int4 / int4", "\\x1234 | 0 | 255", "\\x1234 | 1 | 256", "\\x1234 | 2 | 1")
add("get_bit", "bytea / int8", "\\x1180 | 0", "\\x1180 | 4", "\\x1180 | 15", "\\x1180 | 16")
add(
    "set_bit",
    "bytea / int8 / int4",
    "\\x1234567890 | 30 | 0",
    "\\x00 | 7 | 1",
    "\\x00 | 8 | 1",
    "\\x00 | 1 | 2",
)
add("bit_count", "bytea", "\\x", "\\x00ff", "\\x123456")
add("bit_length", "bytea", "\\x", "\\x00ff")
for _f in ("sha224", "sha384", "sha512"):
    add(_f, "bytea", "\\x", "\\x616263")
for _t, _v in (("text", "abc"), ("bytea", "\\x00ff")):
    add(
        "digest",
        f"{_t} / text",
        *(f"{_v} | {h}" for h in ("md5", "sha1", "SHA224", "sha256", "sha384", "sha512", "x")),
    )
    add(
        "hmac",
        f"{_t} / {_t} / text",
        *(f"{_v} | {_v} | {h}" for h in ("md5", "sha1", "sha256", "sha512", "x")),
    )
add(
    "convert_from",
    "bytea / text",
    "\\xc3b1 | UTF8",
    "\\xf1 | LATIN1",
    "\\xf1 | WIN1252",
    "\\x61 | nosuch",
)
add("convert_to", "text / text", "ñ | UTF8", "ñ | latin1", "日 | LATIN1", "a | nosuch")
add(
    "parse_ident",
    "text",
    "a",
    "A.b",
    '"A".b',
    ' a . "b c" ',
    '"a""b".c',
    "a.b.",
    "",
    ".a",
    '"',
    '""',
    "a b",
    "1a",
    "a1$.é",
    "a.1",
)
add("parse_ident", "text / bool", "a.b(1) | t", "a.b(1) | f", "a b | f", "a. | f")
add(
    "unistr",
    "text",
    "a\\0041b",
    "\\+01F600",
    "\\u00e9",
    "\\U0001F600",
    "\\d83d\\de00",
    "\\d83d",
    "\\\\",
    "a\\b",
    "\\0000",
)
add(
    "regexp_count",
    "text / text / int4",
    "ABCABC | A. | 1",
    "ABCABC | A. | 2",
    "abc | b | 0",
    "aaa | a | 4",
)
add(
    "regexp_count",
    "text / text / int4 / text",
    "ABCABCAXYaxy | A. | 1 | i",
    "a\nb | ^b | 1 | n",
    "a | a | 1 | g",
)
add("regexp_instr", "text / text", "foobar | o+", "foobar | x")
add("regexp_instr", "text / text / int4", "foobar | o | 3", "foobar | o | 4", "foobar | o | -1")
add(
    "regexp_instr",
    "text / text / int4 / int4",
    "foobarbaz | ba. | 1 | 2",
    "foobar | o | 1 | 3",
    "foobar | o | 1 | 0",
)
add(
    "regexp_instr",
    "text / text / int4 / int4 / int4",
    "foobarbaz | ba. | 1 | 2 | 1",
    "foobar | o | 1 | 1 | 2",
)
add("regexp_instr", "text / text / int4 / int4 / int4 / text", "fooBAR | b | 1 | 1 | 0 | i")
add("regexp_substr", "text / text", "foobar | o+", "foobar | x")
add("regexp_substr", "text / text / int4", "foobar | o. | 3")
add("regexp_substr", "text / text / int4 / int4", "foobarbaz | ba. | 1 | 2", "foobar | o | 1 | 3")
add("regexp_substr", "text / text / int4 / int4 / text", "fooBAR | b. | 1 | 1 | i")
add(
    "regexp_substr",
    "text / text / int4 / int4 / text / int4",
    "foobar | (o)(b) | 1 | 1 |  | 2",
    "foobar | (o)(b) | 1 | 1 |  | 3",
    "foobar | o | 1 | 1 |  | -1",
)
add("regexp_like", "text / text / text", "FOO | foo | i", "FOO | foo | ", "FOO | foo | g")
add(
    "regexp_replace",
    "text / text / text / int4",
    "aXbXc | X | - | 3",
    "aXbXc | X | - | 1",
    "a | a | b | 0",
)
add(
    "regexp_replace",
    "text / text / text / int4 / int4",
    "aXbXc | X | - | 1 | 2",
    "aXbXc | X | - | 1 | 0",
    "aXbXc | (b)(X) | \\2\\1 | 1 | 1",
    "a | a | b | 1 | -1",
)
add("regexp_replace", "text / text / text / int4 / int4 / text", "aXbxc | X | - | 1 | 0 | i")
add("array_dims", "int4[]")
add(
    "trim_array", "int4[] / int4", "{1,2,3} | 1", "{1,2,3} | 3", "{1,2,3} | 4", "{} | 0", "{1} | -1"
)
add(
    "array_fill",
    "int4 / int4[]",
    "7 | {3}",
    "7 | {0}",
    "7 | {}",
    ("\\N", "{2}"),
    "7 | {-1}",
    "7 | {NULL}",
)
add("array_fill", "text / int4[] / int4[]", "a | {2} | {1}", "a | {0} | {5}", "a | {2} | {1,2}")
add("jsonb_object", "text[]", "{a,1,b,NULL}", "{}", "{a}", "{NULL,1}")
add("jsonb_object", "text[] / text[]", "{a,b} | {1,2}", "{a} | {}", "{NULL} | {1}")


Samples = list[tuple[tuple[str, ...], tuple[Row, ...]]]


def _samples(*kinds: tuple[str, tuple[str, ...]]) -> Samples:
    return [((type,), tuple((array,) for array in arrays)) for type, arrays in kinds]


_INTEGERS = ("{1,2,4}", "{NULL}", "{}", "{7,NULL,-2147483648}", "{2147483647,2147483647,1}", "{5}")
_NUMERICS = (
    "{1.50,2.25,-0.01}",
    "{NULL}",
    "{}",
    "{99999999.99,99999999.99}",
    "{0.01,0.02,0.02}",
    "{3}",
)
_FLOATS = (
    "{1.5,2.5,4}",
    "{}",
    "{0.1,0.2,0.3}",
    "{NaN,1}",
    "{Infinity,1}",
    "{2}",
)
_INTERVALS = ('{1 day,2 mons,"1 year 04:00"}', "{}", "{36:00,NULL}")
_NUMBERS = _samples(
    ("int2", ("{1,2,4}", "{32767,32767}", "{}")),
    ("int4", _INTEGERS),
    ("int8", ("{1,2}", "{9223372036854775807,9223372036854775807}")),
    ("numeric(10,2)", _NUMERICS),
    ("float8", _FLOATS),
)
AGGREGATES: dict[tuple[str, str], Samples] = {
    ("aggregate", "sum"): _NUMBERS
    + _samples(("interval", _INTERVALS), ("float4", ("{1.5,2.25}",))),
    ("aggregate", "avg"): _NUMBERS + _samples(("interval", _INTERVALS)),
    ("aggregate", "count"): _samples(("int4", _INTEGERS)),
    ("aggregate", "bool_and"): _samples(("bool", ("{t,f}", "{t,NULL}", "{}", "{NULL}"))),
    ("aggregate", "bool_or"): _samples(("bool", ("{f,f}", "{t,NULL}", "{}", "{NULL}"))),
    ("aggregate", "array_agg"): _samples(("int4", ("{3,NULL,1}", "{}"))),
    ("aggregate", "jsonb_agg"): _samples(("int4", ("{3,NULL,1}", "{}"))),
    **{
        ("aggregate", f"bit_{name}"): _samples(
            ("int2", ("{5,6}", "{}")),
            ("int4", ("{5,6,NULL}", "{NULL}", "{-1,7}")),
            ("int8", ("{5,9}",)),
        )
        for name in ("and", "or", "xor")
    },
}
for _name in ("min", "max"):
    AGGREGATES["aggregate", _name] = _NUMBERS + _samples(
        ("text", ("{b,a,NULL}", "{}")),
        ("interval", _INTERVALS),
        ("date", ("{2024-01-01,infinity}",)),
    )
for _name in ("stddev", "stddev_pop", "variance", "var_pop"):
    AGGREGATES["aggregate", _name] = _samples(
        ("int4", ("{1,2,4}", "{5}", "{}", "{7,7,7}", "{1,1000000}")),
        ("numeric(10,2)", ("{1.50,2.25,-0.01}", "{3}", "{}")),
        ("float8", ("{1.5,2.5,4}", "{2}", "{}")),
    )
for _name in ("sum", "avg", "count", "variance", "var_pop", "stddev", "stddev_pop"):
    AGGREGATES["aggregate", _name] += _samples(("number", number_cases.AGGREGATED))
for _name in ("min", "max"):
    AGGREGATES["aggregate", _name] += _samples(("number", number_cases.WITHOUT_TIES))
SERIES: dict[tuple[str, str], Samples] = {
    ("table", "generate_series"): [
        (("int4", "int4"), (("1", "3"), ("3", "1"), ("2147483646", "2147483647"), (None, "1"))),
        (("int4", "int4", "int4"), (("1", "7", "3"), ("5", "1", "-2"), ("1", "2", "0"))),
        (("int8", "int8"), (("1", "2"),)),
        (("numeric(10,2)", "numeric(10,2)", "numeric(10,2)"), (("0", "1", "0.25"), ("1", "0", "-0.5"), ("0", "1", "0"), ("1", "0.5", "1"), ("0", "1", "-3.5"), ("1", "0.5", "-0.5"))),
        (("numeric(35,2)", "numeric(35,2)"), (("123456789012345678901234567890123.25", "123456789012345678901234567890125"),)),
        (("timestamp", "timestamp", "interval"), (
            ("2024-01-31", "2024-05-01", "1 mon"),
            ("2024-01-01", "2024-01-02", "6 hours"),
            ("2024-01-02", "2024-01-01", "-12 hours"),
            ("2024-01-01", "2024-01-02", "0"),
        )),
    ],
    ("table", "unnest"): [(("int4[]",), (("{1,NULL,3}",), ("{}",), (None,)))],
    ("table", "generate_subscripts"): [(("int4[]", "int4"), (("{5,6}", "1"), ("{5,6}", "2"), ("{}", "1")))],
    ("table", "jsonb_array_elements"): [(("jsonb",), (("[1, null, {\"a\": 2}]",), ("{}",), ("1",), ("[]",)))],
    ("table", "jsonb_array_elements_text"): [(("jsonb",), (("[1, null, \"x\"]",),))],
    ("table", "jsonb_object_keys"): [(("jsonb",), (("{\"bb\": 1, \"a\": 2}",), ("[]",), ("1",)))],
    ("table", "regexp_split_to_table"): [(("text", "text"), (("a b  c", "\\s+"), ("abc", "")))],
    ("table", "string_to_table"): [(("text", "text"), (("a,b", ","), ("", ","), ("ab", None)))],
    ("table", "regexp_matches"): [(("text", "text", "text"), (("foobarbequebaz", "ba.", "g"), ("foobar", "(o)(b)", ""), ("x", "y", "")))],
}  # fmt: skip

# Resolution is tested for every pair of these; NULL is a literal of unknown type.
OPERAND_TYPES = (
    "NULL bool int2 int4 int8 float4 float8 numeric text varchar bpchar name date time timestamp"
    " timestamptz interval jsonb uuid oid int4[] text[]"
).split()
OPERATORS = (
    "+ - * / % ^ = < || ~~ ~ -> ->> @> && & << ? round substring mod power date_trunc date_part age"
    " coalesce greatest nullif array_append array_length concat trunc btrim"
).split()
