"""Messages that libpq accepts only if they have at most 30,000 bytes never have more."""

import ast
import inspect
from collections.abc import Callable

import pytest

from foreshore.errors import DatabaseError
from foreshore.scram import Verifier
from foreshore.server import message
from foreshore.server.admission.exchange import Exchange
from foreshore.server.protocol import STARTUP_LIMIT
from foreshore.session_variables import LONGEST_REPORTED
from foreshore.sql.bind.widths import TARGETS

MOST = 30_000
LONG = frozenset(b"ADdENTV")  # types whose length libpq does not check after the login
# Of any length: they are sent to clients that have logged in, and libpq accepts them.
OF_ANY_LENGTH = {"copy_data", "notice_response", "notification_response", "row_description"}
NOT_MESSAGES = {"frame", "header", "error_pieces"}
# libpq refuses it from 7,499 parameters on, as that of PostgreSQL's server; other clients do not.
AS_IN_POSTGRESQL = {"parameter_description"}


def _longest_negotiation() -> bytes:
    names = b"".join(b"_pq_.%04d\0\0" % number for number in range(900))
    body = b"\0\3\0\0user\0u\0" + names + b"\0"
    assert STARTUP_LIMIT - 100 < len(body) <= STARTUP_LIMIT
    opening = message.parse_opening(body)
    assert isinstance(opening, message.StartupMessage)
    return message.negotiate_version(2, [*opening.parameters])


def _longest_challenge() -> bytes:
    exchange = Exchange(Verifier.of("p"), None)
    return message.authentication_sasl_continue(
        exchange.first("SCRAM-SHA-256", b"n,,n=,r=" + b"x" * 1024)
    )


LARGEST: dict[str, Callable[[], bytes]] = {
    "command_complete": lambda: message.command_complete("X" * (message.LONGEST_TAG - 1)),
    "parameter_status": lambda: message.parameter_status(
        "n" * 63, "\N{SNOWMAN}" * (LONGEST_REPORTED // 3)
    ),
    "backend_key_data": lambda: message.backend_key_data(1, b"k" * message.LONGEST_KEY),
    "negotiate_version": _longest_negotiation,
    "authentication_sasl": lambda: message.authentication_sasl(["SCRAM-SHA-256-PLUS"] * 2),
    "authentication_sasl_continue": _longest_challenge,
    "authentication_sasl_final": lambda: message.authentication_sasl_final("v=" + "x" * 44),
    "error_response": lambda: message.error_response(
        DatabaseError("\N{SNOWMAN}" * 40_000, detail="d" * 40_000, hint="h" * 40_000), fatal=True
    ),
    "copy_response": lambda: message.copy_response(b"H", 0, TARGETS),
}


def test_each_message_to_the_client_is_listed() -> None:
    source = inspect.getsource(message)
    made = source[source.index("# --- to the client") :]
    functions = {
        each.name
        for each in ast.parse(made).body
        if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")
    }
    assert functions == LARGEST.keys() | OF_ANY_LENGTH | NOT_MESSAGES | AS_IN_POSTGRESQL


@pytest.mark.parametrize("name", LARGEST)
def test_largest_message_is_accepted_by_libpq(name: str) -> None:
    assert len(LARGEST[name]()) <= MOST


def test_messages_of_any_length_are_of_types_that_libpq_accepts() -> None:
    made = (
        message.copy_data(b"x"),
        message.notice_response("NOTICE", "00000", "m", None, None),
        message.notification_response(1, "c", "p"),
        message.row_description([("a", 0, 0, 23, 4, -1, 0)]),
    )
    assert {each[0] for each in made} <= LONG


def test_challenge_to_longer_nonce_is_refused() -> None:
    with pytest.raises(DatabaseError, match="malformed"):
        Exchange(Verifier.of("p"), None).first("SCRAM-SHA-256", b"n,,n=,r=" + b"x" * 30_000)
