"""Kafka: the messages of a topic become rows, whatever their format and envelope."""

import asyncio
import time

import pytest

from tests.adapter.harness import TestEnvironment
from tests.kafka import MockKafka

STATUS = "SELECT status, error FROM mz_internal.mz_source_statuses WHERE name = 's'"


@pytest.fixture(scope="module")
def kafka() -> MockKafka:
    return MockKafka()


@pytest.fixture
def env(runner: asyncio.Runner, own_env: TestEnvironment, kafka: MockKafka) -> TestEnvironment:
    runner.run(own_env.ran("a", f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')"))
    return own_env


async def until(env: TestEnvironment, query: str, expected: str) -> None:
    """Wait until a query has an answer."""
    for _ in range(3_000):
        found = await env.query("a", query)
        if found.rpartition("\n")[0] == expected:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{found} instead of {expected}; {await env.query('a', STATUS)}")


async def created(env: TestEnvironment, text: str) -> None:
    assert await env.query("a", text) == "CREATE SOURCE"


async def test_json_is_a_document_or_columns(env: TestEnvironment, kafka: MockKafka) -> None:
    values = [b'{"b": 1.50, "a": "x"}', b"wrong", b'{"a": null, "b": "2.25"}', b"7"]
    kafka.write("json", [(None, each) for each in values], partition=0)
    from_kafka = "FROM KAFKA CONNECTION k (TOPIC 'json')"
    await created(env, f"CREATE SOURCE s {from_kafka} FORMAT JSON INCLUDE PARTITION, OFFSET AS o")
    columns = '(a text, b numeric(4, 2) NOT NULL, "c" int[])'
    await created(env, f"CREATE SOURCE t {columns} {from_kafka} FORMAT JSON")
    await until(
        env,
        "SELECT * FROM s ORDER BY o",
        '{"a": "x", "b": 1.50}|0|0\n{"a": null, "b": "2.25"}|0|2\n7|0|3',
    )
    await until(env, "SELECT * FROM t ORDER BY b", "x|1.50|NULL\nNULL|2.25|NULL")
    await until(
        env,
        'SELECT part, "offset", output, data FROM s_errors',
        "0|1||\\x77726f6e67",
    )
    await until(env, 'SELECT "offset" FROM t_errors ORDER BY 1', "1\n3")
    kafka.write("json", [(None, b'{"b": 3, "c": [1, 2]}')], partition=3)
    await until(env, "SELECT c FROM t WHERE b = 3", "{1,2}")
    await until(env, 'SELECT * FROM s_progress WHERE "offset" > 0 ORDER BY 1', "0|4\n3|1")


async def test_the_last_message_of_a_key_is_its_row(env: TestEnvironment, kafka: MockKafka) -> None:
    first = [(b"a", b'{"x": 1}'), (b"b", b'{"x": 2}'), (b"a", b'{"x": 3}'), (b"c", b'{"x": 4}')]
    kafka.write("upserts", first)
    await created(
        env,
        "CREATE SOURCE s (x int) FROM KAFKA CONNECTION k (TOPIC 'upserts') KEY FORMAT TEXT "
        "VALUE FORMAT JSON INCLUDE KEY AS id ENVELOPE UPSERT",
    )
    rows = "SELECT * FROM s ORDER BY id"
    await until(env, rows, "a|3\nb|2\nc|4")
    env.ingest.last.kill()
    kafka.write("upserts", [(b"a", b'{"x": 5}'), (b"b", None), (b"c", b"no"), (None, b"{}")])
    await until(env, rows, "a|5\nc|4")
    await until(env, "SELECT count(*) FROM s_errors", "2")
    await env.reopen()
    kafka.write("upserts", [(b"d", b'{"x": "6"}'), (b"a", b'{"x": 7}'), (b"a", None)])
    await until(env, rows, "c|4\nd|6")
    assert "42809" in await env.query("a", "INSERT INTO s VALUES ('e', 1)")


async def test_errors_of_values_may_be_rows(env: TestEnvironment, kafka: MockKafka) -> None:
    kafka.write("inline", [(b"a", b"1"), (b"b", b"no")])
    await created(
        env,
        "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 'inline') KEY FORMAT TEXT VALUE FORMAT "
        "JSON ENVELOPE UPSERT (VALUE DECODING ERRORS = INLINE)",
    )
    rows = "SELECT key, data, error IS NULL FROM s ORDER BY key"
    await until(env, rows, "a|1|t\nb|NULL|f")
    kafka.write("inline", [(b"b", b"2")])
    await until(env, rows, "a|1|t\nb|2|t")


async def test_changes_of_debezium_are_rows(env: TestEnvironment, kafka: MockKafka) -> None:
    key = b'{"schema": {}, "payload": {"id": %d}}'
    change = b'{"schema": {}, "payload": {"before": null, "after": %s, "op": "c"}}'
    kafka.write(
        "changes",
        [
            (key % 1, change % b'{"id": 1, "v": "x"}'),
            (key % 2, change % b'{"id": 2, "v": "y"}'),
            (key % 1, b'{"before": null, "after": {"id": 1, "v": "z"}}'),
            (key % 2, change % b"null"),
            (key % 2, None),
        ],
        partition=0,
    )
    await created(
        env,
        "CREATE SOURCE s (id int, v text) FROM KAFKA CONNECTION k (TOPIC 'changes') "
        "FORMAT JSON ENVELOPE DEBEZIUM",
    )
    await until(env, "SELECT * FROM s", '{"id": 1}|1|z')
    kafka.write("changes", [(key % 1, b'{"op": "c"}')], partition=0)
    await until(
        env,
        'SELECT error, "offset" FROM s_errors',
        'no change as Debezium writes it: it has no member "after"|5',
    )


async def test_csv_text_bytes_and_what_is_beside_them(
    env: TestEnvironment, kafka: MockKafka
) -> None:
    kafka.write(
        "plain",
        [(b"k", b'1,"a,b"'), (b"\xff", b"2"), (None, None)],
        partition=1,
        headers=[("h", b"x"), ("g", b"\xfe")],
        timestamp=1_700_000_000_123,
    )
    source = "FROM KAFKA CONNECTION k (TOPIC 'plain')"
    await created(env, f"CREATE SOURCE c (a int, b text) {source} FORMAT CSV WITH 2 COLUMNS")
    await created(
        env,
        f"CREATE SOURCE b {source} KEY FORMAT BYTES VALUE FORMAT TEXT INCLUDE KEY AS k, OFFSET, "
        "TIMESTAMP AS at, HEADERS, HEADER 'h' AS h, HEADER 'g' AS g BYTES",
    )
    await until(env, "SELECT * FROM c", "1|a,b\nNULL|NULL")
    await until(env, "SELECT error FROM c_errors", "a row of 2 columns is expected, and has 1")
    headers = '[{"key": "h", "value": "x"}, {"key": "g", "value": "\\\\xfe"}]'
    beside = f"2023-11-14 22:13:20.123|{headers}|x|\\xfe"
    await until(
        env,
        'SELECT k, text, "offset", at, headers, h, g FROM b ORDER BY "offset"',
        f'\\x6b|1,"a,b"|0|{beside}\n\\xff|2|1|{beside}\nNULL|NULL|2|{beside}',
    )


async def test_groups_of_a_regular_expression_are_columns(
    env: TestEnvironment, kafka: MockKafka
) -> None:
    lines = [b"GET /a 200", b"POST /b 404 slow", b"nothing", None, b"\xff", b"PUT /c 99999"]
    kafka.write("lines", [(None, each) for each in lines], partition=0)
    pattern = r"^(?P<method>[A-Z]+) (\S+) (?P<status>\d+)(?: (?P<more>.*))?$"
    source = f"FROM KAFKA CONNECTION k (TOPIC 'lines') FORMAT REGEX '{pattern}'"
    await created(env, f"CREATE SOURCE s {source} INCLUDE OFFSET AS o")
    expected = "GET|/a|200|NULL|0\nPOST|/b|404|slow|1\nNULL|NULL|NULL|NULL|3\nPUT|/c|99999|NULL|5"
    await until(env, "SELECT method, column2, status, more, o FROM s ORDER BY o", expected)
    await created(env, f"CREATE SOURCE t (m text, p text, code int2 NOT NULL, x text) {source}")
    await until(env, "SELECT m, code FROM t ORDER BY code", "GET|200\nPOST|404")
    await until(env, 'SELECT "offset" FROM t_errors ORDER BY 1', "2\n3\n4\n5")
    shown = (await env.query("a", "SHOW CREATE SOURCE s")).splitlines()[0]
    assert f"FORMAT REGEX '{pattern}' INCLUDE" in shown


async def test_negative_starts_are_before_the_end_or_the_present(
    env: TestEnvironment, kafka: MockKafka
) -> None:
    now = time.time_ns() // 1_000_000
    kafka.write("ends", [(None, b"%d" % number) for number in range(3)], partition=0)
    of = "FROM KAFKA CONNECTION k (TOPIC 'ends', {}) FORMAT TEXT"
    await created(env, f"CREATE SOURCE s {of.format('START OFFSET -2')}")
    await until(env, "SELECT * FROM s ORDER BY 1", "1\n2")
    assert "START OFFSET = (-2)" in await env.query("a", "SHOW CREATE SOURCE s")
    await env.ran("a", "DROP SOURCE s")
    await created(env, f"CREATE SOURCE s {of.format('START OFFSET = (-1, -5)')}")
    await until(env, "SELECT * FROM s ORDER BY 1", "2")
    await env.ran("a", "DROP SOURCE s")
    await created(env, f"CREATE SOURCE s {of.format('START TIMESTAMP -1200000')}")
    shown = await env.query("a", "SHOW CREATE SOURCE s")
    start = int(shown.partition("START TIMESTAMP = ")[2].partition(",")[0])
    assert now <= start + 1_200_000 <= time.time_ns() // 1_000_000
    await env.ran("a", "DROP SOURCE s")


async def test_a_source_begins_where_it_shall(env: TestEnvironment, kafka: MockKafka) -> None:
    for partition in range(3):
        kafka.write("starts", [(None, b"%d" % n) for n in range(10)], partition=partition)
    source = "FROM KAFKA CONNECTION k (TOPIC 'starts', START OFFSET (0, 8)) FORMAT TEXT"
    await created(env, f"CREATE SOURCE s {source} INCLUDE PARTITION")
    await until(env, "SELECT partition, count(*) FROM s GROUP BY 1 ORDER BY 1", "0|10\n1|2\n2|10")
    shown = (await env.query("a", "SHOW CREATE SOURCE s")).splitlines()[0].split("|")[1]
    assert "(TOPIC = 'starts', START OFFSET = (0, 8), TIMESTAMP INTERVAL = '100 ms')" in shown
    await env.ran("a", "DROP SOURCE s")
    await created(env, shown)
    await until(env, "SELECT count(*) FROM s", "22")


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("FROM KAFKA CONNECTION k (TOPIC 'none') FORMAT TEXT", '42704: topic "none" does not'),
        ("FROM KAFKA CONNECTION k FORMAT TEXT", '22023: KAFKA CONNECTION needs the option "topic'),
        (
            "FROM KAFKA CONNECTION k (TOPIC 'x') INCLUDE OFFSET",
            "22023: messages of Kafka need a format",
        ),
        (
            "FROM KAFKA CONNECTION k (TOPIC 'x') FORMAT REGEX '(a'",
            "22023: invalid regular expression: ",
        ),
        (
            "FROM KAFKA CONNECTION k (TOPIC 'x') FORMAT REGEX 'a'",
            "22023: the regular expression must have from 1 to 1600 groups",
        ),
        (
            "(a int) FROM KAFKA CONNECTION k (TOPIC 'x') FORMAT REGEX '(a)(b)'",
            "22023: 1 columns are declared, and the format has 2",
        ),
        ("FROM KAFKA CONNECTION k (TOPIC 'x') FORMAT XML", "0A000: FORMAT XML is not supported"),
        ("(a int) FROM KAFKA CONNECTION k (TOPIC 'x') FORMAT TEXT", "22023: the format has col"),
        ("(a int, a int) FROM KAFKA CONNECTION k (TOPIC 'x') FORMAT JSON", '42701: column "a" s'),
        ("(a int) FROM LOAD GENERATOR COUNTER", "22023: the columns of the source are known"),
        ("FROM KAFKA CONNECTION k (TOPIC 'x') FORMAT TEXT ENVELOPE NO", "42601: syntax error"),
        (
            "FROM KAFKA CONNECTION k (TOPIC 'twice') FORMAT TEXT INCLUDE OFFSET AS text",
            '42701: the source would have two columns "text"',
        ),
        (
            "FROM KAFKA CONNECTION k (TOPIC 'twice') KEY FORMAT CSV WITH 2 COLUMNS "
            "VALUE FORMAT TEXT INCLUDE KEY AS k ENVELOPE UPSERT",
            "0A000: INCLUDE KEY AS is supported for keys of a single column only",
        ),
        (
            "FROM KAFKA CONNECTION k (TOPIC 'x', START OFFSET (1), START TIMESTAMP 1) FORMAT TEXT",
            "22023: START OFFSET and START TIMESTAMP exclude each other",
        ),
        ("FROM KAFKA CONNECTION k (TOPIC 'x', A 1) FORMAT TEXT", '42601: unknown option "a" of'),
        (
            "FROM KAFKA CONNECTION k (TOPIC 'twice') FORMAT AVRO USING SCHEMA '{\"type\": 1}'",
            "22023: the Avro schema is wrong",
        ),
    ],
)
async def test_what_cannot_be_read_is_refused(
    env: TestEnvironment, kafka: MockKafka, statement: str, error: str
) -> None:
    kafka.write("twice", [(None, b"")])
    assert f"ERROR {error}" in await env.query("a", f"CREATE SOURCE s {statement}")


async def test_statistics_know_the_ends_of_the_topic(
    env: TestEnvironment, kafka: MockKafka
) -> None:
    kafka.write("counted", [(None, b"one"), (None, b"two")], partition=0)
    kafka.write("counted", [(None, b"three")], partition=3)
    from_kafka = "FROM KAFKA CONNECTION k (TOPIC 'counted')"
    await created(env, f"CREATE SOURCE s {from_kafka} FORMAT TEXT")
    counts = (
        "SELECT messages_received, updates_committed, offset_known, offset_committed, offset_lag"
        " FROM mz_internal.mz_source_statistics"
    )
    await until(env, counts, "3|3|3|3|0")
    env.ingest.last.kill()
    kafka.write("counted", [(None, b"four")], partition=0)
    await until(env, counts, "4|4|4|4|0")


async def test_dead_letters_are_listed_and_decoded_after_all(
    env: TestEnvironment, kafka: MockKafka
) -> None:
    kafka.write("letters", [(None, each) for each in (b'{"price": 1}', b'{"price": NaN}', b"no")])
    topic = "FROM KAFKA CONNECTION k (TOPIC 'letters') FORMAT JSON"
    await created(env, f"CREATE SOURCE s (price int8) {topic}")
    listed = (
        "SELECT o.name, d.kind, d.letters FROM mz_internal.mz_dead_letters d "
        "JOIN mz_objects o ON o.id = d.object_id"
    )
    await until(env, listed, "s_errors|error|2")
    await env.ran(
        "a",
        "CREATE MATERIALIZED VIEW all_bids AS SELECT price FROM s UNION ALL "
        "SELECT (replace(convert_from(data, 'UTF8'), 'NaN', '2')::jsonb ->> 'price')::int8 "
        "FROM s_errors WHERE convert_from(data, 'UTF8') LIKE '%NaN%'",
    )
    await until(env, "SELECT * FROM all_bids ORDER BY 1", "1\n2")
    kafka.write("letters", [(None, b'{"price": NaN}')])
    await until(env, "SELECT * FROM all_bids ORDER BY 1", "1\n2\n2")
    await until(env, listed, "s_errors|error|3")
