"""The lock of a backup's or restore's directory."""

from pathlib import Path

import pytest

from foreshore.errors import ObjectNotInPrerequisiteState
from foreshore.storage.backup import _locked


def test_error_within_a_lock_is_not_taken_for_another_holder(tmp_path: Path) -> None:
    with pytest.raises(BlockingIOError), _locked(tmp_path / "place", "a backup"):
        raise BlockingIOError("of a file that would block")
    with (
        _locked(tmp_path / "place", "a backup"),
        pytest.raises(ObjectNotInPrerequisiteState, match="a backup is under way"),
        _locked(tmp_path / "place", "a backup"),
    ):
        pass
