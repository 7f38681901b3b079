"""A memo and a sink to Python, though the server is killed: a value for each row, each change once."""

import json
import random
import sqlite3
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.harness import Server, until

KILLS = 4
CONCURRENCY = 4
ROWS = 400

pytestmark = pytest.mark.full


def test_answers_keep_their_values_over_kills(tmp_path: Path) -> None:
    chance, calls, copy = random.Random(5), tmp_path / "calls", tmp_path / "copy.db"
    asking, receiving = "tests.adapter.sources.asking", "tests.adapter.sinks.receiving"
    options = ("--python-source-module", asking, "--python-source-module", receiving)
    path = {"PYTHONPATH": str(Path(__file__).parents[2])}
    server = Server(tmp_path / "data", options, environment=path).start()
    with server.connect() as connection:
        connection.execute("CREATE TABLE q (n int, text text)")
        connection.execute(
            f"CREATE SOURCE a (answer text, length int) FROM PYTHON '{asking}:slowly'"
            f" (calls '{calls}') OVER q (CONCURRENCY {CONCURRENCY})"
        )
        connection.execute(
            "CREATE MATERIALIZED VIEW v AS SELECT n AS k, answer AS v FROM q JOIN a USING (n, text)"
        )
        connection.execute(
            f"CREATE SINK s FROM v INTO PYTHON '{receiving}:Copy' (path '{copy}')"
            " WITH (COMMIT INTERVAL '1 ms')"
        )
    memo: dict[int, str] = {}
    for turn in range(KILLS):
        with server.connect() as connection:
            first = turn * ROWS // KILLS
            connection.execute(
                "INSERT INTO q SELECT n, 'x' FROM generate_series(%s::int, %s::int) n",
                (first, first + ROWS // KILLS - 1),
            )
            connection.execute("DELETE FROM q WHERE n %% 5 = %s", (turn % 5,))
            connection.execute("INSERT INTO q VALUES (0, 'x'), (0, 'x')")
        time.sleep(chance.uniform(0.0, 0.6))
        server.kill()
        server.start()
        with server.connect() as connection:
            for n, answer in connection.execute("SELECT n, answer FROM a").fetchall():
                assert memo.setdefault(n, answer) == answer, "an answer was computed again"
    with server.connect() as connection:
        connection.execute("INSERT INTO q SELECT n, 'x' FROM generate_series(0, 9) n")
        lacks = "SELECT count(*) FROM q WHERE n NOT IN (SELECT n FROM a)"
        until(lambda: connection.execute(lacks).fetchall() == [(0,)], "all are answered")
        answers = connection.execute("SELECT n, answer FROM a").fetchall()
        assert memo.items() <= dict(answers).items()
        assert len(answers) == len(dict(answers))
        view = connection.execute("SELECT k, v FROM v ORDER BY k").fetchall()
        joined = "SELECT n, answer FROM q JOIN a USING (n, text) ORDER BY n"
        assert view == connection.execute(joined).fetchall()
        connection.execute("SET statement_timeout = '60 s'")
        connection.execute("WAIT FOR ALL SINKS")
    with sqlite3.connect(copy) as database:
        assert database.execute("SELECT k, v FROM t ORDER BY k").fetchall() == view
    called = Counter(json.loads(line) for line in calls.read_text().splitlines())
    assert sum(called.values()) - len(answers) <= KILLS * CONCURRENCY
    assert server.stop() == 0
