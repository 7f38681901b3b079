"""Messages of a broker's transactions come once each, and those of aborted ones never, over kills.

The server, its ingestion process and the broker end at any time; the broker in good order, as it
keeps its messages only then.
"""

import os
import random
import threading
import time
from pathlib import Path

import psycopg
import pytest

from tests.broker import Broker, serving
from tests.effort import examples
from tests.harness import Server, until
from tests.kill.test_kafka import kill_ingestion

MESSAGES = int(os.environ.get("FORESHORE_KAFKA_MESSAGES", "100000"))
IN_TRANSACTION = MESSAGES // 100
KILLS = examples(10)
PARTITIONS = 8
ABORTED = -1  # what messages of aborted transactions have

pytestmark = pytest.mark.full


def test_committed_messages_come_once_over_kills(tmp_path: Path) -> None:
    with serving(tmp_path / "broker") as broker:
        broker.create("t", PARTITIONS)
        server = Server(tmp_path / "data").start()
        try:
            with server.connect() as connection:
                connection.execute(f"CREATE CONNECTION k TO KAFKA (BROKER '{broker.address}')")
                for name, format in (
                    ("each", "FORMAT JSON INCLUDE PARTITION, OFFSET"),
                    ("last", UPSERT),
                ):
                    connection.execute(
                        f"CREATE SOURCE {name} (n int8 NOT NULL) FROM KAFKA CONNECTION k"
                        f" (TOPIC 't') {format}"
                    )
            failed: list[BaseException] = []
            writing = threading.Thread(target=_write, args=(broker, failed))
            writing.start()
            _disturb(server)
            writing.join()
            broker.stop()
            broker.start()
            assert not failed, failed
            with server.connect() as connection:
                _check(connection)
        finally:
            server.stop()


UPSERT = "KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT"
KEYS = 5_000


def _write(broker: Broker, failed: list[BaseException]) -> None:
    """Write transactions, and before each third one another producer's, which is aborted.

    The broker tells readers that follow it of all transactions that a producer has ever aborted, so
    one that has aborted any is of no use for others.
    """
    try:
        producer = broker.producer(**{"transactional.id": "writer"})
        producer.init_transactions(30)
        for number, first in enumerate(range(0, MESSAGES, IN_TRANSACTION)):
            producer.begin_transaction()
            if number % 3 == 0:
                _abort(broker, number)
            for n in range(first, first + IN_TRANSACTION):
                key = n * 7919 % KEYS
                producer.produce("t", b'{"n": %d}' % n, b"%d" % key, key % PARTITIONS)
                if n % 10_000 == 0:
                    producer.poll(0)
            producer.commit_transaction(60)
            time.sleep(0.1)
    except BaseException as error:
        failed.append(error)


def _abort(broker: Broker, number: int) -> None:
    producer = broker.producer(**{"transactional.id": f"aborted-{number}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for at in range(IN_TRANSACTION // 2):
        producer.produce("t", b'{"n": %d}' % ABORTED, b"%d" % (at % KEYS), at % PARTITIONS)
    producer.flush(30)
    producer.abort_transaction(30)


def _disturb(server: Server) -> None:
    """Kill the server and its ingestion process in turns."""
    seed = random.Random(7)
    for number in range(KILLS):
        time.sleep(seed.uniform(0.3, 1.5))
        if number % 2:
            kill_ingestion(server)
        else:
            server.kill()
            server.start()


def _check(connection: "psycopg.Connection[tuple[object, ...]]") -> None:
    """Fail unless each committed message is there once, and the last of each key."""

    def all_there() -> bool:
        counts = "SELECT (SELECT count(*) FROM each), (SELECT sum(n) FROM last)"
        last = sum(range(MESSAGES - KEYS, MESSAGES))
        found = connection.execute(counts).fetchone()
        return found == (MESSAGES, last)

    until(all_there, "all messages are read", 180)
    found = "SELECT count(*), count(DISTINCT n), min(n), sum(n) FROM each"
    expected = (MESSAGES, MESSAGES, 0, MESSAGES * (MESSAGES - 1) // 2)
    assert connection.execute(found).fetchone() == expected
    twice = 'SELECT 1 FROM each GROUP BY partition, "offset" HAVING count(*) > 1'
    assert connection.execute(twice).fetchone() is None
    wrong = "SELECT (SELECT count(*) FROM each_errors) + (SELECT count(*) FROM last_errors)"
    assert connection.execute(wrong).fetchone() == (0,)


def test_topic_of_another_id_is_not_read(tmp_path: Path) -> None:
    """In processes of its own: librdkafka may crash when a topic is deleted that it reads."""
    with serving(tmp_path / "broker", has_topic_ids=True) as broker:
        broker.create("t", 1)
        _put(broker, b"1", b"2")
        server = Server(tmp_path / "data").start()
        try:
            with server.connect() as connection:
                connection.execute(f"CREATE CONNECTION k TO KAFKA (BROKER '{broker.address}')")
                _create_and_read(connection, [("1",), ("2",)])
                broker.delete("t")
                _stalled(connection, 'topic "t" does not exist')
                broker.create("t", 1)
                _put(broker, b"3", b"4", b"5")  # it is longer than it was
                _stalled(connection, "was created anew: its id is")
                rows = connection.execute("SELECT * FROM s ORDER BY 1").fetchall()
                assert rows == [("1",), ("2",)]
                connection.execute("DROP SOURCE s")
                _create_and_read(connection, [("3",), ("4",), ("5",)])
        finally:
            server.stop()


def _put(broker: Broker, *values: bytes) -> None:
    producer = broker.producer()
    for each in values:
        producer.produce("t", each, partition=0)
    assert producer.flush(30) == 0


def _create_and_read(
    connection: "psycopg.Connection[tuple[object, ...]]", rows: list[tuple[object, ...]]
) -> None:
    connection.execute("CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') FORMAT TEXT")
    read = "SELECT * FROM s ORDER BY 1"
    until(lambda: connection.execute(read).fetchall() == rows, "all is read")


def _stalled(connection: "psycopg.Connection[tuple[object, ...]]", error: str) -> None:
    read = "SELECT status, error FROM mz_internal.mz_source_statuses WHERE name = 's'"

    def is_told() -> bool:
        return all(part in str(connection.execute(read).fetchone()) for part in ("stalled", error))

    until(is_told, f"the source stalls: {error}")
