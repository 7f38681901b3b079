"""ALTER TABLE adds, drops and renames columns; objects over the table continue."""

import asyncio
from pathlib import Path

import pytest

from foreshore.adapter.coordinator import view_handoff
from foreshore.errors import OutOfDisk, RelationRedefined
from foreshore.ids import is_user
from foreshore.processes.transport import SECRET_VARIABLE
from tests.adapter.harness import TestEnvironment, until


async def _answers(env: TestEnvironment, conversation: list[tuple[str, str]]) -> None:
    for sql, expected in conversation:
        assert await env.query("s", sql) == expected, sql


RENAMED = [
    ("SELECT * FROM v ORDER BY a", "1|x\n2|y\nSELECT 2"),
    ("SELECT a, c FROM star WHERE b = 'y'", "2|3\nSELECT 1"),
    ("SELECT n, top FROM m", "2|2\nSELECT 1"),
    ("SELECT top FROM above", "2\nSELECT 1"),
    ("SELECT x.id FROM t AS x WHERE x.id = 2 AND \"The b\" = 'y'", "2\nSELECT 1"),
    (
        "INSERT INTO t VALUES (9, '')",
        'ERROR 23514: new row for relation "t" violates check constraint "t_check"\n'
        "DETAIL: Failing row contains (9, , 3).",
    ),
    (
        "INSERT INTO t VALUES (1, 'z')",
        'ERROR 23505: duplicate key value violates unique constraint "t_pkey"\n'
        "DETAIL: Key (id)=(1) already exists.",
    ),
    (
        "SHOW CREATE VIEW v",
        "foreshore.public.v|CREATE VIEW foreshore.public.v AS SELECT a, x.b FROM "
        '(SELECT id AS a, "The b" AS b, c FROM foreshore.public.t) AS x WHERE a > 0\nSHOW',
    ),
    (
        "SELECT pg_get_viewdef('star'::regclass)",
        ' SELECT * FROM (SELECT id AS a, "The b" AS b, c FROM public.t) AS t;\nSELECT 1',
    ),
    (
        "SHOW CREATE INDEX t_upper",
        "foreshore.public.t_upper|CREATE INDEX t_upper IN CLUSTER quickstart ON foreshore.public.t"
        ' (upper("The b"))\nSHOW',
    ),
    ("SELECT * FROM t ORDER BY 1", "1|x|3\n2|y|3\nSELECT 2"),
]


def test_dependents_continue_after_column_rename(tmp_path: Path) -> None:
    async def scenario() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query(
            "s",
            "CREATE TABLE t (a int PRIMARY KEY, b text, c int DEFAULT 3, CHECK (t.a < 9 OR b <> ''));"
            " CREATE VIEW v AS SELECT a, x.b FROM t AS x WHERE a > 0;"
            " CREATE VIEW star AS SELECT * FROM t;"
            " CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n, max(a) AS top FROM t;"
            " CREATE VIEW above AS SELECT top FROM m; CREATE INDEX t_upper ON t (upper(b));"
            " INSERT INTO t VALUES (1, 'x')",
        )
        await env.query("s", "BEGIN; INSERT INTO t VALUES (2, 'y')")
        await env.query("s", "ALTER TABLE t RENAME a TO id")
        assert await env.query("s", "SELECT id FROM t ORDER BY id") == "1\n2\nSELECT 2\nT"
        assert await env.query("s", "COMMIT") == "COMMIT"
        assert await env.query("s", 'ALTER TABLE t RENAME COLUMN b TO "The b"') == "ALTER TABLE"
        await _answers(env, RENAMED)
        await env.reopen()
        await _answers(env, RENAMED)
        await env.close()

    asyncio.run(scenario())


MADE = (
    "CREATE TABLE t (a int PRIMARY KEY, b text, c int DEFAULT 3);"
    " CREATE VIEW v AS SELECT a, c FROM t; CREATE INDEX v_a ON v (a);"
    " CREATE VIEW star AS SELECT * FROM t;"
    " CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n, sum(c) AS total FROM v;"
    " CREATE MATERIALIZED VIEW above AS SELECT n + total AS all_of_it FROM m;"
    " CREATE INDEX t_b ON t (b); CREATE INDEX t_c ON t (c);"
    " COMMENT ON TABLE t IS 'tee'; COMMENT ON COLUMN t.c IS 'cee';"
    " INSERT INTO t VALUES (1, 'x'), (2, 'y')"
)
COMMENTS = (
    "SELECT attname, col_description(attrelid, attnum) FROM pg_attribute"
    " WHERE attrelid = 't'::regclass AND attnum > 0 ORDER BY attnum"
)

ADDED = [
    ("SELECT * FROM t ORDER BY a", "1|x|3|1|7\n2|y|3|2|7\nSELECT 2"),
    ("SELECT * FROM star ORDER BY a", "1|x|3\n2|y|3\nSELECT 2"),
    ("SELECT c FROM v WHERE a = 2", "3\nSELECT 1"),
    ("SELECT * FROM m", "2|6\nSELECT 1"),
    ("SELECT * FROM above", "8\nSELECT 1"),
    (COMMENTS, "a|NULL\nb|NULL\nc|cee\nid|NULL\nd|NULL\nSELECT 5"),
    ("SELECT obj_description('t'::regclass)", "tee\nSELECT 1"),
    (
        "SELECT pg_get_serial_sequence('t', 'id'), count(*) FROM pg_indexes WHERE tablename = 't'",
        "public.t_id_seq|4\nSELECT 1",
    ),
    (
        "INSERT INTO t (a, id) VALUES (1, 5)",
        'ERROR 23505: duplicate key value violates unique constraint "t_pkey"\n'
        "DETAIL: Key (a)=(1) already exists.",
    ),
    (
        "INSERT INTO t (a, id) VALUES (9, 2)",
        'ERROR 23505: duplicate key value violates unique constraint "t_id_key"\n'
        "DETAIL: Key (id)=(2) already exists.",
    ),
    (
        "SHOW CREATE VIEW star",
        "foreshore.public.star|CREATE VIEW foreshore.public.star AS "
        "SELECT * FROM (SELECT a, b, c FROM foreshore.public.t) AS t\nSHOW",
    ),
]
REFUSED = [
    (
        "ALTER TABLE t DROP c",
        "ERROR 2BP01: cannot drop column c of table t because other objects depend on it\n"
        "DETAIL: view v depends on column c of table t\n"
        "DETAIL: materialized view m depends on view v\n"
        "DETAIL: materialized view above depends on materialized view m\n"
        "DETAIL: view star depends on column c of table t\n"
        "HINT: Use DROP ... CASCADE to drop the dependent objects too.",
    ),
    (
        "ALTER TABLE t ADD COLUMN __diff int",
        'ERROR 42611: column name "__diff" is reserved',
    ),
    (
        "ALTER TABLE t RENAME COLUMN a TO __time",
        'ERROR 42611: column name "__time" is reserved',
    ),
]
DROPPED = [
    ("SELECT * FROM t ORDER BY a", "1|3|7\n2|3|7\nSELECT 2"),
    ("SELECT c FROM v WHERE a = 2", "3\nSELECT 1"),
    ("SELECT * FROM m", "2|6\nSELECT 1"),
    ("SELECT * FROM above", "8\nSELECT 1"),
    (COMMENTS, "a|NULL\nc|cee\nd|NULL\nSELECT 3"),
    ("SELECT indexname FROM pg_indexes WHERE tablename = 't' ORDER BY 1", "t_c\nt_pkey\nSELECT 2"),
    ("SELECT * FROM star", 'ERROR 42P01: relation "star" does not exist'),
    ("SELECT nextval('t_id_seq')", 'ERROR 42P01: relation "t_id_seq" does not exist'),
    (
        "SHOW CREATE VIEW v",
        "foreshore.public.v|CREATE VIEW foreshore.public.v AS "
        "SELECT a, c FROM (SELECT a, NULL::text AS b, c FROM foreshore.public.t) AS t\nSHOW",
    ),
    (
        "SHOW CREATE TABLE t",
        "foreshore.public.t|CREATE TABLE foreshore.public.t (a integer NOT NULL, c integer DEFAULT"
        " 3, d integer DEFAULT 3 + 4, CONSTRAINT t_pkey PRIMARY KEY (a))\nSHOW",
    ),
]


def test_dependents_continue_after_add_and_drop_column(tmp_path: Path) -> None:
    async def scenario() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("s", MADE)
        added = "ALTER TABLE t ADD id serial UNIQUE, ADD COLUMN d int DEFAULT 3 + 4"
        assert await env.query("s", added) == "ALTER TABLE"
        await _answers(env, ADDED + REFUSED)
        await env.reopen()
        await _answers(env, ADDED + REFUSED)
        dropped = "ALTER TABLE t DROP b CASCADE, DROP id"
        notice = "ALTER TABLE\nNOTICE: drop cascades to view star"
        assert await env.query("s", dropped) == notice
        await _answers(env, DROPPED)
        await env.reopen()
        await _answers(env, DROPPED)
        await env.query("s", "INSERT INTO t VALUES (3, 4, 5)")
        await _answers(env, [("SELECT * FROM above", "13\nSELECT 1")])
        assert len([*filter(is_user, env.storage.ids())]) == 3, (
            "the shards of before are there still"
        )
        await env.close()

    asyncio.run(scenario())


async def test_alter_columns_affects_other_sessions_as_documented(own_env: TestEnvironment) -> None:
    await own_env.query("s", MADE)
    await own_env.query("prepared", "PREPARE all_of_it AS SELECT * FROM t ORDER BY a")
    await own_env.query("prepared", "PREPARE one AS SELECT c FROM t WHERE a = $1")
    await own_env.query("prepared", "PREPARE write AS INSERT INTO t VALUES ($1, 'p')")
    await own_env.query("prepared", "EXECUTE write (3)")
    await own_env.query("writer", "BEGIN; INSERT INTO t VALUES (7, 'w')")
    await own_env.query("reader", "BEGIN; SELECT * FROM t")
    await own_env.query("summer", "BEGIN; SELECT count(*) FROM t; CREATE TEMP TABLE sums (n int)")
    await own_env.query("copier", "BEGIN; CREATE TEMP TABLE copied (a int)")
    cursor = "BEGIN; DECLARE c CURSOR FOR SUBSCRIBE TO {} ; FETCH 1 c"
    assert "1|3|9" in await own_env.query("follower", cursor.format("m"))
    assert "|1|" in await own_env.query("table follower", cursor.format("t"))
    assert await own_env.query("s", "ALTER TABLE t ADD d int DEFAULT 8") == "ALTER TABLE"
    await own_env.query("s", "INSERT INTO t VALUES (4, 'after', 1, 1)")
    await _answers_of(
        own_env,
        [
            ("prepared", "EXECUTE one (3)", "3\nSELECT 1"),
            (
                "prepared",
                "EXECUTE all_of_it",
                "ERROR 0A000: cached plan must not change result type",
            ),
            ("prepared", "EXECUTE write (5)", "INSERT 0 1"),
            (
                "writer",
                "COMMIT",
                "ERROR 40001: could not serialize access: a table was altered meanwhile",
            ),
            # What it has read is not the same any more.
            ("summer", "INSERT INTO sums VALUES (3)", "INSERT 0 1"),
            (
                "summer",
                "COMMIT",
                "ERROR 40001: could not serialize access due to concurrent update",
            ),
            ("copier", "INSERT INTO copied SELECT a FROM t", "INSERT 0 5"),
            ("s", "SELECT d FROM t ORDER BY a", "8\n8\n8\n1\n8\nSELECT 5"),
            ("s", "SELECT n FROM m", "5\nSELECT 1"),
        ],
    )
    late = await own_env.query("reader", "SELECT * FROM t")
    assert late.startswith(f"ERROR 40001: {RelationRedefined('t').message}")
    changes = await own_env.query("follower", "FETCH 2 c WITH (timeout = '20s')")
    assert "|-1|3|9" in changes, changes
    assert "|1|4|10" in changes, changes
    contents = await own_env.query("table follower", "FETCH 9 c WITH (timeout = '20s')")
    assert contents.endswith("\nFETCH 2\nT"), contents  # what came before the end is told
    ended = await own_env.query("table follower", "FETCH 9 c WITH (timeout = '20s')")
    assert 'the subscription has ended because "t" was altered' in ended, ended


async def test_concurrent_writes_survive_alter_columns(own_env: TestEnvironment) -> None:
    await own_env.query("s", MADE)
    written: list[int] = []
    done = asyncio.Event()

    async def write(writer: int) -> None:
        key = 1000 * (writer + 1)
        while not done.is_set():
            key += 1
            sql = f"INSERT INTO t (a, b) VALUES ({key}, 'w')"
            if writer:
                sql = f"INSERT INTO t (a, b) SELECT {key}, max(b) FROM t"
            answer = await own_env.query(f"w{writer}", sql, alone=False)
            assert answer == "INSERT 0 1", answer
            written.append(key)

    async def alter() -> None:
        for number in range(6):
            before = len(written)
            action = f"ADD extra int DEFAULT {number}" if number % 2 == 0 else "DROP extra"
            answer = await own_env.query("s", f"ALTER TABLE t {action}", alone=False)
            assert answer == "ALTER TABLE", answer
            await until(lambda before=before: len(written) > before + 5)  # type: ignore[misc]
        done.set()

    async with asyncio.TaskGroup() as group:
        for writer in range(3):
            group.create_task(write(writer))
        group.create_task(alter())
    there = (await own_env.query("s", "SELECT a FROM t WHERE a > 1000")).split("\n")[:-1]
    assert sorted(map(int, there)) == sorted(written)
    counted = f"{len(written) + 2}\nSELECT 1"
    assert await own_env.query("s", "SELECT n FROM m") == counted


def test_view_without_replica_continues_with_new_replica(tmp_path: Path) -> None:
    async def scenario() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("s", "CREATE CLUSTER c (SIZE 'embedded', REPLICATION FACTOR 0)")
        await env.query("s", "SET cluster = c; CREATE TABLE t (a int)")
        await env.query("s", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t")
        await env.query("s", "INSERT INTO t VALUES (1); ALTER TABLE t ADD b int DEFAULT 1")
        await env.query("s", "CREATE MATERIALIZED VIEW above AS SELECT n + 1 AS n FROM m")
        await env.query("s", "CREATE CLUSTER REPLICA c.r1 (SIZE 'embedded')")
        await _answers(env, [("SELECT m.n, above.n FROM m, above", "1|2\nSELECT 1")])
        await env.query("s", "DROP CLUSTER REPLICA c.r1")
        before = env.environment.coordinator.oracle.read_ts()
        await env.query("s", "INSERT INTO t VALUES (2)")
        await env.query("s", "ALTER TABLE t DROP b")
        await env.query("s", "INSERT INTO t VALUES (3)")
        await env.reopen()
        await env.query("s", "SET cluster = c; ALTER TABLE t ADD c int")
        await env.query("s", "CREATE CLUSTER REPLICA c.r2 (SIZE 'embedded')")
        await _answers(env, [("SELECT m.n, above.n FROM m, above", "3|4\nSELECT 1")])
        for view in ("m", "above"):  # what they were in between is not known
            lost = await env.query("s", f"SELECT * FROM {view} AS OF {before + 1}")
            assert lost.startswith("ERROR 22023: cannot read as of"), lost
        await env.query("s", "INSERT INTO t VALUES (4)")
        await _answers(env, [("SELECT m.n, above.n FROM m, above", "4|5\nSELECT 1")])
        await env.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("starts", [0, 1])
def test_view_contents_without_replica_are_never_shown(tmp_path: Path, starts: int) -> None:
    async def scenario() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()

        async def start_again() -> None:
            await env.reopen()
            await env.query("s", "SET cluster = c")

        await env.query("s", "CREATE CLUSTER c (SIZE 'embedded'); SET cluster = c")
        await env.query("s", "CREATE TABLE t (a int)")
        await env.query(
            "s",
            "CREATE MATERIALIZED VIEW m WITH (RETAIN HISTORY FOR '1 h') AS"
            " SELECT count(*) AS n FROM t",
        )
        await env.query(
            "s",
            "CREATE MATERIALIZED VIEW above WITH (RETAIN HISTORY FOR '1 h') AS SELECT * FROM m",
        )
        await env.query("s", "SELECT * FROM above")
        await env.query("s", "DROP CLUSTER REPLICA c.r1; INSERT INTO t VALUES (1)")
        after = env.environment.coordinator.oracle.read_ts()
        await env.query("s", "CREATE TABLE other (a int)")
        await env.query("s", "ALTER TABLE t ADD b int")
        for _ in range(starts):
            await start_again()
        await env.query("s", "CREATE CLUSTER REPLICA c.r2 (SIZE 'embedded')")
        await _answers(env, [("SELECT * FROM above", "1\nSELECT 1")])
        for _ in range(3):
            for view in ("m", "above"):
                for time in range(after, after + 20):
                    answer = await env.query("s", f"SELECT * FROM {view} AS OF {time}")
                    assert answer == "1\nSELECT 1" or answer.startswith("ERROR 22023"), view
            await start_again()
        await env.close()

    asyncio.run(scenario())


def test_view_contents_before_first_replica_are_never_shown(tmp_path: Path) -> None:
    async def scenario() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("s", "CREATE CLUSTER c (SIZE 'embedded', REPLICATION FACTOR 0)")
        await env.query("s", "CREATE CLUSTER d (SIZE 'embedded')")
        await env.query("s", "CREATE TABLE t (a int)")
        kept = "WITH (RETAIN HISTORY FOR '1 h')"
        await env.query(
            "s", f"CREATE MATERIALIZED VIEW m IN CLUSTER c {kept} AS SELECT count(*) AS n FROM t"
        )
        await env.query("s", f"CREATE MATERIALIZED VIEW above IN CLUSTER d {kept} AS TABLE m")
        await env.query("s", "INSERT INTO t VALUES (1)")
        after = env.environment.coordinator.oracle.read_ts()
        for column in "xyz":
            await env.query("s", "CREATE TABLE IF NOT EXISTS other (a int)")
            await env.query("s", f"ALTER TABLE t ADD {column} int")
        await env.query("s", "SET cluster = d; CREATE CLUSTER REPLICA c.r1 (SIZE 'embedded')")
        await _answers(env, [("SELECT * FROM above", "1\nSELECT 1")])
        for _ in range(2):
            for view in ("m", "above"):
                answer = await env.query("s", f"SELECT * FROM {view} AS OF {after}")
                assert answer.startswith("ERROR 22023"), answer
            await env.reopen()
            await env.query("s", "SET cluster = d")
        await env.close()

    asyncio.run(scenario())


async def test_alter_waits_only_once_for_missing_replica(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_handoff, "AWAY_SECONDS", 0.5)
    monkeypatch.setenv(SECRET_VARIABLE, "known to nobody else")
    away_since = asyncio.get_running_loop().time()
    await own_env.query("s", "CREATE CLUSTER c (SIZE 'embedded', REPLICATION FACTOR 0)")
    await own_env.query("s", "CREATE CLUSTER REPLICA c.r (ADDRESS '127.0.0.1:1')")
    await own_env.query("s", "SET cluster = c; CREATE TABLE t (a int)")
    views = 8
    for i in range(views):
        await own_env.query("s", f"CREATE MATERIALIZED VIEW m{i} AS SELECT a + {i} AS a FROM t")
    began = asyncio.get_running_loop().time()
    assert await own_env.query("s", "ALTER TABLE t ADD b int") == "ALTER TABLE"
    ended = asyncio.get_running_loop().time()
    assert ended - away_since >= 0.5
    assert ended - began < views / 2


async def test_subscription_ends_when_view_loses_its_history(own_env: TestEnvironment) -> None:
    await own_env.query("s", "CREATE CLUSTER c (SIZE 'embedded'); SET cluster = c")
    await own_env.query("s", "CREATE TABLE t (a int)")
    await own_env.query("s", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t")
    await own_env.query("s", "CREATE MATERIALIZED VIEW above AS SELECT n + 1 AS n FROM m")
    await own_env.query("s", "SELECT * FROM m, above")
    sources = ("m", "above", "(SELECT sum(n) FROM m)")
    for source in sources:
        await own_env.query(source, f"BEGIN; DECLARE c CURSOR FOR SUBSCRIBE {source}")
        assert "|1|" in await own_env.query(source, "FETCH 1 c WITH (TIMEOUT = '30s')")
    await own_env.query("s", "DROP CLUSTER REPLICA c.r1; INSERT INTO t VALUES (1)")
    await own_env.query("s", "ALTER TABLE t ADD b int")
    fetch = "FETCH 1 c WITH (TIMEOUT = '30s')"
    for source in sources:
        # A replica that is being dropped may still have followed the row.
        while (answer := await own_env.query(source, fetch)).endswith("FETCH 1\nT"):
            pass
        assert answer.startswith(
            'ERROR 55000: the subscription has ended because the past of "m" is lost'
        ), answer


@pytest.mark.parametrize(
    "change",
    ["DROP COLUMN w, ADD COLUMN w int", "ADD CONSTRAINT k UNIQUE (id, v)", "DROP CONSTRAINT k"],
)
async def test_on_conflict_after_alter_finds_rows_for_older_transaction(
    own_env: TestEnvironment, change: str
) -> None:
    await own_env.query(
        "s",
        "CREATE TABLE t (id int PRIMARY KEY, v int, w int); CREATE TABLE other (a int);"
        + ("ALTER TABLE t ADD CONSTRAINT k UNIQUE (v)" if change.startswith("DROP CON") else "")
        + "; INSERT INTO t VALUES (1, 5)",
    )
    upsert = "INSERT INTO t (id, v) VALUES (1, 5) ON CONFLICT"
    await own_env.query("s", "BEGIN; SELECT * FROM t")
    await own_env.query("w", "INSERT INTO other VALUES (1)")
    assert await own_env.query("s", f"ALTER TABLE t {change}") == "ALTER TABLE\nT"
    assert await own_env.query("s", f"{upsert} DO NOTHING") == "INSERT 0 0\nT"
    update = f"{upsert} (id) DO UPDATE SET v = t.v + 1 RETURNING t.id, t.v"
    assert await own_env.query("s", update) == "1|6\nINSERT 0 1\nT"
    assert await own_env.query("s", "COMMIT") == "COMMIT"
    assert await own_env.query("s", "SELECT id, v FROM t") == "1|6\nSELECT 1"


@pytest.mark.parametrize(
    "change",
    ["ADD CONSTRAINT k UNIQUE (id, v)", "ADD UNIQUE (v)"],
)
@pytest.mark.parametrize("key", ["id", "v"])
async def test_on_conflict_ignores_row_between_begin_and_alter(
    own_env: TestEnvironment, change: str, key: str
) -> None:
    await own_env.query(
        "s", "CREATE TABLE t (id int PRIMARY KEY, v int, w int); CREATE TABLE other (a int)"
    )
    if key == "v" and change != "ADD UNIQUE (v)":
        await own_env.query("s", "ALTER TABLE t ADD UNIQUE (v)")
    await own_env.query("s", "INSERT INTO t VALUES (1, 5, 0)")
    await own_env.query("s", "BEGIN; SELECT * FROM other")
    assert await own_env.query("w", "UPDATE t SET w = 7 WHERE id = 1") == "UPDATE 1"
    assert await own_env.query("s", f"ALTER TABLE t {change}") == "ALTER TABLE\nT"
    upsert = f"INSERT INTO t (id, v) VALUES (1, 5) ON CONFLICT ({key}) DO UPDATE SET v = 6"
    answer = await own_env.query("s", upsert)
    assert answer.startswith("ERROR 40001: could not serialize access"), answer
    await own_env.query("s", "ROLLBACK; BEGIN; SELECT * FROM other")
    assert await own_env.query("s", f"ALTER TABLE t {change}") == "ALTER TABLE\nT"
    assert await own_env.query("s", upsert) == "INSERT 0 1\nT"
    for _ in range(2):
        assert (await own_env.query("s", "SELECT * FROM t")).startswith("1|6|7\nSELECT 1")
        await own_env.query("s", "COMMIT")


async def _answers_of(env: TestEnvironment, conversation: list[tuple[str, str, str]]) -> None:
    for session, sql, expected in conversation:
        answer = (await env.query(session, sql)).removesuffix("\nE").removesuffix("\nT")
        assert answer == expected, sql


@pytest.mark.parametrize(
    "change",
    ["ADD b int DEFAULT 7", "DROP c", "ADD CONSTRAINT positive CHECK (a > 0)"],
)
async def test_history_before_alter_columns_is_refused_not_empty(
    env: TestEnvironment, change: str
) -> None:
    coordinator = env.environment.coordinator
    await env.query(
        "s",
        "DROP TABLE IF EXISTS past CASCADE; CREATE TABLE past (a int, c int);"
        " CREATE MATERIALIZED VIEW past_kept AS SELECT a FROM past;"
        " CREATE VIEW past_seen AS SELECT a FROM past; INSERT INTO past VALUES (1)",
    )
    await env.query("s", "SELECT * FROM past_kept")
    before = coordinator.oracle.read_ts()
    await env.query("block", "BEGIN; SELECT 1 FROM past_kept")
    await env.query("s", "INSERT INTO past VALUES (2)")
    kept = change.startswith("ADD CONSTRAINT")
    if kept:  # what is above a table may rely on what the table promised before
        await env.query("s", "DROP MATERIALIZED VIEW past_kept")
    assert await env.query("s", f"ALTER TABLE past {change}") == "ALTER TABLE"
    (past,) = [each for each in coordinator.state.items() if each.name == "past"]
    since = coordinator.state.altered(past.id)
    assert since is not None
    assert before < since <= coordinator.oracle.read_ts()
    altered = f'"past" was altered at {since}: its history before is not kept.'
    for query in ("SELECT * FROM past", "SELECT * FROM past_seen", "SUBSCRIBE past"):
        assert await env.query("s", f"{query} AS OF {before}") == (
            f"ERROR 22023: cannot read as of {before}\n"
            f"DETAIL: The inputs can be read from {since} on,"
            " when a table among them was altered.\n"
            "HINT: Take a later time, or leave AS OF out to read what is newest."
        )
    refused = await env.query("s", f"SELECT * FROM CHANGES(past, {before})")
    assert refused.startswith(f'ERROR 22023: the changes of "past" after {before} through ')
    assert refused.splitlines()[1].startswith(f"DETAIL: They can be read after {since} through ")
    assert refused.splitlines()[1].endswith(altered)
    far = await env.query("s", f"SELECT * FROM CHANGES(past, {since}, 0)")
    assert altered not in far
    assert await env.query("s", "SELECT a, mz_diff FROM CHANGES(past)") == (
        f"SELECT 0\nNOTICE: {altered}"
    )
    await env.query("s", "INSERT INTO past (a) VALUES (3)")
    assert await env.query("s", f"SELECT a, mz_diff FROM CHANGES(past, {since})") == (
        "3|1\nSELECT 1"
    )
    assert await env.query("s", f"SELECT a FROM past ORDER BY a AS OF {since}") == (
        "1\n2\nSELECT 2"
    )
    if not kept:  # a materialized view has a history of its own
        answer = await env.query("s", f"SELECT a FROM past_kept AS OF {before}")
        assert answer == "1\nSELECT 1"
    late = await env.query("block", "SELECT * FROM past")
    assert late.startswith(f"ERROR 40001: {RelationRedefined('past').message}")
    await env.query("block", "ROLLBACK")


async def test_full_disk_leaves_no_shard_of_a_rewrite(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    await own_env.ran("s", "CREATE TABLE full_t (a int)", "INSERT INTO full_t VALUES (1)")
    storage = own_env.environment.coordinator.storage

    async def full(*_: object) -> None:
        raise OutOfDisk("no room")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "fill", full)
        answer = await own_env.query("s", "ALTER TABLE full_t ADD b int DEFAULT 1")
    assert answer.startswith("ERROR 53100"), answer
    own_env.environment.coordinator.check_consistency()
    assert await own_env.query("s", "SELECT * FROM full_t") == "1\nSELECT 1"
