"""A producer that writes transactions, and what its errors mean."""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from foreshore.errors import (
    ConnectionFailure,
    DatabaseError,
    InsufficientPrivilege,
    InvalidParameterValue,
    ObjectNotInPrerequisiteState,
    UndefinedObject,
)
from foreshore.storage.export.kafka.messages import Messages
from foreshore.storage.external.access import Access
from foreshore.storage.external.kafka import configuration, why_not

TRANSACTION_SECONDS = 600.0  # after which the brokers abort a transaction
BEGIN_SECONDS = 30.0  # for the brokers to shut out earlier producers
COMMIT_SECONDS = 120.0
ABORT_SECONDS = 5.0
SLICE_SECONDS = 0.5  # after which it is seen that the producer is to be closed
LONGEST_MESSAGE = 512 << 20  # that is tried; the topic has a limit of its own
QUEUED_MESSAGES, QUEUED_KB = 100_000, 131_072  # that wait here

_MEANINGS: dict[int, tuple[Callable[..., DatabaseError], str, str | None]] = {
    KafkaError._FENCED: (ObjectNotInPrerequisiteState, "another exporter writes", None),
    KafkaError.PRODUCER_FENCED: (ObjectNotInPrerequisiteState, "another exporter writes", None),
    KafkaError.INVALID_PRODUCER_EPOCH: (
        ObjectNotInPrerequisiteState,
        "the brokers have ended the transaction",
        f"Another exporter writes, or it took more than {TRANSACTION_SECONDS:.0f} s.",
    ),
    KafkaError.MSG_SIZE_TOO_LARGE: (
        partial(DatabaseError, sqlstate="54000"),
        "a message is too large for the topic",
        'Raise "max.message.bytes" of the topic.',
    ),
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        InvalidParameterValue,
        f"the brokers allow no transactions of {TRANSACTION_SECONDS:.0f} s",
        'Raise "transaction.max.timeout.ms" of the brokers.',
    ),
    **dict.fromkeys(
        (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (
            InsufficientPrivilege,
            "the user of the connection lacks a right",
            "It must be able to write the topics and the id of transactions.",
        ),
    ),
    **dict.fromkeys(
        (
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError._UNKNOWN_TOPIC,
            KafkaError._UNKNOWN_PARTITION,
        ),
        (UndefinedObject, "the topic does not exist", None),
    ),
}


class Failures:
    """Why no broker can be reached, as a client is told."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self.reason: str | None = None
        self._last: str | None = None

    def told(self, error: KafkaError) -> None:
        """Take an error of a client."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.reason = self._last or error.str()
        elif error.code() == KafkaError._AUTHENTICATION:
            self.reason = error.str()
        else:
            self._last = error.str()

    def error(self, why: KafkaError | str) -> DatabaseError:
        """Return an error of Kafka as one of ours."""
        if isinstance(why, KafkaError):
            if (meaning := _MEANINGS.get(why.code())) is not None:
                kind, message, hint = meaning
                return kind(f"{message}: {why.str()}", hint=hint)
            why = self.reason or self._last or why.str()
        where, why = self._access.options["broker"], why_not(self._access, why)
        return ConnectionFailure(f"could not write to Kafka at {where}: {why}")


class TransactionalProducer:
    """Writes one transaction after another; shuts out all earlier ones of its id.

    Its calls block, for threads, and raise DatabaseError. After `end_soon` they raise at once.
    """

    def __init__(self, access: Access, id: str, compression: str = "lz4") -> None:
        self.failures = Failures(access)
        self._is_ending = threading.Event()
        self._used = threading.Lock()  # by one thread at a time
        self._is_open = False  # whether a transaction is
        try:
            self._producer = Producer(
                configuration(access)
                | {
                    "transactional.id": id,
                    "transaction.timeout.ms": int(TRANSACTION_SECONDS * 1000),
                    "compression.type": compression,
                    "partitioner": "murmur2_random",  # as clients in Java choose partitions
                    "linger.ms": 20,
                    "message.max.bytes": LONGEST_MESSAGE,
                    "queue.buffering.max.messages": QUEUED_MESSAGES,
                    "queue.buffering.max.kbytes": QUEUED_KB,
                    "reconnect.backoff.max.ms": 2_000,
                    "topic.metadata.propagation.max.ms": 5_000,
                    "allow.auto.create.topics": False,
                    "log_level": 0,
                    "error_cb": self.failures.told,
                }
            )
        except KafkaException as error:
            raise InvalidParameterValue(
                f"the connection to Kafka is wrong: {error.args[0].str()}"
            ) from error

    def begin_after_others(self) -> None:
        """Shut out all earlier producers of the id; their unfinished transactions are aborted."""
        with self._used:
            self._insist(self._producer.init_transactions, BEGIN_SECONDS)

    def begin(self) -> None:
        """Begin a transaction."""
        with self._used:
            self._producer.poll(0)
            self.failures.reason = None  # of connections that were lost meanwhile
            self._tried(self._producer.begin_transaction)
            self._is_open = True

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has."""
        found: list[int] = []
        with self._used:
            self._insist(
                lambda seconds: found.append(
                    len(self._producer.list_topics(topic, seconds).topics[topic].partitions)
                ),
                BEGIN_SECONDS,
            )
        return max(1, found[0])

    def write(self, topic: str, messages: Messages, partitions: int) -> None:
        """Write messages; waits while too many are queued.

        The partition of each is that of its key, or of its hash if it has one, of `partitions`.
        """
        keys, values, headers, hashes = messages
        with self._used:
            if hashes is not None:
                for row, value in enumerate(values):
                    key = None if keys is None else keys[row]
                    more: dict[str, Any] = {"partition": hashes[row] % partitions}
                    if headers is not None:
                        more["headers"] = headers[row]
                    self._put(topic, value, key, **more)
            elif headers is not None:
                for row, value in enumerate(values):
                    key = None if keys is None else keys[row]
                    self._put(topic, value, key, headers=headers[row])
            elif keys is None:
                for value in values:
                    self._put(topic, value, None)
            else:
                for key, value in zip(keys, values, strict=True):
                    self._put(topic, value, key)
            self._producer.poll(0)

    def write_to(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        """Write a message to a partition."""
        with self._used:
            self._put(topic, value, key, partition=partition)

    def commit(self) -> None:
        """Commit the transaction; if it raises, it may have been committed."""
        with self._used:
            self._insist(self._producer.commit_transaction, COMMIT_SECONDS)
            self._is_open = False

    def end_soon(self) -> None:
        """Let calls that go on raise."""
        self._is_ending.set()

    def close(self) -> None:
        """Abort the transaction that is open, if the brokers can be reached."""
        self.end_soon()
        with self._used:
            self._producer.purge(in_queue=True, in_flight=True)
            if self._is_open and self.failures.reason is None:
                try:
                    self._producer.abort_transaction(ABORT_SECONDS)
                except KafkaException:
                    self._is_open = False  # the brokers end it, or the next producer does
            self._producer.poll(0)

    # --- calls ---------------------------------------------------------------------------------

    def _put(self, topic: str, value: bytes | None, key: bytes | None, **more: Any) -> None:
        produce = self._producer.produce
        while True:
            try:
                produce(topic, value, key, **more)
            except BufferError:
                self._producer.poll(SLICE_SECONDS)
                self._check()
            except KafkaException as error:
                raise self.failures.error(error.args[0]) from error
            else:
                return

    def _tried(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except KafkaException as error:
            raise self.failures.error(error.args[0]) from error

    def _insist(self, call: Callable[[float], Any], seconds: float) -> None:
        """Call again and again what may be called again after a time-out."""
        ends = time.monotonic() + seconds
        while True:
            self._check()
            try:
                call(SLICE_SECONDS)
            except KafkaException as error:
                self._producer.poll(0)  # hear why
                found = error.args[0]
                if not found.retriable() or time.monotonic() > ends:
                    raise self.failures.error(found) from error
            else:
                return

    def _check(self) -> None:
        """Raise if the producer is to end, or no broker can be reached."""
        if self._is_ending.is_set():
            raise ConnectionFailure("the sink is stopped")
        if self.failures.reason is not None:
            raise self.failures.error(self.failures.reason)
