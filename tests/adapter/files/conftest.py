"""A directory for what COPY writes and reads."""

from pathlib import Path

import pytest


@pytest.fixture
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory beside the data."""
    return tmp_path_factory.mktemp("outside")
