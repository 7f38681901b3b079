"""What tests ask of Foreshore and of PostgreSQL alike."""

import pytest

from tests.harness import Server


@pytest.fixture(scope="module", params=["foreshore", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of a Foreshore, then of a PostgreSQL."""
    if request.param == "postgres":
        found: str = request.getfixturevalue("postgres_url")
        return found
    server: Server = request.getfixturevalue("server")
    return server.url
