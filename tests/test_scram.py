"""Verifiers of passwords."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.scram import Verifier
from tests.effort import examples

# Passwords, and what PostgreSQL 15 keeps of them: SASLprep changes some, and refuses others.
POSTGRES = [
    (
        "secret",
        "SCRAM-SHA-256$4096:zTuOG+WDY8fTnhBU5I7OGA==$"
        "NgacHmP7FKrW+gO09h4HyFZdJveE1AIN3lE15FCMwdo=:WiGEHcaAHKFzzfctO/uEVBivZFqVTsDHi5JIWvowzSo=",
    ),
    (
        "I\u00adX\u00aa",
        "SCRAM-SHA-256$4096:PBIpTEkuJ9Fj9kDXlee5TA==$"
        "Hda5tAn2FDcrdxq7w91MH8z2CX9+EeZdHqPqUFMxpJs=:GuT2FvludPIGPd+t1Gs3ALiDo0f4duK3eRYGKkvzPuA=",
    ),
    (
        "\x01weird\u00e9",
        "SCRAM-SHA-256$4096:vnuFlYTiX5x+UgGFJeVc5Q==$"
        "jjINSUDLaOc4p9fxvXBUGAWrw/bM13B+BW8wHDDvOLU=:ts3j23tLBfzWjkYz+7yXEa7kQg8C4aMIn8o1qQzIQtM=",
    ),
    (
        "\u0627\u0031",
        "SCRAM-SHA-256$4096:K+GITZwwBHNDHkxbo1oVUA==$"
        "UYn0eRbDfp9bU31W5epQq985FMb+vIYOZf679jbhIK8=:PVdm7PqucFl7T5nYUYteV+uZY52QQkt0vPY2gDWL1Js=",
    ),
]


@pytest.mark.parametrize(("password", "text"), POSTGRES)
def test_verifier_of_postgres_verifies_password(password: str, text: str) -> None:
    verifier = Verifier.parse(text)
    assert verifier is not None
    assert str(verifier) == text
    assert verifier.verifies(password)
    assert not verifier.verifies(password + "x")
    assert str(Verifier.of(password, verifier.salt)) == text


@pytest.mark.parametrize(
    "text",
    [
        "secret",
        "SCRAM-SHA-256",
        "SCRAM-SHA-256$4096:c2FsdA==$c2FsdA==:c2FsdA==",
        "SCRAM-SHA-256$0:c2FsdA==$" + "A" * 43 + "=:" + "A" * 43 + "=",
        "SCRAM-SHA-256$4096:c2FsdA=$" + "A" * 43 + "=:" + "A" * 43 + "=",
        "md5" + "0" * 32,
    ],
)
def test_other_text_is_no_verifier(text: str) -> None:
    assert Verifier.parse(text) is None


@settings(max_examples=examples(50))
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_each_password_verifies_only_with_its_verifier(password: str) -> None:
    verifier = Verifier.of(password)
    assert Verifier.parse(str(verifier)) == verifier
    assert verifier.verifies(password)
    assert not verifier.verifies("x" + password)


def test_verifier_of_too_many_iterations_costs_the_server_nothing() -> None:
    verifier = replace(Verifier.of("secret"), iterations=999_999_999)
    assert Verifier.parse(str(verifier)) == verifier
    assert not verifier.verifies("secret")
