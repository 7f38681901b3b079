"""Topics: those that a sink needs are made if they are not there."""

import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from foreshore.errors import InsufficientPrivilege, InvalidParameterValue, UndefinedObject
from foreshore.storage.export.kafka.producer import SLICE_SECONDS
from foreshore.storage.external.access import Access
from foreshore.storage.external.kafka import ANSWER_SECONDS, configuration
from foreshore.storage.external.kafka_failures import Failures

BY_THE_BROKER = -1  # partitions or replicas as the broker has them by default


class Topics:
    """A client that looks for topics and makes them. Its calls block: for a thread."""

    def __init__(self, access: Access) -> None:
        self._failures = Failures(access)
        try:
            self._admin = AdminClient(
                configuration(access, self._failures)
                | {"log_level": 0, "error_cb": self._failures.told, "socket.timeout.ms": 10_000}
            )
        except KafkaException as error:
            raise InvalidParameterValue(
                f"the connection to Kafka is wrong: {error.args[0].str()}"
            ) from error

    def require(self, name: str) -> int:
        """Return the number of a topic's partitions.

        Raises UndefinedObject if it does not exist, or ConnectionFailure.
        """
        if not (partitions := self._partitions(name)):
            raise UndefinedObject(
                f'topic "{name}" does not exist',
                hint="Create it, or drop the sink and create it anew.",
            )
        return partitions

    def make(
        self, name: str, partitions: int | None, replicas: int | None, settings: Mapping[str, str]
    ) -> None:
        """Make a topic unless it exists; raises DatabaseError if it cannot be made."""
        if self._exists(name):
            return
        wanted = NewTopic(
            name, partitions or BY_THE_BROKER, replicas or BY_THE_BROKER, config=dict(settings)
        )
        made = self._admin.create_topics([wanted], request_timeout=ANSWER_SECONDS)
        try:
            made[name].result(ANSWER_SECONDS + 1)
        except KafkaException as error:
            found = error.args[0]
            if found.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._refused(name, found) from error
        except TimeoutError as error:
            raise self._failures.error("no answer", f'topic "{name}"') from error
        self._await(name)

    def _refused(self, name: str, error: KafkaError) -> Exception:
        match error.code():
            case KafkaError.TOPIC_AUTHORIZATION_FAILED | KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                return InsufficientPrivilege(
                    f'topic "{name}" does not exist, and the user of the connection must not'
                    f" create it: {error.str()}"
                )
            case (
                KafkaError.INVALID_PARTITIONS
                | KafkaError.INVALID_REPLICATION_FACTOR
                | KafkaError.INVALID_CONFIG
                | KafkaError.POLICY_VIOLATION
            ):
                return InvalidParameterValue(f'topic "{name}" cannot be created: {error.str()}')
        return self._failures.error(error)

    def _exists(self, name: str) -> bool:
        return self._partitions(name) > 0

    def _partitions(self, name: str) -> int:
        """Return how many partitions a topic has, 0 if it does not exist.

        Asking for all topics creates none.
        """
        ends = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                found = self._admin.list_topics(timeout=SLICE_SECONDS).topics.get(name)
                return 0 if found is None else len(found.partitions)
            except KafkaException as error:
                self._admin.poll(0)  # hear why
                if self._failures.reason is not None or time.monotonic() > ends:
                    raise self._failures.error(error.args[0]) from error

    def _await(self, name: str) -> None:
        """Wait until the brokers know a new topic."""
        ends = time.monotonic() + ANSWER_SECONDS
        while not self._exists(name):
            if time.monotonic() > ends:
                raise self._failures.error(f'topic "{name}" is not there after it was created')
            time.sleep(0.05)
