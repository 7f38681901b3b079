"""What a user is told of the long texts of a client of Kafka."""

import pytest
from confluent_kafka import KafkaError

from foreshore.storage.external.access import Access
from foreshore.storage.external.kafka_failures import Failures

ACCESS = Access("kafka", {"broker": "b1:9092,b2:9092"})
BEGINS = "could not read from Kafka at b1:9092,b2:9092: "


@pytest.mark.parametrize(
    ("told", "message", "sqlstate", "hint"),
    [
        (
            "b1:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused (after 0ms"
            " in state CONNECT)",
            "Connection refused",
            "08006",
            "that a broker runs there",
        ),
        (
            "b1:9092/bootstrap: Failed to resolve 'b1:9092': Name or service not known (after 2ms in"
            " state CONNECT, 3 identical error(s) suppressed)",
            "Failed to resolve 'b1:9092': Name or service not known",
            "08001",
            "Check the host in BROKER",
        ),
        (
            "sasl_ssl://b1:9092/bootstrap: SASL authentication error: Authentication failed (after"
            " 301ms in state AUTH_REQ)",
            "SASL authentication error: Authentication failed",
            "28P01",
            "Check SASL USERNAME",
        ),
        (
            "ssl://b1:9092/bootstrap: SSL handshake failed: certificate verify failed (after 5ms in"
            " state SSL_HANDSHAKE)",
            "SSL handshake failed: certificate verify failed",
            "08001",
            "Check SECURITY PROTOCOL",
        ),
        (
            "b1:9092/bootstrap: Disconnected while requesting ApiVersion: might be caused by"
            " incorrect security.protocol configuration (connecting to a SSL listener?) or broker"
            " version is < 0.10 (see api.version.request) (after 7ms in state APIVERSION_QUERY)",
            "Disconnected while requesting ApiVersion: might be caused by incorrect"
            " security.protocol configuration (connecting to a SSL listener?) or broker version is"
            " < 0.10 (see api.version.request)",
            "08006",
            "TLS or a password",
        ),
        (
            "b1:9092/bootstrap: Receive failed: Invalid response size 1157627904 (0..100000000):"
            " increase receive.message.max.bytes (after 0ms in state APIVERSION_QUERY)",
            "the answer is none of Kafka without TLS",
            "08006",
            "TLS or a password",
        ),
        (
            "sasl_ssl://b1:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused"
            " (after 0ms in state CONNECT)",
            "Connection refused",
            "08006",
            "that a broker runs there",
        ),
        (
            "ssl://b1:9092/bootstrap: Failed to resolve 'ssl.example:9092': Name or service not"
            " known (after 2ms in state CONNECT)",
            "Failed to resolve 'ssl.example:9092': Name or service not known",
            "08001",
            "Check the host in BROKER",
        ),
        (
            "2/2 brokers are down",
            "all brokers have closed their connections",
            "08006",
            "TLS or a password",
        ),
        (
            "inner:9092/3: Connect to ipv4#10.1.1.1:9092 failed: Connection refused (after 1ms in"
            " state CONNECT)",
            "inner:9092: Connection refused",
            "08006",
            "advertised.listeners",
        ),
    ],
)
def test_reason_and_what_helps_are_told(told: str, message: str, sqlstate: str, hint: str) -> None:
    failures = Failures(ACCESS, "read from")
    failures.told(KafkaError(KafkaError._TRANSPORT, told))
    failures.told(KafkaError(KafkaError._ALL_BROKERS_DOWN, "2/2 brokers are down"))
    error = failures.error(KafkaError(KafkaError._TRANSPORT, "Failed to get metadata"))
    assert (error.message, error.sqlstate) == (f"{BEGINS}{message}", sqlstate)
    assert hint in (error.hint or "")


@pytest.mark.parametrize(
    ("code", "sqlstate", "message"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "42501", "lacks a right: Topic authorization"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "42704", "the topic does not exist"),
        (KafkaError.SASL_AUTHENTICATION_FAILED, "28P01", "the brokers refuse the user"),
        (KafkaError.TOPIC_EXCEPTION, "22023", "the brokers allow no such name"),
    ],
)
def test_error_of_the_brokers_has_its_own_state(code: int, sqlstate: str, message: str) -> None:
    error = Failures(ACCESS).error(KafkaError(code), 'topic "t"')
    assert error.message.startswith('topic "t": ')
    assert message in error.message
    assert error.sqlstate == sqlstate


def test_what_a_failure_is_about_stands_before_its_reason() -> None:
    failures = Failures(ACCESS)
    away = "ssl://b1:9092/3: Connect to ipv4#10.0.0.1:9092 failed: Connection refused"
    failures.told(KafkaError(KafkaError._TRANSPORT, away))
    error = failures.error(KafkaError(KafkaError._TIMED_OUT), 'topic "t"')
    assert error.message.endswith('9092: topic "t": Connection refused')
    assert error.sqlstate == "08006"


def test_what_a_broker_says_is_told_though_another_was_away() -> None:
    failures = Failures(ACCESS)
    away = "b2:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused"
    failures.told(KafkaError(KafkaError._TRANSPORT, away))
    error = failures.error(KafkaError(KafkaError.POLICY_VIOLATION), 'topic "t"')
    begins = "could not write to Kafka at b1:9092,b2:9092"
    assert error.message == f'{begins}: topic "t": Policy violation'
    assert error.hint is None


def test_reason_of_no_answer_is_what_was_told_last() -> None:
    failures = Failures(ACCESS)
    assert "no answer" in failures.unreachable().message
    failures.told(KafkaError(KafkaError._TRANSPORT, "b1:9092/bootstrap: x (after 1ms in state UP)"))
    assert failures.unreachable().message == "could not write to Kafka at b1:9092,b2:9092: x"
