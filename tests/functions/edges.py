"""The edges of each type: empty, NULL, longest, largest, beyond ASCII, NaN, infinities, first, last.

`edges(type)` are datums. Texts are those that functions read as something: numbers, times, names
of zones and units, templates, patterns, documents, paths.
"""

from functools import cache

from foreshore.errors import DatabaseError
from foreshore.shaped import EMPTY, LEAST, Shaped, plain, stored_shaped
from foreshore.structured import stored, stored_map
from foreshore.text import parse_text
from foreshore.types import Datum, SqlType, item_of

DIGITS = "9" * 5_000
LONG = "ab" * 2_500
WIDE = "日é²٣😀" * 1_000
I32, I64 = 2**31, 2**63
FIRST, LAST = -210_866_803_200_000_000, I64 - 2

TEXTS: tuple[str, ...] = (
    *("", " ", "a", "A b-c", "é", "²", "٣", "日本", "😀", "\x01", "\n", "ß", "İ", LONG, WIDE),
    *("0", "-1", "2147483648", "9223372036854775808", DIGITS, "-" + DIGITS, "0." + DIGITS),
    *("1e400", "1e-400", "1e131071", "NaN", "infinity", "-infinity", "1e", ".", "+", "0x1F"),
    *("2024-02-29", "294277-01-01", "4714-11-24 BC", "24:00:00", "now", "-1 day", "P1Y", "@ 1 ago"),
    *("UTC", "Europe/Berlin", "+15:59", "EST5EDT", "century", "millennium", "epoch", "dow"),
    *("YYYY-MM-DD HH24:MI:SS.US TZ", "FM999,999.99S", "9" * 200, "RN", "EEEE", "9.9EEEE", "TH"),
    *("%", "_", "\\", "%s %1$s %I %L %%", "%-2000000000s", "%2147483648$s", "(", "[", "a{1,255}"),
    *("(a|b)*c", "\\d+", "^$", "{", "{}", "{1,NULL}", "{{1},{2}}", "[1,2)", "empty", "(1,a)"),
    *('{"a": [1, {"b": null}]}', "[]", "null", '"x"', "[" * 2_000 + "]" * 2_000, "$.a[*]", "t"),
    *("base64", "hex", "escape", "utf8", "sha256", "g", "xyz", "NFKC", "10.0.0.1/8", "::1", "B101"),
    *("\\x00ff", "\\xf", "08:00:2b:01:02:03", "a=b", "1/2", "pg_class", "int4", "$$", "'"),
)
DOCUMENTS = (
    *("null", "true", '""', "0", "-1.50", "1e400", "[]", "{}", '{"": null}', DIGITS, "0." + DIGITS),
    *(f'"{WIDE}"', f'"{LONG}"', '{"a": {"b": [1, "٣", {"c": null}]}}', "[[], [[1]], 2]"),
    *(
        '"2024-02-29"',
        '"294277-01-01T00:00:00"',
        '{"a": 1, "b": "x", "٣": 2}',
        '[{"a": 1}, {"a": 2}]',
    ),
    *(f"[{DIGITS}]", f'{{"{DIGITS}": 1}}', "[" * 2_000 + "]" * 2_000, '"\\u0001"'),
)
PATHS = (
    *("$", "strict $.a", "$[*]", "$[last]", "$[2147483647]", "$.a[*] ? (@ > 1)", "$.**", "-$"),
    *('$ ? (@ like_regex "a.*" flag "i")', '$ ? (@ starts with "x")', "$.datetime()", "$.double()"),
    *("$ * 1e300", "$ / 0", "$.keyvalue()", "$.size()", "$.abs()", '$."٣"', "$x", f"$ + {DIGITS}"),
    *('$.datetime("YYYY")', "exists($.a)", "$[0 to 5]", "$.type()", "$.ceiling()", "$ % 0"),
)
NUMBERS = (
    *(
        "0",
        "-1",
        "1.5",
        "0.00",
        "NaN",
        "Infinity",
        "-Infinity",
        DIGITS,
        "-" + DIGITS,
        "0." + DIGITS,
    ),
    *("1e20000", "1e-16000", "5e-1", "99999999999999999999999999999999999999", "2", "100"),
)
FLOATS = (
    *(0.0, -0.0, 1.0, -1.5, 2.0, float("nan"), float("inf"), float("-inf"), 1e308, -1e308),
    *(5e-324, 1e-300, 2.0**31, 2.0**63, -(2.0**63), 1e18, 0.5, 1e15, 253402300800.0),
)
DATES = (-I32, I32 - 1, -2_440_588, 2_145_042_905, 0, -1, 106_751_991, 106_751_992, -719_529)
STAMPS = (-I64, I64 - 1, FIRST, LAST, 0, -1, FIRST + 86_400_000_000, LAST - 86_400_000_000)
INTERVALS = (
    *((0, 0, 0), (1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, -1), (12, 30, 3_600_000_000)),
    *((I32 - 1, I32 - 1, I64 - 1), (-I32, -I32, -I64), (I32 - 1, 0, 0), (0, -I32, 0)),
    *((0, 0, I64 - 1), (0, 0, -I64), (1, -31, 86_400_000_000), (0, 0, 18_000_000_000)),
)
BYTES = (b"", b"\x00", b"\xff\xfe", b"abc", "é".encode(), bytes(range(256)) * 20)
ADDRESSES = (
    *(
        "0.0.0.0/0",
        "255.255.255.255",
        "10.1.2.3/8",
        "::/0",
        "ffff:ffff::ffff/128",
        "::ffff:1.2.3.4",
    ),
    *("10.0.0.0/8", "::", "192.168.1.5/24", "fe80::/10"),
)
BITS = ("", "0", "1", "101", "1" * 64, "0" * 65, "10" * 2_500)
RANGES = ("empty", "(,)", "[0,1)", "(,5]", "[5,)", "[-7,-7]")
TIME_RANGES = (
    *("empty", "(,)", "[2024-01-01,2024-01-02)", "[-infinity,infinity]", "[4714-11-24 BC,)"),
    *("(,294247-01-09]", "[2000-01-01,2000-01-01]"),
)
# Texts of which the datums are read, by type.
READ: dict[str, tuple[str, ...]] = {
    "jsonpath": PATHS,
    "json": (*DOCUMENTS, '{"a": 1, "a": 2}'),
    "jsonb": DOCUMENTS,
    "number": NUMBERS,
    **dict.fromkeys(("inet", "cidr"), ADDRESSES),
    "macaddr": ("00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "08:00:2b:01:02:03"),
    **dict.fromkeys(("bit", "varbit"), BITS),
    "timetz": ("00:00+00", "24:00-15:59", "12:34:56.789+05:30", "23:59:59.999999+15:59"),
    "uuid": ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    "uint8": ("0", "1", "2", "18446744073709551615", "9223372036854775808"),
    **dict.fromkeys(("int4range", "int8range", "numrange"), RANGES),
    "daterange": (*TIME_RANGES, "[5874897-12-30,5874897-12-31)"),
    **dict.fromkeys(("tsrange", "tstzrange"), TIME_RANGES),
    "int2vector": ("", "1", "1 2 -32768"),
    "oidvector": ("", "0", "23 4294967295"),
    "char": ("", "a", "\x7f"),
}
WHOLE: dict[str, tuple[Datum, ...]] = {
    "bool": (True, False),
    "int2": (0, 1, -1, 2, 7, 2**15 - 1, -(2**15)),
    "int4": (0, 1, -1, 2, 3, 7, 64, 300, 5_000, I32 - 1, -I32),
    "int8": (0, 1, -1, 2, 64, 300, I32, I64 - 1, -I64),
    "uint2": (0, 1, 2**16 - 1),
    "uint4": (0, 1, 2, 2**32 - 1),
    "money": (0, 1, -1, I64 - 1, -I64),
    "mz_timestamp": (0, 1, 1_700_000_000_000, I64 - 1),
    "date": DATES,
    "time": (0, 1, 43_200_000_000, 86_399_999_999, 86_400_000_000),
    "timestamp": STAMPS,
    "timestamptz": STAMPS,
    "interval": INTERVALS,
    "float8": FLOATS,
    "float4": (0.0, -0.0, 1.0, -1.5, float("nan"), float("inf"), float("-inf"), 1e38, 1e-45),
    "bytea": BYTES,
    "name": ("", "a", "é", "x" * 63, "日" * 21, "٣"),
    "void": ("",),
}
OIDS = (0, 1, 23, 1259, 16_384, 2**32 - 1)


@cache
def edges(type: SqlType) -> tuple[Datum, ...]:
    """Return the edges of a type, NULL last."""
    return (*_of(type), None)


def _of(type: SqlType) -> tuple[Datum, ...]:
    if type.element is not None:
        items = edges(type.element)
        return ((), items[:1], (None,), tuple(items), (items[0],) * 1_000, tuple(items[-4:-1]))
    if type.name in WHOLE:
        return WHOLE[type.name]
    if type.name in READ:
        return _read(READ[type.name], type)
    match type.name:
        case "text" | "unknown" | "varchar" | "bpchar":
            cut = type.length
            return TEXTS if cut is None else tuple(each[:cut].rstrip() for each in TEXTS)
        case "numeric":
            scale, digits = type.scale or 0, type.length or 38
            whole, fraction = "9" * (digits - scale), "9" * scale
            last = f"{whole or 0}.{fraction}" if scale else whole
            return ("0", "1" if whole else "0", last, f"-{last}", "2" if whole else "0")
        case "enum":
            assert type.defined is not None
            return type.defined.values
        case "record":
            columns = [edges(member.type) for member in type.members]
            longest = max(map(len, columns), default=1)
            rows = [tuple(each[i % len(each)] for each in columns) for i in range(longest)]
            return tuple(stored(row, type) for row in rows)
        case "list":
            items = edges(item_of(type))
            return tuple(stored(each, type) for each in ((), items[:1], (None,), items))
        case "map":
            items = edges(item_of(type))
            keys = ("", "a", "٣", LONG)
            maps: tuple[dict[str, Datum], ...] = ({}, dict(zip(keys, items, strict=False)))
            return tuple(stored_map(each, type) for each in maps)
        case "shaped":
            items = edges(item_of(type))
            shapes = (
                EMPTY,
                Shaped((items * 2)[:4], (2, 2), (1, 1)),
                Shaped(items[-2:], (2,), (5,)),
                Shaped(items[:1], (1,), (LEAST,)),
                plain(items),
            )
            return tuple(stored_shaped(each, type) for each in shapes)
        case name if name.endswith("multirange"):
            of = "TIME" if name.startswith(("ts", "date")) else ""
            one = TIME_RANGES if of else RANGES
            many = ["{}", "{(,)}", "{[2024-01-01,2024-01-02)}" if of else "{[1,2),[4,9)}"]
            return _read((*many, *(f"{{{each}}}" for each in one)), type)
        case name if name == "oid" or name.startswith("reg") or name in ("xid", "cid"):
            return OIDS
        case _:
            raise AssertionError(f"no edges of {type}")


def _read(texts: tuple[str, ...], type: SqlType) -> tuple[Datum, ...]:
    """Return the values of those texts that the type accepts."""
    found: list[Datum] = []
    for text in texts:
        try:
            found.append(parse_text(text, type))
        except DatabaseError:
            continue
    assert found, type
    return tuple(found)
