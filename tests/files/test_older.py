"""Data directories that earlier versions wrote open, and go on; those of a later one are refused.

Each archive in `older` is a directory of a server that was killed: batches, and updates that only
the log has. It is named by the day of the version, and has the objects of `OBJECTS`; those of later
days have roles and secrets too. Whoever changes a format adds one from the version before.
"""

import tarfile
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from foreshore.catalog.bootstrap import first_state
from foreshore.catalog.durable import ROW_SCHEMA, difference, load
from foreshore.errors import ObjectNotInPrerequisiteState
from foreshore.update import DIFF, TIME, update_schema
from tests.harness import Server

OLDER = sorted((Path(__file__).parent / "older").glob("*.tgz"))
OBJECTS = {"orders", "numbers", "big", "totals", "big_by_customer", "small"}


@pytest.mark.full
@pytest.mark.parametrize("archive", OLDER, ids=lambda path: path.stem)
def test_directory_of_an_earlier_version_opens_and_goes_on(archive: Path, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with tarfile.open(archive) as packed:
        packed.extractall(data_dir, filter="data")
    server = Server(data_dir).start()
    totals = "SELECT customer, total::text, n FROM totals ORDER BY customer"
    try:
        with psycopg.connect(server.url, autocommit=True) as session:
            names = {name for (name,) in session.execute("SELECT relname FROM pg_class")}
            assert names >= OBJECTS
            found = session.execute(totals).fetchall()
            assert found == [("c0", "331.00", 11), ("c1", "344.75", 11), ("c2", "317.25", 11)]
            rows = session.execute("SELECT count(*), sum(amount)::text FROM orders").fetchall()
            assert rows == [(40, "1035.00")]
            one = session.execute("SELECT tags, doc::text, at::text FROM orders WHERE id = 7")
            assert one.fetchall() == [(["a", "7"], '{"i": 7}', "2024-01-01 10:00:00+00")]
            small = session.execute("SELECT * FROM other.small ORDER BY k").fetchall()
            assert small == [(1, "x", True), (1, "x", True), (2, None, True)]
            assert session.execute("SELECT nextval('numbers') > 7").fetchone() == (True,)
            comment = session.execute("SELECT obj_description('orders'::regclass)").fetchone()
            assert comment == ("what was ordered",)
            if archive.stem > "2026-11-25":
                allowed = "SELECT has_table_privilege('reader', 'orders', 'SELECT')"
                assert session.execute(allowed).fetchone() == (True,)
            session.execute("INSERT INTO orders (id, customer, amount) VALUES (99, 'c1', 100)")
            with pytest.raises(psycopg.errors.UniqueViolation):
                session.execute("INSERT INTO orders (id, customer) VALUES (7, 'c1')")
            session.execute("VACUUM")
            assert session.execute(totals).fetchall()[1] == ("c1", "444.75", 12)
            assert session.execute("VERIFY MATERIALIZED VIEW totals").fetchall() == []
        server.stop()
        server.start()
        with psycopg.connect(server.url, autocommit=True) as session:
            assert session.execute(totals).fetchall()[1] == ("c1", "444.75", 12)
    finally:
        server.stop()


def test_catalog_of_a_later_version_is_refused() -> None:
    first = difference(None, first_state(), 0)
    columns = {"collection": ["format"], "id": [""], "value": ["99"], TIME: [1], DIFF: [1]}
    later = pa.table(columns, schema=update_schema(ROW_SCHEMA))
    with pytest.raises(ObjectNotInPrerequisiteState, match="format 99, this version reads up to"):
        load([first, later])
