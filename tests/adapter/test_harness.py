"""The environments of tests send no notice that depends on how fast the machine is."""

import pytest

from foreshore.adapter.read.bound import timestamp
from foreshore.compute.flow import compilation
from tests.adapter import harness  # noqa: F401 - it sets them


@pytest.mark.parametrize("notice", ["FILLING_SECONDS", "FAR_BEHIND_MS"])
def test_answers_have_no_notice_while_kernels_are_compiled(notice: str) -> None:
    """A view that is filled by the first test of a process waits for its kernels for that long."""
    unit = 1000 if notice.endswith("_MS") else 1
    assert getattr(timestamp, notice) > 2 * compilation.MOST_SECONDS * unit
