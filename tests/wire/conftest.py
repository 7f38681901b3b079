"""The server fixture."""

from tests.server.serving import served as served
