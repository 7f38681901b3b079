"""A producer that writes transactions, and what its errors mean."""

import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from foreshore.errors import ConnectionFailure, InvalidParameterValue
from foreshore.storage.export.kafka.messages import Messages
from foreshore.storage.external.access import Access
from foreshore.storage.external.kafka import configuration
from foreshore.storage.external.kafka_failures import TRANSACTION_SECONDS, Failures

BEGIN_SECONDS = 30.0  # for the brokers to shut out earlier producers
COMMIT_SECONDS = 30.0  # after the last message was taken
QUEUE_SECONDS = 60.0  # for room among the messages that wait, after the last one was taken
ABORT_SECONDS = 5.0
SLICE_SECONDS = 0.5  # after which it is seen that the producer is to be closed
LONGEST_MESSAGE = 512 << 20  # that is tried; the topic has a limit of its own
_NO_ANSWER = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT)
QUEUED_MESSAGES, QUEUED_KB = 100_000, 131_072  # that wait here


class _Patience:
    """Seconds to wait for the brokers, which begin anew whenever they took messages."""

    def __init__(self, producer: Producer, seconds: float) -> None:
        self._producer, self._seconds = producer, seconds
        self._fewest = len(producer)
        self._ends = time.monotonic() + seconds

    def is_over(self) -> bool:
        """Return whether the brokers have taken nothing for these seconds."""
        waiting = len(self._producer)
        if waiting < self._fewest:
            self._fewest = waiting
            self._ends = time.monotonic() + self._seconds
        return time.monotonic() > self._ends


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
                configuration(access, self.failures)
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
            self._forget_failures()
            self._tried(self._producer.begin_transaction)
            self._is_open = True

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has; raises UndefinedObject if there is none."""
        with self._used:
            self._forget_failures()
            patience = _Patience(self._producer, BEGIN_SECONDS)
            while True:
                self._check()
                try:
                    found = self._producer.list_topics(topic, SLICE_SECONDS).topics[topic]
                except KafkaException as error:
                    self._producer.poll(0)  # hear why
                    if error.args[0].code() not in _NO_ANSWER or patience.is_over():
                        raise self.failures.error(error.args[0]) from error
                else:
                    if found.error is not None:
                        raise self.failures.error(found.error, f'topic "{topic}"')
                    return len(found.partitions)

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
        produce, patience = self._producer.produce, None
        while True:
            try:
                produce(topic, value, key, **more)
            except BufferError as error:
                self._producer.poll(SLICE_SECONDS)
                self._check()
                patience = patience or _Patience(self._producer, QUEUE_SECONDS)
                if patience.is_over():
                    raise self.failures.unreachable() from error
            except KafkaException as error:
                raise self.failures.error(error.args[0]) from error
            else:
                return

    def _forget_failures(self) -> None:
        """Forget why no broker could be reached while nothing was asked."""
        self._producer.poll(0)
        self.failures.reason = None

    def _tried(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except KafkaException as error:
            raise self.failures.error(error.args[0]) from error

    def _insist(self, call: Callable[[float], Any], seconds: float) -> None:
        """Call again and again what may be called again after a time-out."""
        patience = _Patience(self._producer, seconds)
        while True:
            self._check()
            try:
                call(SLICE_SECONDS)
            except KafkaException as error:
                self._producer.poll(0)  # hear why
                found = error.args[0]
                if not found.retriable() or patience.is_over():
                    raise self.failures.error(found) from error
            else:
                return

    def _check(self) -> None:
        """Raise if the producer is to end, or no broker can be reached."""
        if self._is_ending.is_set():
            raise ConnectionFailure("the sink is stopped")
        if self.failures.reason is not None:
            raise self.failures.error(self.failures.reason)
