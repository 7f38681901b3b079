"""Statements that cost more than they look: constants, patterns, sizes and nestings, from a seed."""

from collections.abc import Callable
from random import Random

Make = Callable[[Random], str]


def _size(random: Random) -> int:
    return int(10 ** random.uniform(0, 8.5))


def _text(random: Random) -> str:
    letter = random.choice(["a", "ab", "é", "%", "(", "1", "[", " "])
    return f"repeat('{letter}', {_size(random)})"


def _pattern(random: Random) -> str:
    loops = [
        "(a+)+",
        "(a|aa)+",
        "(a*)*b",
        "(.*)*",
        "a*a*a*a*",
        "(a|b|ab)*c",
        "((a+)?b?)+",
        "(a{1,9}){1,9}",
    ]
    body = "".join(random.choice(loops) for _ in range(random.randint(1, 3)))
    around = random.choice(["^{}$", "{}", "(?=.*b){}x", "{}!", "(?i){}z"])
    return around.format(body)


def _matching(random: Random) -> str:
    text = random.choice(
        [f"repeat('a', {random.choice([20, 40, 1000, 100000])})||'!'", _text(random)]
    )
    pattern = _pattern(random)
    return random.choice(
        [
            f"SELECT {text} ~ '{pattern}'",
            f"SELECT {text} ~* '{pattern}'",
            f"SELECT length(regexp_replace({text}, '{pattern}', 'x', 'g'))",
            f"SELECT regexp_match({text}, '{pattern}') IS NULL",
            f"SELECT count(*) FROM regexp_split_to_table({text}, '{pattern}')",
            f"SELECT count(*) FROM regexp_matches({text}, '{pattern}', 'g')",
            f"SELECT {text} SIMILAR TO '(a|aa)+(b|%)*c'",
            f"SELECT substring({text} from '{pattern}') IS NULL",
        ]
    )


def _like(random: Random) -> str:
    wild = random.choice(["%a", "%a_", "%", "_%", "a%b"])
    operator = random.choice(["LIKE", "ILIKE", "NOT LIKE"])
    return (
        f"SELECT {_text(random)}||'b' {operator} repeat('{wild}', {random.randint(1, 2000)})||'c'"
    )


def _long_value(random: Random) -> str:
    text, size = _text(random), _size(random)
    return random.choice(
        [
            f"SELECT length({text})",
            f"SELECT length(lpad('x', {size}, 'yz'))",
            f"SELECT length(upper({text}))",
            f"SELECT length(replace({text}, 'a', {_text(random)}))",
            f"SELECT length(reverse({text}))",
            f"SELECT length(translate({text}, 'ab', 'xy'))",
            f"SELECT md5({text})",
            f"SELECT length(format('%{min(size, 10**8)}s', 'x'))",
            f"SELECT length(encode({text}::bytea, 'hex'))",
            f"SELECT length(array_to_string(string_to_array({text}, 'a'), 'bcd'))",
            f"SELECT length(quote_literal({text}))",
            f"SELECT length(concat({text}, {text}))",
            f"SELECT position('b' in {text})",
            f"SELECT {text}",
            f"SELECT length(to_char(now(), {text}))",
        ]
    )


def _rows(random: Random) -> str:
    size = int(10 ** random.uniform(1, 6.5))
    return random.choice(
        [
            f"SELECT count(*) FROM generate_series(1, {size})",
            f"SELECT length(string_agg(i::text, ',')) FROM generate_series(1, {size}) i",
            f"SELECT cardinality(array_agg(i)) FROM generate_series(1, {size}) i",
            f"SELECT sum(i) FROM generate_series(1, {size}) i WHERE i::text ~ '(1|11)+2'",
            f"SELECT count(*) FROM generate_series(1, {size}) a, generate_series(1, 100) b",
            f"SELECT count(*) FROM unnest(string_to_array(repeat('1,', {size}), ','))",
            f"SELECT length(jsonb_build_array({', '.join(['1'] * min(size, 200))})::text)",
            f"SELECT i FROM generate_series(1, {min(size, 200_000)}) i ORDER BY i DESC LIMIT 3",
        ]
    )


def _number(random: Random) -> str:
    digits = "9" * random.choice([10, 40, 1000, 5000, 100_000])
    return random.choice(
        [
            f"SELECT {digits}",
            f"SELECT '{digits}'::numeric",
            f"SELECT {digits}::float8",
            f"SELECT 1e{random.choice([10, 40, 400, 100000, 999999999])}",
            f"SELECT 9.9::numeric ^ {random.choice([10, 100, 100000, 10**9])}",
            f"SELECT exp({random.choice([10, 100, 10**6])}::numeric)",
            f"SELECT '{digits}'::int8",
            f"SELECT round({random.choice(['1.5', '9e30'])}, {random.choice([2, 10**6])})",
            f"SELECT interval '{digits} days'",
            f"SELECT date '{digits[:7]}-01-01' + {random.choice([1, 2**31 - 1])}",
            f"SELECT repeat('9', {_size(random)})::numeric",
            f"SELECT repeat('9', {_size(random)})::int",
        ]
    )


def _document(random: Random) -> str:
    size = int(10 ** random.uniform(1, 7))
    few = min(size, 100_000)
    return random.choice(
        [
            f"SELECT ('[' || repeat('1,', {size}) || '1]')::jsonb -> 0",
            f"SELECT length(('[' || repeat('1,', {size}) || '1]')::jsonb::text)",
            f"SELECT (repeat('[', {size}) || repeat(']', {size}))::jsonb IS NULL",
            f"SELECT length(jsonb_pretty((repeat('[', {few}) || repeat(']', {few}))::jsonb))",
            f"SELECT jsonb_array_length(('[' || repeat('{{}},', {size}) || '1]')::jsonb)",
            f"SELECT to_jsonb({_text(random)}) IS NULL",
            f"SELECT '[{'1,' * min(size, 50_000)}1]'::jsonb -> 1",
            f"SELECT '{'[' * min(size, 20_000)}{']' * min(size, 20_000)}'::jsonb IS NULL",
            f"SELECT ('{{' || repeat('\"a\":1,', {size}) || '\"b\":2}}')::jsonb",
        ]
    )


def _long_list(random: Random) -> str:
    size = int(10 ** random.uniform(1, 4.3))
    numbers = ", ".join(map(str, range(size)))
    return random.choice(
        [
            f"SELECT 1 IN ({numbers})",
            f"SELECT count(*) FROM pathological WHERE i IN ({numbers})",
            f"SELECT count(*) FROM pathological WHERE i = ANY (ARRAY[{numbers}])",
            f"SELECT {numbers}" if size < 1600 else f"SELECT cardinality(ARRAY[{numbers}])",
            f"SELECT count(*) FROM (VALUES {', '.join(f'({i})' for i in range(size))}) v",
            f"SELECT count(*) FROM (VALUES {', '.join(f'(length(repeat(chr(97), {i % 50})))' for i in range(size))}) v",
            f"INSERT INTO pathological VALUES {', '.join(f'({i})' for i in range(size))}",
            f"SELECT {' + '.join(map(str, range(min(size, 3000))))}",
            f"SELECT {' || '.join(['chr(97)'] * min(size, 3000))}",
            f"SELECT {' OR '.join(f'i = {n}' for n in range(min(size, 2000)))} FROM pathological LIMIT 1",
        ]
    )


def _nesting(random: Random) -> str:
    depth = int(10 ** random.uniform(1, 4))
    few = min(depth, 60)
    return random.choice(
        [
            f"SELECT {'(' * depth}1{')' * depth}",
            f"SELECT {'abs(' * depth}1{')' * depth}",
            f"SELECT {'- ' * depth}1",
            f"SELECT {'NOT ' * depth}true",
            f"SELECT {'CASE WHEN true THEN ' * depth}1{' END' * depth}",
            f"SELECT * FROM {'(SELECT * FROM ' * few}pathological{' ) x' * few}",
            f"SELECT {'(SELECT ' * few}1{')' * few}",
            f"SELECT count(*) FROM {', '.join(f'pathological p{i}' for i in range(min(few, 12)))} WHERE false",
            f"SELECT {'ARRAY[' * min(depth, 500)}1{']' * min(depth, 500)}",
            " UNION ALL ".join(["SELECT 1"] * min(depth, 500)),
            f"SELECT '{'(' * min(depth, 9000)}a{')' * min(depth, 9000)}' ~ '{'(' * min(depth, 9000)}a{')' * min(depth, 9000)}'",
            f"CREATE CLUSTER c{depth} SIZE 'x', REPLICATION FACTOR {10 ** min(depth, 4000)}",
        ]
    )


KINDS: tuple[Make, ...] = (
    _matching, _matching, _like, _long_value, _rows, _number, _document, _long_list, _nesting,
)  # fmt: skip


def statements(seed: int, count: int) -> list[str]:
    """Return `count` statements; each kind comes as often as any other."""
    random = Random(seed)
    return [KINDS[i % len(KINDS)](random) for i in range(count)]
