"""Connections to Kafka: the configuration of clients, and what their errors say."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, TopicMetadata

from foreshore.connection_spec import OAUTHBEARER
from foreshore.errors import InvalidParameterValue, UndefinedObject
from foreshore.storage.external import kafka_tunnels
from foreshore.storage.external.access import Access
from foreshore.storage.external.dial import check_endpoint
from foreshore.storage.external.kafka_failures import Failures

ANSWER_SECONDS = 10.0
TRY_SECONDS = 1.0  # after which a client is asked whether no broker can be reached
MOST_FETCHED_KB = 65_536  # that a client holds before they are taken
_PEM = {
    "ssl certificate authority": "ssl.ca.pem",
    "ssl certificate": "ssl.certificate.pem",
    "ssl key": "ssl.key.pem",
}


def configuration(access: Access, failures: Failures) -> dict[str, Any]:
    """Return the configuration of a client of a connection that tells `failures`. Blocks.

    Raises ConnectionFailure if its tunnel does not come, and InsufficientPrivilege if the OAuth2
    server's address is link-local.
    """
    if "oauth2 server url" in access.options:
        check_endpoint(access.options["oauth2 server url"])
    found = _configuration(access.options, failures)
    if access.tunnel is not None:
        return kafka_tunnels.through(access, access.tunnel, found)
    return found


def _configuration(options: Mapping[str, str], failures: Failures) -> dict[str, Any]:
    has_sasl = "sasl username" in options
    has_tls = any(each in options for each in _PEM)
    protocol = ("sasl_ssl" if has_tls else "sasl_plaintext") if has_sasl else "plaintext"
    if has_tls and not has_sasl:
        protocol = "ssl"
    found: dict[str, Any] = {
        "bootstrap.servers": options["broker"],
        "security.protocol": options.get("security protocol", protocol),
        "client.id": "foreshore",
    }
    if has_sasl:
        found |= _sasl(options, failures)
    found |= {name: options[each] for each, name in _PEM.items() if each in options}
    return found


def _sasl(options: Mapping[str, str], failures: Failures) -> dict[str, Any]:
    """Return how the brokers know us: by a password, or by tokens of an OAuth2 server."""
    mechanism = options.get("sasl mechanisms", "plain")
    user, password = options["sasl username"], options.get("sasl password", "")
    found = {"sasl.mechanisms": mechanism.upper()}
    if mechanism != OAUTHBEARER:
        return {**found, "sasl.username": user, "sasl.password": password}
    from foreshore.storage.external.kafka_tokens import Tokens  # only these need httpx

    tokens = Tokens(options)
    failures.of_tokens.append(lambda: tokens.failure)
    return {**found, "oauth_cb": tokens}


class Client:
    """A consumer, and the last error that it was told. Its calls block: for a thread."""

    def __init__(self, access: Access, group: str = "foreshore") -> None:
        self._broker = access.options["broker"]
        self.failures = Failures(access, "read from")
        self._access = access
        self._admin: AdminClient | None = None
        try:
            self.consumer = Consumer(
                configuration(access, self.failures)
                | {
                    "group.id": group,
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "error",
                    "enable.partition.eof": True,
                    "isolation.level": "read_committed",
                    "queued.max.messages.kbytes": MOST_FETCHED_KB,
                    "queued.min.messages": 1_000_000,
                    "fetch.wait.max.ms": 100,
                    "fetch.max.bytes": 16_777_216,
                    "reconnect.backoff.max.ms": 2_000,
                    "log_level": 0,
                    "error_cb": self.failures.told,
                }
            )
        except KafkaException as error:
            raise InvalidParameterValue(
                f"the connection to Kafka is wrong: {error.args[0].str()}"
            ) from error

    def metadata(self, topic: str | None = None) -> ClusterMetadata:
        """Return what the brokers say of a topic or of all; raises DatabaseError."""
        ends = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                if topic is None:
                    return self.consumer.list_topics(timeout=TRY_SECONDS)
                return self.consumer.list_topics(topic, timeout=TRY_SECONDS)
            except KafkaException as error:
                self.consumer.poll(0)  # hear why
                if self.failures.reason is not None or time.monotonic() > ends:
                    raise self.failures.error(error.args[0]) from error

    def topic(self, name: str) -> TopicMetadata:
        """Return what the brokers say of a topic; raises UndefinedObject, DatabaseError."""
        found: TopicMetadata = self.metadata(name).topics[name]
        if found.error is not None:
            if found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise self._missing(name)
            raise self.failures.error(found.error, f'topic "{name}"')
        return found

    def topic_id(self, name: str) -> str | None:
        """Return what tells a topic from a later one of its name; None if the brokers have no ids.

        Raises as `topic` does.
        """
        known = self.metadata(name)
        if known.controller_id not in known.brokers:
            return None  # nobody could say
        if self._admin is None:
            self._admin = AdminClient(configuration(self._access, self.failures) | {"log_level": 0})
        asked = self._admin.describe_topics(TopicCollection([name]), request_timeout=ANSWER_SECONDS)
        try:
            found = asked[name].result(ANSWER_SECONDS + TRY_SECONDS).topic_id
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise self._missing(name) from error
            if code == KafkaError._UNSUPPORTED_FEATURE:
                return None
            raise self.failures.error(error.args[0], f'topic "{name}"') from error
        except TimeoutError as error:
            raise self.failures.error("no answer", f'topic "{name}"') from error
        is_given = found.get_most_significant_bits() or found.get_least_significant_bits()
        return str(found) if is_given else None

    def _missing(self, name: str) -> UndefinedObject:
        return UndefinedObject(
            f'topic "{name}" does not exist at {self._broker}',
            hint="Check its name, or create it.",
        )

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the offsets of the first message that is there, and of the next one to come."""
        try:
            found: tuple[int, int] = self.consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=ANSWER_SECONDS
            )
        except KafkaException as error:
            raise self.failures.error(error.args[0]) from error
        return found

    def close(self) -> None:
        """Leave the brokers."""
        self.consumer.close()


async def validate(access: Access) -> None:
    """Reach a broker; raises DatabaseError."""

    def reach() -> None:
        client = Client(access)
        try:
            client.metadata()
        finally:
            client.close()

    await asyncio.to_thread(reach)
