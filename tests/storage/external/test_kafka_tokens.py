"""Tokens for Kafka are asked for by us, and what a server answers is not shown."""

import base64
import json
import time

import pytest

from foreshore.errors import DatabaseError
from tests.storage.external.test_dial import BODY, answered, recording

pytest.importorskip("confluent_kafka")

from confluent_kafka import KafkaError

from foreshore.storage.external.access import Access
from foreshore.storage.external.kafka import Client, configuration
from foreshore.storage.external.kafka_failures import Failures
from foreshore.storage.external.kafka_tokens import Tokens
from foreshore.storage.external.retries import is_lasting

ENDS = int(time.time()) + 1_000_000  # beyond what the tests before this one take


def options(port: int) -> dict[str, str]:
    return {
        "broker": "127.0.0.1:1",
        "security protocol": "sasl_plaintext",
        "sasl mechanisms": "oauthbearer",
        "sasl username": "me",
        "sasl password": "hidden",
        "scope": "topics",
        "oauth2 server url": f"http://127.0.0.1:{port}/token",
        "oauth2 extensions": "logicalCluster=lkc-1, identityPoolId=p",
    }


def jwt() -> str:
    parts = ({"alg": "none"}, {"sub": "reader", "exp": ENDS})
    encoded = [base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in parts]
    return b".".join([*encoded, b"c2lnbmVk"]).decode()


def test_a_client_gets_a_token_with_its_end_and_its_subject() -> None:
    body = json.dumps({"access_token": jwt(), "expires_in": 5}).encode()
    with recording(answered(200, body)) as (port, seen):
        token = Tokens(options(port))
        more = {"logicalCluster": "lkc-1", "identityPoolId": "p"}
        assert token("") == (jwt(), ENDS, "reader", more)
        assert len(seen) == 1, "the first is there already"
        token("")
        assert len(seen) == 2
    assert "Basic " + base64.b64encode(b"me:hidden").decode() in seen[0]
    assert seen[0].startswith("POST /token")
    assert token("")[0] == jwt(), "while the server is away the last one is kept"


def test_a_client_of_kafka_takes_it() -> None:
    body = json.dumps({"access_token": jwt()}).encode()
    with recording(answered(200, body)) as (port, seen):
        client = Client(Access("kafka", options(port)))
        with pytest.raises(DatabaseError) as raised:
            client.metadata()
        client.close()
    assert len(seen) == 1
    assert raised.value.sqlstate == "08006", raised.value
    assert "127.0.0.1:1" in raised.value.message


@pytest.mark.parametrize(
    ("status", "body", "lasts"),
    [
        *((status, BODY, True) for status in (200, 400, 401, 403, 404)),
        *((status, BODY, False) for status in (408, 429, 500, 502, 503, 504)),
        (200, b"[]", True),
        (200, b'{"a": 1}', True),
    ],
)
def test_an_answer_without_a_token_is_told_and_not_shown(
    status: int, body: bytes, lasts: bool
) -> None:
    with recording(answered(status, body)) as (port, _), pytest.raises(DatabaseError) as raised:
        Tokens(options(port))
    assert is_lasting(raised.value) == lasts
    assert raised.value.sqlstate == ("28P01" if lasts else "08006")
    assert "no token for Kafka at 127.0.0.1:1" in raised.value.message
    assert BODY.decode() not in raised.value.message


REFUSED = [
    KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED),
    "b1:9092/bootstrap: SASL authentication error: token expired (after 3ms in state AUTH_REQ)",
    "Failed to acquire SASL OAUTHBEARER token",
]


@pytest.mark.parametrize("why", REFUSED)
def test_a_token_that_ended_while_the_server_was_away_is_no_lasting_error(
    why: KafkaError | str,
) -> None:
    body = json.dumps({"access_token": jwt()}).encode()
    with recording(answered(200, body)) as (port, _):
        access = Access("kafka", options(port))
        failures = Failures(access)
        renew = configuration(access, failures)["oauth_cb"]
        renew("")
        assert is_lasting(failures.error(why)), "the broker refuses a new token"
    renew("")
    error = failures.error(why)
    assert not is_lasting(error), error
    assert "the OAuth2 server" in error.message
    with recording(answered(401, body), port=port):
        renew("")
        assert is_lasting(failures.error(why)), "the server refuses the client"
    with recording(answered(200, body), port=port):
        renew("")
        assert "the OAuth2 server" not in failures.error(why).message
