"""File descriptors: some are set aside before connections are counted."""

import resource

import pytest

from foreshore.errors import Unavailable
from foreshore.server.descriptors import connections_that_fit


def test_connections_are_limited_by_file_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = (100, 300)

    def set_limits(what: int, to: tuple[int, int]) -> None:
        nonlocal limits
        limits = to

    monkeypatch.setattr(resource, "getrlimit", lambda what: limits)
    monkeypatch.setattr(resource, "setrlimit", set_limits)
    assert connections_that_fit(1000) == 50
    assert limits == (300, 300)
    assert connections_that_fit(20) == 20
    limits = (100, 250)
    with pytest.raises(Unavailable, match="the limit of 250 file descriptors leaves none"):
        connections_that_fit(1)
    limits = (1024, 1 << 20)
    assert connections_that_fit(1000) == 1000
