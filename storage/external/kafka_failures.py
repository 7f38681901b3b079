"""What a user is told of brokers that refuse or are away, and what helps.

A client of Kafka tells its errors one by one, in long texts: which of its connections has failed,
in which state, after which time. What is left of them here is the reason, and the address where it
is not the one that the connection names.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaError

from foreshore.errors import (
    ConnectionFailure,
    DatabaseError,
    InsufficientPrivilege,
    InvalidParameterValue,
    ObjectInUse,
    UndefinedObject,
)
from foreshore.storage.external import kafka_tunnels
from foreshore.storage.external.access import Access

_REFUSED = "28P01"
TRANSACTION_SECONDS = 600.0  # after which the brokers abort a transaction


class _Reason(NamedTuple):
    """Why no broker can be reached: words of the text, an SQLSTATE, and what helps."""

    words: tuple[str, ...]
    sqlstate: str
    hint: str


_PLAIN = "Do the brokers want TLS or a password? See SECURITY PROTOCOL and SASL of the connection."
_CERTIFICATE = (
    "Is the port the one for TLS? Do the brokers want a certificate of clients, or a password? See"
    " SECURITY PROTOCOL, SSL CERTIFICATE, SSL KEY and SASL of the connection."
)
_PASSWORD = (
    "Check SASL USERNAME, SASL PASSWORD and SASL MECHANISMS of the connection, and the value of its"
    " secret."
)
_REASONS = (  # the first of which a word is there
    _Reason(("oauthbearer token",), _REFUSED, _PASSWORD),
    _Reason(
        ("sasl authentication error", "authentication failed", "sasl handshake"),
        _REFUSED,
        _PASSWORD,
    ),
    # Before that of TLS: a host may have any name, and ApiVersion guesses.
    _Reason(("resolve",), "08001", "Check the host in BROKER of the connection."),
    _Reason(("response size", "apiversion"), ConnectionFailure.sqlstate, _PLAIN),
    _Reason(
        ("ssl", "certificate"),
        "08001",
        "Check SECURITY PROTOCOL and the certificates of the connection, and that the port is the"
        " one for TLS.",
    ),
    _Reason(
        ("connection refused", "connection setup timed out", "unreachable", "no route"),
        ConnectionFailure.sqlstate,
        "Check host and port in BROKER of the connection, and that a broker runs there.",
    ),
    _Reason(
        ("disconnected", "closed", "send failed", "receive failed", "brokers are down"),
        ConnectionFailure.sqlstate,
        _PLAIN,
    ),
)
_ELSEWHERE = _Reason((), ConnectionFailure.sqlstate, "Check that the brokers run.")
_ADVERTISED = (
    "The brokers give clients this address: change their advertised.listeners, or let this server"
    " reach it."
)
_RIGHTS = (
    "The user of the connection needs READ and DESCRIBE on topics of sources; WRITE and DESCRIBE on"
    " topics of sinks and their transactional ids; READ and WRITE on the progress topic."
)

_MEANINGS: dict[int, tuple[Callable[..., DatabaseError], str, str | None]] = {
    KafkaError._FENCED: (ObjectInUse, "another exporter writes", None),
    KafkaError.PRODUCER_FENCED: (ObjectInUse, "another exporter writes", None),
    KafkaError.INVALID_PRODUCER_EPOCH: (
        ObjectInUse,
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
            KafkaError.GROUP_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (InsufficientPrivilege, "the user of the connection lacks a right", _RIGHTS),
    ),
    **dict.fromkeys(
        (
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError._UNKNOWN_TOPIC,
            KafkaError._UNKNOWN_PARTITION,
        ),
        (UndefinedObject, "the topic does not exist", None),
    ),
    KafkaError.SASL_AUTHENTICATION_FAILED: (
        partial(DatabaseError, sqlstate=_REFUSED),
        "the brokers refuse the user of the connection",
        _PASSWORD,
    ),
    KafkaError.TOPIC_EXCEPTION: (InvalidParameterValue, "the brokers allow no such name", None),
}


class Failures:
    """Why no broker can be reached, as a client is told; `doing` is what it is for."""

    def __init__(self, access: Access, doing: str = "write to") -> None:
        self._access, self._doing = access, doing
        self.reason: str | None = None
        # Each returns why a client's token was not renewed, which brokers refuse once it has ended.
        self.of_tokens: list[Callable[[], DatabaseError | None]] = []
        self._last: str | None = None

    @property
    def _begins(self) -> str:
        return f"could not {self._doing} Kafka at {self._access.options['broker']}"

    def told(self, error: KafkaError) -> None:
        """Take an error of a client."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.reason = self._last or error.str()
        elif error.code() == KafkaError._AUTHENTICATION:
            self.reason = error.str()
        else:
            self._last = error.str()

    def error(self, why: KafkaError | str, what: str = "") -> DatabaseError:
        """Return an error of Kafka as one of ours; `what` it is about, such as a topic.

        If brokers refuse the user as its token was not renewed, that is the error: it may pass.
        """
        error = self._error(why, what)
        if error.sqlstate != _REFUSED:
            return error
        return next((failure for each in self.of_tokens if (failure := each())), error)

    def _error(self, why: KafkaError | str, what: str) -> DatabaseError:
        about = f"{what}: " if what else ""
        if isinstance(why, KafkaError):
            if (meaning := _MEANINGS.get(why.code())) is not None:
                kind, message, hint = meaning
                return kind(f"{about}{message}: {_brief(why.str())}", hint=hint)
            if why.code() > 0:  # a broker says it, so what was told of connections is not why
                return ConnectionFailure(f"{self._begins}: {about}{_brief(why.str())}")
            why = self.reason or self._last or why.str()
        return self.unreachable(why, "" if self.reason else about)

    def unreachable(self, why: str | None = None, about: str = "") -> DatabaseError:
        """Return the error that no broker can be reached: why, or what was told last."""
        where, begins = self._access.options["broker"], self._begins
        tunnel = self._access.tunnel
        failure = None if tunnel is None else kafka_tunnels.failure_of(tunnel)
        if failure is not None:
            return ConnectionFailure(f"{begins}: {failure}")
        why = why or self.reason or self._last or "no answer"
        text, elsewhere = _reason_and_place(why, where)
        lower = _brief(why).lower()  # without the protocol, which may be ssl
        reason = next((r for r in _REASONS if any(w in lower for w in r.words)), _ELSEWHERE)
        hint = self._hint(reason) if elsewhere is None or tunnel is not None else _ADVERTISED
        if elsewhere is not None and tunnel is None:
            text = f"{elsewhere}: {text}"
        return DatabaseError(f"{begins}: {about}{text}", sqlstate=reason.sqlstate, hint=hint)

    def _hint(self, reason: _Reason) -> str:
        """Return what helps; TLS is no answer where it is spoken, but a certificate may be."""
        options = self._access.options
        protocol = options.get("security protocol", "")
        speaks_tls = "ssl" in protocol or "ssl certificate authority" in options
        if reason.hint == _PLAIN and speaks_tls and "ssl certificate" not in options:
            return _CERTIFICATE
        return reason.hint


_FROM = re.compile(r"^(?:\w+://)?(?P<place>[^/\s]+)/\w+: ")
_TO = re.compile(r"Connect to ipv[46]#\S+ failed: ")
_STATE = re.compile(r" \(after \d+ms in state [^()]*(?:\(s\)[^()]*)?\)")
_NO_KAFKA = re.compile(r"Receive failed: Invalid response size .*")
_DOWN = re.compile(r"^\d+/\d+ brokers are down$")


def _reason_and_place(why: str, where: str) -> tuple[str, str | None]:
    """Return the reason in a client's text, and the broker that it is about if others are named."""
    found = _FROM.match(why)
    text = _DOWN.sub("all brokers have closed their connections", _brief(why))
    text = _NO_KAFKA.sub("the answer is none of Kafka without TLS", text)
    place = None if found is None else found["place"]
    return text, None if place is None or place in where else place


def _brief(why: str) -> str:
    """Return a client's text without the connection, its state and its age."""
    return _STATE.sub("", _TO.sub("", _FROM.sub("", why))).removeprefix("Broker: ")
