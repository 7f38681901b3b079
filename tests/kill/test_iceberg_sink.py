"""Sinks to Iceberg tables, though the server is killed and answers get lost: each change once."""

import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.harness import Server, until
from tests.iceberg_catalog import CLIENT, SECRET, IcebergCatalog, serving
from tests.kill.test_sinks import load, sum_of

KILLS = 3
LOST_EVERY = 5  # commits whose answer is lost

pytestmark = pytest.mark.full


def test_each_change_arrives_once_over_kills_and_lost_answers(tmp_path: Path) -> None:
    place = tmp_path / "lake"
    place.mkdir()
    server = Server(tmp_path / "data", ("--copy-dir", str(place))).start()
    ends = threading.Event()
    loading = threading.Thread(target=load, args=(server.url, ends))
    with serving(place) as catalog:
        _set_up(server, catalog)
        losing = threading.Thread(target=_lose, args=(catalog, ends))
        loading.start()
        losing.start()
        try:
            for kill in range(1, KILLS + 1):
                least, lost = LOST_EVERY * 2 * kill, kill  # however slow the machine is
                until(lambda: catalog.commits >= least and catalog.answers_lost >= lost, "commits")  # noqa: B023
                server.kill()
                server.start()
        finally:
            ends.set()
            loading.join()
            losing.join()
        catalog.lost = 0
        with server.connect() as connection:
            connection.execute("SET statement_timeout = '120 s'")
            connection.execute("WAIT FOR ALL SINKS")
            rows = connection.execute("SELECT id, v FROM t ORDER BY id").fetchall()
            connection.execute("SET real_time_recency = on")
            followed = connection.execute("SELECT id, v FROM followed ORDER BY id").fetchall()
        assert len(rows) > 20
        assert catalog.answers_lost >= KILLS
        assert sorted(catalog.rows("n.merged")) == rows
        assert followed == rows
        changes = [(id, v, at, diff) for id, v, diff, at in catalog.rows("n.log")]
        assert len(changes) == len(set(changes))  # none twice
        assert sum_of(changes) == Counter(rows)
        assert server.stop() == 0


def _set_up(server: Server, catalog: IcebergCatalog) -> None:
    reach = f"CATALOG TYPE 'rest', URL '{catalog.url}', CREDENTIAL SECRET k"
    more = "LOCAL FILES) {} WITH (COMMIT INTERVAL '50 ms')"
    into = "INTO ICEBERG CATALOG CONNECTION c (NAMESPACE 'n', TABLE"
    with server.connect() as connection:
        for each in (
            "CREATE TABLE t (id int PRIMARY KEY, v int)",
            f"CREATE SECRET k AS '{CLIENT}:{SECRET}'",
            f"CREATE CONNECTION c TO ICEBERG CATALOG ({reach})",
            f"CREATE SINK a FROM t {into} 'merged', {more.format('MODE UPSERT')}",
            f"CREATE SINK b FROM t {into} 'log', {more.format('MODE APPEND')}",
            "CREATE SOURCE followed FROM ICEBERG CATALOG CONNECTION c (TABLE 'n.merged'"
            ", LOCAL FILES, POLL INTERVAL '50 ms')",
        ):
            connection.execute(each)


def _lose(catalog: IcebergCatalog, ends: threading.Event) -> None:
    """Let every some answer to a commit get lost."""
    last = catalog.commits
    while not ends.wait(0.01):
        if catalog.commits >= last + LOST_EVERY:
            last, catalog.lost = catalog.commits, 1
